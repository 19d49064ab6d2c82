"""Formats against ml_dtypes, numpy and facts of round-to-nearest-even; one body for every implementation."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa import dtypes
from isa.dtypes import DType, decode, dtype, encode, encode_int, pack_x4, round_to, to_float, unpack_x4

EIGHT_BITS = [dtypes.float8_e4m3, dtypes.float8_e4m3fn, dtypes.float8_e5m2, dtypes.float8_e3m4]
SMALL_FLOATS = [*EIGHT_BITS, dtypes.bfloat16, dtypes.float16]
INTEGERS = [dt for dt in dtypes.ALL if dt.is_integer]
PACKED = [dtypes.float8_e5m2_x4, dtypes.float8_e4m3fn_x4, dtypes.float4_e2m1fn_x4]

Encoder = Callable[[np.ndarray, DType], np.ndarray]


def in_slices(values: np.ndarray, dt: DType) -> np.ndarray:
    """`encode` as small tiles see it."""
    return np.concatenate([encode(values[i : i + 1000], dt) for i in range(0, len(values), 1000)])


float_encoders = pytest.mark.parametrize(
    "encoder",
    [dtypes._encode_reference, dtypes._encode_compiled, encode, in_slices],
    ids=["reference", "compiled", "large", "small"],
)
integer_encoders = pytest.mark.parametrize(
    "encoder", [dtypes._encode_compiled, encode, in_slices], ids=["compiled", "large", "small"]
)


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def all_codes(dt: DType) -> np.ndarray:
    return np.arange(1 << dt.itemsize_bits, dtype=f"u{dt.itemsize}").view(dt.storage)


def unsigned(bits: np.ndarray) -> np.ndarray:
    return bits.view(f"u{bits.dtype.itemsize}")


def their_cast(values: np.ndarray, to: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(to)


@cache
def patterns() -> np.ndarray:
    """float32 numbers that decide a rounding: every float16 and bfloat16, the midpoints between neighbours of every
    format with their neighbours, and random bits; all NaN payloads and subnormals are likely in the last."""
    codes = np.arange(65536, dtype=np.uint16)
    parts = [their_cast(codes.view(kind), np.float32) for kind in (np.float16, ml_dtypes.bfloat16)]
    for dt in SMALL_FLOATS:
        exact = their_cast(all_codes(dt).view(dt.numpy), np.float64)
        exact = np.unique(exact[np.isfinite(exact)])
        steps = np.diff(exact)
        with np.errstate(all="ignore"):  # bfloat16's last midpoint is beyond some neighbours of float32
            middle = np.concatenate((exact[:-1] + steps / 2, [exact[0] - steps[0] / 2, exact[-1] + steps[-1] / 2]))
            middle = middle.astype(np.float32)
            parts += [middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))]
    rng = np.random.default_rng(20)
    parts.append(rng.integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32))
    special = [0, 1, 0x7F800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF, 0x7F7FFFFF, 0x007FFFFF, 0x00800000]
    parts.append(np.array(special + [0x80000000 | bits for bits in special], np.uint32).view(np.float32))
    return np.concatenate(parts)


# --- float rounding ---------------------------------------------------------------------------------


@float_encoders
@pytest.mark.parametrize("dt", SMALL_FLOATS)
def test_encode_rounds_as_ml_dtypes(encoder: Encoder, dt: DType) -> None:
    values = patterns()
    expected = unsigned(their_cast(values, dt.numpy))
    if dt == "float16":  # numpy keeps a part of the payload; we promise the quiet NaN
        expected = np.where(np.isnan(values), np.where(np.signbit(values), 0xFE00, 0x7E00), expected)
    bits = encoder(values, dt)
    assert bits.dtype == dt.storage
    np.testing.assert_array_equal(unsigned(bits), expected)


@float_encoders
def test_encode_tfloat32(encoder: Encoder) -> None:
    values = patterns()
    bits = encoder(values, dtypes.tfloat32)
    assert bits.dtype == np.float32
    nan = np.isnan(values)
    signed_nan = np.where(np.signbit(values), 0xFFC00000, 0x7FC00000)
    np.testing.assert_array_equal(bits.view(np.uint32)[nan], signed_nan[nan])
    # float16 has as many mantissa bits: scaled into its normal range, a number rounds alike.  Subnormals are multiples
    # of 2**-136.
    numbers = values[~nan].astype(np.float64)
    fraction, exponent = np.frexp(numbers)
    expected = np.ldexp(fraction.astype(np.float16).astype(np.float64), exponent)
    subnormal = np.abs(numbers) < 2.0**-126
    expected[subnormal] = np.rint(numbers[subnormal] * 2.0**136) * 2.0**-136
    expected[np.abs(expected) >= 2.0**128] *= np.inf
    np.testing.assert_array_equal(bits[~nan], expected)
    np.testing.assert_array_equal(np.signbit(bits), np.signbit(values))


FACTS = [
    ("bfloat16", 1 + 2**-8, 1.0),  # a tie, to the even neighbour
    ("bfloat16", 1 + 3 * 2**-8, 1 + 2**-6),
    ("bfloat16", float(np.finfo(np.float32).min), -math.inf),
    ("tfloat32", 1 + 2**-11, 1.0),
    ("tfloat32", 1 + 3 * 2**-11, 1 + 2**-9),
    ("tfloat32", float(np.finfo(np.float32).max), math.inf),
    ("float16", 65519.99609375, 65504.0),
    ("float16", 65520.0, math.inf),
    ("float16", 2**-25, 0.0),  # half of the smallest subnormal
    ("float16", 3 * 2**-25, 2**-23),
    ("float8_e4m3", 240.0, 240.0),
    ("float8_e4m3", 247.99, 240.0),
    ("float8_e4m3", 248.0, math.inf),
    ("float8_e4m3", -(2**-9), -(2**-9)),
    ("float8_e4m3", 2**-10, 0.0),
    ("float8_e4m3fn", 448.0, 448.0),
    ("float8_e4m3fn", 464.0, 448.0),
    ("float8_e4m3fn", 464.01, math.nan),
    ("float8_e4m3fn", math.inf, math.nan),
    ("float8_e5m2", 57344.0, 57344.0),
    ("float8_e5m2", 61439.0, 57344.0),
    ("float8_e5m2", 61440.0, math.inf),
    ("float8_e3m4", 15.5, 15.5),
    ("float8_e3m4", 15.75, math.inf),
    ("float8_e3m4", 1.03125, 1.0),
]


@float_encoders
@pytest.mark.parametrize(("name", "value", "expected"), FACTS)
def test_encode_facts(encoder: Encoder, name: str, value: float, expected: float) -> None:
    dt = dtype(name)
    values = np.full(dtypes.COMPILED_FROM, value, np.float32)
    np.testing.assert_array_equal(to_float(encoder(values, dt), dt), np.float32(expected))


@given(st.floats(width=32), st.floats(width=32), st.sampled_from([*SMALL_FLOATS, dtypes.tfloat32]))
def test_rounding_is_monotonic_and_done_once(x: float, y: float, dt: DType) -> None:
    once = round_to(np.array([x, y], np.float32), dt)
    np.testing.assert_array_equal(round_to(once, dt), once)
    if not np.isnan(once).any():
        assert (once[0] <= once[1]) or x > y


def test_scale_rounds_to_powers_of_two() -> None:
    values = np.array([1, 2, 0.5, 2.0**127, 2.0**-127, 1.49, 1.5, 3, 0, -0.0, -1, np.nan, np.inf], np.float32)
    expected = [127, 128, 126, 254, 0, 127, 128, 129, 255, 255, 255, 255, 255]
    assert encode(values, dtypes.float8_e8m0fnu).tolist() == expected
    positive = np.abs(patterns())
    np.testing.assert_array_equal(
        encode(positive, dtypes.float8_e8m0fnu), their_cast(positive, ml_dtypes.float8_e8m0fnu).view(np.uint8)
    )


# --- widening ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("repeat", [1, 16], ids=["small", "large"])
@pytest.mark.parametrize("dt", [dt for dt in dtypes.ALL if dt.itemsize <= 2 and dt.packed == 1])
def test_decode_every_code(dt: DType, repeat: int) -> None:
    codes = np.tile(all_codes(dt), repeat)
    if dt == "bool":
        codes &= 1
    expected = their_cast(codes.view(dt.numpy), np.float32)
    values = to_float(codes, dt)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(np.signbit(values), np.signbit(expected))


@pytest.mark.parametrize("dt", SMALL_FLOATS)
def test_every_number_survives_a_round_trip(dt: DType) -> None:
    codes = all_codes(dt)
    numbers = codes[~np.isnan(decode(codes, dt))]
    np.testing.assert_array_equal(unsigned(encode(decode(numbers, dt), dt)), unsigned(numbers))


@pytest.mark.parametrize("columns", [3, 300], ids=["small", "large"])
@pytest.mark.parametrize("dt", [*SMALL_FLOATS, dtypes.float8_e8m0fnu])
def test_decode_takes_any_strides(dt: DType, columns: int) -> None:
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 100, (20, 2 * columns), f"u{dt.itemsize}").view(dt.storage)
    for view in (raw[:, :columns], raw[::-2, ::2], raw.T, np.broadcast_to(raw[:1], raw.shape)):
        values = decode(view, dt)
        assert values.flags.c_contiguous
        assert values.flags.writeable
        assert not np.shares_memory(values, raw)
        np.testing.assert_array_equal(values, view.view(dt.numpy).astype(np.float32))


def test_decode_leaves_what_needs_no_widening() -> None:
    floats = np.arange(12, dtype=np.float32).reshape(3, 4).T
    assert decode(floats, dtypes.float32) is floats
    assert to_float(floats, dtypes.tfloat32) is floats
    integers = np.arange(4, dtype=np.int16)
    assert decode(integers, dtypes.int16) is integers
    assert decode(np.ones(2, np.uint8), dtypes.bool_).dtype == np.uint8


def test_large_integers_lose_bits_in_float32() -> None:
    bits = np.array([2**24, 2**24 + 1, 2**24 + 3, 2**31 - 1, -(2**31)], np.int32)
    assert to_float(bits, dtypes.int32).tolist() == [2**24, 2**24, 2**24 + 4, 2**31, -(2**31)]
    assert to_float(np.array([2**32 - 1], np.uint32), dtypes.uint32).tolist() == [2**32]


# --- integers and bool ------------------------------------------------------------------------------


@integer_encoders
@pytest.mark.parametrize("dt", INTEGERS)
def test_float_to_integer(encoder: Encoder, dt: DType) -> None:
    limits = np.iinfo(dt.numpy)
    low, high = int(limits.min), int(limits.max)
    table = {
        0.5: 0, 1.5: 2, 2.5: 2, 2.49: 2, 3.5: 4, -0.0: 0, 126.5: 126, 99.99: 100, 1e-40: 0,
        1e30: high, math.inf: high, -1e30: low, -math.inf: low, math.nan: 0,
        float(high) * 1.25: high, float(low) * 1.25: low,
        -1.5: max(low, -2), -2.5: max(low, -2), -0.5: 0,
    }  # fmt: skip
    values = np.tile(np.array(list(table), np.float32), 150)
    bits = encoder(values, dt)
    assert bits.dtype == dt.storage
    assert bits.tolist() == list(table.values()) * 150


@integer_encoders
@pytest.mark.parametrize("dt", INTEGERS)
def test_float_to_integer_on_patterns(encoder: Encoder, dt: DType) -> None:
    values = patterns()
    limits = np.iinfo(dt.numpy)
    clipped = np.clip(np.nan_to_num(their_cast(values, np.float64), nan=0.0), limits.min, limits.max)
    np.testing.assert_array_equal(encoder(values, dt), np.rint(clipped).astype(np.int64))


def test_largest_float_below_the_limit_is_kept() -> None:
    below = np.nextafter(np.float32(2**31), np.float32(0))
    assert encode(np.array([below, 2.0**31], np.float32), dtypes.int32).tolist() == [2**31 - 128, 2**31 - 1]
    below = np.nextafter(np.float32(2**32), np.float32(0))
    assert encode(np.array([below, 2.0**32], np.float32), dtypes.uint32).tolist() == [2**32 - 256, 2**32 - 1]


@pytest.mark.parametrize("count", [1, 1000])
def test_float_to_bool(count: int) -> None:
    values = np.array([0, -0.0, 1, -3, 1e-45, np.inf, np.nan] * count, np.float32)
    bits = encode(values, dtypes.bool_)
    assert bits.dtype == np.uint8
    assert bits.tolist() == [0, 0, 1, 1, 1, 1, 1] * count
    assert dtypes.to_numpy(bits, dtypes.bool_).dtype == bool


def test_integers_of_the_same_dtype_keep_every_bit() -> None:
    bits = np.array([2**24 + 1, -7], np.int32)
    assert encode(bits, dtypes.int32) is bits


def test_integers_of_another_dtype_go_through_float32() -> None:
    assert encode(np.array([2**24 + 1], np.int64), dtypes.int32).tolist() == [2**24]
    assert encode(np.array([300, -300, 5], np.int32), dtypes.int8).tolist() == [127, -128, 5]
    assert encode(np.array([0, 2], np.uint8), dtypes.bool_).tolist() == [0, 1]
    assert encode(np.array([True, False]), dtypes.bfloat16).tolist() == [0x3F80, 0]
    # Through float32 this is two roundings: to 2**24 + 2**17 first, a tie, which then goes to even.
    assert to_float(encode(np.array([2**24 + 2**16 + 1], np.int32), dtypes.bfloat16), dtypes.bfloat16)[0] == 2**24


def test_encode_int_wraps() -> None:
    values = np.array([2**31, -(2**31) - 1, 2**32 + 5, 2**24 + 1], np.int64)
    assert encode_int(values, dtypes.int32).tolist() == [-(2**31), 2**31 - 1, 5, 2**24 + 1]
    assert encode_int(values, dtypes.uint8).tolist() == [0, 255, 5, 1]


def test_encode_int_takes_integers_only() -> None:
    with pytest.raises(TypeError, match="not float32 to int32"):
        encode_int(np.ones(1, np.float32), dtypes.int32)
    with pytest.raises(TypeError, match="not int64 to float16"):
        encode_int(np.ones(1, np.int64), dtypes.float16)


# --- arrays of any kind -----------------------------------------------------------------------------


@pytest.mark.parametrize("dt", [dt for dt in dtypes.ALL if dt.packed == 1])
def test_encode_keeps_shape_and_takes_any_array(dt: DType) -> None:
    values = np.random.default_rng(1).uniform(1, 3, (64, 80)).astype(np.float32)
    expected = to_float(encode(values, dt), dt)
    assert encode(values, dt).dtype == dt.storage
    frozen = values.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(to_float(encode(frozen, dt), dt), expected)
    np.testing.assert_array_equal(to_float(encode(values.T, dt), dt), expected.T)
    np.testing.assert_array_equal(to_float(encode(values[:2, :3], dt), dt), expected[:2, :3])
    assert encode(values[:0], dt).shape == (0, 80)
    scalar = encode(values[0, 0], dt)
    assert (scalar.shape, scalar.dtype) == ((), dt.storage)
    assert to_float(scalar, dt) == expected[0, 0]
    np.testing.assert_array_equal(to_float(encode(values.astype(np.float64), dt), dt), expected)


def test_encode_returns_float32_as_it_is() -> None:
    values = np.array([[np.nan, 1.0]], np.float32)
    assert encode(values, dtypes.float32) is values


def test_from_and_to_numpy_are_views() -> None:
    array = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    bits, dt = dtypes.from_numpy(array[:, ::2])
    assert (dt, bits.dtype) == ("bfloat16", np.uint16)
    assert np.shares_memory(bits, array)
    back = dtypes.to_numpy(bits, dt)
    assert back.dtype == ml_dtypes.bfloat16
    assert np.shares_memory(back, array)
    np.testing.assert_array_equal(back, array[:, ::2])
    assert dtypes.from_numpy(np.zeros(2, bool))[1] is dtypes.bool_


@pytest.mark.parametrize("array", [np.zeros(2), np.zeros(2, np.int64), np.zeros(2, ">f4"), np.zeros(2, "U3")])
def test_from_numpy_refuses(array: np.ndarray) -> None:
    with pytest.raises(TypeError, match="not a data type of the chip; use one of bool, int8"):
        dtypes.from_numpy(array)


# --- packed formats ---------------------------------------------------------------------------------


def test_unpack_starts_at_the_low_bits() -> None:
    bits = np.array([[0x7C3C_4038]], np.uint32)
    assert unpack_x4(bits, dtypes.float8_e5m2_x4).tolist() == [[0.5, 2.0, 1.0, math.inf]]
    assert unpack_x4(bits, dtypes.float8_e4m3fn_x4).tolist() == [[1.0, 2.0, 1.5, 384.0]]
    assert unpack_x4(np.array([0xF721], np.uint16), dtypes.float4_e2m1fn_x4).tolist() == [0.5, 1.0, 6.0, -6.0]


@pytest.mark.parametrize("dt", PACKED)
def test_pack_inverts_unpack(dt: DType) -> None:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 1 << dt.itemsize_bits, (3, 2000), dtype=dt.storage)
    values = unpack_x4(bits[:, ::2], dt)
    assert (values.shape, values.dtype) == ((3, 4000), np.float32)
    numbers = np.where(np.isnan(values), np.float32(1), values)
    packed = pack_x4(numbers, dt)
    assert (packed.shape, packed.dtype) == ((3, 1000), dt.storage)
    np.testing.assert_array_equal(unpack_x4(packed, dt), numbers)
    same = ~np.isnan(values).reshape(3, 1000, 4).any(-1)
    np.testing.assert_array_equal(packed[same], bits[:, ::2][same])


def test_pack_rounds_fp4_to_even_and_saturates() -> None:
    values = np.array([0.25, 0.75, 2.5, 5.0, 5.01, 7, -np.inf, -0.2], np.float32)
    packed = pack_x4(values, dtypes.float4_e2m1fn_x4)
    assert unpack_x4(packed, dtypes.float4_e2m1fn_x4).tolist() == [0, 1, 2, 4, 6, 6, -6, 0]
    np.testing.assert_array_equal(
        unpack_x4(packed, dtypes.float4_e2m1fn_x4), their_cast(values, ml_dtypes.float4_e2m1fn).astype(np.float32)
    )


def test_packed_formats_are_refused_where_numbers_are_expected() -> None:
    for dt in PACKED:
        with pytest.raises(TypeError, match="use unpack_x4"):
            to_float(np.zeros(1, dt.storage), dt)
        with pytest.raises(TypeError, match="use pack_x4"):
            encode(np.zeros(1, np.float32), dt)
    with pytest.raises(TypeError, match="float8_e5m2 is not packed"):
        unpack_x4(np.zeros(1, np.uint8), dtypes.float8_e5m2)
    with pytest.raises(TypeError, match="bfloat16 is not packed"):
        pack_x4(np.zeros(4, np.float32), dtypes.bfloat16)
    with pytest.raises(ValueError, match=r"\(2, 6\) cannot be packed"):
        pack_x4(np.zeros((2, 6), np.float32), dtypes.float8_e5m2_x4)
    with pytest.raises(ValueError, match="contain NaN, which float4_e2m1fn_x4 cannot hold"):
        pack_x4(np.array([0, 1, np.nan, 2], np.float32), dtypes.float4_e2m1fn_x4)


# --- DType ------------------------------------------------------------------------------------------


def test_codes_never_change() -> None:
    assert " ".join(dtypes.ALL) == (
        "bool int8 int16 int32 uint8 uint16 uint32 float16 bfloat16 float32 tfloat32 float8_e4m3 float8_e4m3fn "
        "float8_e5m2 float8_e3m4 float8_e8m0fnu float8_e5m2_x4 float8_e4m3fn_x4 float4_e2m1fn_x4"
    )
    for code, dt in enumerate(dtypes.ALL):
        assert dt.code == code
        assert dtypes.from_code(code) is dt
    for code in (-1, len(dtypes.ALL)):
        with pytest.raises(ValueError, match=f"no data type has code {code}"):
            dtypes.from_code(code)


def equal_both_ways(x: Any, y: Any) -> bool:
    equal, different = {bool(x == y), bool(y == x)}, {bool(x != y), bool(y != x)}
    assert len(equal) == len(different) == 1
    assert equal != different
    return equal.pop()


@pytest.mark.parametrize("dt", dtypes.ALL)
def test_dtype_is_its_name(dt: DType) -> None:
    name = str(dt)
    assert equal_both_ways(dt, name)
    assert {name: 1}[dt] == {dt: 1}[name] == 1
    assert dtype(name) is dtype(dt) is dt
    assert f"{dt}" == name
    assert [other for other in dtypes.ALL if other == dt] == [dt]
    assert copy.deepcopy(dt) is dt
    assert pickle.loads(pickle.dumps(dt)) is dt


@pytest.mark.parametrize("dt", [dt for dt in dtypes.ALL if dt.packed == 1 and dt != "tfloat32"])
def test_dtype_is_its_numpy_dtype(dt: DType) -> None:
    assert equal_both_ways(dt, dt.numpy)
    assert equal_both_ways(dt, dt.numpy.type)
    assert dtype(dt.numpy) is dtype(dt.numpy.type) is dt
    assert np.dtype(dt) == dt.numpy
    assert np.zeros(2, dtype=dt).dtype == dt.numpy
    assert np.zeros(2, np.float32).astype(dt).dtype == dt
    assert [other for other in dtypes.ALL if other == dt.numpy] == [dt]


@pytest.mark.parametrize("dt", [dtypes.tfloat32, *PACKED])
def test_dtype_without_a_numpy_dtype(dt: DType) -> None:
    assert not equal_both_ways(dt, dt.numpy)
    assert np.zeros(2, dt.numpy).itemsize == dt.itemsize
    with pytest.raises(TypeError):
        np.zeros(2, dtype=dt)


def test_dtype_differs_from_what_it_is_not() -> None:
    for other in (None, 4, np.float64, float, object, "float64", np.dtype(">f4"), [], np.float32(1)):
        assert not equal_both_ways(dtypes.float32, other)
    assert equal_both_ways(dtypes.bool_, bool)


class TorchDtype:
    """Looks like ``torch.dtype``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


def test_dtype_takes_torch_dtypes() -> None:
    for name in ("bool", "int8", "uint8", "int32", "float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2"):
        assert dtype(TorchDtype(name)) is dtypes.dtype(name)
    assert dtype("bool_") is dtypes.bool_


@pytest.mark.parametrize("x", ["float64", "half", None, float, int, np.int64, object, 3, TorchDtype("complex64")])
def test_dtype_refuses(x: object) -> None:
    with pytest.raises(TypeError, match=r"not a data type of the chip; use one of bool, int8.*float4_e2m1fn_x4"):
        dtype(x)


@pytest.mark.parametrize("dt", [*SMALL_FLOATS, dtypes.float32, dtypes.float8_e8m0fnu])
def test_range_of_floats(dt: DType) -> None:
    info = ml_dtypes.finfo(dt.numpy)
    assert (dt.min, dt.max, dt.tiny) == (float(info.min), float(info.max), float(info.smallest_normal))


def test_range_of_the_rest() -> None:
    assert dtypes.tfloat32.max == (2 - 2**-10) * 2.0**127
    assert (dtypes.int8.min, dtypes.int8.max, dtypes.uint16.max, dtypes.int32.tiny) == (-128, 127, 65535, 1)
    assert (dtypes.bool_.min, dtypes.bool_.max) == (0, 1)
    assert (dtypes.float4_e2m1fn_x4.min, dtypes.float4_e2m1fn_x4.max, dtypes.float4_e2m1fn_x4.tiny) == (-6, 6, 1)
    assert dtypes.float8_e4m3fn_x4.max == 448


def test_sizes_and_kinds() -> None:
    sizes = {str(dt): dt.itemsize for dt in dtypes.ALL}
    assert [sizes[name] for name in ("bool", "bfloat16", "tfloat32", "float4_e2m1fn_x4")] == [1, 2, 4, 2]
    assert all(dt.storage.itemsize == dt.itemsize == dt.numpy.itemsize == dt.itemsize_bits // 8 for dt in dtypes.ALL)
    assert "".join(dt.kind for dt in dtypes.ALL) == "biiiuuuffffffffsxxx"
    assert [dt for dt in dtypes.ALL if dt.packed == 4] == PACKED
    assert not dtypes.float8_e8m0fnu.is_float
    assert not dtypes.bool_.is_integer
    for dt, storage in (
        (dtypes.bool_, "uint8"),
        (dtypes.bfloat16, "uint16"),
        (dtypes.float8_e5m2, "uint8"),
        (dtypes.float16, "float16"),
        (dtypes.tfloat32, "float32"),
        (dtypes.int16, "int16"),
    ):
        assert dt.storage == np.dtype(storage)


# --- cost of an import ------------------------------------------------------------------------------


def test_numba_is_loaded_by_the_first_large_conversion() -> None:
    script = (
        "import sys, numpy as np\n"
        "from isa import dtypes\n"
        "dtypes.encode(np.ones(100, np.float32), dtypes.float8_e4m3)\n"
        "assert 'numba' not in sys.modules\n"
        "dtypes.encode(np.ones(100_000, np.float32), dtypes.float8_e4m3)\n"
        "assert 'numba' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
