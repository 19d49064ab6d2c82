"""The launch grid of the older namespace: program instances that write disjoint parts of common outputs.

Instances run one after the other.  The n-th HBM tensor of a name that an instance makes is one tensor for all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

from isa.dtypes import DType
from isa.faults import ConstraintFault
from memory_model.storage import Storage
from trn_sim.nki._support import located

__all__ = ["Nc", "SpmdDim", "instance", "instances", "shared", "sizes"]


class _State(threading.local):
    sizes: tuple[int, ...] = ()
    instance: tuple[int, ...] = ()
    made: dict[tuple[str, int], Storage] | None = None
    counts: dict[str, int]


_state = _State()


def sizes() -> tuple[int, ...]:
    """Sizes of the launch grid; () without one."""
    return _state.sizes


def instance() -> tuple[int, ...]:
    """Position of the running instance."""
    return _state.instance


@contextmanager
def instances(grid: tuple[int, ...]) -> Iterator[Iterator[tuple[int, ...]]]:
    """All positions of the grid, each of them the running instance while it is the current item."""
    before = _state.sizes, _state.instance, _state.made
    _state.sizes, _state.made = grid, {} if grid else None
    try:
        yield _positions(grid)
    finally:
        _state.sizes, _state.instance, _state.made = before


def _positions(grid: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for position in product(*(range(size) for size in grid)):
        _state.instance, _state.counts = position, {}
        yield position


def shared(name: str, shape: tuple[int, ...], dtype: DType, make: Callable[[], Storage]) -> Storage:
    """The HBM storage that all instances share in this place of the program; ``make`` makes it in the first.

    Raises:
        ConstraintFault: the first instance has another tensor here.
    """
    made = _state.made
    if made is None:
        return make()
    count = _state.counts[name] = _state.counts.get(name, 0) + 1
    storage = made.get((name, count))
    if storage is None:
        storage = made[name, count] = make()
    elif (storage.shape, storage.dtype) != (shape, dtype):
        raise located(
            ConstraintFault(
                f"HBM tensor number {count} is {shape} {dtype} in instance {_state.instance} of the grid, and "
                f"{storage.shape} {storage.dtype} in another",
                limit="all instances make the same tensors, in the same order or under the same names",
            )
        )
    return storage


class Nc:
    """``nl.nc(n)``: n physical NeuronCores as part of a grid dimension; multiplied by a size it distributes it."""

    def __init__(self, cores: int) -> None:
        self.cores = cores

    def __mul__(self, other: Any) -> SpmdDim:
        return SpmdDim(self, other)

    def __rmul__(self, other: Any) -> SpmdDim:
        return SpmdDim(other, self)

    def __index__(self) -> int:
        return self.cores

    def __repr__(self) -> str:
        return f"nl.nc({self.cores})"


class SpmdDim:
    """``nl.spmd_dim(a, b)``: a grid dimension of a * b instances, spread over the cores that one of them names."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __index__(self) -> int:
        size = 1
        for part in self.parts:
            size *= part.__index__()
        return size

    def __repr__(self) -> str:
        return f"nl.spmd_dim{self.parts}"
