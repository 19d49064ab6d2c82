"""The operators of the Vector, Scalar and GpSimd Engines' arithmetic units.

One table serves every instruction that takes an operator.  Arithmetic runs in float32; bitwise operators act on the
bits of integers.  Source: the operator lists and operand limits of the NKI documentation (0.6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ALU_OPS", "AluOp", "alu_op"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class AluOp:
    """One operator.

    Attributes:
        name: NKI's name.
        code: number in the stored format.
        function: numpy implementation over float32 (arithmetic) or equal integer dtypes (bitwise).
        arity: 1 or 2.
        bitwise: acts on integer bits, without a detour through float32.
        logical: result is 1.0 or 0.0.
        identity: start value of a reduction, None where it cannot reduce.
        minimum_generation: first NeuronCore generation that has it.
    """

    name: str
    code: int
    function: Callable[..., Array]
    arity: int = 2
    bitwise: bool = False
    logical: bool = False
    identity: float | int | None = None
    minimum_generation: int = 2

    def __call__(self, *values: Any) -> Array:
        return self.function(*values)

    def __repr__(self) -> str:
        return self.name

    def reduce(self, values: Array, axis: int) -> Array:
        """Reduce along one axis, in order of the elements where the order matters (subtract)."""
        if self.name == "subtract":
            first, rest = np.split(values, [1], axis=axis)
            return np.asarray(np.squeeze(first, axis) - rest.sum(axis=axis, dtype=values.dtype))
        ufunc = _REDUCERS.get(self.name)
        if ufunc is None:
            raise ValueError(f"{self.name} cannot reduce")
        result = ufunc.reduce(values, axis=axis)
        return np.asarray(result.astype(values.dtype) if self.logical else result)


def _as_float(function: Callable[..., Array]) -> Callable[..., Array]:
    def wrapped(*values: Any) -> Array:
        return np.asarray(function(*values), dtype=np.float32)

    return wrapped


def _logical(function: Callable[..., Array]) -> Callable[..., Array]:
    def wrapped(x: Any, y: Any) -> Array:
        return np.asarray(function(np.not_equal(x, 0), np.not_equal(y, 0)), dtype=np.float32)

    return wrapped


def _abs_max(x: Any, y: Any) -> Array:
    return np.asarray(np.where(np.abs(x) > np.abs(y), x, y))  # ties take the second operand


def _abs_min(x: Any, y: Any) -> Array:
    return np.asarray(np.where(np.abs(x) < np.abs(y), x, y))


def _shift(function: Callable[..., Array]) -> Callable[..., Array]:
    """Shifts are logical and a distance of the operand's width or more gives zero."""

    def wrapped(x: Any, y: Any) -> Array:
        bits = np.asarray(x)
        width = bits.dtype.itemsize * 8
        unsigned = bits.view(f"u{bits.dtype.itemsize}")
        distance = np.asarray(y).astype(np.int64)
        moved = function(unsigned, np.clip(distance, 0, width - 1).astype(unsigned.dtype))
        return np.where((distance >= width) | (distance < 0), 0, moved).astype(unsigned.dtype).view(bits.dtype)

    return wrapped


_FLOAT_MAX_IDENTITY = float("-inf")
_FLOAT_MIN_IDENTITY = float("inf")


def _first(x: Any, _y: Any) -> Array:
    return np.asarray(x)  # bypass keeps the first operand


ALU_OPS: dict[str, AluOp] = {
    op.name: op
    for op in (
        AluOp("add", 0, np.add, identity=0.0),
        AluOp("subtract", 1, np.subtract, identity=0.0),
        AluOp("multiply", 2, np.multiply, identity=1.0),
        AluOp("maximum", 3, np.maximum, identity=_FLOAT_MAX_IDENTITY),
        AluOp("minimum", 4, np.minimum, identity=_FLOAT_MIN_IDENTITY),
        AluOp("equal", 5, _as_float(np.equal), logical=True),
        AluOp("not_equal", 6, _as_float(np.not_equal), logical=True),
        AluOp("greater", 7, _as_float(np.greater), logical=True),
        AluOp("greater_equal", 8, _as_float(np.greater_equal), logical=True),
        AluOp("less", 9, _as_float(np.less), logical=True),
        AluOp("less_equal", 10, _as_float(np.less_equal), logical=True),
        AluOp("logical_and", 11, _logical(np.logical_and), logical=True, identity=1.0),
        AluOp("logical_or", 12, _logical(np.logical_or), logical=True, identity=0.0),
        AluOp("logical_xor", 13, _logical(np.logical_xor), logical=True, identity=0.0),
        AluOp("power", 14, np.power),
        AluOp("abs_max", 15, _abs_max, minimum_generation=4),
        AluOp("abs_min", 16, _abs_min, minimum_generation=4),
        AluOp("bypass", 17, _first),
        AluOp("average", 18, np.add, identity=0.0),
        AluOp("bitwise_and", 19, np.bitwise_and, bitwise=True, identity=-1),
        AluOp("bitwise_or", 20, np.bitwise_or, bitwise=True, identity=0),
        AluOp("bitwise_xor", 21, np.bitwise_xor, bitwise=True, identity=0),
        AluOp("left_shift", 22, _shift(np.left_shift), bitwise=True),
        AluOp("right_shift", 23, _shift(np.right_shift), bitwise=True),
        AluOp("invert", 24, np.invert, arity=1, bitwise=True),
        AluOp("abs", 25, np.abs, arity=1),
        AluOp("square", 26, np.square, arity=1, minimum_generation=4),
        AluOp("relu", 27, lambda x: np.maximum(x, np.float32(0)), arity=1, minimum_generation=4),
        AluOp("rsqrt", 28, lambda x: np.float32(1) / np.sqrt(x), arity=1),
        AluOp("reciprocal", 29, lambda x: np.float32(1) / x, arity=1),
        AluOp("logical_not", 30, lambda x: np.asarray(np.equal(x, 0), dtype=np.float32), arity=1, logical=True),
        AluOp("divide", 31, np.divide),
        AluOp("mod", 32, np.mod),
        AluOp("fmod", 33, np.fmod),
    )
}
"""Every operator by NKI name."""

_REDUCERS: dict[str, np.ufunc] = {
    "add": np.add,
    "average": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}


def alu_op(name: str) -> AluOp:
    """The operator called ``name``.

    Raises:
        KeyError: no such operator.
    """
    return ALU_OPS[name]
