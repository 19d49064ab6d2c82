"""Strided views of a storage: attributes, the operand that instructions get, and messages about them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index as as_index
from typing import Any, Self

from isa import dtypes
from isa.dtypes import DType
from isa.faults import ConstraintFault, KernelFault, OutOfBoundsFault
from isa.operands import AccessPattern, Dynamic, DynamicKind, Space
from memory_model.storage import Storage
from trn_sim.nki import _layout
from trn_sim.nki._support import located
from trn_sim.nki.objects import NKIObject
from trn_sim.nki.regions import MemoryRegion

__all__ = ["MAX_PAIRS", "Ints", "Strided", "dtype_of"]

MAX_PAIRS = 5
"""[stride, count] pairs of one operand; on-chip the partition is one of them."""

Ints = tuple[int, ...]
_new = object.__new__


def dtype_of(value: Any) -> DType:
    """The chip's dtype for an ``nl`` constant, a name, or a numpy dtype.

    Raises:
        ConstraintFault: the chip has no such dtype.
    """
    if value.__class__ is DType:
        return value
    try:
        return dtypes.dtype(value)
    except (TypeError, ValueError) as error:
        raise located(
            ConstraintFault(
                f"dtype {value!r} does not exist on the chip",
                limit="64-bit numbers and complex numbers have no hardware dtype",
                advice="convert on the host first, e.g. array.astype(np.float32) or np.int32",
            )
        ) from error


class Strided(NKIObject):
    """A storage and a strided view of it; what :class:`trn_sim.nki.tensor.NkiTensor` is built on.

    Attributes:
        shape, strides: sizes and element strides by dimension; dimension 0 of an on-chip tensor is the partition.
        offset: element of the storage at index (0, 0, ...).
        dtype: an ``nl`` dtype.
        buffer: a :class:`MemoryRegion`.
        name: the user's name, or "".
    """

    __slots__ = ("_dynamic", "_operand", "_row", "_storage", "buffer", "dtype", "name", "offset", "shape", "strides")

    shape: Ints
    strides: Ints
    offset: int
    dtype: DType
    buffer: MemoryRegion
    name: str

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        storage: Storage | None,
        buffer: MemoryRegion = MemoryRegion.sbuf,
        name: str = "",
    ) -> None:
        """The whole of ``storage`` as one dense tensor (``None``: a placeholder that no instruction can take)."""
        self.shape = tuple(shape)
        self.strides = _layout.row_major_strides(self.shape)
        self.offset = 0
        self.dtype = dtype_of(dtype)
        self.buffer = buffer
        self.name = name
        self._storage = storage
        self._row = self.strides[0] if buffer.on_chip else 0
        self._dynamic: Dynamic | None = None
        self._operand: AccessPattern | None = None

    # --- what it is -------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def storage(self) -> Storage:
        """The allocation behind the view."""
        if self._storage is None:
            raise located(KernelFault(f"{self._label} is a placeholder without storage", advice="use nl.ndarray"))
        return self._storage

    def is_contiguous(self) -> bool:
        """True if the view is dense and row-major; on-chip the free dimensions alone count."""
        first = 1 if self._row else 0
        return _layout.contiguous(self.shape[first:], self.strides[first:])

    def get_pattern(self) -> list[list[int]]:
        """[[stride, count], ...] by dimension, as :meth:`ap` takes it."""
        return [[stride, count] for stride, count in zip(self.strides, self.shape, strict=True)]

    def is_indirect(self) -> bool:
        """True if a run-time index is part of the address."""
        return self._dynamic is not None

    def operand(self) -> AccessPattern:
        """The view as an instruction operand (cached).

        Neighbouring dimensions are merged only where there are too many: instructions that look at the shape (axes of
        a reduction) see the one the kernel made.

        Raises:
            ConstraintFault: more than five [stride, count] pairs remain.
        """
        operand = self._operand
        if operand is not None:
            return operand
        storage = self._storage or self.storage
        if 0 in self.shape:
            raise self._refuse(
                "is empty, and no instruction works on nothing",
                limit="one element and more in each dimension",
                advice="leave the instruction out where there is nothing to do",
            )
        row = self._row
        dtype = self.dtype
        if row:
            start, inside = divmod(self.offset, row)
            partitions = self.shape[0]
            pairs = tuple(zip(self.strides[1:], self.shape[1:], strict=True))
            if len(pairs) >= MAX_PAIRS:
                pairs = self._merged(self.shape[1:], self.strides[1:], MAX_PAIRS - 1)
            operand = AccessPattern(
                storage.space,
                dtype,
                storage.offset + inside * dtype.itemsize,
                pairs,
                start=storage.start + start,
                partitions=partitions,
                step=self.strides[0] // row if partitions > 1 else 1,
                storage=storage,
                dynamic=self._dynamic,
            )
        else:
            pairs = tuple(zip(self.strides, self.shape, strict=True))
            if len(pairs) > MAX_PAIRS:
                keep = 1 if self._is_vector else 0
                pairs = pairs[:keep] + self._merged(self.shape[keep:], self.strides[keep:], MAX_PAIRS - keep)
            operand = AccessPattern(
                Space.HBM,
                dtype,
                self.offset * dtype.itemsize,
                pairs,
                buffer=storage.buffer,
                storage=storage,
                dynamic=self._dynamic,
            )
        self._operand = operand
        return operand

    def _merged(self, shape: Ints, strides: Ints, limit: int) -> tuple[tuple[int, int], ...]:
        pairs = tuple(_layout.compact(shape, strides))
        if len(pairs) > limit:
            raise self._refuse(
                f"needs {len(pairs)} [stride, count] pairs beside the partition: {list(pairs)}"
                if self._row
                else f"needs {len(pairs)} [stride, count] pairs: {list(pairs)}",
                limit=f"an operand has at most {limit} of them{' in each partition' if self._row else ''}",
                advice="split the access into several instructions",
            )
        return pairs

    def _view(self, shape: Ints, strides: Ints, offset: int) -> Self:
        if self._dynamic is not None and self._is_indirect_columns:
            self._keep_columns(shape, strides, offset)
        view: Self = _new(self.__class__)
        view.shape = shape
        view.strides = strides
        view.offset = offset
        view.dtype = self.dtype
        view.buffer = self.buffer
        view.name = self.name
        view._storage = self._storage
        view._row = self._row
        view._dynamic = self._dynamic
        view._operand = None
        return view

    @property
    def _is_indirect_columns(self) -> bool:
        return self._dynamic is not None and self._dynamic.kind is DynamicKind.COLUMN

    def _keep_columns(self, shape: Ints, strides: Ints, offset: int) -> None:
        if (shape, strides, offset) != (self.shape, self.strides, self.offset):
            raise self._refuse(
                "is indirect, so no other view of it can be taken",
                limit="an operand as it is",
                advice="take the view first and .indirect of it, with the offsets that are meant",
            )

    @property
    def _is_vector(self) -> bool:
        return self._dynamic is not None and self._dynamic.kind is DynamicKind.VECTOR

    def _dim(self, dim: Any) -> int:
        number = as_index(dim)
        rank = len(self.shape)
        if not -rank <= number < rank:
            raise located(OutOfBoundsFault(f"{self._label} has no dimension {number}", limit=f"{rank} dimensions"))
        return number % rank

    # --- messages ---------------------------------------------------------------------------------

    @property
    def _label(self) -> str:
        name = f"tensor '{self.name}'" if self.name else "tensor"
        return f"{name} ({self.buffer.value}, shape {self.shape}, {self.dtype})"

    def _refuse(self, message: str, *, limit: str | None = None, advice: str | None = None) -> ConstraintFault:
        return located(ConstraintFault(f"{self._label} {message}", limit=limit, advice=advice))

    def _out_of_bounds(self, index: Any, dim: int) -> OutOfBoundsFault:
        if isinstance(index, slice):
            text = ":".join("" if part is None else str(part) for part in (index.start, index.stop))
            text += f":{index.step}" if index.step is not None else ""
        else:
            text = str(index)
        return located(
            OutOfBoundsFault(
                f"index {text} of dimension {dim} is outside {self._label}",
                limit=f"size {self.shape[dim]}: indices 0 to {self.shape[dim] - 1}, slices from 0 to {self.shape[dim]}",
            )
        )
