"""Reductions, normalisations, transpose and matmul of the older namespace."""

from __future__ import annotations

from math import prod as product
from typing import Any

from isa import dtypes
from isa.alu import ALU_OPS
from isa.engine import Engine
from trn_sim.neuronxcc.nki._issue import readable
from trn_sim.neuronxcc.nki._tile import Tile, settle
from trn_sim.neuronxcc.nki.isa import nc_matmul, nc_transpose
from trn_sim.neuronxcc.nki.isa._functions import tile_of
from trn_sim.neuronxcc.nki.isa._special import reduce
from trn_sim.neuronxcc.nki.language.elementwise import binary, composite
from trn_sim.neuronxcc.nki.language.tensors import copy
from trn_sim.nki import language as new
from trn_sim.nki.operator import operator
from trn_sim.nki.tensor import dtype_of

__all__ = [
    "all", "dropout", "matmul", "max", "mean", "min", "prod", "rms_norm", "softmax", "sum", "transpose", "var", "where",
]  # fmt: skip


@operator(alu="add")
def sum(x: Tile, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False) -> Tile:
    """Sum over free dimensions, in float32, rounded once; one ``tensor_reduce``."""
    return reduce(ALU_OPS["add"], x, axis, mask, dtype, keepdims, False, None)


@operator(alu="maximum")
def max(x: Tile, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False) -> Tile:
    """Largest element over free dimensions; one ``tensor_reduce``."""
    return reduce(ALU_OPS["maximum"], x, axis, mask, dtype, keepdims, False, None)


@operator(alu="minimum")
def min(x: Tile, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False) -> Tile:
    """Smallest element over free dimensions; one ``tensor_reduce``."""
    return reduce(ALU_OPS["minimum"], x, axis, mask, dtype, keepdims, False, None)


@operator(alu="multiply")
def prod(x: Tile, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False) -> Tile:
    """Product over free dimensions; one ``tensor_reduce``."""
    return reduce(ALU_OPS["multiply"], x, axis, mask, dtype, keepdims, False, None)


def all(x: Tile, axis: Any, *, dtype: Any = dtypes.bool_, mask: Any = None, keepdims: bool = False) -> Tile:
    """1 where no element is 0; one ``tensor_reduce``."""
    return reduce(ALU_OPS["logical_and"], x, axis, mask, dtype, keepdims, False, None)


def mean(x: Tile, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False) -> Tile:
    """Mean over free dimensions: the sum in float32, times 1/n; n counts masked elements too."""
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    count = product(x.shape[a] for a in axes)
    total = reduce(ALU_OPS["add"], x, axis, mask, dtypes.float32, keepdims, False, None)
    return binary(ALU_OPS["multiply"], total, 1.0 / count, x.dtype if dtype is None else dtype)


def var(x: Tile, axis: Any, *, dtype: Any = None, mask: Any = None) -> Tile:
    """Population variance over the trailing free dimensions, which stay with size 1."""
    return composite(new.var, x, axis, mask=mask, dtype=dtype)


def softmax(x: Tile, axis: Any, *, dtype: Any = None, compute_dtype: Any = None, mask: Any = None) -> Tile:  # noqa: ARG001
    """exp(x - max) / sum(exp(x - max)) over the trailing free dimensions, in float32."""
    return composite(new.softmax, x, axis, mask=mask, dtype=dtype)


def rms_norm(
    x: Tile,
    w: Tile,
    axis: Any,
    n: int,
    epsilon: float = 1e-06,
    *,
    dtype: Any = None,
    compute_dtype: Any = None,
    mask: Any = None,
) -> Tile:
    """x / sqrt(sum(x * x) / n + epsilon) * w."""
    return composite(new.rms_norm, x, w, axis, n, epsilon, mask=mask, dtype=dtype, compute_dtype=compute_dtype)


def where(condition: Tile, x: Any, y: Any, *, dtype: Any = None, mask: Any = None) -> Tile:
    """x where ``condition`` is not 0, else y; x and y are tiles or numbers."""
    return composite(new.where, tile_of(condition, "where", "condition"), x, y, mask=mask, dtype=dtype)


def dropout(x: Tile, rate: Any, *, dtype: Any = None, mask: Any = None) -> Tile:
    """x with each element set to 0 with probability ``rate``; the others are not scaled."""
    return composite(new.dropout, x, rate, mask=mask, dtype=dtype)


def transpose(x: Tile, *, dtype: Any = None, mask: Any = None) -> Tile:
    """The transpose of a 2-D tile, in PSUM, by the Tensor Engine."""
    moved = nc_transpose(x, mask=mask, engine=Engine.tensor)
    return moved if dtype is None or dtype_of(dtype) == moved.dtype else copy(moved, dtype=dtype)


def matmul(x: Tile, y: Tile, *, transpose_x: bool = False, mask: Any = None) -> Tile:
    """x @ y in PSUM; x (M, K), with ``transpose_x`` (K, M) as the Tensor Engine takes it.

    Without ``transpose_x`` the Tensor Engine transposes x first, and it is copied back to SBUF.
    """
    settle()
    x = readable(tile_of(x, "matmul", "x"))
    if not transpose_x:
        x = copy(nc_transpose(x, engine=Engine.tensor))
    return nc_matmul(x, y, mask=mask)
