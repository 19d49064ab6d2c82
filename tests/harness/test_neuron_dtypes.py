"""Casts and packed arrays on the host."""

import ml_dtypes
import numpy as np
import pytest

from isa import dtypes
from trn_sim.harness import neuron_dtypes as dt

VALUES = np.array([[0.0, 0.5, -1.0, 1.5, 2.0, 3.0, -4.0, 6.0]], np.float32)  # all of them exact in every packed format
PACKED = (dt.float8_e5m2_x4, dt.float8_e4m3fn_x4, dt.float4_e2m1fn_x4)


@pytest.mark.parametrize("kind", [np.float32, "bfloat16", dtypes.float16, ml_dtypes.float8_e4m3, np.int32, np.float64])
def test_static_cast_rounds_as_numpy(kind):
    values = np.array([[1.0, 2.5, -3.75]])
    wanted = np.dtype(kind.numpy if isinstance(kind, dtypes.DType) else kind)
    cast = dt.static_cast(values, kind)
    assert cast.dtype == wanted
    np.testing.assert_array_equal(cast, values.astype(wanted))


@pytest.mark.parametrize("kind", PACKED)
def test_packed_there_and_back(kind):
    packed = dt.static_cast(VALUES, kind)
    assert packed.shape == (1, 2)
    assert packed.dtype == kind
    assert str(packed.dtype) == str(kind)
    assert packed.itemsize == kind.itemsize == dt.sizeinbytes(kind)
    np.testing.assert_array_equal(dt.static_cast(packed, np.float32), VALUES)


def test_the_first_number_is_in_the_lowest_bits():
    packed = dt.static_cast(VALUES, dt.float8_e4m3fn_x4)
    codes = VALUES.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    np.testing.assert_array_equal(packed.view(np.uint32), codes.view("<u4"))
    nibbles = dt.static_cast(VALUES, dt.float4_e2m1fn_x4).view(np.uint16)
    assert nibbles[0, 0] == 0x0 | 0x1 << 4 | 0xA << 8 | 0x3 << 12  # 0, 0.5, -1, 1.5


def test_the_format_stays_with_slices_and_shapes_but_not_with_views_of_bits():
    packed = dt.static_cast(np.tile(VALUES, (4, 1)), dt.float8_e5m2_x4)
    assert packed[1:3].dtype == dt.float8_e5m2_x4
    assert packed.reshape(2, 4).dtype == dt.float8_e5m2_x4
    assert packed.copy().dtype == dt.float8_e5m2_x4
    assert packed.view(np.uint32).dtype == np.uint32
    assert packed.view(np.uint8).shape == (4, 8)


def test_numbers_of_a_packed_array_need_static_cast():
    packed = dt.static_cast(VALUES, dt.float8_e5m2_x4)
    with pytest.raises(TypeError, match="static_cast"):
        packed.astype(np.float32)
    with pytest.raises(TypeError, match="float32 first"):
        dt.static_cast(packed, dt.float8_e4m3fn_x4)
    with pytest.raises(ValueError, match="multiple of 4"):
        dt.static_cast(VALUES[:, :3], dt.float8_e5m2_x4)


@pytest.mark.parametrize(
    ("kind", "is_float"),
    [(np.float32, True), (ml_dtypes.bfloat16, True), ("float8_e5m2", True), (np.int32, False), (np.uint8, False)]
    + [(kind, True) for kind in PACKED],
)
def test_is_float_type(kind, is_float):
    assert dt.is_float_type(kind) is is_float


def test_finfo_has_the_numpy_dtype():
    assert dt.finfo(dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    assert dt.finfo(np.float32).max == np.finfo(np.float32).max


@pytest.fixture
def registered():
    dt.register()
    yield
    for kind in PACKED:
        del np.sctypeDict[str(kind)]


@pytest.mark.parametrize("kind", PACKED)
def test_numpy_makes_packed_arrays_of_a_packed_dtype(registered, kind):
    """What a test suite fills by hand; kernels see the format."""
    packed = dt.static_cast(VALUES, kind)
    made = np.zeros((3, 2), dtype=packed.dtype)
    assert str(kind) in str(made.dtype)
    made[:1] = packed
    for same in (made[:1], made[:1].copy(), made.T.copy().T[:1], np.concatenate([made, made])[3:4]):
        assert dtypes.dtype(same.dtype) is kind
        np.testing.assert_array_equal(dt.static_cast(same, np.float32), VALUES)
    np.testing.assert_array_equal(made[:1].view(kind.storage), packed.view(kind.storage))
