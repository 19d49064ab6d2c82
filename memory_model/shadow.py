"""Shadow state: which bytes of an allocation have been written, exactly, byte by byte.

The state is kept beside the values, never in them, so that no maximum, select or integer path can swallow it.  Most
allocations are written whole by one instruction; those never get a map, and a read of a ``FULL`` one costs a single
comparison.  A map of booleans appears with the first partial write and goes when the last byte is written.

The same structure records which bytes of PSUM the Tensor Engine has written since their last reset.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from isa.operands import AccessPattern

__all__ = ["FULL", "PARTIAL", "UNWRITTEN", "Coverage", "disjoint"]

UNWRITTEN = 0
PARTIAL = 1
FULL = 2

Mask = npt.NDArray[np.bool_]


@lru_cache(maxsize=65536)
def disjoint(pairs: tuple[tuple[int, int], ...]) -> bool:
    """True if no two elements of the pattern share a byte (sufficient condition: nested strides)."""
    reach = 1
    for stride, count in sorted((abs(stride), count) for stride, count in pairs if count > 1):
        if stride < reach:
            return False
        reach += stride * (count - 1)
    return True


class Coverage:
    """The set of covered bytes of a rectangle: partitions ``start`` and up, bytes ``base`` to ``base + nbytes``.

    Args:
        start, partitions, base, nbytes: the rectangle (HBM: one partition, base 0).
        granule: bytes per entry of the map; refined to 1 when an access does not fit it, so that it costs no exactness.
        shared: a map of whole partitions, one entry per byte, shared by rectangles that may overlap.
        monotone: shared maps only: bytes are never uncovered while this rectangle lives, so that ``FULL`` may be
            remembered.
    """

    __slots__ = (
        "_base",
        "_count",
        "_map",
        "_monotone",
        "_row0",
        "_shared",
        "base",
        "granule",
        "nbytes",
        "partitions",
        "start",
        "state",
    )

    def __init__(
        self,
        start: int,
        partitions: int,
        base: int,
        nbytes: int,
        *,
        granule: int = 1,
        shared: Mask | None = None,
        monotone: bool = True,
    ) -> None:
        self.start = start
        self.partitions = partitions
        self.base = base
        self.nbytes = nbytes
        self.granule = granule if nbytes % granule == 0 else 1
        self._shared = shared is not None
        self._monotone = monotone
        self._map: Mask | None = shared
        self._row0 = 0 if self._shared else start
        self._base = 0 if self._shared else base
        self._count = 0
        self.state = UNWRITTEN
        if self._shared:
            self.granule = 1
            self.state = PARTIAL  # what the bytes hold is known to the map alone

    def fill(self) -> None:
        """Cover everything."""
        if self._shared:
            self._rectangle()[...] = True
            self.state = FULL if self._monotone else PARTIAL
        else:
            self.state, self._map = FULL, None

    def clear(self) -> None:
        """Uncover everything."""
        if self._shared:
            self._rectangle()[...] = False
            self.state = PARTIAL
        else:
            self.state, self._map = UNWRITTEN, None

    def covers(self, ap: AccessPattern) -> bool:
        """True if ``ap`` touches every byte of the rectangle (``ap`` lies inside it)."""
        return (
            ap.elements * ap.dtype.itemsize == self.nbytes and ap.partitions == self.partitions and disjoint(ap.pairs)
        )

    def add(self, ap: AccessPattern) -> None:
        """Cover the bytes of ``ap``."""
        if self.state == FULL:
            return
        if self.covers(ap):
            self.fill()
            return
        mask = self._mask(ap, distinct=True)
        if self._shared:
            mask[...] = True
            return
        if disjoint(ap.pairs):
            self._count += mask.size - int(np.count_nonzero(mask))
            mask[...] = True
        else:
            mask[...] = True
            self._count = int(np.count_nonzero(self._map_now()))
        self.state = PARTIAL
        if self._count == self._map_now().size:
            self.fill()

    def remove(self, ap: AccessPattern) -> None:
        """Uncover the bytes of ``ap``."""
        if self.state == UNWRITTEN:
            return
        if self.covers(ap):
            self.clear()
            return
        mask = self._mask(ap, distinct=True)
        mask[...] = False
        self.state = PARTIAL
        if not self._shared:
            self._count = int(np.count_nonzero(self._map_now()))
            if self._count == 0:
                self.clear()

    def missing(self, ap: AccessPattern) -> Mask | None:
        """None if every byte of ``ap`` is covered, else booleans in ``ap.shape``: True where some byte is not."""
        if self.state == FULL or ap.elements == 0:
            return None
        if self.state == UNWRITTEN:
            return np.ones(ap.shape, dtype=np.bool_)
        if self._mask(ap, distinct=True).all():
            if self._shared and self._monotone and self.covers(ap):
                self.state = FULL
            return None
        return np.logical_not(self._mask(ap).all(axis=-1)).reshape(ap.shape)

    def uncovered(self) -> int:
        """Number of bytes not covered, over all partitions."""
        if self.state == FULL:
            return 0
        total = self.partitions * self.nbytes
        if self.state == UNWRITTEN:
            return total
        return total - int(np.count_nonzero(self._rectangle())) * self.granule

    # --- the map ----------------------------------------------------------------------------------

    def _map_now(self) -> Mask:
        if self._map is None:
            make = np.ones if self.state == FULL else np.zeros
            self._map = make((self.partitions, self.nbytes // self.granule), dtype=np.bool_)
            self._count = self._map.size if self.state == FULL else 0
        return self._map

    def _rectangle(self) -> Mask:
        """The part of the map that belongs to this rectangle."""
        table = self._map_now()
        if not self._shared:
            return table
        return table[self.start : self.start + self.partitions, self.base : self.base + self.nbytes]

    def _mask(self, ap: AccessPattern, *, distinct: bool = False) -> Mask:
        """The map's entries that ``ap`` touches, as a view: (partitions, counts..., entries per element).

        ``distinct`` allows any shape that names each entry at least once: repeats (stride 0) are dropped, and runs of
        consecutive bytes become one dimension, which numpy walks several times faster.
        """
        table = self._map_now()
        itemsize = ap.dtype.itemsize
        first = ap.offset - self._base
        if self.granule != 1 and (first % self.granule or itemsize % self.granule):
            # repeat() keeps the meaning: every byte of an entry had the same state
            table = self._map = np.repeat(table, self.granule, axis=1)
            self._count *= self.granule
            self.granule = 1
        granule = self.granule
        column = first // granule
        width = itemsize // granule
        row = ap.start - self._row0
        if distinct and ap.contiguous_run == ap.elements * itemsize:
            stop = row + (ap.partitions - 1) * ap.step + 1
            return table[row : stop : ap.step, column : column + ap.elements * width]
        length = table.shape[1]
        shape = [ap.partitions]
        strides = [ap.step * length]
        for stride, count in ap.pairs:
            shape.append(1 if distinct and stride == 0 else count)
            strides.append(stride * width)
        shape.append(width)
        strides.append(1)
        buffer: Any = table
        return np.ndarray(shape, np.bool_, buffer, row * length + column, strides)
