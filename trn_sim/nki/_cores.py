"""The cores of a launch: made together, run together, and asked for one result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from isa.faults import Fault, KernelFault
from isa.place import Place
from trn_sim._source import user_location
from trn_sim.machine import Core, Options
from trn_sim.nki._host import walk
from trn_sim.nki._support import located
from trn_sim.nki.tensor import NkiTensor
from trn_sim.team import Team

__all__ = ["agreed", "make_cores", "run_cores"]


def make_cores(options: Options, *, cores: int = 1, ranks: int = 1) -> list[Core]:
    """Fresh cores, rank by rank; those of one rank share an HBM."""
    places = [Place.of(agent, cores, ranks) for agent in range(ranks * cores)]
    team = Team([place.title() for place in places]) if len(places) > 1 else None
    made: list[Core] = []
    for place in places:
        beside = made[-1] if place.core else None
        made.append(Core(options, place=place, team=team, beside=beside))
    return made


def run_cores(cores: Sequence[Core], bodies: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run one function per core to the end; what they return."""
    team = cores[0].executor.team
    if team is None:
        return [body() for body in bodies]
    return team.run([partial(_guarded, body) for body in bodies])


def _guarded(body: Callable[[], Any]) -> Any:
    """``body``, with the user's line put into a fault on the thread where it is known."""
    try:
        return body()
    except Fault as fault:
        fault.locate(*user_location(1))
        raise


def agreed(returned: Sequence[Any]) -> Any:
    """The one result of a rank's cores; a core that returns None leaves it to the others.

    Raises:
        KernelFault: they return different tensors.
    """
    given = [(core, value) for core, value in enumerate(returned) if value is not None]
    for core, value in given[1:]:
        if _tensors(value) != _tensors(given[0][1]):
            raise located(
                KernelFault(
                    f"the cores return different tensors: core {given[0][0]} returns {_labels(given[0][1])}, "
                    f"core {core} {_labels(value)}",
                    limit="all cores return the same shared_hbm tensors, or None",
                    advice="allocate outputs on every core, under the same names or in the same order",
                )
            )
    return given[0][1] if given else None


def _flat(value: Any) -> list[NkiTensor]:
    found: list[NkiTensor] = []

    def look(leaf: Any, _: str) -> Any:
        if isinstance(leaf, NkiTensor):
            found.append(leaf)
        return leaf

    walk(value, look, "")
    return found


def _tensors(value: Any) -> list[tuple[Any, ...]]:
    return [(id(t.storage), t.shape, t.strides, t.offset, t.dtype) for t in _flat(value)]


def _labels(value: Any) -> str:
    named = [(f"'{tensor.name}' " if tensor.name else "", tensor) for tensor in _flat(value)]
    return ", ".join(f"{name}{tensor.shape} {tensor.dtype}" for name, tensor in named) or "none"
