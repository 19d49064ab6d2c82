"""What the tests of memory_model share: the bytes of a pattern spelled out, random patterns, short ways to make one.

``Footprint`` is written from the definition of an access pattern alone; it is the oracle of views, shadow state and
hazards.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from isa import dtypes
from isa.dtypes import DType
from isa.operands import AccessPattern, Space
from memory_model.memory import Memory, Storage

BITS = (dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.uint32, dtypes.bfloat16, dtypes.float32)


class Footprint:
    """Partition and first byte of each element of a pattern, in its shape; and the set of all its bytes."""

    def __init__(self, ap: AccessPattern) -> None:
        grid = np.indices(ap.shape).reshape(len(ap.shape), math.prod(ap.shape))
        free = grid[1:] if ap.space.on_chip else grid
        self.partition = ap.start + ap.step * grid[0] if ap.space.on_chip else np.zeros(grid.shape[1], int)
        self.byte = np.full(grid.shape[1], ap.offset)
        for (stride, _), position in zip(ap.pairs, free, strict=True):
            self.byte = self.byte + stride * ap.dtype.itemsize * position
        self.itemsize = ap.dtype.itemsize

    @property
    def columns(self) -> np.ndarray:
        """(elements, itemsize): every byte."""
        return self.byte[:, None] + np.arange(self.itemsize)

    @property
    def rows(self) -> np.ndarray:
        """(elements, 1): the partitions, to index a table together with ``columns``."""
        return self.partition[:, None]

    def bytes(self) -> set[tuple[int, int]]:
        rows = np.broadcast_to(self.rows, self.columns.shape)
        return set(zip(rows.ravel().tolist(), self.columns.ravel().tolist(), strict=True))


@st.composite
def inside(draw: Any, nbytes: int, partitions: int = 1, kinds: tuple[DType, ...] = BITS) -> dict[str, Any]:
    """A pattern that fits ``nbytes`` bytes in each of ``partitions``: keywords for :func:`part`.  Negative, zero and
    overlapping strides included."""
    dtype = draw(st.sampled_from(kinds))
    room = nbytes // dtype.itemsize - 1  # elements above the lowest one
    low = high = 0
    pairs = []
    for _ in range(draw(st.integers(0, 4))):
        count = draw(st.integers(1, 6))
        most = (room - (high - low)) // max(count - 1, 1)
        stride = draw(st.integers(-min(most, 9), min(most, 9)))
        low += min(stride * (count - 1), 0)
        high += max(stride * (count - 1), 0)
        pairs.append((stride, count))
    first = draw(st.integers(-low, room - high))
    start = draw(st.integers(0, partitions - 1))
    step = draw(st.integers(1, 3))
    return {
        "dtype": dtype,
        "at": first * dtype.itemsize,
        "pairs": tuple(pairs),
        "start": start,
        "partitions": draw(st.integers(1, 1 + (partitions - 1 - start) // step)),
        "step": step,
    }


def make(
    memory: Memory, space: Space, shape: tuple[int, ...], dtype: DType = dtypes.float32, **details: Any
) -> Storage:
    """An allocation in any of the memories."""
    return (
        memory.allocate(space, shape, dtype, **details)
        if space.on_chip
        else memory.allocate_hbm(shape, dtype, **details)
    )


def part(
    storage: Storage,
    at: int = 0,
    pairs: tuple[tuple[int, int], ...] = ((1, 1),),
    *,
    dtype: DType | None = None,
    start: int = 0,
    partitions: int | None = None,
    step: int = 1,
) -> AccessPattern:
    """A pattern in ``storage``: byte ``at`` and partition ``start`` of it (all of its partitions by default)."""
    on_chip = storage.space.on_chip
    rows = (storage.partitions - start if partitions is None else partitions) if on_chip else 1
    return AccessPattern(
        storage.space,
        storage.dtype if dtype is None else dtype,
        storage.offset + at,
        pairs,
        start=storage.start + start if on_chip else 0,
        partitions=rows,
        step=step if on_chip else 1,
        buffer=storage.buffer,
        storage=storage,
    )


def loose(
    space: Space,
    offset: int,
    pairs: tuple[tuple[int, int], ...] = ((1, 1),),
    dtype: DType = dtypes.float32,
    **place: Any,
) -> AccessPattern:
    """A pattern that belongs to no allocation."""
    return AccessPattern(space, dtype, offset, pairs, **place)
