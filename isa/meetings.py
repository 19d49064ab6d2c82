"""Meetings: which instructions of several recorded programs belong together.

Cores that run one kernel have a program each.  An instruction at which they meet (:mod:`isa.pair`,
:mod:`isa.collective`) stands in the program of every one that takes part; they pair up in the order in which each core
comes to them.
"""

from __future__ import annotations

from collections.abc import Sequence

from isa.faults import DeadlockFault
from isa.instruction import INSTRUCTIONS
from isa.place import Place
from isa.program import Program

__all__ = ["Member", "meetings"]

Member = tuple[int, int]
"""(core, position in its program)."""

_Head = tuple[int, str, tuple[int, ...]]  # position, name of the meeting, agents that take part


def _points(program: Program, place: Place) -> list[_Head]:
    """The instructions of the core at ``place`` that wait for another one, in order."""
    named = [INSTRUCTIONS[t.opcode].meeting(dict(t.constants), t.work, place) for t in program.templates]
    if not any(named):
        return []
    found = []
    for position, row in enumerate(program.rows()[:, 0].tolist()):
        point = named[row]
        if point is not None and len(point[1]) > 1:
            found.append((position, *point))
    return found


def meetings(programs: Sequence[Program], *, cores: int | None = None) -> list[list[Member]]:
    """The members of each meeting, in an order in which they can take place.

    Args:
        programs: of each core, rank by rank.
        cores: how many each rank has; None for one rank.

    Raises:
        DeadlockFault: cores wait for each other in a circle, or for one that never comes.
    """
    cores = len(programs) if cores is None else cores
    places = [Place.of(agent, cores, len(programs) // cores) for agent in range(len(programs))]
    points = [_points(program, place) for program, place in zip(programs, places, strict=True)]
    at = [0] * len(programs)
    found: list[list[Member]] = []
    waiting = {core for core, own in enumerate(points) if own}
    look = sorted(waiting)
    while look:
        core = look.pop()
        if at[core] == len(points[core]):
            continue
        _, what, members = points[core][at[core]]
        heads = [points[one][at[one]] if one < len(points) and at[one] < len(points[one]) else None for one in members]
        if any(head is None or head[1:] != (what, members) for head in heads):
            continue
        found.append([(one, head[0]) for one, head in zip(members, heads, strict=True) if head is not None])
        for one in members:
            at[one] += 1
        look += members
    stuck = [core for core in sorted(waiting) if at[core] < len(points[core])]
    if stuck:
        held = [points[core][at[core]] for core in stuck]
        raise _deadlock(programs, held, stuck, [place.title() for place in places])
    return found


def _deadlock(
    programs: Sequence[Program], heads: Sequence[_Head], stuck: Sequence[int], titles: Sequence[str]
) -> DeadlockFault:
    lines = []
    for core, (position, what, members) in zip(stuck, heads, strict=True):
        source = programs[core].source_of(position)
        others = " and ".join(titles[one] for one in members if one < len(titles) and one != core)
        lines.append(f"{titles[core]} waits at {what} for {others} ({source.file}:{source.line})")
    fault = DeadlockFault(
        "the cores wait for each other: " + "; ".join(lines),
        limit="every core comes to the same barriers and exchanges, in the same order",
        advice="let all cores take this path, or leave it to none",
    )
    source = programs[stuck[0]].source_of(heads[0][0])
    fault.locate(source.file, source.line, source.function)
    return fault
