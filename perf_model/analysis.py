"""Analysis: the critical path through a schedule, and the slack beside it.

The critical path is walked back from the last end, from each instruction to what decided its start, as the schedule
recorded it.  Every picosecond of the total belongs to one instruction and to one :class:`Part`.  Time that transfers
lose to each other is counted as DMA sharing of the transfer on the path.

Both are about the stream and schedule of one core.  Where it waits for another core, the path goes on before the wait,
on the same core; the slack knows nothing of cores that wait for this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from perf_model.schedule import Schedule
from perf_model.stream import Stream

__all__ = ["CriticalPath", "Part", "critical_path", "slack_ps"]


class Part(IntEnum):
    """What the time on the critical path is spent on."""

    BUSY = 0  # an engine works
    LATENCY = 1  # results leave the pipeline after the engine is free again
    SEMAPHORE = 2  # a consumer learns that its producer has ended
    LOAD = 3  # loading a stationary tile that no multiply hides
    TABLE_LOAD = 4  # loading a function table
    DMA_ISSUE = 5  # triggers of one queue, one after the other
    DMA_BEGIN = 6  # from the trigger to the first data
    DMA_DATA = 7  # data moves
    DMA_SHARING = 8  # data moves slower because of other transfers
    DMA_COMPLETION = 9  # from the last data to the consumer
    CORES = 10  # another core has yet to come to a meeting

    @property
    def title(self) -> str:
        """Words for reports."""
        return {
            "BUSY": "engine busy", "LATENCY": "pipeline latency", "SEMAPHORE": "semaphores",
            "LOAD": "exposed stationary loads", "TABLE_LOAD": "function table loads", "DMA_ISSUE": "DMA triggers",
            "DMA_BEGIN": "DMA start-up", "DMA_DATA": "DMA data", "DMA_SHARING": "DMA bandwidth sharing",
            "DMA_COMPLETION": "DMA completion", "CORES": "waiting for other cores",
        }[self.name]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CriticalPath:
    """Where the total time goes.

    Attributes:
        weight_ps: time on the path per instruction, (n,).
        parts_ps: time on the path per agent and :class:`Part`, (AGENTS, len(Part)).
    """

    weight_ps: npt.NDArray[np.int64]
    parts_ps: npt.NDArray[np.int64]

    @property
    def instructions(self) -> npt.NDArray[np.intp]:
        """Instructions on the path, in program order."""
        return np.flatnonzero(self.weight_ps)

    def part_ps(self, part: Part) -> int:
        """Time on the path spent on ``part``, over all agents."""
        return int(self.parts_ps[:, part].sum())


def critical_path(stream: Stream, schedule: Schedule) -> CriticalPath:
    """The critical path of a schedule of ``stream``; its weights sum to the total time."""
    from perf_model import _analysis  # numba: not at import time

    if not len(stream):
        from perf_model.stream import AGENTS

        return CriticalPath(weight_ps=np.zeros(0, np.int64), parts_ps=np.zeros((AGENTS, len(Part)), np.int64))
    s = schedule
    weight, parts = _analysis.critical_path(
        stream.template, stream.table, s.start, s.begin, s.finish, s.end, s.bound, s.bound_by, s.data_by, s.waited
    )
    return CriticalPath(weight_ps=weight, parts_ps=parts)


def slack_ps(stream: Stream, schedule: Schedule) -> npt.NDArray[np.int64]:
    """How much later each instruction could start without making the whole longer, (n,) in ps.

    Durations are taken as scheduled: the bandwidth that a later transfer would find is not worked out again.
    """
    from perf_model import _analysis  # numba: not at import time

    s = schedule
    by_start = np.argsort(s.start, kind="stable")
    result: npt.NDArray[np.int64] = _analysis.slack(
        by_start,
        stream.template,
        stream.table,
        stream.start,
        stream.producer,
        stream.kind,
        s.start,
        s.begin,
        s.finish,
        s.end,
        s.bound,
        s.bound_by,
        s.data_by,
        s.waited,
    )
    return result
