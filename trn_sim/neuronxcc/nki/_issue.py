"""From calls of the older namespace to instructions: masks become parts of operands, deep access patterns several
instructions, results late tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from isa.faults import ConstraintFault, UnimplementedFault
from trn_sim.neuronxcc.nki._index import Box
from trn_sim.neuronxcc.nki._tile import Tile, late, settle, whole_boxes
from trn_sim.nki import _layout
from trn_sim.nki._strided import MAX_PAIRS
from trn_sim.nki._support import located
from trn_sim.nki.regions import MemoryRegion

__all__ = ["Operands", "compute", "cut", "each", "readable", "settled", "write"]

Ints = tuple[int, ...]
Operands = dict[str, Any]
"""Tiles, numbers and None by parameter name."""


def settled(value: Any) -> Any:
    """``value``; a late tile is issued."""
    if isinstance(value, Tile):
        value.settle()
    return value


def readable(value: Any) -> Any:
    """``value``, ready to be read: a late tile issued, PSUM of ``nl.zeros`` that nothing wrote filled with zeros."""
    if isinstance(value, Tile):
        value.settle()
        if value._zero:
            from trn_sim.neuronxcc.nki._zero import fill_missing

            fill_missing(value)
    return value


def cut(value: Any, box: Box, domain: Ints) -> Any:
    """The part of a tile in a box of the positions ``domain``; what is no tile stays.

    Dimensions of size 1 serve all positions.  A tile of another shape with as many partitions (a vector, the results of
    a reduction) takes its partitions from the box.
    """
    if not isinstance(value, Tile):
        return value
    if value.ndim != len(domain) or any(a not in (1, b) for a, b in zip(value.shape, domain, strict=True)):
        if value.shape[0] not in (1, domain[0]):
            raise located(
                ConstraintFault(
                    f"a mask over positions {domain}, and an operand of shape {value.shape}",
                    limit="operands of the shape of the data, or with as many partitions",
                )
            )
        box = (box[0], *((0, size) for size in value.shape[1:]))
    if all(size == 1 or (a, b) == (0, size) for size, (a, b) in zip(value.shape, box, strict=True)):
        return value
    return value.part(box)


def each(dst: Tile, operands: Operands, boxes: list[Box] | None, domain: Ints) -> Iterator[tuple[Tile, Operands]]:
    """Destination and operands of every instruction that the call needs; ``boxes`` are parts of ``domain``."""
    if boxes is None:
        yield from _shallow(dst, operands)
        return
    if len(boxes) > 1 and dst.shape != domain:
        raise located(
            UnimplementedFault(
                f"a mask over {domain} that is no box, for a result of shape {dst.shape}", advice="mask by bounds"
            )
        )
    for box in boxes:
        values = {name: cut(value, box, domain) for name, value in operands.items()}
        yield from _shallow(cut(dst, box, domain), values)


def _depth(tile: Tile) -> int:
    keep = 1 if tile._row or tile._is_vector else 0
    return keep + len(_layout.compact(tile.shape[keep:], tile.strides[keep:]))


def _shallow(dst: Tile, operands: Operands) -> Iterator[tuple[Tile, Operands]]:
    """The call in pieces that all operands can express, cut along the first free dimension of more than one element."""
    rank = len(dst.shape)
    at = None
    if rank > MAX_PAIRS:
        full = [value for value in (dst, *operands.values()) if isinstance(value, Tile) and value.ndim == rank]
        if any(_depth(tile) > MAX_PAIRS for tile in full):
            at = next((dim for dim in range(1, rank) if dst.shape[dim] > 1), None)
    if at is None:
        yield dst, {name: readable(value) for name, value in operands.items()}
        return
    for position in range(dst.shape[at]):
        box = tuple((position, position + 1) if dim == at else (0, size) for dim, size in enumerate(dst.shape))
        yield from _shallow(dst.part(box), {name: cut(value, box, dst.shape) for name, value in operands.items()})


def compute(
    issue: Callable[..., Any],
    shape: Ints,
    dtype: Any,
    operands: Operands,
    fixed: Operands,
    mask: Any,
    *,
    buffer: MemoryRegion = MemoryRegion.sbuf,
    exact: bool = False,
    domain: Ints | None = None,
) -> Tile:
    """The late result of an instruction whose operands and destination have the same positions.

    Args:
        issue: the function of ``nki.isa``; ``dst`` is its first parameter.
        operands: what a mask applies to.
        fixed: the other arguments.
        mask: as :func:`whole_boxes` takes it, over the positions of ``domain``.
        exact: the result equals the operand.
        domain: positions of the data, where the result has others; None for ``shape``.
    """
    settle()
    positions = shape if domain is None else domain
    boxes = whole_boxes(mask, positions)
    for name, value in operands.items():
        operands[name] = settled(value)

    def emit(dst: Tile) -> None:
        for part, values in each(dst, operands, boxes, positions):
            issue(part, **values, **fixed)

    return late(shape, dtype, emit, buffer=buffer, partial=boxes is not None, exact=exact)


def write(issue: Callable[..., Any], dst: Tile, operands: Operands, fixed: Operands, mask: Any) -> None:
    """Issue an instruction into a destination that the kernel gives."""
    settle()
    boxes = whole_boxes(mask, dst.shape)
    for name, value in operands.items():
        operands[name] = settled(value)
    for part, values in each(dst, operands, boxes, dst.shape):
        issue(part, **values, **fixed)
