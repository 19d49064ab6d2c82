"""Operands: which bytes an instruction touches, in which order.

An :class:`AccessPattern` names a memory, a range of partitions, a byte offset, up to five [stride, count] pairs
(strides in elements of its dtype, outermost first) and a dtype.  On-chip memories are two-dimensional: the
partition range plus at most four free pairs.  HBM is one-dimensional: every pair is free, and the buffer says which
HBM tensor the offset counts from.  A register is one 32-bit word of the sequencer.

Element order is row-major over (partition, pairs...).  The pattern is the same in every partition, as on the
hardware (AWS Neuron SDK, deep dive on access patterns).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from isa.dtypes import DType

__all__ = ["AccessPattern", "Dynamic", "DynamicKind", "Space", "decode_words", "start_partition_allowed"]


class Space(IntEnum):
    """The memories that operands live in.  The values are part of the stored program format."""

    HBM = 0
    SBUF = 1
    PSUM = 2
    REGISTER = 3

    @property
    def on_chip(self) -> bool:
        """True for the two-dimensional memories, SBUF and PSUM."""
        return self is Space.SBUF or self is Space.PSUM


class DynamicKind(IntEnum):
    """How a run-time index enters an address."""

    SCALAR = 1  # one index for the whole pattern
    VECTOR = 2  # one index per row of the outermost pair (gather and scatter)
    COLUMN = 3  # one index per column, the same in all partitions (tensor indirection)


@dataclass(slots=True, frozen=True, eq=False)
class Dynamic:
    """A run-time part of an address: ``index * stride`` elements are added to it.

    ``index`` is an SBUF tile or a register of integers; ``count`` is the number of legal index values, so the
    largest is ``count - 1``.  For ``VECTOR`` the stride of the outermost pair is replaced by the index, for ``COLUMN``
    that of the only pair, which is 0; ``group`` is the number of partitions over which its indices snake, 16 or 32
    (:mod:`isa.indirect`).
    """

    kind: DynamicKind
    index: AccessPattern
    stride: int
    count: int
    group: int = 0


_WIDE_GROUP = 32

_SHAPES: dict[tuple[Any, ...], int] = {}


class AccessPattern:
    """Where the elements of one operand are.

    Attributes:
        space: the memory.
        dtype: dtype of the elements; strides and counts are in elements of it.
        start: first partition; 0 in HBM and of registers.
        partitions: number of partitions (1 in HBM).
        step: distance between used partitions; 1 except for DMA operands that skip partitions.
        offset: byte offset in the partition (on-chip) or in the HBM buffer.
        pairs: [stride, count] pairs, outermost first.  On-chip: the free dimensions only.
        buffer: number of the HBM buffer or of the register; 0 on-chip.
        storage: the allocation the pattern was taken from (for messages and initialisation state), opaque here.
        dynamic: run-time part of the address, or None.
        shape_id: a small integer, equal for patterns that differ only in offset and buffer.
    """

    __slots__ = (
        "_view",
        "_words",
        "buffer",
        "dtype",
        "dynamic",
        "elements",
        "offset",
        "pairs",
        "partitions",
        "shape_id",
        "space",
        "start",
        "step",
        "storage",
    )

    def __init__(
        self,
        space: Space,
        dtype: DType,
        offset: int,
        pairs: tuple[tuple[int, int], ...],
        *,
        start: int = 0,
        partitions: int = 1,
        step: int = 1,
        buffer: int = 0,
        storage: Any = None,
        dynamic: Dynamic | None = None,
    ) -> None:
        self.space = space
        self.dtype = dtype
        self.start = start
        self.partitions = partitions
        self.step = step
        self.offset = offset
        self.pairs = pairs
        self.buffer = buffer
        self.storage = storage
        self.dynamic = dynamic
        elements = 1
        for _, count in pairs:
            elements *= count
        self.elements = elements  # per partition
        key = (
            space,
            dtype.code,
            start,
            partitions,
            step,
            pairs,
            None if dynamic is None else (dynamic.kind, dynamic.stride, dynamic.index.shape_id, dynamic.group),
        )
        shape_id = _SHAPES.get(key)
        if shape_id is None:
            shape_id = _SHAPES.setdefault(key, len(_SHAPES))
        self.shape_id: int = shape_id
        self._words: tuple[int, ...] | None = None
        self._view: Any = None  # numpy view, kept by the memory that made it

    @property
    def shape(self) -> tuple[int, ...]:
        """(partitions, counts...) on-chip, counts in HBM."""
        counts = tuple(count for _, count in self.pairs)
        return (self.partitions, *counts) if self.space.on_chip else counts

    @property
    def indirect(self) -> bool:
        """True where run-time offsets pick the columns (:mod:`isa.indirect`)."""
        return self.dynamic is not None and self.dynamic.kind is DynamicKind.COLUMN

    @property
    def nbytes(self) -> int:
        """Bytes of data the pattern names, over all partitions (repeated elements count again)."""
        return self.partitions * self.elements * self.dtype.itemsize

    @property
    def extent(self) -> tuple[int, int]:
        """Lowest byte touched in a partition or HBM buffer and one past the highest, strides of either sign, without
        the run-time part; two equal numbers where there are no elements."""
        low = high = self.offset
        if self.elements:
            itemsize = self.dtype.itemsize
            high += itemsize
            for stride, count in self.pairs:
                reach = stride * (count - 1) * itemsize
                if reach < 0:
                    low += reach
                else:
                    high += reach
        return low, high

    @property
    def contiguous_run(self) -> int:
        """Bytes of the longest run of consecutive bytes: what one DMA descriptor element can carry."""
        run = 1
        for stride, count in reversed(self.pairs):
            if count == 1:
                continue
            if stride != run:
                break
            run *= count
        return run * self.dtype.itemsize

    @property
    def innermost_stride_bytes(self) -> int:
        """Distance in bytes between neighbouring elements of the innermost pair longer than one."""
        for stride, count in reversed(self.pairs):
            if count > 1:
                return stride * self.dtype.itemsize
        return self.dtype.itemsize

    @property
    def words(self) -> tuple[int, ...]:
        """The pattern as 32-bit words; :func:`decode_words` is the inverse.

        Layout: header (bits 0-1 space, 2-7 dtype code, 8-10 number of pairs, 11-18 partition step, 19-20 kind of the
        run-time part, 21 set where its indices snake over 32 partitions), start partition | partitions << 16 (HBM,
        registers: their number), low and high word of the offset, then stride and count of each pair, then (where
        there is a run-time part) its stride and count.
        """
        words = self._words
        if words is None:
            dynamic = self.dynamic
            header = (
                int(self.space)
                | self.dtype.code << 2
                | len(self.pairs) << 8
                | self.step << 11
                | (0 if dynamic is None else int(dynamic.kind) | (dynamic.group == _WIDE_GROUP) << 2) << 19
            )
            place = self.start | self.partitions << 16 if self.space.on_chip else self.buffer
            low = self.offset & 0x7FFFFFFF
            flat = [header, place, low, self.offset >> 31]
            for pair in self.pairs:
                flat.extend(pair)
            if dynamic is not None:
                flat.extend((dynamic.stride, dynamic.count))
            words = self._words = tuple(flat)
        return words

    def __str__(self) -> str:
        counts = "x".join(str(n) for n in self.shape) or "1"
        if self.space is Space.REGISTER:
            return f"r{self.buffer}"
        pairs = ",".join(f"[{stride},{count}]" for stride, count in self.pairs)
        if self.space is Space.HBM:
            text = f"hbm{self.buffer}+{self.offset:#x}"
        else:
            text = f"{self.space.name.lower()}[{self.start}:{self.start + self.partitions * self.step}"
            text += f":{self.step}" if self.step != 1 else ""
            text += f"]+{self.offset:#x}"
        text += f"{{{pairs}}} {self.dtype} {counts}"
        if self.dynamic is not None:
            text += f" @{self.dynamic.kind.name.lower()}({self.dynamic.index})*{self.dynamic.stride}"
        return text

    __repr__ = __str__


def decode_words(words: Any, at: int) -> tuple[AccessPattern, int]:
    """Read one pattern from a sequence of 32-bit words at ``at``; also returns the position after it.

    The run-time part of the result, if any, has the pattern itself as a placeholder index: the index operand follows
    as an operand of its own in the stream.
    """
    from isa.dtypes import from_code

    header, place = int(words[at]), int(words[at + 1])
    space = Space(header & 3)
    count = header >> 8 & 7
    kind = header >> 19 & 3
    offset = int(words[at + 2]) | int(words[at + 3]) << 31
    at += 4
    pairs = tuple((int(words[at + 2 * i]), int(words[at + 2 * i + 1])) for i in range(count))
    at += 2 * count
    on_chip = space.on_chip
    make: dict[str, Any] = {
        "start": place & 0xFFFF if on_chip else 0,
        "partitions": place >> 16 if on_chip else 1,
        "step": header >> 11 & 0xFF,
        "buffer": 0 if on_chip else place,
    }
    pattern = AccessPattern(space, from_code(header >> 2 & 0x3F), offset, pairs, **make)
    if kind:
        group = 0 if kind != DynamicKind.COLUMN else _WIDE_GROUP if header >> 21 & 1 else _WIDE_GROUP // 2
        dynamic = Dynamic(DynamicKind(kind), pattern, int(words[at]), int(words[at + 1]), group)
        pattern = AccessPattern(space, pattern.dtype, offset, pairs, dynamic=dynamic, **make)
        at += 2
    return pattern, at


def start_partition_allowed(start: int, partitions: int) -> bool:
    """The quadrant rule for compute engines: more than 64 partitions start at 0, 33 to 64 at 0 or 64, up to 32 at
    0, 32, 64 or 96 (NKI documentation, tile layout)."""
    if partitions > 64:
        return start == 0
    if partitions > 32:
        return start in (0, 64)
    return start in (0, 32, 64, 96)
