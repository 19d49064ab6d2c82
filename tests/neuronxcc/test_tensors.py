"""Making, loading and storing tensors in the older ``nki.language``, its constants and helpers."""

import ml_dtypes
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
import pytest
from neuronxcc.nki.language.constants import sizeinbytes

from isa.faults import ConstraintFault, OutOfBoundsFault

A = np.arange(32 * 12, dtype=np.float32).reshape(32, 12)


def tile(values, dtype=None):
    return nl.load(nl.shared_constant(np.ascontiguousarray(values)), dtype=dtype)


def test_made_tensors(core):
    np.testing.assert_array_equal(nl.zeros((8, 4), dtype=np.float32).numpy(), np.zeros((8, 4)))
    np.testing.assert_array_equal(nl.ones([nl.par_dim(8), 4], dtype=nl.int32).numpy(), np.ones((8, 4)))
    np.testing.assert_array_equal(nl.full((8, 4), 2.5, dtype=nl.bfloat16, buffer=nl.sbuf).numpy(), np.full((8, 4), 2.5))
    x = tile(A)
    assert (nl.empty_like(x).shape, nl.empty_like(x, dtype=nl.float16).dtype) == ((32, 12), nl.float16)
    np.testing.assert_array_equal(nl.zeros_like(x, dtype=np.int32).numpy(), np.zeros_like(A))
    assert nl.ndarray((8,), dtype=nl.float32).shape == (8, 1)
    for buffer in (nl.hbm, nl.private_hbm, nl.shared_hbm):
        assert nl.ndarray((3, nl.par_dim(200), 4), dtype=nl.float32, buffer=buffer).shape == (3, 200, 4)
    assert nl.ndarray((8, 4), dtype=nl.float32, buffer=nl.psum, name="n").buffer == nl.psum
    with pytest.raises(ConstraintFault, match=r"2 nl\.par_dim"):
        nl.ndarray((nl.par_dim(8), nl.par_dim(4)), dtype=nl.float32)
    with pytest.raises(ConstraintFault, match="no such tile"):
        nl.ndarray((200, 4), dtype=nl.float32)


def test_load_and_store(core):
    source = nl.shared_constant(A)
    np.testing.assert_array_equal(nl.load(source, dtype=nl.bfloat16).numpy(), A.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(nl.load(source[:, 3]).numpy(), A[:, 3:4])
    np.testing.assert_array_equal(nl.load_transpose2d(source).numpy(), A.T)
    assert nl.load_transpose2d(source, dtype=nl.bfloat16).dtype == nl.bfloat16
    out = nl.ndarray((32, 12), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, value=tile(A))
    nl.store(out[0:16, 0:3], 7)
    nl.store(out[:, 11], tile(A[:, 0].copy()))
    nl.store(out[16:17, 0:12], nisa.nc_transpose(tile(A[:, 0:1].copy()))[:, 0:12])  # from PSUM by way of SBUF
    expected = A.copy()
    expected[:16, :3] = 7
    expected[:, 11] = A[:, 0]
    expected[16] = A[:12, 0]
    np.testing.assert_array_equal(nl.load(out).numpy(), expected)
    with pytest.raises(ConstraintFault, match="destination of shape"):
        nl.store(out, tile(A[:, :5]))
    with pytest.raises(ConstraintFault, match="HBM"):
        out[...] = 3


def test_load_into_psum(core):
    bank = nl.ndarray((32, 12), dtype=nl.float32, buffer=nl.psum)
    bank[...] = nl.load(nl.shared_constant(A))
    np.testing.assert_array_equal(bank.numpy(), A)


def test_single_elements_at_any_partition(core):
    x = nl.zeros((32, 4), dtype=nl.uint32)
    for i in nl.static_range(32):
        x[i, 1] = i
    x[5:9, 2:3] = x[1:5, 1:2]
    expected = np.zeros((32, 4))
    expected[:, 1] = np.arange(32)
    expected[5:9, 2] = np.arange(1, 5)
    np.testing.assert_array_equal(x.numpy(), expected)


def test_copies_and_views(core):
    x = tile(A)
    np.testing.assert_array_equal(nl.copy(x, dtype=nl.int32).numpy(), A.astype(np.int32))
    np.testing.assert_array_equal(nl.copy(nl.shared_constant(A)).numpy(), A)
    np.testing.assert_array_equal(nl.broadcast_to(x[0:1], shape=(20, 12)).numpy(), np.repeat(A[:1], 20, 0))
    np.testing.assert_array_equal(nl.expand_dims(x, 1).numpy(), A[:, None])
    np.testing.assert_array_equal(x[nl.ds(4, 8), nl.ds(2, 3)].numpy(), A[4:12, 2:5])
    indices = tile(np.array([[0, 11, 5]] * 32, np.uint32))
    np.testing.assert_array_equal(nl.gather_flattened(data=x, indices=indices).numpy(), A[:, [0, 11, 5]])


def test_constants_of_the_host(core, tmp_path):
    np.testing.assert_array_equal(nl.load(nl.shared_identity_matrix(8, dtype=nl.float32)).numpy(), np.eye(8))
    np.testing.assert_array_equal(nl.load(nl.shared_constant(np.identity(4), dtype=nl.bfloat16)).numpy(), np.eye(4))
    np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(nl.load(nl.shared_constant(tmp_path / "a.npy")).numpy(), np.arange(6).reshape(2, 3))


def test_random_numbers(core):
    nl.random_seed(3)
    first = nl.rand((64, 32)).numpy()
    nl.random_seed(3)
    np.testing.assert_array_equal(nl.rand((64, 32), dtype=nl.float32).numpy(), first)
    assert 0 <= first.min() < 0.05 < 0.95 < first.max() < 1


def test_device_print(core, capsys):
    nl.device_print("x =", tile(np.full((2, 2), 3, np.float32)))
    assert "x = [[3. 3.]" in capsys.readouterr().out


def test_host_helpers():
    assert nl.static_cast(np.ones(3), nl.bfloat16).dtype == ml_dtypes.bfloat16
    assert nl.fp32.min == np.finfo(np.float32).min
    assert float(nl.bfp16.min) == float(ml_dtypes.finfo(ml_dtypes.bfloat16).min)
    assert (sizeinbytes(nl.bfloat16), nl.constants.sizeinbytes(np.float32)) == (2, 4)
    assert nt.tensor[128, 512] is not nt.tensor
    assert nt.mutable_tensor is not nt.tensor


@pytest.mark.parametrize(
    "name",
    ["bool_", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32", "bfloat16", "tfloat32",
     "float8_e4m3", "float8_e5m2"],
)  # fmt: skip
def test_dtypes(core, name):
    dtype = getattr(nl, name)
    made = nl.ones((4, 2), dtype=dtype)
    assert made.dtype == dtype
    np.testing.assert_array_equal(nl.copy(made, dtype=nl.float32).numpy(), np.ones((4, 2)))


def test_tile_size(core):
    assert (nl.tile_size.pmax, nl.tile_size.psum_fmax, nl.tile_size.bn_stats_fmax) == (128, 512, 512)
    assert (nl.tile_size.gemm_stationary_fmax, nl.tile_size.gemm_moving_fmax) == (128, 512)
    assert (nl.tile_size.psum_min_align, nl.tile_size.sbuf_min_align) == (4, 1)
    assert nl.tile_size.total_available_sbuf_size == 224 * 1024


def test_atomic_rmw(core):
    target = nl.ndarray((32, 12), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(target, tile(A))
    nl.atomic_rmw(target, tile(2 * A), np.add)
    np.testing.assert_array_equal(nl.load(target).numpy(), 3 * A)


def test_rows_beyond_the_tensor(core):
    rows = tile(np.array([[3], [40]], np.int32))
    with pytest.raises(OutOfBoundsFault, match="40") as refused:
        nl.load(nl.shared_constant(A)[rows, nl.arange(12)[None, :]]).settle()
    assert refused.value.element == (40 * 12, 32 * 12)
