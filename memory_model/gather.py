"""Run-time addresses: what an access pattern means once its index values are known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from isa.faults import ConstraintFault, OutOfBoundsFault, UnimplementedFault
from isa.operands import AccessPattern, DynamicKind, Space
from isa.target import Target
from memory_model.storage import Storage

__all__ = ["Rows", "resolve"]


class Rows:
    """Rows of an HBM tensor, or columns of a tile, picked by index: row ``i`` is ``base`` at its outermost position
    ``index[i]``, column ``i`` at its only free one.

    ``base`` is a plain pattern whose outermost pair runs over all rows that lie inside the tensor; ``axis`` is the
    dimension of its view that the index runs over: 0 for rows, 1 for columns.
    """

    __slots__ = ("axis", "base", "index")

    def __init__(self, base: AccessPattern, index: npt.NDArray[np.int64], axis: int = 0) -> None:
        self.base = base
        self.index = index
        self.axis = axis

    @property
    def nbytes(self) -> int:
        """Bytes moved."""
        return len(self.index) * (self.base.nbytes // self.base.pairs[0][1])

    def row(self, number: int) -> AccessPattern:
        """Row (or column) ``number`` as a pattern of its own."""
        base = self.base
        offset = base.offset + number * base.pairs[0][0] * base.dtype.itemsize
        return AccessPattern(
            base.space,
            base.dtype,
            offset,
            base.pairs[1:] if self.axis == 0 else ((1, 1),),
            start=base.start,
            partitions=base.partitions,
            buffer=base.buffer,
            storage=base.storage,
        )


def resolve(ap: AccessPattern, index: npt.NDArray[np.int64], storage: Storage, target: Target) -> AccessPattern | Rows:
    """See :meth:`memory_model.memory.Memory.resolve`."""
    dynamic = ap.dynamic
    if dynamic is None:
        return ap
    flat = np.asarray(index, dtype=np.int64).reshape(-1)
    bad = (flat < 0) | (flat >= dynamic.count)
    if bad.any():
        at = int(bad.argmax())
        raise OutOfBoundsFault(
            f"index {flat[at]} (number {at} of {len(flat)}) into {storage.label}",
            limit=f"0 to {dynamic.count - 1}",
            target=str(target),
            advice="clamp or mask the index before the instruction",
        )
    step = dynamic.stride * ap.dtype.itemsize
    if dynamic.kind is DynamicKind.SCALAR:
        if len(flat) != 1:
            raise ConstraintFault(
                f"{ap} takes one index, not {len(flat)}", limit="scalar index: shape (1, 1)", target=str(target)
            )
        return AccessPattern(
            ap.space,
            ap.dtype,
            ap.offset + int(flat[0]) * step,
            ap.pairs,
            start=ap.start,
            partitions=ap.partitions,
            step=ap.step,
            buffer=ap.buffer,
            storage=storage,
        )
    if dynamic.kind is DynamicKind.COLUMN:
        columns = ((dynamic.stride, dynamic.count),)
        base = AccessPattern(
            ap.space, ap.dtype, ap.offset, columns, start=ap.start, partitions=ap.partitions, storage=storage
        )
        return Rows(base, flat, axis=1)
    if ap.space is not Space.HBM:
        raise UnimplementedFault(
            f"{ap}: one index per row of an on-chip operand",
            target=str(target),
            advice="gather from HBM, or with nc_n_gather / local_gather",
        )
    if not ap.pairs or len(flat) != ap.pairs[0][1]:
        raise ConstraintFault(
            f"{ap} has {ap.pairs[0][1] if ap.pairs else 0} rows and {len(flat)} indices",
            limit="one index per row of the outermost dimension",
            target=str(target),
        )
    inner = AccessPattern(ap.space, ap.dtype, ap.offset, ap.pairs[1:], buffer=ap.buffer, storage=storage)
    rows, top = dynamic.count, inner.extent[1]
    if step > 0:
        rows = min(rows, (storage.nbytes - top) // step + 1)
    largest = int(flat.max(initial=0))
    if step < 0 or largest >= rows:
        end = top + largest * step
        raise OutOfBoundsFault(
            f"index {largest} reaches byte {end - 1} of {storage.label} of {storage.nbytes} bytes",
            limit=f"{storage.nbytes} bytes",
            target=str(target),
            advice="the rows of the pattern do not all fit behind its offset",
        )
    base = AccessPattern(
        ap.space, ap.dtype, ap.offset, ((dynamic.stride, rows), *ap.pairs[1:]), buffer=ap.buffer, storage=storage
    )
    return Rows(base, flat)
