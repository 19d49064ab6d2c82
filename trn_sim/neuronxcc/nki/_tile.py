"""Tiles of the older namespace: tensors that instructions return, indexed by index tiles, with Python's operators.

A result is *late*: its instruction waits until the next one, or until somebody looks, because what follows decides
where it goes.  ``tile[i_p, i_f] = nl.exp(x)`` is one instruction that writes into ``tile``, and ``psum[...] +=
nisa.nc_matmul(x, w)`` one that accumulates; ``y = nl.exp(x)`` gets a tile of its own.  At most one result is late, so
instructions stay in the order of the program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from isa.dtypes import float32
from isa.faults import ConstraintFault
from isa.operands import AccessPattern
from memory_model.storage import Storage
from trn_sim._source import Site, at_site, site
from trn_sim.machine import current_core
from trn_sim.neuronxcc.nki._index import Box, Mask, boxes
from trn_sim.neuronxcc.nki._indexed import Indexed
from trn_sim.nki._support import located
from trn_sim.nki.regions import MemoryRegion

__all__ = ["Late", "Tile", "discard", "late", "settle", "whole_boxes"]

Ints = tuple[int, ...]


class Late:
    """An instruction that is not issued yet.

    Attributes:
        emit: issues it with a tile as destination.
        accumulate: issues it so that it adds to a PSUM tile; None where it cannot.
        partial: it leaves parts of its destination as they are.
        exact: the result equals an input, so that converting it later or at once is the same.
    """

    __slots__ = ("accumulate", "emit", "exact", "partial", "site")

    def __init__(
        self,
        emit: Callable[[Tile], None],
        accumulate: Callable[[Tile], None] | None,
        partial: bool,
        exact: bool,
        place: Site | None,
    ) -> None:
        self.emit = emit
        self.accumulate = accumulate
        self.partial = partial
        self.exact = exact
        self.site = place


class _State(threading.local):
    late: Tile | None = None


_state = _State()


def settle() -> None:
    """Issue the late instruction, if there is one; everything that issues instructions calls this first."""
    tile = _state.late
    if tile is not None:
        tile.settle()


def discard() -> None:
    """Forget the late instruction: its kernel has ended."""
    _state.late = None


def late(
    shape: Sequence[int],
    dtype: Any,
    emit: Callable[[Tile], None],
    *,
    buffer: MemoryRegion = MemoryRegion.sbuf,
    accumulate: Callable[[Tile], None] | None = None,
    partial: bool = False,
    exact: bool = False,
    name: str = "",
) -> Tile:
    """The result of an instruction that is issued as late as possible; see :class:`Late` for the arguments."""
    settle()
    tile = Tile(shape, dtype, None, buffer, name)
    tile._late = Late(emit, accumulate, partial, exact, site(2))
    _state.late = tile
    return tile


class Tile(Indexed):
    """A tensor of the older namespace, late or not."""

    __slots__ = ("_late",)

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        storage: Storage | None,
        buffer: MemoryRegion = MemoryRegion.sbuf,
        name: str = "",
    ) -> None:
        super().__init__(shape, dtype, storage, buffer, name)
        self._late: Late | None = None

    # --- late results -----------------------------------------------------------------------------

    @property
    def is_late(self) -> bool:
        """True while the instruction that makes it is not issued."""
        return self._late is not None

    def settle(self) -> None:
        """Issue the instruction that makes it, into a tile of its own."""
        waiting = self._late
        if waiting is None:
            return
        self._late = None
        _state.late = None
        core = current_core()
        with at_site(waiting.site):
            storage = core.allocate(self.buffer.space, self.shape, self.dtype, name=self.name)
            self._storage = storage
            waiting.emit(self)
            if waiting.partial:
                core.memory.leave_undefined(storage.pattern())

    def give_to(self, dst: Tile) -> bool:
        """Issue the late instruction with ``dst`` as destination; False where that would change values."""
        waiting = self._late
        if (
            waiting is None
            or self.shape != dst.shape
            or not dst._row
            or (self.buffer is MemoryRegion.psum and dst.buffer is not MemoryRegion.psum)
            or not (self.dtype == dst.dtype or self.dtype == float32 or waiting.exact)
        ):
            return False
        self._late = None
        _state.late = None
        self._storage, self.strides, self.offset, self._row = dst.storage, dst.strides, dst.offset, dst._row
        self.dtype, self.buffer, self._operand = dst.dtype, dst.buffer, None
        with at_site(waiting.site):
            waiting.emit(dst)
            if waiting.partial and not dst._loose:
                current_core().memory.leave_undefined(dst.operand())
        return True

    def add_to(self, dst: Tile) -> bool:
        """Issue the late matmul so that it accumulates in the PSUM tile ``dst``; False where it is no matmul."""
        waiting = self._late
        if waiting is None or waiting.accumulate is None or self.shape != dst.shape or not _is_psum(dst):
            return False
        self._late = None
        _state.late = None
        self._storage, self.strides, self.offset, self._row = dst.storage, dst.strides, dst.offset, dst._row
        self._operand = None
        with at_site(waiting.site):
            waiting.accumulate(dst)
        return True

    @property
    def storage(self) -> Storage:
        """The allocation behind the view."""
        if self._late is not None:
            self.settle()
        return super().storage

    def operand(self) -> AccessPattern:
        """The view as an instruction operand; see :meth:`Indexed.operand`."""
        if self._late is not None:
            self.settle()
        return super().operand()

    def _view(self, shape: Ints, strides: Ints, offset: int) -> Tile:
        if self._late is not None:
            self.settle()
        view = super()._view(shape, strides, offset)
        view._late = None
        return view

    def __getitem__(self, key: Any) -> Tile:
        """A view; see :meth:`Indexed.__getitem__`."""
        if self._late is not None:
            self.settle()
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write ``value``, a tile or a number, into ``self[key]``; a late result goes there directly."""
        from trn_sim.neuronxcc.nki._assign import assign

        assign(self[key] if not (isinstance(value, Tile) and value is self) else self, value)

    # --- members of the older namespace -----------------------------------------------------------

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    def assert_shape(self, shape: Sequence[int]) -> Tile:
        """The tile itself; a fault where it has another shape."""
        if tuple(shape) != self.shape:
            raise self._refuse(
                f"is not of shape {tuple(shape)}", limit="the asserted shape (err_annotation_shape_mismatch)"
            )
        return self

    def as_tile(self) -> Tile:
        """The tile itself."""
        return self

    def astype(self, dtype: Any) -> Tile:
        """A copy in another dtype."""
        from trn_sim.neuronxcc.nki.language import copy

        return copy(self, dtype=dtype)

    def broadcast_to(self, shape: Sequence[int]) -> Tile:
        """The tile with dimensions of size 1 repeated; see ``nl.broadcast_to``."""
        from trn_sim.neuronxcc.nki.language import broadcast_to

        return broadcast_to(self, shape)

    def expand_dims(self, axis: int) -> Tile:
        """A view with a new dimension of size 1."""
        return self.expand_dim(axis)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a tile has no attribute '{name}'")


def _is_psum(tile: Tile) -> bool:
    return tile.buffer is MemoryRegion.psum


def whole_boxes(mask: Any, shape: Ints) -> list[Box] | None:
    """The boxes of a mask over ``shape``; None where there is no mask, an empty list where nothing is left.

    Args:
        mask: None, a Python truth value, or a :class:`Mask`.
    """
    if mask is None or mask is True:
        return None
    if isinstance(mask, Mask):
        found = boxes(mask, shape)
        return None if found == [tuple((0, size) for size in shape)] else found
    if isinstance(mask, (bool, np.bool_, int)):
        return None if mask else []
    raise located(
        ConstraintFault(
            f"mask={mask!r}",
            limit="comparisons of index tiles, joined by & (err_unsupported_expression_in_mask)",
        )
    )
