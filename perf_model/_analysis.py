"""Compiled walks over a schedule: the critical path and the slack of each instruction."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from perf_model.analysis import Part
from perf_model.schedule import Bound
from perf_model.stream import AGENTS, QUEUE, TRIGGERS, Column

I8 = npt.NDArray[np.int8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

_AGENT, _INTERVAL, _SERVICE = int(Column.AGENT), int(Column.INTERVAL), int(Column.SERVICE)
_LOAD_LATENCY = int(Column.LOAD_LATENCY)
_COMPLETION, _SEMAPHORE, _SAME = int(Column.COMPLETION), int(Column.SEMAPHORE), int(Column.SAME_ENGINE)
_ORDER, _PRODUCER, _PORT = int(Bound.ORDER), int(Bound.PRODUCER), int(Bound.EXCLUSION)
_DEPTH, _TABLE_BOUND, _LOAD_BOUND = int(Bound.DEPTH), int(Bound.TABLE), int(Bound.LOAD)
_BUSY, _LATENCY, _SIGNAL, _LOAD = int(Part.BUSY), int(Part.LATENCY), int(Part.SEMAPHORE), int(Part.LOAD)
_TABLE, _ISSUE, _BEGIN, _DATA = int(Part.TABLE_LOAD), int(Part.DMA_ISSUE), int(Part.DMA_BEGIN), int(Part.DMA_DATA)
_SHARED, _DONE, _CORES = int(Part.DMA_SHARING), int(Part.DMA_COMPLETION), int(Part.CORES)
_PARTS = len(Part)
_QUEUE, _AGENTS, _TRIGGERS, _TENSOR = QUEUE, AGENTS, TRIGGERS, 1

# Where the walk stands: at an instruction's end, at the end of its data or time on the engine, at its first data,
# at its start.
_AT_END, _AT_FINISH, _AT_BEGIN, _AT_START = 0, 1, 2, 3


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def critical_path(
    template: I32,
    table: I64,
    start: I64,
    begin: I64,
    finish: I64,
    end: I64,
    bound: I8,
    bound_by: I32,
    data_by: I32,
    waited: I64,
) -> tuple[I64, I64]:
    """Walk back from the last end over what held each start; returns time on the path in ps, per instruction (n,) and
    per agent and part (AGENTS, parts)."""
    n = template.shape[0]
    weight = np.zeros(n, np.int64)
    parts = np.zeros((_AGENTS, _PARTS), np.int64)
    i = 0
    for k in range(n):
        if end[k] > end[i]:
            i = k
    place, now = _AT_END, end[i]
    while i >= 0 and now > 0:
        row = template[i]
        agent = table[row, _AGENT]
        if place == _AT_END:
            to = min(finish[i], now)
            weight[i] += now - to
            parts[agent, _DONE if agent >= _QUEUE else _LATENCY] += now - to
            now, place = to, _AT_FINISH
        elif place == _AT_FINISH:
            spent = now - begin[i]
            weight[i] += spent
            if agent >= _QUEUE:
                alone = min(spent, table[row, _SERVICE])
                parts[agent, _DATA] += alone
                parts[agent, _SHARED] += spent - alone
            else:
                parts[agent, _BUSY] += spent
            now, place = begin[i], _AT_BEGIN
        elif place == _AT_BEGIN:
            before = data_by[i]
            if before >= 0:
                place = _AT_FINISH if finish[before] == now else _AT_BEGIN
                i = before
            else:
                weight[i] += now - start[i]
                parts[agent, _BEGIN] += now - start[i]
                now, place = start[i], _AT_START
        else:
            weight[i] += waited[i]
            parts[agent, _CORES] += waited[i]
            now -= waited[i]
            why, by = bound[i], bound_by[i]
            if by < 0:  # nothing before it: what remains is a load at the very beginning
                weight[i] += now
                parts[agent, _TABLE if why == _TABLE_BOUND else _LOAD] += now
                break
            if why == _PRODUCER:
                gap = now - end[by]
                other = table[template[by], _AGENT]
                signal = 0 if other >= _QUEUE else table[row, _SAME if other == agent else _SEMAPHORE]
                signal = min(gap, signal)
                weight[i] += gap
                parts[agent, _SIGNAL] += signal
                parts[agent, _LOAD] += gap - signal
                i, now, place = by, end[by], _AT_END
            elif why in (_PORT, _DEPTH):
                i, now, place = by, finish[by], _AT_FINISH
            else:
                # In order behind `by`.  On the engine that is its busy time, cut short where tiles overlap.
                if agent >= _QUEUE:
                    weight[by] += now - start[by]
                    parts[agent, _ISSUE] += now - start[by]
                else:
                    busy = min(now, finish[by]) - start[by]
                    weight[by] += busy
                    parts[agent, _BUSY] += busy
                    rest = now - start[by] - busy
                    weight[i] += rest
                    parts[agent, _TABLE if why == _TABLE_BOUND else _LOAD] += rest
                i, now, place = by, start[by], _AT_START
    return weight, parts


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def slack(
    by_start: npt.NDArray[np.intp],
    template: I32,
    table: I64,
    edge_start: I32,
    producer: I32,
    kind: I8,
    start: I64,
    begin: I64,
    finish: I64,
    end: I64,
    bound: I8,
    bound_by: I32,
    data_by: I32,
    waited: I64,
) -> I64:
    """How much later each instruction could start without a later end of the whole, (n,) in ps; ``by_start`` holds the
    instructions in order of their start."""
    n = template.shape[0]
    total = 0
    for i in range(n):
        total = max(total, end[i])
    late_end = np.full(n, total, np.int64)
    late_start = np.full(n, total, np.int64)
    following = np.full(_AGENTS, -1, np.int64)
    for k in range(n - 1, -1, -1):
        i = by_start[k]
        row = template[i]
        agent = table[row, _AGENT]
        late = min(late_start[i], late_end[i] - (end[i] - start[i]))
        unit = agent if agent < _QUEUE else _QUEUE + agent % _TRIGGERS  # the two queues of a trigger share its time
        after = following[unit]
        if after >= 0:
            # The next one of the engine or queue keeps its distance.
            distance = start[after] - start[i]
            ordered = bound[after] == _ORDER or bound[after] == _TABLE_BOUND or bound[after] == _LOAD_BOUND
            if not ordered or waited[after] > 0:
                distance = min(distance, table[row, _INTERVAL])
            late = min(late, late_start[after] - distance)
        following[unit] = i
        late_start[i] = late
        for e in range(edge_start[i], edge_start[i + 1]):
            p = producer[e]
            other = table[template[p], _AGENT]
            delay = table[row, _SEMAPHORE] if other < _QUEUE else 0
            if other == agent and agent < _QUEUE:
                if agent == _TENSOR or kind[e] == 1 or kind[e] == 2:
                    continue
                delay = table[row, _SAME]
            if agent == _TENSOR:
                delay += table[row, _LOAD_LATENCY]
            late_end[p] = min(late_end[p], late - delay)
        by = bound_by[i]
        if bound[i] == _PORT or bound[i] == _DEPTH:
            late_end[by] = min(late_end[by], late + end[by] - finish[by])
        before = data_by[i]
        if before >= 0:
            done = finish[before] if finish[before] == begin[i] else begin[before]
            late_end[before] = min(late_end[before], late + begin[i] - start[i] + end[before] - done)
    return late_start - start
