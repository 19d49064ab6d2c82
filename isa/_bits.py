"""Rounding of float32 to the chip's formats, compiled: the twins of the casts in :mod:`isa.dtypes`.

Imported on the first large conversion, because numba is slow to load.  Every kernel is one branch-free pass over
contiguous one-dimensional arrays, which LLVM turns into vector code; one machine-code version per output dtype is
compiled on first use and kept on disk.  Arithmetic on 32-bit patterns is cast back to ``uint32`` after each
operation: numba widens to 64 bits otherwise, and the vectors become half as long.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["look_up", "round_to_bfloat16", "round_to_integer", "round_to_narrow", "round_to_tfloat32"]

U32 = np.uint32
SIGN = np.uint32(0x8000_0000)
MAGNITUDE = np.uint32(0x7FFF_FFFF)
INFINITY = np.uint32(0x7F80_0000)
QUIET_NAN = np.uint32(0x7FC0_0000)


@numba.njit(cache=True, nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _nearest_even(bits: Any, dropped: int) -> Any:
    """Add what carries into bit ``dropped`` exactly when round-to-nearest-even rounds up."""
    return U32(bits + U32(U32((U32(1) << U32(dropped - 1)) - U32(1)) + U32(U32(bits >> U32(dropped)) & U32(1))))


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def round_to_bfloat16(values: npt.NDArray[np.uint32], out: npt.NDArray[np.uint16]) -> None:
    """Float32 bits to bfloat16 bits.  Overflow reaches infinity by the carry alone."""
    for i in range(values.size):
        bits = values[i]
        is_nan = U32(bits & MAGNITUDE) > INFINITY
        rounded = U32(U32(bits & SIGN) | QUIET_NAN) if is_nan else _nearest_even(bits, 16)
        out[i] = np.uint16(U32(rounded >> U32(16)))


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def round_to_tfloat32(values: npt.NDArray[np.uint32], out: npt.NDArray[np.uint32]) -> None:
    """Float32 bits to float32 bits of which the last 13 are zero."""
    for i in range(values.size):
        bits = values[i]
        is_nan = U32(bits & MAGNITUDE) > INFINITY
        out[i] = U32(U32(bits & SIGN) | QUIET_NAN) if is_nan else U32(_nearest_even(bits, 13) & U32(0xFFFF_E000))


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def round_to_narrow(
    values: npt.NDArray[np.uint32],
    out: npt.NDArray[Any],
    exponent_bits: int,
    mantissa_bits: int,
    largest: int,
    overflow: int,
    nan: int,
) -> None:
    """Float32 bits to a format with fewer exponent bits: sign, exponent, mantissa in ``out``'s low bits.

    ``largest``, ``overflow`` and ``nan`` are codes without sign: the largest finite value, what lies beyond, and NaN.
    """
    bias = (1 << (exponent_bits - 1)) - 1
    dropped = 23 - mantissa_bits
    rebias = U32((127 - bias) << mantissa_bits)
    smallest_normal = U32((128 - bias) << 23)
    # Adding a power of two whose unit in the last place is the format's smallest subnormal makes the adder round
    # there, to nearest even; the sum's low bits are then the code.
    anchor = U32((1 - bias - mantissa_bits + 23 + 127) << 23)
    anchor_value = U32(anchor).view(np.float32)
    sign_shift = U32(31 - exponent_bits - mantissa_bits)
    largest_code, overflow_code, nan_code = U32(largest), U32(overflow), U32(nan)
    for i in range(values.size):
        bits = values[i]
        magnitude = U32(bits & MAGNITUDE)
        normal = U32(U32(_nearest_even(magnitude, dropped) >> U32(dropped)) - rebias)
        subnormal = U32(np.float32(U32(magnitude).view(np.float32) + anchor_value).view(np.uint32) - anchor)
        code = subnormal if magnitude < smallest_normal else normal
        code = overflow_code if code > largest_code else code  # infinity too
        code = nan_code if magnitude > INFINITY else code
        out[i] = U32(code | U32(U32(bits & SIGN) >> sign_shift))


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def round_to_integer(values: npt.NDArray[np.float32], out: npt.NDArray[Any], lowest: float, highest: float) -> None:
    """Float32 to integers, nearest even, saturating to [lowest, highest]; NaN becomes 0."""
    for i in range(values.size):
        value = np.float64(values[i])
        rounded = np.rint(value)
        rounded = lowest if rounded < lowest else rounded
        rounded = highest if rounded > highest else rounded
        rounded = 0.0 if value != value else rounded
        out[i] = np.int64(rounded)


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def look_up(codes: npt.NDArray[Any], table: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
    """out[i] = table[codes[i]]; ``table`` has an entry for every code."""
    for i in range(codes.size):
        out[i] = table[codes[i]]
