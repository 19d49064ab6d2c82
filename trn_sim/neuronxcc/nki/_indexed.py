"""Indexing of tiles: by integers and slices, by index tiles, by tiles of row numbers; and the parts masks leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, Self

from isa.dtypes import DType
from isa.faults import OutOfBoundsFault
from isa.operands import AccessPattern
from memory_model.storage import Storage
from trn_sim.neuronxcc.nki._index import Box, Index
from trn_sim.nki._support import located
from trn_sim.nki.regions import MemoryRegion
from trn_sim.nki.tensor import DynamicSlice, NkiTensor

__all__ = ["Indexed"]

Ints = tuple[int, ...]


_accesses: dict[Any, tuple[Ints, Ints, list[tuple[int, int]]]] = {}
"""By tensor layout and layouts of the index tiles: shape and strides of the view, reach of each index from its value at
position 0.  A kernel has few of them and uses each in every iteration."""
_MOST_ACCESSES = 1 << 16


def _span(key: Any, size: int) -> range | None:
    """The positions that an integer or a slice names, which may lie beyond ``size``; None for anything else."""
    if isinstance(key, DynamicSlice):
        if isinstance(key.start, NkiTensor):
            return None
        key = slice(key.start, key.start + key.size)
    if isinstance(key, slice):
        start, stop = 0 if key.start is None else int(key.start), size if key.stop is None else int(key.stop)
        span = range(start, stop, 1 if key.step is None else int(key.step))
        return span if start >= 0 and stop >= 0 and len(span) else None
    if not hasattr(key, "__index__") or not -size <= int(key) < size:
        return None
    number = int(key) % size
    return range(number, number + 1)


class Indexed(NkiTensor):
    """A tensor of the older namespace as far as indexing goes; see :class:`trn_sim.neuronxcc.nki._tile.Tile`.

    On-chip, dimensions in front of the partition are blocks: tiles of their own.
    """

    __slots__ = ("_blocks", "_loose", "_zero")

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        storage: Storage | None,
        buffer: MemoryRegion = MemoryRegion.sbuf,
        name: str = "",
    ) -> None:
        super().__init__(shape, dtype, storage, buffer, name)
        self._blocks = 0
        self._loose: tuple[tuple[Index, int], ...] = ()
        self._zero = False

    @classmethod
    def of_blocks(
        cls, blocks: Ints, shape: Ints, dtype: DType, storage: Storage, buffer: MemoryRegion, name: str
    ) -> Self:
        """Tiles of ``shape`` for all of ``blocks``; ``storage`` is (partitions, blocks, elements of one block)."""
        tile = cls(shape, dtype, storage, buffer, name)
        step = storage.shape[2]
        tile._row = prod(storage.shape[1:])
        strides = (tile._row, *tile.strides[1:])
        steps = []
        for size in reversed(blocks):
            steps.append(step)
            step *= size
        tile.shape, tile.strides, tile._blocks = (*blocks, *shape), (*reversed(steps), *strides), len(blocks)
        return tile

    def operand(self) -> AccessPattern:
        """The view as an instruction operand.

        Raises:
            OutOfBoundsFault: it was indexed beyond its tensor, and no mask took that part away.
            ConstraintFault: block dimensions are left, or more [stride, count] pairs than an operand has.
        """
        if self._operand is None:
            if self._loose:
                self.check_inside()
            if self._blocks:
                raise self._refuse(
                    f"has {self._blocks} block dimensions",
                    limit="instructions take one tile (err_failed_to_infer_tile_from_local_tensor)",
                    advice="index the dimensions in front of the partition",
                )
        return super().operand()

    def _view(self, shape: Ints, strides: Ints, offset: int) -> Self:
        if self._loose:
            self.check_inside()
        view = super()._view(shape, strides, offset)
        view._blocks = self._blocks
        view._loose = ()
        view._zero = self._zero
        return view

    # --- indexing ---------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Self:
        """A view by integers and slices, or by index tiles, of which each dimension takes one or an integer.

        The result has the shape of the index tiles together.  Index tiles may reach beyond the tensor where the mask of
        the instruction leaves these positions out.  In HBM one index may be a tile of row numbers in SBUF.

        Raises:
            OutOfBoundsFault: an integer or a slice beyond the bounds.
            ConstraintFault: index tiles together with slices, or an access that is no access pattern.
        """
        if key is Ellipsis:
            return self
        keys = list(key) if isinstance(key, tuple) else [key]
        kinds = {k.__class__ for k in keys}
        new_axes = []
        if type(None) in kinds:
            rest = [k for k in keys if k is not None]
            new_axes = [at for at, k in enumerate(keys) if k is None]
            keys = rest
        if Ellipsis in keys and not (any(issubclass(kind, (Index, Indexed)) for kind in kinds)):
            at = keys.index(Ellipsis)
            keys[at : at + 1] = [slice(None)] * (self.ndim - len(keys) + 1)
        if len(keys) > self.ndim:
            raise self._refuse(f"has {self.ndim} dimensions and got {len(keys)} indices")
        view = self._block(keys) if self._blocks else self
        if any(issubclass(kind, (Index, Indexed)) for kind in kinds):
            view = view._advanced(keys)
        elif keys:
            loose = view._beyond(keys) if slice in kinds or DynamicSlice in kinds else None
            view = NkiTensor.__getitem__(view, tuple(keys)) if loose is None else loose  # type: ignore[assignment]
        for axis in new_axes:
            view = view.expand_dim(axis)
        return view

    def _beyond(self, keys: list[Any]) -> Self | None:
        """The view of slices of which one ends beyond the tensor, for a mask to cut; None where none does."""
        spans = []
        kept = []
        for dim, size in enumerate(self.shape):
            span = _span(keys[dim] if dim < len(keys) else slice(None), size)
            if span is None:
                return None
            spans.append(span)
            if (dim < len(keys) and not isinstance(keys[dim], (slice, DynamicSlice))) and not (self._row and dim == 0):
                continue
            kept.append(dim)
        if all(span[-1] < size for span, size in zip(spans, self.shape, strict=True)):
            return None
        indices = [
            Index(
                tuple(len(span) if at == dim else 1 for at in kept),
                tuple(span.step if at == dim else 0 for at in kept),
                span.start,
            )
            for dim, span in enumerate(spans)
        ]
        return self._affine(indices, tuple(len(spans[dim]) for dim in kept))

    def _block(self, keys: list[Any]) -> Self:
        """The tile, or the blocks, that the leading integers of ``keys`` choose; takes them off the list."""
        offset, left = self.offset, self._blocks
        while left and keys:
            k = keys[0]
            if isinstance(k, Index) and not any(k.coefs):
                k = k.const
            if isinstance(k, (slice, Index, Indexed, DynamicSlice)):
                if k == slice(None) and len(keys) <= left:
                    break
                raise self._refuse(
                    f"is indexed by {k!r} in a block dimension", limit="integers in front of the partition dimension"
                )
            dim = self._blocks - left
            number = self._integer(k, dim)
            size = self.shape[dim]
            if not -size <= number < size:
                raise self._out_of_bounds(k, dim)
            offset += (number + size if number < 0 else number) * self.strides[dim]
            left -= 1
            keys.pop(0)
        gone = self._blocks - left
        view = self._view(self.shape[gone:], self.strides[gone:], offset)
        view._blocks = left
        if left and keys:
            raise self._refuse("is indexed by slices over blocks", limit="integers in front of the partition")
        return view

    def _advanced(self, keys: list[Any]) -> Self:
        layouts = tuple([k.layout if k.__class__ is Index else None for k in keys])
        access = self.shape, self.strides, self._row, layouts
        known = _accesses.get(access)
        if known is not None:
            shape, strides, reaches = known
            offset = self.offset
            for k, size, stride, (low, high) in zip(keys, self.shape, self.strides, reaches, strict=True):
                number = k.const if k.__class__ is Index else k
                if not isinstance(number, int) or number + low < 0 or number + high >= size:
                    break
                offset += number * stride
            else:
                return self._view(shape, strides, offset)
        return self._compose(keys, access)

    def _compose(self, keys: list[Any], access: Any) -> Self:
        """The view at ``keys``; remembered under ``access`` where only offsets can differ the next time."""
        if Ellipsis in [k for k in keys if not isinstance(k, Index)] or any(
            isinstance(k, (slice, DynamicSlice)) for k in keys
        ):
            raise self._refuse(
                "is indexed by index tiles together with slices",
                limit="one or the other (err_unsupported_mixing_basic_advanced_tensor_indexing)",
                advice="write the slices as nl.arange(...)[None, :]",
            )
        rank = max(k.ndim for k in keys if isinstance(k, (Index, Indexed)))
        keys += [0] * (self.ndim - len(keys)) if len(keys) == self.ndim else []
        if len(keys) < self.ndim:
            raise self._refuse(
                f"has {self.ndim} dimensions and got {len(keys)} indices", limit="with index tiles, one per dimension"
            )
        if rank < 2 and self._row:
            raise self._refuse(
                "is indexed by an index tile of one dimension",
                limit="two dimensions and more (err_1d_arange_not_supported)",
                advice="write nl.arange(n)[:, None] for partitions, nl.arange(n)[None, :] for the free dimension",
            )
        picked: tuple[int, Indexed] | None = None
        indices: list[Index] = []
        shape: Ints = (1,) * rank
        for dim, k in enumerate(keys):
            if isinstance(k, Indexed):
                if picked is not None:
                    raise self._refuse("has two tiles as indices", limit="one run-time index per access")
                picked = dim, k
                k = Index((1,) * (rank - k.ndim) + k.shape, (0,) * rank, 0)
            elif not isinstance(k, Index):
                number = self._integer(k, dim)
                size = self.shape[dim]
                k = Index((1,) * rank, (0,) * rank, number + size if -size <= number < 0 else number)
            index: Index = k[(None,) * (rank - k.ndim)] if k.ndim < rank else k
            if any(a != b and 1 not in (a, b) for a, b in zip(index.shape, shape, strict=True)):
                raise self._refuse(f"is indexed by index tiles of shapes {shape} and {index.shape}")
            shape = tuple(max(a, b) for a, b in zip(index.shape, shape, strict=True))
            indices.append(index)
        view = self._affine(indices, shape)
        if picked is not None:
            dim, rows = picked
            self._pick(view, dim, rows)
        elif len(_accesses) < _MOST_ACCESSES:
            reaches = [(low - i.const, high - i.const) for i in indices for low, high in [i.bounds()]]
            _accesses[access] = view.shape, view.strides, reaches
        return view

    def _affine(self, indices: list[Index], shape: Ints) -> Self:
        """The view at affine indices, one for each dimension."""
        offset = self.offset
        strides = [0] * len(shape)
        loose = []
        row = self._row
        for dim, (index, size, stride) in enumerate(zip(indices, self.shape, self.strides, strict=True)):
            low, high = index.bounds()
            if low < 0 or high >= size:
                loose.append((index, size))
            offset += index.const * stride
            for at, coef in enumerate(index.coefs):
                if coef:
                    if row and (at == 0) != (dim == 0) and (dim == 0 or indices[0].coefs[0]):
                        raise self._refuse(
                            "has its partition dimension indexed along another dimension than the first",
                            limit="partitions come first and go together with nothing else",
                            advice="transpose the tile with nisa.nc_transpose",
                        )
                    strides[at] += coef * stride
        if row:
            if shape[0] > 1 and not indices[0].coefs[0]:
                raise self._refuse(
                    f"is indexed with shape {shape}, but its partition dimension by one number",
                    limit="the first dimension of the result runs over partitions",
                )
            if strides[0] < 0:
                raise self._refuse("is indexed backwards over partitions", limit="steps of 1 and more")
            strides[0] = strides[0] or row
        view = self._view(shape, tuple(strides), offset)
        view._loose = tuple(loose)
        return view

    def _pick(self, view: Indexed, dim: int, rows: Indexed) -> None:
        """Give ``view`` the run-time index ``rows`` in dimension ``dim`` of this tensor."""
        if rows.size == 1:
            view._dynamic = self._index(rows, dim, self.strides[dim], self.shape[dim])
            return
        if rows.shape[0] != rows.size or view.shape[0] != rows.size:
            raise self._refuse(
                f"is indexed by a tile of shape {rows.shape}",
                limit="one row number per partition, shape (P, 1) (err_indirect_indices_free_dim)",
            )
        view._dynamic = self._rows(rows, self.strides[dim], self.shape[dim])

    # --- parts ------------------------------------------------------------------------------------

    def part(self, box: Box) -> Self:
        """The view restricted to a box of positions; dimensions of size 1 stay."""
        sizes = tuple(1 if size == 1 else b - a for size, (a, b) in zip(self.shape, box, strict=True))
        moved = sum(a * stride for size, stride, (a, _) in zip(self.shape, self.strides, box, strict=True) if size > 1)
        loose, self._loose = self._loose, ()
        try:
            view = self._view(sizes, self.strides, self.offset + moved)
        finally:
            self._loose = loose
        if self._is_vector and self.shape[0] > 1 and box[0] != (0, self.shape[0]):
            view._dynamic = self._fewer_rows(box[0])
        part = []
        for index, size in loose:
            short = [bounds if n > 1 else (0, 1) for n, bounds in zip(index.shape, box, strict=True)]
            inner = index.within(tuple(short))
            low, high = inner.bounds()
            if low < 0 or high >= size:
                part.append((inner, size))
        view._loose = tuple(part)
        return view

    def _fewer_rows(self, bounds: tuple[int, int]) -> Any:
        dynamic: Any = self._dynamic
        index = dynamic.index
        short = AccessPattern(
            index.space, index.dtype, index.offset, index.pairs, start=index.start + bounds[0] * index.step,
            partitions=bounds[1] - bounds[0], step=index.step, buffer=index.buffer, storage=index.storage,
        )  # fmt: skip
        return replace(dynamic, index=short)

    def check_inside(self) -> None:
        """Raise OutOfBoundsFault where index tiles reach beyond the tensor."""
        for index, size in self._loose:
            low, high = index.bounds()
            raise located(
                OutOfBoundsFault(
                    f"index tiles run from {low} to {high} in a dimension of size {size} of {self._label}",
                    limit=f"0 to {size - 1} (err_tensor_access_out_of_bound)",
                    advice="leave the positions outside out with mask=",
                )
            )
