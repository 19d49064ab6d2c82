"""Element-wise functions of the older namespace: the operators of the present one, with masks, broadcasting and late
results.

A function of one instruction is made here from what the operator means to the engines; one of several is the present
function, applied to the parts that a mask leaves.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from isa import dtypes
from isa.activation import ACTIVATIONS
from isa.alu import ALU_OPS, AluOp
from isa.faults import ConstraintFault
from trn_sim.machine import current_core
from trn_sim.neuronxcc.nki._assign import beside, is_number
from trn_sim.neuronxcc.nki._issue import compute, cut, readable
from trn_sim.neuronxcc.nki._tile import Tile, late, settle, whole_boxes
from trn_sim.neuronxcc.nki.language.tensors import adopt, broadcast_to, ndarray
from trn_sim.nki import isa as nisa
from trn_sim.nki import language as new
from trn_sim.nki._support import located
from trn_sim.nki.language.elementwise import promote
from trn_sim.nki.operator import Op
from trn_sim.nki.regions import MemoryRegion
from trn_sim.nki.tensor import dtype_of

__all__ = ["FUNCTIONS", "binary", "composite", "loop_reduce", "unary"]

_COMPARISONS = frozenset({
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
    "logical_not",
})  # fmt: skip
_BITS = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "invert"})
_UNARY_ALU = {"negative": ("multiply", -1.0)}


def _is_vector(tile: Tile, like: Tile) -> bool:
    """One float32 element per partition, next to a tile of more: the scalar operand of an instruction."""
    return tile.size == tile.shape[0] == like.shape[0] and like.size > tile.size and tile.dtype == dtypes.float32


def _together(x: Tile, y: Tile) -> tuple[Tile, Tile]:
    """Both with dimensions of size 1 repeated; one partition is copied to many."""
    if x.shape == y.shape:
        return x, y
    if x.ndim != y.ndim:
        low, high = (x, y) if x.ndim < y.ndim else (y, x)
        if low.size == low.shape[0]:
            low = low.reshape((low.shape[0], *(1 for _ in high.shape[1:])))
            return (low, high) if x.ndim < y.ndim else (high, low)
    if x.ndim != y.ndim or any(a != b and 1 not in (a, b) for a, b in zip(x.shape, y.shape, strict=True)):
        raise located(
            ConstraintFault(
                f"tiles of shapes {x.shape} and {y.shape} together",
                limit="as many dimensions, each of equal size or of size 1 in one of them",
            )
        )
    if x.shape[0] != y.shape[0]:
        partitions = max(x.shape[0], y.shape[0])
        x = x if x.shape[0] == partitions else broadcast_to(x, (partitions, *x.shape[1:]))
        y = y if y.shape[0] == partitions else broadcast_to(y, (partitions, *y.shape[1:]))
    return x, y


def _grown(x: Tile, shape: tuple[int, ...]) -> Tile:
    for dim in range(1, x.ndim):
        if x.shape[dim] != shape[dim]:
            x = x.broadcast(dim, shape[dim])
    return x


def _kind(name: str, values: list[Any], dtype: Any) -> Any:
    if dtype is not None:
        return dtype_of(dtype)
    tiles = [value.dtype for value in values if isinstance(value, Tile)]
    if name in _COMPARISONS:
        return dtypes.bool_
    kind = promote(*tiles) if len(tiles) == 2 else tiles[0] if tiles else dtypes.float32
    fraction = name == "divide" or any(isinstance(value, (float, np.floating)) for value in values)
    return dtypes.float32 if fraction and not kind.is_float else kind


def binary(op: AluOp, x: Any, y: Any, dtype: Any = None, mask: Any = None) -> Tile:
    """x op y: ``tensor_scalar`` with a number or a vector, else ``tensor_tensor``."""
    settle()
    name = op.name
    kind = _kind(name, [x, y], dtype)
    if isinstance(x, Tile) and isinstance(y, Tile):
        x, y = _together(readable(x), readable(y))
        if x.buffer is y.buffer is MemoryRegion.psum:  # an instruction reads one operand from PSUM
            y = beside(y)
        shape = tuple(max(sizes) for sizes in zip(x.shape, y.shape, strict=True))
        if name not in _BITS:
            if _is_vector(y, x):
                return compute(nisa.tensor_scalar, x.shape, kind, {"data": x, "operand0": y}, {"op0": op}, mask)
            if _is_vector(x, y):
                fixed = {"op0": op, "reverse0": True}
                return compute(nisa.tensor_scalar, y.shape, kind, {"data": y, "operand0": x}, fixed, mask)
        operands = {"data1": _grown(x, shape), "data2": _grown(y, shape)}
        return compute(nisa.tensor_tensor, shape, kind, operands, {"op": op}, mask)
    tile, number, reverse = (x, y, False) if isinstance(x, Tile) else (y, x, True)
    if not isinstance(tile, Tile) or not is_number(number):
        raise located(
            ConstraintFault(
                f"nl.{name} of {type(x).__name__} and {type(y).__name__}",
                limit="tiles and numbers",
                advice="arrays of the host become tensors as arguments of the kernel, or by nl.shared_constant",
            )
        )
    fixed = {"op0": op, "operand0": number, "reverse0": reverse}
    return compute(nisa.tensor_scalar, tile.shape, kind, {"data": tile}, fixed, mask)


def unary(name: str, x: Tile, dtype: Any = None, mask: Any = None) -> Tile:
    """A function of one instruction: of the Scalar Engine, or with a constant on the Vector Engine."""
    settle()
    if not isinstance(x, Tile):
        raise located(ConstraintFault(f"nl.{name} of {type(x).__name__}", limit="a tile"))
    kind = _kind(name, [x], dtype)
    if name == "reciprocal":
        return compute(nisa.reciprocal, x.shape, kind, {"data": x}, {}, mask)
    if name in _UNARY_ALU:
        op, constant = _UNARY_ALU[name]
        return compute(nisa.tensor_scalar, x.shape, kind, {"data": x}, {"op0": ALU_OPS[op], "operand0": constant}, mask)
    if name == "invert":
        ones = (1 << 8 * x.dtype.itemsize) - 1 if x.dtype.kind == "u" else -1
        fixed = {"op0": ALU_OPS["bitwise_xor"], "operand0": ones}
        return compute(nisa.tensor_scalar, x.shape, kind, {"data": x}, fixed, mask)
    if name == "logical_not":
        fixed = {"op0": ALU_OPS["equal"], "operand0": 0.0}
        return compute(nisa.tensor_scalar, x.shape, kind, {"data": x}, fixed, mask)
    return compute(nisa.activation, x.shape, kind, {"data": x}, {"op": ACTIVATIONS[name]}, mask)


def composite(function: Callable[..., Any], x: Tile, *args: Any, mask: Any = None, **kwargs: Any) -> Tile:
    """A function of several instructions; with a mask, on each part that it leaves."""
    settle()
    x = readable(x)
    args = tuple(readable(value) for value in args)
    boxes = whole_boxes(mask, x.shape)
    if boxes is None:
        return adopt(function(x, *args, **kwargs))
    result: Tile | None = None
    for box in boxes:
        part = adopt(function(cut(x, box, x.shape), *(cut(value, box, x.shape) for value in args), **kwargs))
        if result is None:
            shape = tuple(n if m == b - a else m for n, m, (a, b) in zip(x.shape, part.shape, box, strict=True))
            result = ndarray(shape, part.dtype)
        nisa.tensor_copy(cut(result, box, x.shape), part)
    if result is not None:
        current_core().memory.leave_undefined(result.operand())
    return ndarray(x.shape, kwargs.get("dtype") or x.dtype) if result is None else result


def loop_reduce(
    x: Tile, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None, name: str | None = None
) -> Tile:
    """The reduction of ``x`` over the iterations of loops: ``dst[...] = nl.loop_reduce(...)`` copies in the first
    iteration of all ``loop_indices``, and combines with ``dst`` in the others."""
    settle()
    x = readable(x)
    boxes = whole_boxes(mask, x.shape)
    first = all(getattr(index, "first", index == 0) for index in loop_indices)
    kind = x.dtype if dtype is None else dtype_of(dtype)
    fixed = {"name": name} if name else {}

    def emit(dst: Tile) -> None:
        if dst is result and not first:
            raise located(
                ConstraintFault(
                    "nl.loop_reduce into a new tile", limit="dst[...] = nl.loop_reduce(...), dst made outside the loops"
                )
            )
        for box in [tuple((0, n) for n in x.shape)] if boxes is None else boxes:
            part, source = dst.part(box), x.part(box)
            if first:
                nisa.tensor_copy(part, source, **fixed)
            else:
                nisa.tensor_tensor(part, part, source, op, **fixed)

    result = late(x.shape, kind, emit, partial=boxes is not None)
    return result


# --- the names ----------------------------------------------------------------------------------------


def _binary(name: str) -> Callable[..., Tile]:
    op = ALU_OPS[name]

    def function(x: Any, y: Any, *, dtype: Any = None, mask: Any = None) -> Tile:
        return binary(op, x, y, dtype, mask)

    return function


def _unary(name: str) -> Callable[..., Tile]:
    def function(x: Tile, *, dtype: Any = None, mask: Any = None) -> Tile:
        return unary(name, x, dtype, mask)

    return function


def _composite(name: str) -> Callable[..., Tile]:
    def function(x: Tile, *, dtype: Any = None, mask: Any = None) -> Tile:
        return composite(getattr(new, name), x, mask=mask, dtype=dtype)

    return function


def _functions() -> dict[str, Op]:
    made = {}
    for name, present in vars(new).items():
        if not isinstance(present, Op) or name in ("copy", "sum", "max", "min", "prod"):
            continue
        parameters = list(inspect.signature(present._function).parameters)
        if parameters[:1] == ["_"]:
            made[name] = present  # an operator that cannot be called
            continue
        several = present._function.__module__.endswith("composites")
        if parameters[:2] == ["x", "y"]:
            function = _binary(name)
        elif several:
            function = _composite(name)
        else:
            function = _unary(name)
        function.__name__ = function.__qualname__ = name
        function.__doc__ = present.__doc__
        function.__module__ = "trn_sim.neuronxcc.nki.language"
        made[name] = Op(function, present.alu, present.activation)
    return made


FUNCTIONS = _functions()

_SYMBOLS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "power", "mod": "mod",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
}  # fmt: skip


def _logic(name: str, x: Any) -> str:
    """& | ^ of booleans are logical."""
    boolean = isinstance(x, Tile) and x.dtype == dtypes.bool_
    return name.replace("bitwise", "logical") if boolean else name


def _operator(name: str, reverse: bool) -> Any:
    def operator(self: Tile, other: Any) -> Any:
        if not isinstance(other, Tile) and not is_number(other):
            return NotImplemented
        op = ALU_OPS[_logic(name, self)]
        return binary(op, other, self) if reverse else binary(op, self, other)

    return operator


def _in_place(name: str) -> Any:
    def operator(self: Tile, other: Any) -> Any:
        if not isinstance(other, Tile) and not is_number(other):
            return NotImplemented
        if name == "add" and isinstance(other, Tile) and other.add_to(self):
            return self
        result = binary(ALU_OPS[name], self, other, self.dtype)
        if not result.give_to(self):
            return result
        return self

    return operator


for _symbol, _name in _SYMBOLS.items():
    setattr(Tile, f"__{_symbol}__", _operator(_name, reverse=False))
    if _symbol not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Tile, f"__r{_symbol}__", _operator(_name, reverse=True))
        setattr(Tile, f"__i{_symbol}__", _in_place(_name))


def _negative(self: Tile) -> Tile:
    return unary("negative", self)


def _invert(self: Tile) -> Tile:
    return unary("logical_not" if self.dtype == dtypes.bool_ else "invert", self)


def _abs(self: Tile) -> Tile:
    return unary("abs", self)


for _symbol, _function in (("neg", _negative), ("invert", _invert), ("abs", _abs), ("hash", object.__hash__)):
    setattr(Tile, f"__{_symbol}__", _function)
