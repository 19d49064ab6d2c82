"""Loops and the launch grid of the older namespace.

A loop runs its body once per iteration; its variable is an integer that also knows whether it is the first, which is
what ``nl.loop_reduce`` asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from operator import index as as_index
from typing import Any

from isa.faults import ConstraintFault, UnimplementedFault
from trn_sim.neuronxcc.nki import _grid
from trn_sim.neuronxcc.nki._grid import Nc, SpmdDim
from trn_sim.nki._support import located

__all__ = [
    "LoopIndex", "affine_range", "all_reduce", "nc", "num_programs", "program_id", "program_ndim", "sequential_range",
    "spmd_dim", "static_range",
]  # fmt: skip


class LoopIndex(int):
    """A loop variable.

    Attributes:
        first: True in the first iteration.
    """

    first: bool


def _loop(name: str, args: tuple[Any, ...]) -> Iterator[LoopIndex]:
    try:
        span = range(*(as_index(value) for value in args))
    except TypeError as error:
        raise located(ConstraintFault(f"nl.{name}{args}", limit="one to three integers")) from error
    for at, value in enumerate(span):
        index = LoopIndex(value)
        index.first = at == 0
        yield index


def affine_range(*args: int, **_: Any) -> Iterator[LoopIndex]:
    """A loop whose iterations may run in any order; here they run in order.  Hints have no effect."""
    return _loop("affine_range", args)


def sequential_range(*args: int, **_: Any) -> Iterator[LoopIndex]:
    """A loop whose iterations depend on each other.  Hints have no effect."""
    return _loop("sequential_range", args)


def static_range(*args: int) -> Iterator[LoopIndex]:
    """A loop that the compiler unrolls."""
    return _loop("static_range", args)


# --- grid ---------------------------------------------------------------------------------------------


def nc(value: int) -> Nc:
    """``value`` physical NeuronCores, as (part of) a dimension of the launch grid."""
    return Nc(value)


def spmd_dim(*parts: Any) -> SpmdDim:
    """A dimension of the launch grid that is spread over cores: ``nl.spmd_dim(nl.nc(2), 4)``."""
    return SpmdDim(*parts)


def program_id(axis: int) -> int:
    """Position of this instance in dimension ``axis`` of the launch grid; 0 without a grid."""
    grid = _grid.sizes()
    if not grid and axis == 0:
        return 0
    if not 0 <= axis < len(grid):
        raise located(ConstraintFault(f"axis {axis} of the launch grid {grid}", limit=f"0 to {len(grid) - 1}"))
    return _grid.instance()[axis]


def num_programs(axes: int | Sequence[int] | None = None) -> int:
    """Instances along one or several dimensions of the launch grid; None: all of them."""
    grid = _grid.sizes()
    if axes is None:
        return prod(grid)
    return prod(grid[axis] if grid else 1 for axis in ([axes] if isinstance(axes, int) else axes))


def program_ndim() -> int:
    """Dimensions of the launch grid."""
    return len(_grid.sizes())


def all_reduce(*_: Any, **__: Any) -> Any:
    """A reduction over the instances of the grid: not built yet."""
    raise located(
        UnimplementedFault(
            "nl.all_reduce: instances of the grid run one after the other and cannot exchange values",
            instruction="all_reduce",
            advice="write partial results to HBM and reduce them in a second kernel",
        )
    )
