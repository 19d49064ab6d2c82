"""``tile[...] = value``: what goes there without an instruction of its own, and what copies the rest."""

from __future__ import annotations

from typing import Any

from isa.dtypes import DType
from isa.faults import ConstraintFault
from trn_sim.machine import current_core
from trn_sim.neuronxcc.nki._issue import readable, write
from trn_sim.neuronxcc.nki._tile import Tile, settle
from trn_sim.nki import isa as nisa
from trn_sim.nki._support import located
from trn_sim.nki.regions import MemoryRegion

__all__ = ["assign", "beside", "copy_into", "fetch", "fill", "fresh", "is_number", "move", "number_for", "shaped"]


def number_for(tile: Tile, value: Any) -> Any:
    """A number as ``memset`` takes it for the dtype of ``tile``."""
    return int(value) if tile.dtype.kind in "iub" and float(value) == int(value) else float(value)


def assign(dst: Tile, value: Any) -> None:
    """Write a tile or a number into ``dst``; a late result is issued with ``dst`` as destination."""
    if not isinstance(value, Tile):
        if not is_number(value):
            raise located(
                ConstraintFault(
                    f"{type(value).__name__} is assigned to a tile", limit="a tile or a number",
                    advice="arrays of the host become tensors as arguments of the kernel, or by nl.shared_constant",
                )
            )  # fmt: skip
        settle()
        if not dst._row:
            raise located(
                ConstraintFault("a number is assigned to an HBM tensor", advice="use nl.store of a tile in SBUF")
            )
        write(fill, dst, {}, {"value": number_for(dst, value)}, None)
        return
    if value.is_late and (value.give_to(dst) or (value.shape != dst.shape and _reshaped(value, dst))):
        return
    if _same(value, dst):
        return
    copy_into(dst, readable(value), None)


def is_number(value: Any) -> bool:
    """True for numbers of Python and numpy, and arrays of no dimension."""
    return (
        not isinstance(value, (str, bytes, tuple, list))
        and hasattr(value, "__float__")
        and not getattr(value, "shape", ())
    )


def _same(a: Tile, b: Tile) -> bool:
    return (a.storage, a.shape, a.strides, a.offset, a.dtype) == (b.storage, b.shape, b.strides, b.offset, b.dtype)


def _reshaped(value: Tile, dst: Tile) -> bool:
    """Issue a late result into a destination that differs by dimensions of size 1 alone."""
    if [n for n in value.shape if n != 1] != [n for n in dst.shape if n != 1] or value.shape[0] != dst.shape[0]:
        return False
    return dst.is_contiguous() and value.give_to(dst.reshape(value.shape))


def shaped(value: Tile, shape: tuple[int, ...]) -> Tile:
    """``value`` as a view of ``shape``: equal sizes in another arrangement, or dimensions of size 1 repeated.

    Raises:
        ConstraintFault: there is no such view.
    """
    if value.shape == shape:
        return value
    if value.size == _size(shape):
        if value._row and (value.shape[0] != shape[0] or len(shape) < 2):
            return value  # the DMA moves elements in order
        return value.reshape(shape)
    if value.ndim == len(shape) and all(a in (1, b) for a, b in zip(value.shape, shape, strict=True)):
        for dim in range(1, value.ndim):
            if value.shape[dim] != shape[dim]:
                value = value.broadcast(dim, shape[dim])
        if value.shape[0] == shape[0]:
            return value
        from trn_sim.neuronxcc.nki.language import broadcast_to

        return broadcast_to(value, shape)
    raise located(
        ConstraintFault(
            f"a value of shape {value.shape} for a destination of shape {shape}",
            limit="equal shapes, or sizes of 1 that are repeated (err_store_dst_shape_smaller_than_other_shape)",
        )
    )


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def copy_into(dst: Tile, value: Tile, mask: Any) -> None:
    """Copy a tile: by ``tensor_copy`` on-chip, by DMA where HBM takes part (from PSUM by way of SBUF)."""
    value = shaped(value, dst.shape)
    if dst._row and value._row:
        write(move, dst, {"src": value}, {}, mask)
        return
    if value.buffer is MemoryRegion.psum:
        value = beside(value)
    write(nisa.dma_copy, dst, {"src": value}, {}, mask)


def beside(value: Tile) -> Tile:
    """A copy in SBUF."""
    tile = fresh(value.shape, value.dtype)
    nisa.tensor_copy(tile, value)
    return tile


def fresh(shape: tuple[int, ...], dtype: DType, region: MemoryRegion = MemoryRegion.sbuf) -> Tile:
    """An unwritten tile."""
    return Tile(shape, dtype, current_core().allocate(region.space, shape, dtype), region)


def reachable(*tiles: Tile) -> bool:
    """True where compute engines can take all of the tiles: they start at partition 0, 32, 64 or 96."""
    for tile in tiles:
        operand = tile.operand()
        size, start = operand.partitions, operand.start
        if operand.step != 1 or start % 32 or (start and size > 64) or (start % 64 and size > 32):
            return False
    return True


def move(dst: Tile, src: Tile, **hints: Any) -> None:
    """A copy on-chip: by ``tensor_copy``, by DMA where a tile starts at a partition that engines cannot reach."""
    if dst.buffer is src.buffer is MemoryRegion.sbuf and not reachable(dst, src):
        nisa.dma_copy(dst, src)
    else:
        nisa.tensor_copy(dst, src, **hints)


def fill(dst: Tile, value: Any, **hints: Any) -> None:
    """One value everywhere: by ``memset``, from another tile by DMA where ``dst`` starts at a partition that engines
    cannot reach."""
    if dst.buffer is MemoryRegion.sbuf and not reachable(dst):
        whole = fresh(dst.shape, dst.dtype)
        nisa.memset(whole, value, **hints)
        nisa.dma_copy(dst, whole)
    else:
        nisa.memset(dst, value, **hints)


def fetch(dst: Tile, src: Tile, **hints: Any) -> None:
    """A copy from HBM by DMA, into PSUM by way of SBUF."""
    if dst.buffer is MemoryRegion.psum:
        tile = fresh(dst.shape, dst.dtype)
        nisa.dma_copy(tile, src, **hints)
        nisa.tensor_copy(dst, tile)
    else:
        nisa.dma_copy(dst, src, **hints)
