"""Accumulation groups of the Tensor Engine, executed as one matrix product when somebody looks.

Consecutive matmuls into the same PSUM tile are gathered (operands are decoded to float32 at once, so later writes to
SBUF do not matter) and multiplied together over the concatenated contraction rows.  Where a group ends depends on the
instruction stream alone, never on when Python looks: :meth:`Accumulator.peek_guard` computes a group for an observer
and then takes the result back, so looking changes no later bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from isa.dtypes import encode, float32, to_float
from isa.operands import AccessPattern
from memory_model.memory import Memory

__all__ = ["Accumulator"]

MAX_ROWS = 4096
"""Contraction rows after which a group is executed and a new one begun: bounds the memory a group takes."""

Floats = npt.NDArray[np.float32]


class _Group:
    """Matmuls into one PSUM tile that are not executed yet.

    ``keep`` says what happens to the tile's old value: True adds to it, False overwrites, a mask does either.
    """

    __slots__ = ("dst", "keep", "left", "right", "rows")

    def __init__(self, dst: AccessPattern, keep: Any) -> None:
        self.dst = dst
        self.keep = keep
        self.left: list[Floats] = []
        self.right: list[Floats] = []
        self.rows = 0

    def append(self, left: Floats, right: Floats) -> None:
        self.left.append(left)
        self.right.append(right)
        self.rows += left.shape[0]

    def product(self) -> Floats:
        """(M, N): the sum over the group, contraction in the order of issue."""
        if len(self.left) == 1:
            return np.asarray(self.left[0].T @ self.right[0])
        return np.asarray(np.concatenate(self.left).T @ np.concatenate(self.right))


class Accumulator:
    """The pending groups of one core, by PSUM tile."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._groups: dict[tuple[int, ...], _Group] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, dst: AccessPattern, left: Floats, right: Floats, accumulate: bool | None) -> None:
        """Append one matmul: ``left`` (K, M) and ``right`` (K, N) must not be views of memory."""
        key = dst.words
        group = self._groups.get(key)
        if group is not None and group.dst.storage is not dst.storage:  # another tensor at the same address
            self._execute(self._groups.pop(key))
            group = None
        if group is not None and accumulate is not False:
            if group.left[0].shape[1] == left.shape[1] and group.rows + left.shape[0] <= MAX_ROWS:
                group.append(left, right)
                return
            self._execute(self._groups.pop(key))
        elif group is not None:
            del self._groups[key]  # overwritten before anybody read it
        else:
            self.flush(dst)
        memory = self._memory
        if accumulate is True:
            memory.check(dst)
        group = _Group(dst, self._written(dst) if accumulate is None else accumulate)
        group.append(left, right)
        memory.psum_mark(dst)
        if dst.dtype == float32:
            self._groups[key] = group
        else:  # a narrower PSUM tile is rounded at every write, so nothing may be merged
            self._execute(group)

    def _written(self, dst: AccessPattern) -> Any:
        """Where the tile holds a sum to add to: True (everywhere), False (nowhere) or a mask of its shape."""
        fresh = self._memory.psum_fresh(dst)
        if isinstance(fresh, str):
            return fresh == "none"
        return ~fresh.reshape(dst.shape)

    def flush(self, operand: AccessPattern | None = None) -> None:
        """Execute the groups whose tile overlaps ``operand`` (all of them for None)."""
        for key in self._overlapping(operand):
            self._execute(self._groups.pop(key))

    @contextmanager
    def peek_guard(self, operand: AccessPattern) -> Iterator[None]:
        """Inside, memory shows the value that ``operand`` would have; afterwards everything is as before."""
        saved = []
        for key in self._overlapping(operand):
            group = self._groups[key]
            view = self._memory.view(group.dst)
            saved.append((view, view.copy()))
            self._execute(group)
        try:
            yield
        finally:
            for view, values in reversed(saved):
                view[...] = values

    def _overlapping(self, operand: AccessPattern | None) -> list[tuple[int, ...]]:
        if operand is None:
            return list(self._groups)
        low, high = operand.extent
        first, last = operand.start, operand.start + operand.partitions
        return [
            key
            for key, group in self._groups.items()
            if group.dst.extent[0] < high
            and low < group.dst.extent[1]
            and group.dst.start < last
            and first < group.dst.start + group.dst.partitions
        ]

    def _execute(self, group: _Group) -> None:
        dst, keep = group.dst, group.keep
        total = group.product().reshape(dst.shape)
        view = self._memory.view(dst)
        if keep is not False:
            old = to_float(view, dst.dtype)
            total = old + total if keep is True else np.where(keep, old + total, total)
        view[...] = total if view.dtype == np.float32 else encode(np.ascontiguousarray(total), dst.dtype)
