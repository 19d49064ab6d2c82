"""Tracks and slices of a profile: the common ground of the trace formats.

Slices of one track never overlap.  Where an agent works on several instructions at once (a DMA queue with transfers
in flight, a weight load behind a matmul), it gets as many lanes as it needs, each a track of its own.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perf_model.launch import LaunchProfile
    from perf_model.profile import Profile

__all__ = ["Counter", "Slice", "Timeline", "assign_lanes", "timeline", "timelines"]


@dataclass(slots=True, frozen=True)
class Slice:
    """One instruction on one track, in nanoseconds from the start of the kernel."""

    track: str
    lane: int
    start_ns: int
    end_ns: int
    name: str
    args: dict[str, Any]


@dataclass(slots=True, frozen=True)
class Counter:
    """A quantity over time: ``points`` of (nanoseconds, value), each value lasting until the next point."""

    name: str
    unit: str
    points: list[tuple[int, float]]


@dataclass(slots=True, frozen=True)
class Timeline:
    """What is drawn for one run of one kernel on one core.

    Attributes:
        process: title of the group of tracks.
        end_ns: end of the last slice.
        slices: in order of start.
        tracks: titles in the order in which they are drawn.
    """

    process: str
    end_ns: int
    tracks: list[str]
    slices: Iterable[Slice]
    counters: list[Counter] = field(default_factory=list)


def assign_lanes(intervals: Iterable[tuple[int, int]]) -> Iterator[int]:
    """The lane of each (start, end), which come in order of start: the lowest one that is free.

    >>> list(assign_lanes([(0, 10), (5, 8), (8, 9), (10, 12)]))
    [0, 1, 1, 0]
    """
    busy: list[tuple[int, int]] = []  # (end, lane)
    free: list[int] = []
    lanes = 0
    for start, end in intervals:
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane = lanes
            lanes += 1
        heapq.heappush(busy, (end, lane))
        yield lane


def timeline(kernel: str, profile: Profile) -> Timeline:
    """The time line of a profile.

    Slices are the time in which an engine works and the time in which the data of a DMA moves.  Their arguments say
    the operands, the source line, what the instruction waited for, and whether it is on the critical path.
    """
    from perf_model.profile import ENGINES
    from perf_model.stream import QUEUE, agent_title

    used = set(profile.stream.agent().tolist())
    engines = [int(engine) for engine in ENGINES if engine in used]
    tracks = [agent_title(agent) for agent in (*engines, *sorted(agent for agent in used if agent >= QUEUE))]
    return Timeline(
        process=f"{kernel} on {profile.target.name}",
        end_ns=_ns(profile.schedule.total_ps),
        tracks=tracks,
        slices=_Slices(profile),
        counters=[Counter("HBM bandwidth", "GB/s", _hbm_points(profile))],
    )


def timelines(kernel: str, profile: Profile | LaunchProfile) -> list[Timeline]:
    """The time lines of a profile of one core or of several, which begin at the same time."""
    from perf_model.launch import LaunchProfile

    if not isinstance(profile, LaunchProfile):
        return [timeline(kernel, profile)]
    return [timeline(f"{kernel}, {title}", core) for title, core in zip(profile.titles, profile.cores, strict=True)]


def _ns(ps: int) -> int:
    return (ps + 500) // 1000


class _Slices:
    """The slices of a profile, made one by one: a trace of a million instructions is never held."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def __iter__(self) -> Iterator[Slice]:
        import numpy as np

        from isa.engine import Engine
        from perf_model.schedule import Bound
        from perf_model.stream import agent_title

        profile = self._profile
        program, schedule = profile.program, profile.schedule
        agents = profile.stream.agent()
        titles = {agent: agent_title(agent) for agent in set(agents.tolist())}
        begins = (schedule.begin + 500) // 1000
        finishes = (schedule.finish + 500) // 1000
        order = np.lexsort((np.arange(len(begins)), begins))
        lanes = np.zeros(len(begins), np.int64)
        for agent in titles:
            chosen = order[agents[order] == agent]
            spans = zip(begins[chosen].tolist(), finishes[chosen].tolist(), strict=True)
            lanes[chosen] = list(assign_lanes(spans))
        for index in order.tolist():
            template = program.templates[profile.stream.template[index]]
            source = program.source_of(index)
            args: dict[str, Any] = {"index": index, "source": f"{os.path.basename(source.file)}:{source.line}"}
            args |= {field: str(pattern) for field, pattern in program.operands(index)}
            args |= dict(template.constants)
            if template.engine is Engine.dma:
                args["bytes"] = template.work.nbytes
            if schedule.bound[index] != Bound.NONE:
                args["waited for"] = f"{Bound(schedule.bound[index]).name.lower()} of {schedule.bound_by[index]}"
            args["critical"] = bool(profile.path.weight_ps[index])
            yield Slice(
                titles[int(agents[index])],
                int(lanes[index]),
                int(begins[index]),
                int(finishes[index]),
                program.names.get(index, template.mnemonic),
                args,
            )


def _hbm_points(profile: Profile) -> list[tuple[int, float]]:
    """HBM bytes per nanosecond: every transfer counts with its mean rate while its data moves."""
    import numpy as np

    begin, finish = profile.schedule.begin, profile.schedule.finish
    nbytes = profile.counters.template_bytes[profile.stream.template]
    moving = (nbytes > 0) & (finish > begin)
    rates = nbytes[moving] * 1e3 / (finish - begin)[moving]
    times = np.concatenate((begin[moving], finish[moving]))
    changes = np.concatenate((rates, -rates))
    instants, place = np.unique((times + 500) // 1000, return_inverse=True)
    levels = np.cumsum(np.bincount(place, weights=changes, minlength=len(instants)))
    return list(zip(instants.tolist(), np.maximum(levels.round(3), 0).tolist(), strict=True))
