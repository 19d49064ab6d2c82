"""The view methods of tensors: each gives another strided view of the same storage, at no cost on the chip.

Where AWS's texts leave room: ``ap(offset=n)`` replaces the offset of the view (the language guide), it does not add to
it (a docstring); with ``dtype``, run-time indices keep their meaning in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index as as_index
from typing import Any, Self

import numpy as np

from isa.faults import OutOfBoundsFault, UnverifiedFault
from isa.indirect import GROUP
from isa.operands import Dynamic, DynamicKind
from trn_sim.nki import _layout
from trn_sim.nki._run_time import RunTime
from trn_sim.nki._strided import Ints, Strided, dtype_of
from trn_sim.nki._support import located
from trn_sim.nki.register import VirtualRegister

__all__ = ["Views"]


class Views(RunTime):
    """View methods, for :class:`trn_sim.nki.tensor.NkiTensor`."""

    __slots__ = ()

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> Self:
        """Elements ``start`` to ``end`` (exclusive) of one dimension; 0 <= start <= end <= size, step >= 1."""
        dim = self._dim(dim)
        size, stride = self.shape[dim], self.strides[dim]
        start, end, step = (self._integer(value, dim) for value in (start, end, step))
        if not 0 <= start <= end <= size:
            raise self._out_of_bounds(f"{start}:{end}", dim)
        if step < 1:
            raise self._refuse(f"is sliced with step {step} in dimension {dim}", limit="steps of 1 and more")
        sizes, steps = list(self.shape), list(self.strides)
        sizes[dim], steps[dim] = -(-(end - start) // step), stride * step
        if self._dynamic is not None:
            self._guard_rows(sizes, steps)
        return self._view(tuple(sizes), tuple(steps), self.offset + start * stride)

    def select(self, dim: int, index: Any) -> Self:
        """One element of a dimension, which goes away (on-chip two dimensions always stay).

        Args:
            index: an integer, or a run-time index: a register or a (1, 1) tile of int32 in SBUF.  A view has one
                run-time index at most; on-chip it is not in dimension 0.
        """
        dim = self._dim(dim)
        run_time = isinstance(index, (Strided, VirtualRegister))
        size, stride = self.shape[dim], self.strides[dim]
        position = 0 if run_time else self._integer(index, dim)
        if not 0 <= position < size:
            raise self._out_of_bounds(index, dim)
        sizes, steps = list(self.shape), list(self.strides)
        if (self._row and (dim == 0 or len(sizes) == 2)) or len(sizes) == 1:
            sizes[dim] = 1
        else:
            del sizes[dim], steps[dim]
        if self._is_vector and dim == 0:
            raise self._refuse("has one run-time index per row, so no single row can be selected")
        view = self._view(tuple(sizes), tuple(steps), self.offset + position * stride)
        if run_time:
            view._dynamic = self._index(index, dim, stride, size)
        return view

    def vector_select(self, dim: int, vector_offset: Strided) -> Self:
        """Rows picked by a column of indices: HBM, dimension 0, ``vector_offset`` (P, 1) int32 or uint32 in SBUF.

        The result has shape (P, rest...) and is for DMA instructions.
        """
        if self._dim(dim) != 0:
            raise self._refuse(f"is indexed by a vector in dimension {dim}", limit="dimension 0")
        view = self._view((vector_offset.shape[0], *self.shape[1:]), self.strides, self.offset)
        view._dynamic = self._rows(vector_offset, self.strides[0], self.shape[0])
        return view

    def permute(self, dims: Sequence[int]) -> Self:
        """Dimensions in another order; on-chip and for gathered rows dimension 0 stays first."""
        order = tuple(self._dim(dim) for dim in dims)
        if sorted(order) != list(range(len(self.shape))):
            raise self._refuse(f"cannot be permuted by {tuple(dims)}", limit="each dimension once")
        if order[0] != 0:
            self._keep_first(f"be permuted by {tuple(dims)}", "nisa.nc_transpose or nisa.dma_transpose")
        return self._view(tuple(self.shape[i] for i in order), tuple(self.strides[i] for i in order), self.offset)

    def broadcast(self, dim: int, size: int) -> Self:
        """A dimension of size 1 repeated ``size`` times (stride 0)."""
        dim = self._dim(dim)
        if self.shape[dim] != 1:
            raise self._refuse(f"cannot be broadcast in dimension {dim}", limit="a dimension of size 1")
        if dim == 0 and (size != 1 or self._is_vector):
            self._keep_first("be broadcast over partitions", "nl.broadcast_to, which moves the data")
        sizes, steps = list(self.shape), list(self.strides)
        sizes[dim], steps[dim] = size, 0
        return self._view(tuple(sizes), tuple(steps), self.offset)

    def expand_dim(self, dim: int) -> Self:
        """A new dimension of size 1 at position ``dim``; on-chip not at 0."""
        dim = dim + len(self.shape) + 1 if dim < 0 else dim
        if not 0 <= dim <= len(self.shape):
            raise self._refuse(f"has no place {dim} for a new dimension", limit=f"0 to {len(self.shape)}")
        if dim == 0:
            self._keep_first("get a new dimension 0")
        stride = self.strides[dim] * self.shape[dim] if dim < len(self.shape) else 1
        return self._view(
            (*self.shape[:dim], 1, *self.shape[dim:]), (*self.strides[:dim], stride, *self.strides[dim:]), self.offset
        )

    def squeeze_dim(self, dim: int) -> Self:
        """Without a dimension of size 1; on-chip not dimension 0, and two dimensions stay."""
        dim = self._dim(dim)
        if self.shape[dim] != 1:
            raise self._refuse(f"cannot lose dimension {dim}", limit="a dimension of size 1")
        if dim == 0:
            self._keep_first("lose dimension 0")
        if len(self.shape) <= (2 if self._row else 1):
            raise self._refuse(f"cannot lose dimension {dim}", limit="two dimensions on-chip, one in HBM always stay")
        return self._view(
            self.shape[:dim] + self.shape[dim + 1 :], self.strides[:dim] + self.strides[dim + 1 :], self.offset
        )

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> Self:
        """One dimension split into several; one of the sizes may be -1."""
        dim = self._dim(dim)
        sizes = self._sizes(shape, self.shape[dim], f"dimension {dim}")
        if dim == 0 and len(sizes) != 1:
            self._keep_first(f"have dimension 0 split into {sizes}")
        stride = self.strides[dim]
        inner = [stride * step for step in _layout.row_major_strides(sizes)]
        return self._view(
            (*self.shape[:dim], *sizes, *self.shape[dim + 1 :]),
            (*self.strides[:dim], *inner, *self.strides[dim + 1 :]),
            self.offset,
        )

    def flatten_dims(self, start_dim: int, end_dim: int) -> Self:
        """Dimensions ``start_dim`` to ``end_dim`` (inclusive) as one; they must be neighbours in memory."""
        first, last = self._dim(start_dim), self._dim(end_dim)
        if first > last:
            raise self._refuse(f"has no dimensions {start_dim} to {end_dim} in this order")
        if first == 0 and last > 0:
            self._keep_first(f"have dimensions 0 to {end_dim} merged")
        merged = prod(self.shape[first : last + 1])
        strides = _layout.reshape(self.shape[first : last + 1], self.strides[first : last + 1], (merged,))
        if strides is None:
            raise self._refuse(
                f"cannot have dimensions {first} to {last} merged",
                limit="dimensions that are contiguous in memory",
                advice="copy it into a new tensor",
            )
        return self._view(
            (*self.shape[:first], merged, *self.shape[last + 1 :]),
            (*self.strides[:first], *strides, *self.strides[last + 1 :]),
            self.offset,
        )

    def reshape(self, shape: Sequence[int]) -> Self:
        """Another shape with as many elements; on-chip and for gathered rows dimension 0 stays.

        Raises:
            ConstraintFault: another number of elements, or a layout that only a copy could change.
        """
        sizes = self._sizes(shape, self.size, "the tensor")
        fixed = 1 if self._row or self._is_vector else 0
        if fixed and (sizes[0] != self.shape[0] or (self._row and len(sizes) < 2)):
            self._keep_first(f"be reshaped to {sizes}", "a shape that starts with the same number of partitions")
        strides = _layout.reshape(self.shape[fixed:], self.strides[fixed:], sizes[fixed:])
        if strides is None:
            raise self._refuse(
                f"cannot be viewed with shape {sizes}",
                limit="only dimensions that are contiguous in memory can be merged",
                advice="copy it into a new tensor first (nisa.tensor_copy, nisa.dma_copy)",
            )
        return self._view(sizes, self.strides[:fixed] + strides, self.offset)

    def rearrange(
        self, src_pattern: Sequence[Any], dst_pattern: Sequence[Any], fixed_sizes: dict[str, int] | None = None
    ) -> Self:
        """Dimensions split, reordered and merged by name, e.g. ``('b', ('h', 'w'))`` to ``('b', 'w', 'h')``.

        Args:
            src_pattern: a name per dimension, or a tuple of names that split it, outermost first.
            dst_pattern: the same names in the new order; a tuple merges.
            fixed_sizes: sizes of names; in each split dimension one may be left out.
        """
        known = dict(fixed_sizes or {})
        if len(src_pattern) != len(self.shape):
            raise self._refuse(
                f"has {len(self.shape)} dimensions where the pattern {src_pattern} has {len(src_pattern)}"
            )
        sizes: dict[str, int] = {}
        view = self
        for entry in src_pattern:
            names = (entry,) if isinstance(entry, str) else tuple(entry)
            at = len(sizes)
            wanted = [view.shape[at]] if len(names) == 1 else [known.get(name, -1) for name in names]
            if any(name in sizes for name in names) or len(set(names)) != len(names):
                raise self._refuse(f"is rearranged by {src_pattern}, which repeats a name")
            view = view.reshape_dim(at, wanted)
            sizes.update(zip(names, view.shape[at : at + len(names)], strict=True))
        for name, size in known.items():
            if sizes.get(name, size) != size:
                raise self._refuse(f"has size {sizes[name]} for '{name}' where {size} is asked for")
        groups = [(entry,) if isinstance(entry, str) else tuple(entry) for entry in dst_pattern]
        flat = [name for group in groups for name in group]
        if sorted(flat) != sorted(sizes):
            raise self._refuse(
                f"is rearranged from {src_pattern} to {dst_pattern}", limit="the same names on both sides"
            )
        order = list(sizes)
        view = view.permute([order.index(name) for name in flat])
        for position, group in enumerate(groups):
            if len(group) > 1:
                view = view.flatten_dims(position, position + len(group) - 1)
        return view

    def view(self, dtype: Any) -> Self:
        """The same bits as another dtype; the last dimension grows or shrinks by the ratio of sizes.

        Raises:
            ConstraintFault: the last dimension is not contiguous or not a multiple, or the address is dynamic.
        """
        wanted = dtype_of(dtype)
        old, new = self.dtype.itemsize, wanted.itemsize
        if self._dynamic is not None:
            raise self._refuse(
                "has a run-time address, so its dtype cannot be reinterpreted", advice="reinterpret first, then select"
            )
        if old == new:
            view = self._view(self.shape, self.strides, self.offset)
            view.dtype = wanted
            return view
        if self.shape[-1] != 1 and self.strides[-1] != 1:
            raise self._refuse(f"cannot be reinterpreted as {wanted}", limit="a contiguous last dimension")
        outer = [stride * old for stride in self.strides[:-1]]
        start = self.offset * old
        last = self.shape[-1] * old
        if (
            last % new
            or start % new
            or any(step % new for step, size in zip(outer, self.shape, strict=False) if size > 1)
        ):
            raise self._refuse(
                f"cannot be reinterpreted as {wanted}", limit=f"sizes, strides and offset in multiples of {new} bytes"
            )
        view = self._view((*self.shape[:-1], last // new), (*(step // new for step in outer), 1), start // new)
        view.dtype = wanted
        view._row = self._row * old // new
        return view

    reinterpret_cast = view

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: Strided | None = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> Self:
        """An explicit access pattern over the storage; shape and strides of the view it is called on do not matter.

        Args:
            pattern: [[stride, count], ...] in elements of ``dtype``, outermost first.  On-chip the first pair is the
                partition, with the storage's elements per partition as stride.
            offset: element of the storage; None keeps the offset of this view.
            scalar_offset: register or (1, 1) tile; moves the pattern by index * stride of dimension ``indirect_dim``
                of this view.
            vector_offset: (P, 1) tile; row p of the pattern starts at index[p] * stride of dimension 0 of this view,
                and the stride of the first pair is ignored.  HBM only, ``indirect_dim`` 0.
            indirect_dim: see above.
            dtype: reinterpret the bits.

        Raises:
            OutOfBoundsFault: the pattern leaves the storage.
            ConstraintFault: not a pattern, or a combination of run-time offsets that does not exist.
        """
        wanted = self.dtype if dtype is None else dtype_of(dtype)
        old, new = self.dtype.itemsize, wanted.itemsize
        pairs = self._pairs(pattern)
        row = self._row * old // new
        if self._row * old % new:
            raise self._refuse(f"cannot be accessed as {wanted}", limit="a whole number of elements per partition")
        if offset is None:
            if self.offset * old % new:
                raise self._refuse(f"starts inside an element of {wanted}", advice="pass offset=")
            start = self.offset * old // new
        else:
            start = as_index(offset)
        strides = tuple(stride for stride, _ in pairs)
        shape = tuple(count for _, count in pairs)
        if row and shape[0] > 1 and strides[0] % row:
            raise self._refuse(
                f"is accessed by {list(map(list, pairs))}, whose first stride is no whole number of partitions",
                limit=f"the first pair is the partition: its stride is {row}, the elements of {wanted} in a partition",
            )
        view = self._view(shape, (row, *strides[1:]) if row and shape[0] == 1 else strides, start)
        view.dtype = wanted
        view._row = row
        view._dynamic = None
        if scalar_offset is None and vector_offset is None:
            view._check_inside(self)
            return view
        if scalar_offset is not None and vector_offset is not None:
            raise self._refuse("got scalar_offset and vector_offset", limit="one of them")
        dim = self._dim(indirect_dim)
        stride = self.strides[dim] * old
        if stride % new:
            raise self._refuse(
                f"cannot be indexed in dimension {dim} as {wanted}",
                limit=f"a stride of whole elements; it is {stride} bytes",
            )
        count = self._index_count(dim)
        if vector_offset is not None:
            if dim != 0:
                raise self._refuse(f"is indexed by a vector in dimension {dim}", limit="indirect_dim=0")
            view._dynamic = self._rows(vector_offset, stride // new, count)
        else:
            view._dynamic = self._index(scalar_offset, dim, stride // new, count)
        return view

    def indirect(self, index: Strided, num_elem: int | None = None) -> Self:
        """Columns picked at run time, on NeuronCore-v4: gathered where an instruction reads them, scattered to where it
        writes.

        Args:
            index: (P, K) offsets in SBUF, P as in this view.  Offset i counts elements of a partition from the start of
                this view, and is ``index[i % G, i // G]``: G is 32 on the Tensor Engine and 16 on others.
            num_elem: number of offsets; None takes ``index.size``, as many as one group of G partitions may hold.

        Returns:
            A view (P, num_elem) for the operands of instructions that take one; no other view can be taken of it.

        Raises:
            ConstraintFault: an HBM tensor, a view with gaps, an index that does not fit.
        """
        self._not_twice()
        if not self._row:
            raise self._refuse(
                "is indexed by offsets of columns",
                limit="SBUF and PSUM",
                advice="HBM rows are gathered with .vector_select or .ap(vector_offset=)",
            )
        if not self.is_contiguous():
            raise self._refuse(
                "has gaps, so offsets of its columns mean nothing",
                limit="free dimensions that are contiguous in memory",
                advice="take .indirect of the whole tile, and put the gaps into the offsets",
            )
        if not isinstance(index, Strided) or len(index.shape) < 2 or index.shape[0] != self.shape[0]:
            raise self._refuse(
                f"got {index!r} as offsets of its columns", limit=f"a tile in SBUF of shape ({self.shape[0]}, K)"
            )
        count = index.size if num_elem is None else as_index(num_elem)
        if count < 1:
            raise self._refuse(f"is indexed by {count} offsets", limit="one and more")
        view = self._view((self.shape[0], count), (self._row, 0), self.offset)
        columns = prod(self.shape[1:])
        view._dynamic = Dynamic(DynamicKind.COLUMN, index.operand(), 1, columns, GROUP)
        return view

    # --- parts of the above -----------------------------------------------------------------------

    def _sizes(self, shape: Any, elements: int, what: str) -> Ints:
        sizes = [as_index(size) for size in (shape if isinstance(shape, (tuple, list)) else (shape,))]
        if sizes.count(-1) == 1:
            known = -prod(sizes)
            if known and elements % known == 0:
                sizes[sizes.index(-1)] = elements // known
        if prod(sizes) != elements or min(sizes, default=1) < 0:
            raise self._refuse(
                f"cannot be reshaped to {tuple(shape)}",
                limit=f"{what} has {elements} elements, the new sizes have {prod(sizes)}",
            )
        return tuple(sizes)

    def _pairs(self, pattern: Any) -> tuple[tuple[int, int], ...]:
        try:
            pairs = tuple((as_index(stride), as_index(count)) for stride, count in pattern)
        except (TypeError, ValueError):
            pairs = ()
        if not pairs or (self._row and len(pairs) < 2) or any(count < 1 for _, count in pairs):
            raise self._refuse(
                f"cannot be accessed by {pattern!r}",
                limit="a list of [stride, count] pairs, counts of 1 and more, on-chip the partition first",
            )
        if any(stride < 0 for stride, _ in pairs):
            raise located(
                UnverifiedFault(
                    f"{self._label}.ap with a negative stride: {pattern}",
                    advice="no AWS text says what it does; reverse the order on the other operand",
                )
            )
        return pairs

    def _check_inside(self, base: Strided) -> None:
        if self._storage is None:
            return
        item = self.dtype.itemsize
        reach = [stride * (count - 1) for stride, count in zip(self.strides, self.shape, strict=True)]
        if self._row:
            start, inside = divmod(self.offset, self._row)
            partition = start + reach[0] // self._row
            last = inside + sum(reach[1:])
            held = max(self._row, self._storage.nbytes // item)
            if self.offset >= 0 and partition < self._storage.partitions and last < held:
                return
            where = f"partitions {start} to {partition}, elements {inside} to {last} of each"
            limit = f"{self._storage.partitions} partitions of {self._row} elements of {self.dtype}"
        else:
            total = self._storage.nbytes // item
            last = self.offset + sum(reach)
            if self.offset >= 0 and last < total:
                return
            where = f"elements {self.offset} to {last}"
            limit = f"{total} elements of {self.dtype}"
        raise located(
            OutOfBoundsFault(
                f"{base._label}.ap({self.get_pattern()}, offset={self.offset}) touches {where}, outside the storage",
                limit=limit,
            )
        )

    def _integer(self, value: Any, dim: int) -> int:
        if not isinstance(value, (bool, np.bool_, VirtualRegister, Strided)):
            try:
                return as_index(value)
            except TypeError:
                pass
        advice = "use an integer, a slice, ... or nl.ds(start, size)"
        if isinstance(value, VirtualRegister):
            advice = "a register can be an index of its own, or the start of nl.ds(register, size)"
        elif isinstance(value, Strided):
            advice = (
                "for a run-time index use .select(dim, tensor), .vector_select or .ap(scalar_offset=, vector_offset=)"
            )
        elif value is None:
            advice = "use .expand_dim(dim)"
        raise self._refuse(f"cannot be indexed with {value!r} in dimension {dim}", advice=advice)
