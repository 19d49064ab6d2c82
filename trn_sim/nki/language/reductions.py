"""Reductions and normalisations over free dimensions, transpose and matmul.

``axis`` is one dimension or several, the trailing ones; the partition, dimension 0, is never among them.  Without
``keepdims`` the reduced dimensions go away, but a tile keeps two dimensions.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from math import prod as product
from typing import Any

from isa import dtypes
from isa.alu import ALU_OPS
from isa.engine import Engine
from isa.enums import ReduceCmd
from isa.faults import ConstraintFault
from trn_sim.nki import isa as nisa
from trn_sim.nki._support import located
from trn_sim.nki.language import elementwise
from trn_sim.nki.language.elementwise import FLOAT32, scaled, together
from trn_sim.nki.language.tensors import broadcast_to, convert, ndarray
from trn_sim.nki.operator import operator
from trn_sim.nki.regions import MemoryRegion
from trn_sim.nki.tensor import NkiTensor, dtype_of

__all__ = ["all", "matmul", "max", "mean", "min", "prod", "rms_norm", "softmax", "sum", "transpose", "var"]

BN_STATS_MAX = 512  # elements per partition of one bn_stats


def _axes(name: str, x: NkiTensor, axis: Any) -> tuple[int, ...]:
    """The reduced dimensions, ascending."""
    given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(sorted(a + x.ndim if a < 0 else a for a in given))
    if not axes or axes != tuple(range(x.ndim - len(axes), x.ndim)) or axes[0] < 1:
        raise located(
            ConstraintFault(
                f"nl.{name} over axis {axis} of shape {x.shape}",
                limit=f"the trailing free dimensions, e.g. {tuple(range(1, x.ndim))} or {x.ndim - 1}",
                advice="bring them to the end with .permute; over partitions use nisa.tensor_partition_reduce",
            )
        )
    return axes


def _shapes(x: NkiTensor, axes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the result, with and without the reduced dimensions."""
    kept = x.shape[: axes[0]]
    return (*kept, *(1 for _ in axes)), kept if len(kept) > 1 else (*kept, 1)


def _reduce(name: str, op: str, x: NkiTensor, axis: Any, dtype: Any, keepdims: bool, **rest: Any) -> NkiTensor:
    axes = _axes(name, x, axis)
    with_ones, without = _shapes(x, axes)
    out = ndarray(with_ones if keepdims else without, x.dtype if dtype is None else dtype)
    nisa.tensor_reduce(out, ALU_OPS[op], x, axes, keepdims=keepdims, **rest)
    return out


@operator(alu="add")
def sum(x: NkiTensor, axis: int | Sequence[int], dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Sum, in float32, rounded once; one ``tensor_reduce``."""
    return _reduce("sum", "add", x, axis, dtype, keepdims)


@operator(alu="maximum")
def max(x: NkiTensor, axis: int | Sequence[int], dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Largest element; one ``tensor_reduce``."""
    return _reduce("max", "maximum", x, axis, dtype, keepdims)


@operator(alu="minimum")
def min(x: NkiTensor, axis: int | Sequence[int], dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Smallest element; one ``tensor_reduce``."""
    return _reduce("min", "minimum", x, axis, dtype, keepdims)


@operator(alu="multiply")
def prod(x: NkiTensor, axis: int | Sequence[int], dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Product; one ``tensor_reduce``."""
    return _reduce("prod", "multiply", x, axis, dtype, keepdims)


def all(x: NkiTensor, axis: int | Sequence[int], dtype: Any = None) -> NkiTensor:
    """1 where no element is 0; one ``tensor_reduce``."""
    return _reduce("all", "logical_and", x, axis, dtype, False)


def mean(x: NkiTensor, axis: int | Sequence[int], dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Mean: the sum in float32, times 1/n."""
    count = product(x.shape[a] for a in _axes("mean", x, axis))
    total = _reduce("mean", "add", x, axis, FLOAT32, keepdims)
    return scaled(total, "multiply", 1.0 / count, dtype=x.dtype if dtype is None else dtype)


def var(
    x: NkiTensor,
    axis: int | Sequence[int],
    dtype: Any = None,
    keepdims: bool = False,  # noqa: ARG001
) -> NkiTensor:
    """Population variance; the reduced dimensions stay with size 1, whatever ``keepdims`` says (as in NKI 0.6).

    ``bn_stats`` over pieces of 512 elements and ``bn_aggr``, for each of the kept free positions.
    """
    axes = _axes("var", x, axis)
    shape, _ = _shapes(x, axes)
    kept, count = product(x.shape[1 : axes[0]]), product(x.shape[a] for a in axes)
    rows = x.reshape((x.shape[0], kept, count))
    partitions = x.shape[0]
    pieces = -(-count // BN_STATS_MAX)
    result = ndarray((partitions, kept, 1), x.dtype if dtype is None else dtype)
    for row in range(kept):
        stats = ndarray((partitions, pieces, 6), FLOAT32)
        for piece in range(pieces):
            first = piece * BN_STATS_MAX
            last = builtins.min(first + BN_STATS_MAX, count)
            nisa.bn_stats(stats[:, piece, :], rows[:, row, first:last])
        merged = ndarray((partitions, 2), FLOAT32)
        nisa.bn_aggr(merged, stats.reshape((partitions, pieces * 6)))
        nisa.tensor_copy(result[:, row, :], merged[:, 1:2])
    return result.reshape(shape)


def _repeated(x: NkiTensor, like: NkiTensor) -> NkiTensor:
    """A tile with reduced dimensions of size 1 as a view of the shape of ``like``."""
    for dim in range(1, x.ndim):
        if x.shape[dim] != like.shape[dim]:
            x = x.broadcast(dim, like.shape[dim])
    return x


def softmax(x: NkiTensor, axis: int | Sequence[int] = -1, dtype: Any = None) -> NkiTensor:
    """exp(x - max) / sum(exp(x - max)).

    Over all free dimensions: the maximum by ``tensor_reduce``, exponentials and their sum by one ``activation``, then
    ``reciprocal`` and a multiplication.  Over some of them the subtraction and the sum are instructions of their own.
    """
    axes = _axes("softmax", x, axis)
    out = ndarray(x.shape, x.dtype if dtype is None else dtype)
    powers = ndarray(x.shape, FLOAT32)
    if axes[0] == 1:
        low = _reduce("softmax", "maximum", x, axes, FLOAT32, False, negate=True)
        total = ndarray(low.shape, FLOAT32)
        nisa.activation(
            powers,
            elementwise.exp,
            x,
            bias=low,
            reduce_op=ALU_OPS["add"],
            reduce_res=total,
            reduce_cmd=ReduceCmd.reset_reduce,
        )
        inverse = elementwise.reciprocal(total)
        nisa.tensor_scalar(out, powers, ALU_OPS["multiply"], inverse)
        return out
    top = _reduce("softmax", "maximum", x, axes, FLOAT32, True)
    nisa.tensor_tensor(powers, x, _repeated(top, x), ALU_OPS["subtract"])
    nisa.activation(powers, elementwise.exp, powers)
    inverse = elementwise.reciprocal(_reduce("softmax", "add", powers, axes, FLOAT32, True))
    nisa.tensor_tensor(out, powers, _repeated(inverse, x), ALU_OPS["multiply"])
    return out


def rms_norm(
    x: NkiTensor,
    w: NkiTensor,
    axis: int | Sequence[int],
    n: int,
    epsilon: float = 1e-06,
    dtype: Any = None,
    compute_dtype: Any = None,
) -> NkiTensor:
    """x / sqrt(sum(x * x) / n + epsilon) * w.

    The squares by ``activation``, their sum by ``tensor_reduce``, one ``tensor_scalar`` for mean and epsilon, ``rsqrt``
    by ``activation``, two multiplications.  One partition of w is copied to all.
    """
    axes = _axes("rms_norm", x, axis)
    inner = FLOAT32 if compute_dtype is None else dtype_of(compute_dtype)
    squares = elementwise.square(x, dtype=inner)
    total = _reduce("rms_norm", "add", squares, axes, FLOAT32, True)
    mean_square = scaled(total, "multiply", 1.0 / n, "add", epsilon)
    inverse = ndarray(mean_square.shape, FLOAT32)
    nisa.activation(inverse, elementwise.rsqrt, mean_square)
    normal = ndarray(x.shape, inner)
    nisa.tensor_tensor(normal, x, _repeated(inverse, x), ALU_OPS["multiply"])
    if w.shape[0] != x.shape[0]:
        w = broadcast_to(w, (x.shape[0], *w.shape[1:]))
    out = ndarray(x.shape, x.dtype if dtype is None else dtype)
    nisa.tensor_tensor(out, *together("rms_norm", normal, w), ALU_OPS["multiply"])
    return out


def transpose(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """The transpose of a 2-D SBUF tile, in PSUM, by the Tensor Engine."""
    if x.ndim != 2:
        raise located(ConstraintFault(f"nl.transpose of shape {x.shape}", limit="two dimensions"))
    out = ndarray(x.shape[::-1], x.dtype, MemoryRegion.psum)
    nisa.nc_transpose(out, x, engine=Engine.tensor)
    if dtype is None or dtype_of(dtype) == x.dtype:
        return out
    converted = ndarray(out.shape, dtype, MemoryRegion.psum)
    nisa.tensor_copy(converted, out)
    return converted


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """x @ y as float32 in PSUM; x (M, K) of at most (128, 128), y (K, N) with N at most 512, both in SBUF.

    ``transpose_x``: x is (K, M) already, as the Tensor Engine takes it; otherwise it is transposed first, by the Tensor
    Engine, and copied back to SBUF.
    """
    if not transpose_x:
        x = convert(transpose(x), x.dtype)
    out = ndarray((x.shape[1], y.shape[1]), dtypes.float32, MemoryRegion.psum)
    nisa.nc_matmul(out, x, y)
    return out
