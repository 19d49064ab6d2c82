"""Instructions of the older namespace whose arguments mean something else than today's: index tiles, shapes, masks over
one of two operands."""

from __future__ import annotations

from math import prod
from typing import Any

from isa import dtypes
from isa.alu import ALU_OPS
from isa.engine import Engine
from isa.enums import DgeMode, MatmulPerfMode, OobMode, ReduceCmd
from isa.faults import ConstraintFault, UnimplementedFault
from trn_sim.neuronxcc.nki._assign import beside, fill, fresh, move, shaped
from trn_sim.neuronxcc.nki._index import Box, Index, Mask, boxes
from trn_sim.neuronxcc.nki._issue import compute, readable, settled, write
from trn_sim.neuronxcc.nki._tile import Tile, late, settle, whole_boxes
from trn_sim.neuronxcc.nki._zero import holds_values
from trn_sim.neuronxcc.nki.isa._functions import tile_of
from trn_sim.nki import isa as nisa
from trn_sim.nki._support import located
from trn_sim.nki.operator import alu_of
from trn_sim.nki.regions import MemoryRegion
from trn_sim.nki.tensor import dtype_of

__all__ = [
    "affine_select",
    "dma_copy",
    "dma_transpose",
    "iota",
    "memset",
    "nc_matmul",
    "nc_transpose",
    "reduce",
    "tensor_copy_dynamic_dst",
    "tensor_copy_dynamic_src",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar_cumulative",
]

Ints = tuple[int, ...]
PSUM = MemoryRegion.psum


# --- Tensor Engine ------------------------------------------------------------------------------------


def nc_matmul(
    stationary: Tile,
    moving: Tile,
    *,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    tile_position: tuple[int, ...] = (),
    tile_size: tuple[int, ...] = (),
    perf_mode: Any = MatmulPerfMode.none,
    mask: Any = None,
    name: str | None = None,
) -> Tile:
    """stationary^T @ moving in PSUM: (M, N) from (K, M) and (K, N).  ``psum[...] += nc_matmul(...)`` accumulates.

    Operands in PSUM are copied to SBUF first.  A mask over (K, ...) leaves out rows; over the free dimension it is
    about the columns of moving where the sizes agree, else about those of stationary.
    """
    settle()
    stationary = readable(tile_of(stationary, "nc_matmul", "stationary"))
    moving = readable(tile_of(moving, "nc_matmul", "moving"))
    stationary, moving = (beside(value) if value.buffer is PSUM else value for value in (stationary, moving))
    if isinstance(perf_mode, str):
        perf_mode = MatmulPerfMode(perf_mode.removesuffix("_gen3"))
    doubled = perf_mode is not MatmulPerfMode.none and "double_row" in str(getattr(perf_mode, "value", perf_mode))
    columns = prod(stationary.shape[1:]) // (2 if doubled else 1)
    shape = (columns, prod(moving.shape[2:])) if doubled else (columns, *moving.shape[1:])
    left, right, area = _operand_mask(stationary, moving, shape, mask)
    options: dict[str, Any] = {
        "is_stationary_onezero": is_stationary_onezero,
        "is_moving_onezero": is_moving_onezero,
        "is_transpose": is_transpose,
        "tile_position": tile_position,
        "tile_size": tile_size,
        "name": name,
    }
    if perf_mode is not MatmulPerfMode.none:
        options["perf_mode"] = perf_mode

    def emit(dst: Tile, accumulate: Any = False) -> None:
        if left is not None and right is not None:
            part = dst if area is None else dst.part(area)
            nisa.nc_matmul(part, left, right, accumulate=accumulate, **options)

    def accumulate(dst: Tile) -> None:
        part = dst if area is None or left is None else dst.part(area)
        if is_transpose or holds_values(
            part
        ):  # the Tensor Engine adds to what matmuls have written, and to nothing else
            product = fresh(shape, kind, PSUM)
            emit(product)
            summand = beside(product if area is None else product.part(area))
            nisa.tensor_tensor(part, readable(part), summand, ALU_OPS["add"])
        else:
            emit(dst, None)

    kind = moving.dtype if is_transpose else dtypes.float32
    partial = area is not None or left is None
    return late(shape, kind, emit, buffer=PSUM, accumulate=accumulate, partial=partial)


def _operand_mask(
    stationary: Tile, moving: Tile, shape: Ints, mask: Any
) -> tuple[Tile | None, Tile | None, Box | None]:
    """The parts of both operands that a mask leaves, and of the result; None for operands where nothing is left."""
    if mask is None or mask is True:
        return stationary, moving, None
    if not isinstance(mask, Mask):
        return (stationary, moving, None) if whole_boxes(mask, shape) is None else (None, None, None)
    area = [(0, size) for size in shape]
    rows = (0, moving.shape[0])
    for index, operator in mask.terms:
        term = Mask(((index, operator),))
        extents = index.shape
        free = extents[1:] if index.ndim > 1 else ()
        about_moving = index.ndim == moving.ndim and all(
            a in (1, b) for a, b in zip(free, moving.shape[1:], strict=True)
        )
        operand = moving if about_moving else stationary
        found = boxes(term, operand.shape)
        if not found:
            return None, None, None
        if len(found) != 1:
            raise located(
                UnimplementedFault(
                    "nc_matmul with a mask that is no box", advice="mask rows and columns each by bounds"
                )
            )
        (box,) = found
        rows = max(rows[0], box[0][0]), min(rows[1], box[0][1])
        if about_moving:
            area[1:] = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(area[1:], box[1:], strict=True)]
        elif len(box) == 2:
            area[0] = max(area[0][0], box[1][0]), min(area[0][1], box[1][1])
    if rows[0] >= rows[1] or any(a >= b for a, b in area):
        return None, None, None
    left = stationary.part((rows, area[0])) if stationary.ndim == 2 else stationary
    right = moving.part((rows, *area[1:]))
    return left, right, tuple(area)


def nc_transpose(data: Tile, *, mask: Any = None, dtype: Any = None, engine: Any = Engine.unknown) -> Tile:
    """The transpose of a 2-D tile: in PSUM by the Tensor Engine, up to 32 x 32 in SBUF by the Vector Engine."""
    settle()
    data = readable(tile_of(data, "nc_transpose", "data"))
    shape = (prod(data.shape[1:]), data.shape[0])
    found = whole_boxes(mask, data.shape)
    if found is not None and len(found) != 1:
        raise located(UnimplementedFault("nc_transpose with a mask that is no box"))
    if engine is Engine.unknown:
        small = max(shape) <= 32
        engine = Engine.vector if small or data.buffer is PSUM else Engine.tensor
    source = data if found is None else data.part(found[0])

    def emit(dst: Tile) -> None:
        target = dst if found is None else dst.part((found[0][1], found[0][0]))
        nisa.nc_transpose(target, source, engine=engine)

    kind = data.dtype if dtype is None else dtype_of(dtype)
    buffer = PSUM if engine is Engine.tensor else MemoryRegion.sbuf
    return late(shape, kind, emit, buffer=buffer, partial=found is not None)


# --- from index tiles ---------------------------------------------------------------------------------


def _pattern(index: Index) -> tuple[list[list[int]], int]:
    """[[step, count], ...] of the free dimensions, and the step per partition."""
    return [[coef, size] for coef, size in zip(index.coefs[1:], index.shape[1:], strict=True)], index.coefs[0]


def iota(expr: Any, dtype: Any, *, mask: Any = None) -> Tile:
    """The values of an index tile in SBUF."""
    if not isinstance(expr, Index) or expr.ndim < 2:
        raise located(
            ConstraintFault(
                f"is {expr!r}", instruction="iota", operand="expr",
                limit="an index tile of two dimensions and more, e.g. nl.arange(128)[:, None]",
            )
        )  # fmt: skip
    settle()
    found = whole_boxes(mask, expr.shape)

    def emit(dst: Tile) -> None:
        for box in [tuple((0, n) for n in expr.shape)] if found is None else found:
            part = expr.within(box)
            pattern, step = _pattern(part)
            nisa.iota(dst.part(box), pattern, part.const, step)

    return late(expr.shape, dtype, emit, partial=found is not None)


def affine_select(pred: Any, on_true_tile: Tile, on_false_value: float, *, mask: Any = None, dtype: Any = None) -> Tile:
    """``on_true_tile`` where the comparison of index tiles ``pred`` holds, else ``on_false_value``; several comparisons
    joined by & take an instruction each."""
    settle()
    data = readable(tile_of(on_true_tile, "affine_select", "on_true_tile"))
    data = beside(data) if data.buffer is PSUM else data  # the GpSimd Engine does not reach PSUM
    if isinstance(pred, bool):
        pred = Mask(((Index((1,) * data.ndim, (0,) * data.ndim, 0), "equal" if pred else "not_equal"),))
    if not isinstance(pred, Mask):
        raise located(
            ConstraintFault(
                f"is {pred!r}", instruction="affine_select", operand="pred", limit="a comparison of index tiles"
            )
        )
    found = whole_boxes(mask, data.shape)

    def emit(dst: Tile) -> None:
        for box in [tuple((0, n) for n in data.shape)] if found is None else found:
            source = data.part(box)
            for index, operator in pred.terms:
                grown = index[(None,) * (data.ndim - index.ndim)] if index.ndim < data.ndim else index
                whole = Index(data.shape, grown.coefs, grown.const).within(box)
                pattern, step = _pattern(whole)
                nisa.affine_select(dst.part(box), pattern, step, source, on_false_value, ALU_OPS[operator], whole.const)
                source = dst.part(box)

    return late(data.shape, data.dtype if dtype is None else dtype, emit, partial=found is not None)


def memset(shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = Engine.unknown) -> Tile:
    """A tile of one value."""
    kind = dtype_of(dtype)
    number = int(value) if kind.kind in "iub" else float(value)
    return compute(fill, tuple(int(n) for n in shape), kind, {}, {"value": number, "engine": engine}, mask)


# --- reductions ---------------------------------------------------------------------------------------


def reduce(
    op: Any, data: Tile, axis: Any, mask: Any, dtype: Any, keepdims: bool, negate: bool, name: str | None
) -> Tile:
    """Reduce any free dimensions; ``op`` as instructions take it."""
    settle()
    data = settled(tile_of(data, "tensor_reduce", "data"))
    given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    axes = sorted({int(a) + data.ndim if a < 0 else int(a) for a in given})
    if not axes or axes[0] < 1 or axes[-1] >= data.ndim:
        raise located(
            ConstraintFault(
                f"axis {axis} of shape {data.shape}", instruction="tensor_reduce", operand="axis",
                limit=f"free dimensions, 1 to {data.ndim - 1}",
                advice="reduce over partitions with nisa.tensor_partition_reduce, or by a matmul with ones",
            )
        )  # fmt: skip
    kept = [dim for dim in range(data.ndim) if dim not in axes]
    found = whole_boxes(mask, data.shape)
    if found is not None and len(found) > 1:
        raise located(UnimplementedFault("tensor_reduce with a mask that is no box", advice="mask by bounds"))
    last = data.permute((*kept, *axes))
    shape = tuple(data.shape[dim] for dim in kept)
    full = tuple(1 if dim in axes else size for dim, size in enumerate(data.shape))
    shape = full if keepdims else shape if len(shape) > 1 else (*shape, 1)

    def emit(dst: Tile) -> None:
        source, target = last, dst
        if found == []:
            return
        if found is not None:
            (box,) = found
            source = last.part(tuple(box[dim] for dim in (*kept, *axes)))
            outer = [box[dim] for dim in kept]
            target = dst.part(tuple(box) if keepdims else tuple(outer if len(outer) > 1 else [*outer, (0, 1)]))
        wanted = tuple(source.shape[: len(kept)])
        target = target.reshape(wanted if len(wanted) > 1 else (*wanted, 1))
        nisa.tensor_reduce(
            target,
            alu_of(op, "tensor_reduce", "op"),
            readable(source),
            tuple(range(len(kept), data.ndim)),
            negate=negate,
            name=name,
        )

    return late(shape, data.dtype if dtype is None else dtype, emit, partial=found is not None)


def tensor_reduce(
    op: Any,
    data: Tile,
    axis: Any,
    *,
    mask: Any = None,
    dtype: Any = None,
    negate: bool = False,
    keepdims: bool = False,
    name: str | None = None,
) -> Tile:
    """The reduction of free dimensions, in float32, rounded once; a mask leaves elements of ``data`` out."""
    return reduce(op, data, axis, mask, dtype, keepdims, negate, name)


def tensor_partition_reduce(op: Any, data: Tile, *, mask: Any = None, dtype: Any = None) -> Tile:
    """The reduction over partitions: shape (1, free sizes)."""
    settle()
    data = readable(tile_of(data, "tensor_partition_reduce", "data"))
    found = whole_boxes(mask, data.shape)
    if found is not None and len(found) != 1:
        raise located(UnimplementedFault("tensor_partition_reduce with a mask that is no box"))

    def emit(dst: Tile) -> None:
        if found is None:
            nisa.tensor_partition_reduce(dst, op, data)
        else:
            nisa.tensor_partition_reduce(dst.part(((0, 1), *found[0][1:])), op, data.part(found[0]))

    shape = (1, *data.shape[1:])
    return late(shape, data.dtype if dtype is None else dtype, emit, partial=found is not None)


# --- moves --------------------------------------------------------------------------------------------


def dma_copy(
    *,
    dst: Tile,
    src: Tile,
    mask: Any = None,
    dst_rmw_op: Any = None,
    oob_mode: Any = OobMode.error,
    dge_mode: Any = DgeMode.unknown,
) -> None:
    """dst = src by DMA, between any memories; ``dst_rmw_op=np.add`` adds to dst, as ``dma_compute`` does."""
    settle()
    src = readable(tile_of(src, "dma_copy", "src"))
    src = beside(src) if src.buffer is PSUM else src
    if dst_rmw_op is None:
        write(nisa.dma_copy, dst, {"src": shaped(src, dst.shape)}, {"oob_mode": oob_mode, "dge_mode": dge_mode}, mask)
        return

    def add(part: Tile, source: Tile) -> None:
        nisa.dma_compute(part, [source, part], alu_of(dst_rmw_op, "dma_copy", "dst_rmw_op"), oob_mode=oob_mode)

    write(lambda part, src: add(part, src), dst, {"src": src}, {}, mask)


def dma_transpose(
    src: Tile, *, axes: Any = None, mask: Any = None, dtype: Any = None, dge_mode: Any = DgeMode.unknown
) -> Tile:
    """A tile in SBUF with the dimensions of ``src`` in reverse order, or in the order ``axes``, moved by DMA."""
    settle()
    src = readable(tile_of(src, "dma_transpose", "src"))
    order = tuple(axes) if axes else tuple(reversed(range(src.ndim)))
    found = whole_boxes(mask, src.shape)
    if found is not None and len(found) != 1:
        raise located(UnimplementedFault("dma_transpose with a mask that is no box"))

    def emit(dst: Tile) -> None:
        target, source = dst, src
        if found is not None:
            source = src.part(found[0])
            target = dst.part(tuple(found[0][dim] for dim in order))
        nisa.dma_transpose(target, source, axes=order, dge_mode=dge_mode)

    shape = tuple(src.shape[dim] for dim in order)
    return late(shape, src.dtype if dtype is None else dtype, emit, partial=found is not None)


def tensor_copy_dynamic_src(src: Tile, *, mask: Any = None, dtype: Any = None, engine: Any = Engine.unknown) -> Tile:
    """A copy of ``src``, which is indexed by a (1, 1) tile at run time."""
    src = readable(tile_of(src, "tensor_copy_dynamic_src", "src"))
    kind = src.dtype if dtype is None else dtype_of(dtype)
    return compute(move, src.shape, kind, {"src": src}, {"engine": engine}, mask)


def tensor_copy_dynamic_dst(
    *,
    dst: Tile,
    src: Tile,
    mask: Any = None,
    dtype: Any = None,  # noqa: ARG001
    engine: Any = Engine.unknown,
) -> None:
    """dst = src, where ``dst`` is indexed by a (1, 1) tile at run time."""
    write(nisa.tensor_copy, tile_of(dst, "tensor_copy_dynamic_dst", "dst"), {"src": src}, {"engine": engine}, mask)


def tensor_scalar_cumulative(
    *,
    src: Tile,
    dst: Tile,
    op0: Any,
    op1: Any,
    imm0: Any,
    imm1: Any = None,
    reduce_cmd: Any = ReduceCmd.reset_reduce,
    mask: Any = None,
) -> None:
    """dst = the running op1 of (src op0 imm0); ``imm1`` is the start, and read with ``load_reduce`` alone."""
    operands = {"src": src, "imm0": imm0}
    if reduce_cmd is ReduceCmd.load_reduce:
        operands["imm1"] = imm1
    write(nisa.tensor_scalar_cumulative, dst, operands, {"op0": op0, "op1": op1, "reduce_cmd": reduce_cmd}, mask)
