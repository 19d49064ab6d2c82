"""Storage: one allocation in one memory, and who gets its bytes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from isa.dtypes import DType
from isa.operands import AccessPattern, Space
from memory_model.shadow import Coverage

__all__ = ["Storage", "row_major"]


def row_major(counts: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """[stride, count] pairs, in elements, of a dense array of shape ``counts``."""
    pairs = []
    stride = 1
    for count in reversed(counts):
        pairs.append((stride, count))
        stride *= count
    return tuple(reversed(pairs))


class Storage:
    """One allocation.  Its addresses return to the allocator when the last reference to it goes.

    Attributes:
        space: the memory.
        name: the user's name, or "".
        shape: (partitions, free sizes...) on-chip, the tensor's shape in HBM.
        dtype: dtype it was allocated with; access patterns may reinterpret it.
        start, partitions: partition range (0 and 1 in HBM).
        offset: byte offset in each partition (0 in HBM: offsets count from the tensor's first byte).
        nbytes: bytes per partition, or of the HBM tensor.
        buffer: HBM buffer number, 0 on-chip.
        address: HBM address; equal to ``offset`` on-chip.
        kind: HBM: ``input``, ``output`` or ``internal``.
        manual: True where the user chose the address; such storages may share bytes.
        source: (file, line) of the allocation, or None.
        written: which bytes have been written; see :class:`memory_model.shadow.Coverage`.
        accumulated: PSUM: which bytes the Tensor Engine wrote since their last reset; None elsewhere.
        data: HBM: the bytes on the host; None on-chip.
        origin: HBM: the caller's array where ``data`` is a copy of it, else None.
    """

    __slots__ = (
        "__weakref__",
        "_release",
        "accumulated",
        "address",
        "buffer",
        "data",
        "dtype",
        "kind",
        "manual",
        "name",
        "nbytes",
        "offset",
        "origin",
        "partitions",
        "shape",
        "source",
        "space",
        "start",
        "written",
    )

    def __init__(
        self,
        space: Space,
        name: str,
        shape: tuple[int, ...],
        dtype: DType,
        offset: int,
        nbytes: int,
        *,
        start: int = 0,
        buffer: int = 0,
        address: int | None = None,
        kind: str = "internal",
        manual: bool = False,
        source: tuple[str, int] | None = None,
    ) -> None:
        self._release: Callable[[Storage], None] | None = None
        self.space = space
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.start = start
        self.partitions = shape[0] if space.on_chip else 1
        self.offset = offset
        self.nbytes = nbytes
        self.buffer = buffer
        self.address = offset if address is None else address
        self.kind = kind
        self.manual = manual
        self.source = source
        self.written: Coverage
        self.accumulated: Coverage | None = None
        self.data: npt.NDArray[Any] | None = None
        self.origin: npt.NDArray[Any] | None = None

    def __del__(self) -> None:
        # No global name is used here or in the allocators' ``free``: at interpreter exit globals may be gone.
        release = self._release
        if release is not None:
            release(self)

    @property
    def state(self) -> int:
        """UNWRITTEN, PARTIAL or FULL (:mod:`memory_model.shadow`)."""
        return self.written.state

    @property
    def label(self) -> str:
        """``'name' (shape) dtype``, for messages."""
        name = f"'{self.name}'" if self.name else "unnamed"
        return f"{name} {self.shape} {self.dtype}"

    @property
    def place(self) -> str:
        """``file:line`` of the allocation, or an empty string."""
        return "" if self.source is None else f"{self.source[0]}:{self.source[1]}"

    def pattern(self) -> AccessPattern:
        """The access pattern that covers the whole storage in its own shape and dtype."""
        if self.space.on_chip:
            return AccessPattern(
                self.space,
                self.dtype,
                self.offset,
                row_major(self.shape[1:]),
                start=self.start,
                partitions=self.partitions,
                storage=self,
            )
        return AccessPattern(self.space, self.dtype, 0, row_major(self.shape), buffer=self.buffer, storage=self)

    def __repr__(self) -> str:
        return f"<Storage {self.space.name} {self.label} at {self.address:#x}>"
