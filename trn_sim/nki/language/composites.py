"""Element-wise functions of ``nki.language`` that take several instructions; their docstrings say which."""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np

from isa import dtypes
from isa.alu import ALU_OPS
from trn_sim.nki import isa as nisa
from trn_sim.nki._support import note
from trn_sim.nki.language import elementwise
from trn_sim.nki.language.elementwise import FLOAT32, activate, binary, promote, result_of, scaled, together
from trn_sim.nki.language.tensors import convert, ndarray
from trn_sim.nki.operator import operator
from trn_sim.nki.tensor import NkiTensor, dtype_of

__all__ = ["ceil", "cos", "divide", "dropout", "floor", "fmod", "mod", "sin", "tan", "trunc", "where"]

INT32 = dtypes.int32


def _turns(x: NkiTensor, shift: float) -> NkiTensor:
    """x + shift brought into -pi to pi: whole turns are counted by a conversion to int32 and taken off in three parts,
    so that the products stay exact."""
    count = scaled(x, "multiply", 1 / (2 * pi), "add", shift / (2 * pi), dtype=INT32)
    turns = convert(count, FLOAT32)
    rest = x
    for part in _TWO_PI:
        reduced = ndarray(x.shape, FLOAT32)
        nisa.scalar_tensor_tensor(reduced, turns, ALU_OPS["multiply"], -part, ALU_OPS["add"], rest)
        rest = reduced
    if shift:
        rest = scaled(rest, "add", shift)
    return scaled(rest, "maximum", -_PI_BELOW, "minimum", _PI_BELOW)


def _split(value: float, bits: tuple[int, ...]) -> tuple[float, ...]:
    """``value`` as a sum of floats with few significant bits each, the rest in the last."""
    parts = []
    for wanted in bits:
        scale = 2.0 ** (wanted - int(np.floor(np.log2(value))) - 1)
        part = np.floor(value * scale) / scale
        parts.append(float(part))
        value -= part
    return (*parts, float(np.float32(value)))


_TWO_PI = _split(2 * pi, (9, 11))  # exact times counts below 2**13
_PI_BELOW = float(np.nextafter(np.float32(pi), np.float32(0)))


def _sine(x: NkiTensor, shift: float, dtype: Any) -> NkiTensor:
    out = result_of(x, dtype)
    nisa.activation(out, sin, _turns(x, shift))
    return out


@operator
def sin(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Sine of any x: range reduction on the Vector Engine, then ``activation``.

    As the operator of ``nisa.activation`` there is no range reduction: there x is within -pi and pi.
    """
    return _sine(x, 0.0, dtype)


@operator
def cos(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Cosine: the sine of x + pi/2."""
    return _sine(x, pi / 2, dtype)


@operator
def tan(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Tangent: sine times the reciprocal of the cosine."""
    inverse = elementwise.reciprocal(_sine(x, pi / 2, FLOAT32))
    return binary("multiply", _sine(x, 0.0, FLOAT32), inverse, x.dtype if dtype is None else dtype)


def _nearest(x: NkiTensor) -> NkiTensor:
    """x rounded to the nearest integer, in float32, by way of int32 (so magnitudes below 2**31)."""
    return convert(convert(x, INT32), FLOAT32)


def _corrected(x: NkiTensor, compare: str, correct: str, dtype: Any) -> NkiTensor:
    nearest = _nearest(x)
    beyond = binary(compare, nearest, x, FLOAT32)
    return binary(correct, nearest, beyond, x.dtype if dtype is None else dtype)


@operator
def floor(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """The next integer below: rounded by conversion to int32 and back, less 1 where that is above x."""
    return _corrected(x, "greater", "subtract", dtype)


@operator
def ceil(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """The next integer above: rounded by conversion to int32 and back, plus 1 where that is below x."""
    return _corrected(x, "less", "add", dtype)


@operator
def trunc(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """The next integer towards 0: the floor of the magnitude, times the sign."""
    size = _corrected(activate(elementwise.abs, x, FLOAT32), "greater", "subtract", None)
    return binary("multiply", size, activate(elementwise.sign, x, FLOAT32), x.dtype if dtype is None else dtype)


# --- in AWS's simulator, not on its hardware ----------------------------------------------------------


def _no_hardware(name: str) -> None:
    note(f"nl.{name} works in simulators only: no instruction of the chip does it (NKI 0.6)")


@operator
def divide(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x / y; not on hardware, where x * elementwise.reciprocal(y) takes its place."""
    _no_hardware("divide")
    return binary("divide", x, y, dtype)


@operator
def mod(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Remainder with the sign of y; not on hardware."""
    _no_hardware("mod")
    return binary("mod", x, y, dtype)


@operator
def fmod(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Remainder with the sign of x; not on hardware."""
    _no_hardware("fmod")
    return binary("fmod", x, y, dtype)


# --- selection ----------------------------------------------------------------------------------------


def where(condition: NkiTensor, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x where ``condition`` is not 0, else y; x and y are tiles or numbers.

    y is copied to the result, the condition becomes a uint8 tile, and ``tensor_copy_predicated`` puts x in.
    """
    given = [value for value in (x, y) if isinstance(value, NkiTensor)]
    if dtype is not None:
        kind = dtype_of(dtype)
    elif len(given) == 2:
        kind = promote(given[0].dtype, given[1].dtype)
    else:
        kind = given[0].dtype if given else condition.dtype
    out = ndarray(condition.shape, kind)
    if isinstance(y, NkiTensor):
        nisa.tensor_copy(out, together("where", y, out)[0])
    else:
        nisa.memset(out, y if kind.is_float else int(y))
    predicate = scaled(condition, "not_equal", 0, dtype=dtypes.uint8)
    if isinstance(x, NkiTensor):
        x = together("where", x, out)[0]
        x = x if x.dtype == kind else convert(x, kind)
    nisa.tensor_copy_predicated(out, x, predicate)
    return out


def dropout(x: NkiTensor, rate: Any, dtype: Any = None) -> NkiTensor:
    """x with each element set to 0 with probability ``rate``; the others are not scaled."""
    out = ndarray(x.shape, x.dtype)
    nisa.dropout(out, x, rate)
    return out if dtype is None or dtype_of(dtype) == x.dtype else convert(out, dtype)
