"""The compiled schedule: the model of :mod:`perf_model.schedule`, over arrays, to the picosecond.

One loop over events in order of time.  Each agent keeps the start time of its next instruction once all producers have
known ends; the earliest agent starts its instruction, unless a transfer ends or begins to move data before.  An agent
that waits for an end that nobody knows yet looks again in the next round: there are at most a dozen agents per core, so
no lists of waiters are kept.  Nothing is allocated in the loop.

Agents of core ``c`` are numbered from ``c * AGENTS``; cores touch each other at meetings alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from perf_model.cost import ONE
from perf_model.schedule import Bound
from perf_model.stream import AGENTS, QUEUE, TRIGGERS, Column

I8 = npt.NDArray[np.int8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

_AGENT, _INTERVAL, _LATENCY = int(Column.AGENT), int(Column.INTERVAL), int(Column.LATENCY)
_LOAD, _LOAD_LATENCY = int(Column.LOAD), int(Column.LOAD_LATENCY)
_TILES, _TILE_ISSUE = int(Column.TILES), int(Column.TILE_ISSUE)
_TABLE, _TABLE_LOAD, _EXCLUSION = int(Column.TABLE), int(Column.TABLE_LOAD), int(Column.EXCLUSION)
_BEGIN, _SERVICE, _COMPLETION = int(Column.BEGIN), int(Column.SERVICE), int(Column.COMPLETION)
_WIDTH, _HBM = int(Column.WIDTH), int(Column.HBM_SHARE)
_SEMAPHORE, _SAME = int(Column.SEMAPHORE), int(Column.SAME_ENGINE)
_NONE, _ORDER, _PRODUCER, _PORT = int(Bound.NONE), int(Bound.ORDER), int(Bound.PRODUCER), int(Bound.EXCLUSION)
_DEPTH, _TABLE_BOUND, _LOAD_BOUND = int(Bound.DEPTH), int(Bound.TABLE), int(Bound.LOAD)

_NEVER = np.iinfo(np.int64).max
_TENSOR, _SCALAR = 1, 2
_ONE = ONE
_QUEUE, _AGENTS, _TRIGGERS = QUEUE, AGENTS, TRIGGERS
_TILE_COUNT, _PORTS = 16, 2

# State of the pool of DMA engines, in one array: time; clocks and factors of transfers without and with HBM; sums of
# shares; transfers in flight without and with HBM; next completion.
_TIME, _CLOCK, _FACTOR, _SUM_WIDTH, _SUM_HBM, _COUNT, _NEXT, _NEXT_KIND, _NEXT_SLOT = 0, 1, 3, 5, 6, 7, 9, 10, 11


@njit(cache=True, nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _advance(pool: I64, time: int) -> None:
    step = time - pool[_TIME]
    pool[_CLOCK] += step * pool[_FACTOR]
    pool[_CLOCK + 1] += step * pool[_FACTOR + 1]
    pool[_TIME] = time


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _share(pool: I64, goal: I64, flying: I64) -> None:
    """Factors and the next completion after the set has changed."""
    width, hbm = pool[_SUM_WIDTH], pool[_SUM_HBM]
    engines = _ONE * _ONE // width if width > _ONE else _ONE
    pool[_FACTOR] = engines
    pool[_FACTOR + 1] = min(engines, _ONE * _ONE // hbm) if hbm > _ONE else engines
    best, best_goal, best_index = _NEVER, _NEVER, _NEVER
    for kind in range(2):
        # Within one kind the smallest goal ends first.
        slot = -1
        low, low_index = _NEVER, _NEVER
        for s in range(pool[_COUNT + kind]):
            if goal[kind, s] < low or (goal[kind, s] == low and flying[kind, s] < low_index):
                low, low_index, slot = goal[kind, s], flying[kind, s], s
        if slot < 0:
            continue
        left = max(0, low - pool[_CLOCK + kind])
        factor = pool[_FACTOR + kind]
        done = pool[_TIME] + (left + factor - 1) // factor
        if done < best or (done == best and (low < best_goal or (low == best_goal and low_index < best_index))):
            best, best_goal, best_index = done, low, low_index
            pool[_NEXT_KIND], pool[_NEXT_SLOT] = kind, slot
    pool[_NEXT] = best


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _admission(
    agent: int,
    now: int,
    order: I32,
    template: I32,
    table: I64,
    begin: I64,
    position: I64,
    admitted: I64,
    in_service: I64,
    admit_at: I64,
) -> None:
    """When the first waiting transfer of a queue may begin to move data: at its own begin, with room in the turn."""
    admit_at[agent] = _NEVER
    if admitted[agent] < position[agent]:
        index = order[admitted[agent]]
        width = table[template[index], _WIDTH]
        if in_service[agent] == 0 or in_service[agent] + width <= _ONE:
            admit_at[agent] = max(begin[index], now)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _resolve(
    agent: int,
    index: int,
    template: I32,
    table: I64,
    start: I32,
    producer: I32,
    kind: I8,
    end: I64,
    edge: I64,
    ready: I64,
    ready_by: I64,
    wait: I64,
) -> None:
    """Advance over the producers of ``index`` whose ends are known; sets ``wait`` to the first unknown one, or -1."""
    row = template[index]
    latest, by = ready[agent], ready_by[agent]
    for e in range(edge[agent], start[index + 1]):
        p = producer[e]
        if end[p] < 0:
            edge[agent] = e
            ready[agent], ready_by[agent] = latest, by
            wait[agent] = p
            return
        other = table[template[p], _AGENT]
        if other == agent and agent % _AGENTS < _QUEUE:
            if agent % _AGENTS == _TENSOR or kind[e] == 1 or kind[e] == 2:
                continue
            at = end[p] + table[row, _SAME]
        elif other % _AGENTS < _QUEUE:
            at = end[p] + table[row, _SEMAPHORE]
        else:
            at = end[p]
        if at > latest:
            latest, by = at, p
    edge[agent] = start[index + 1]
    ready[agent], ready_by[agent] = latest, by
    wait[agent] = -1


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def run(
    template: I32, table: I64, start: I32, producer: I32, kind: I8, queue_depth: int, cores: int, meeting: I32
) -> tuple[I64, I64, I64, I64, I8, I32, I32, I64]:
    """Schedule a stream.  Returns start, begin, finish, end (int64), bound, (int8), bound_by, data_by (int32), waited
    (int64); the fields of :class:`perf_model.schedule.Schedule`."""
    n = template.shape[0]
    total = cores * _AGENTS
    started = np.full(n, -1, np.int64)
    begin = np.full(n, -1, np.int64)
    finish = np.full(n, -1, np.int64)
    end = np.full(n, -1, np.int64)
    bound = np.zeros(n, np.int8)
    bound_by = np.full(n, -1, np.int32)
    data_by = np.full(n, -1, np.int32)
    waited = np.zeros(n, np.int64)

    # How many have yet to come to each meeting, and when the last one came.
    absent = np.zeros(n + 1, np.int64)
    opened = np.zeros(n + 1, np.int64)
    for i in range(n):
        if meeting[i] >= 0:
            absent[meeting[i]] += 1

    # Instructions of each agent in program order.
    limit = np.zeros(total + 1, np.int64)
    for i in range(n):
        limit[table[template[i], _AGENT] + 1] += 1
    for a in range(total):
        limit[a + 1] += limit[a]
    fill = limit[:-1].copy()
    order = np.empty(n, np.int32)
    for i in range(n):
        a = table[template[i], _AGENT]
        order[fill[a]] = i
        fill[a] += 1
    agents = np.empty(total, np.int64)
    count = 0
    for a in range(total):
        if limit[a + 1] > limit[a]:
            agents[count] = a
            count += 1

    position = limit[:-1].copy()
    admitted = limit[:-1].copy()
    edge = np.zeros(total, np.int64)
    ready = np.zeros(total, np.int64)
    ready_by = np.full(total, -1, np.int64)
    wait = np.full(total, -1, np.int64)
    free = np.zeros(total, np.int64)
    base = np.full(total, _NEVER, np.int64)
    base_kind = np.zeros(total, np.int64)
    base_by = np.full(total, -1, np.int64)
    ports = np.zeros(total, np.int64)
    arrived = np.full(total, -1, np.int64)  # when the agent came to the meeting of its next instruction
    port_free = np.zeros(_PORTS * cores, np.int64)
    port_by = np.full(_PORTS * cores, -1, np.int64)
    trigger_free = np.zeros(_TRIGGERS * cores, np.int64)
    trigger_by = np.full(_TRIGGERS * cores, -1, np.int64)
    outstanding = np.zeros(total, np.int64)
    unblocked = np.zeros(total, np.int64)
    in_service = np.zeros(total, np.int64)
    last_done = np.full(total, -1, np.int64)
    admit_at = np.full(total, _NEVER, np.int64)
    tile_free = np.zeros(_TILE_COUNT * cores, np.int64)
    tile_swap = np.zeros(_TILE_COUNT * cores, np.int64)
    pools = np.zeros((cores, 12), np.int64)
    pools[:, _FACTOR] = pools[:, _FACTOR + 1] = _ONE
    pools[:, _NEXT] = _NEVER
    goals = np.zeros((cores, 2, queue_depth * (_AGENTS - _QUEUE)), np.int64)
    flights = np.zeros((cores, 2, queue_depth * (_AGENTS - _QUEUE)), np.int64)
    table_loaded = np.zeros(cores, np.int64)
    issue_floor = np.zeros(cores, np.int64)  # Tensor Engine: earliest start of a matmul on other tiles

    for k in range(count):
        a = agents[k]
        edge[a] = start[order[position[a]]]
        wait[a] = -2  # to be looked at

    left = n
    while left > 0:
        best, who = _NEVER, -1
        next_admit, admit_queue = _NEVER, -1
        next_done, done_core = _NEVER, 0
        for core in range(cores):
            if pools[core, _NEXT] < next_done:
                next_done, done_core = pools[core, _NEXT], core
        for k in range(count):
            a = agents[k]
            core = a // _AGENTS
            local = a - core * _AGENTS
            if local >= _QUEUE and admit_at[a] < next_admit:
                next_admit, admit_queue = admit_at[a], a
            if position[a] == limit[a + 1]:
                continue
            if wait[a] != -1:
                if wait[a] >= 0 and end[wait[a]] < 0:
                    continue
                i = order[position[a]]
                _resolve(a, i, template, table, start, producer, kind, end, edge, ready, ready_by, wait)
                if wait[a] != -1:
                    continue
                # All producers known: the earliest start, ports and queue depth apart.
                row = template[i]
                at = free[a]
                why = _ORDER
                need = ready[a]
                if local == _TENSOR:
                    at = max(at, issue_floor[core])
                    tiles = table[row, _TILES]
                    load = table[row, _LOAD]
                    for g in range(_TILE_COUNT):
                        if tiles >> g & 1:
                            place = _TILE_COUNT * core + g
                            if tile_free[place] > at:
                                at, why = tile_free[place], _ORDER
                            if tile_swap[place] + load > at:
                                at, why = tile_swap[place] + load, _LOAD_BOUND
                    need += table[row, _LOAD_LATENCY]
                elif local == _SCALAR and table[row, _TABLE] != 0 and table[row, _TABLE] != table_loaded[core]:
                    at += table[row, _TABLE_LOAD]
                    why = _TABLE_BOUND
                by = -1
                if position[a] > limit[a] and local < _QUEUE:
                    by = order[position[a] - 1]
                if need > at and ready_by[a] >= 0:
                    at, why, by = need, _PRODUCER, ready_by[a]
                elif need > at:
                    at, why = need, _LOAD_BOUND
                elif by < 0 and why == _ORDER:
                    why = _NONE
                base[a], base_kind[a], base_by[a] = at, why, by
                ports[a] = table[row, _EXCLUSION]
            at = base[a]
            if local >= _QUEUE:
                if outstanding[a] >= queue_depth:
                    continue
                at = max(at, unblocked[a], trigger_free[_TRIGGERS * core + local % _TRIGGERS])
            elif ports[a] != 0:
                if ports[a] & 1:
                    at = max(at, port_free[_PORTS * core])
                if ports[a] & 2:
                    at = max(at, port_free[_PORTS * core + 1])
            if arrived[a] >= 0:
                met = meeting[order[position[a]]]
                if absent[met] > 0:
                    continue
                at = max(at, opened[met])
            if at < best:
                best, who = at, a

        if next_done <= next_admit and next_done <= best and next_done < _NEVER:
            # A transfer ends.
            now = next_done
            pool, goal, flying = pools[done_core], goals[done_core], flights[done_core]
            _advance(pool, now)
            hbm, slot = pool[_NEXT_KIND], pool[_NEXT_SLOT]
            i = flying[hbm, slot]
            row = template[i]
            a = table[row, _AGENT]
            pool[_COUNT + hbm] -= 1
            last = pool[_COUNT + hbm]
            goal[hbm, slot] = goal[hbm, last]
            flying[hbm, slot] = flying[hbm, last]
            pool[_SUM_WIDTH] -= table[row, _WIDTH]
            pool[_SUM_HBM] -= table[row, _HBM]
            _share(pool, goal, flying)
            finish[i] = now
            end[i] = now + table[row, _COMPLETION]
            in_service[a] -= table[row, _WIDTH]
            last_done[a] = i
            if outstanding[a] == queue_depth:
                unblocked[a] = now
            outstanding[a] -= 1
            _admission(a, now, order, template, table, begin, position, admitted, in_service, admit_at)
            left -= 1
        elif next_admit <= best and next_admit < _NEVER:
            # A transfer begins to move data.
            a = admit_queue
            i = order[admitted[a]]
            row = template[i]
            core = a // _AGENTS
            pool, goal, flying = pools[core], goals[core], flights[core]
            _advance(pool, next_admit)
            if next_admit > begin[i]:
                done = last_done[a]
                data_by[i] = done if done >= 0 and finish[done] == next_admit else order[admitted[a] - 1]
            begin[i] = next_admit
            hbm = 1 if table[row, _HBM] > 0 else 0
            slot = pool[_COUNT + hbm]
            goal[hbm, slot] = pool[_CLOCK + hbm] + table[row, _SERVICE] * _ONE
            flying[hbm, slot] = i
            pool[_COUNT + hbm] += 1
            pool[_SUM_WIDTH] += table[row, _WIDTH]
            pool[_SUM_HBM] += table[row, _HBM]
            _share(pool, goal, flying)
            in_service[a] += table[row, _WIDTH]
            admitted[a] += 1
            _admission(a, next_admit, order, template, table, begin, position, admitted, in_service, admit_at)
        elif who >= 0:
            # An agent starts its next instruction, or comes to a meeting.
            a = who
            core = a // _AGENTS
            local = a - core * _AGENTS
            trigger = _TRIGGERS * core + local % _TRIGGERS
            port = _PORTS * core
            i = order[position[a]]
            row = template[i]
            if arrived[a] < 0:
                bound[i], bound_by[i] = base_kind[a], base_by[a]
                if local >= _QUEUE:
                    if best > base[a] or (ready_by[a] < 0 and trigger_by[trigger] >= 0):
                        if trigger_free[trigger] == best:
                            bound[i], bound_by[i] = _ORDER, trigger_by[trigger]
                        else:
                            bound[i], bound_by[i] = _DEPTH, last_done[a]
                elif best > base[a]:
                    bound[i] = _PORT
                    bound_by[i] = port_by[port] if ports[a] & 1 and port_free[port] == best else port_by[port + 1]
                met = meeting[i]
                if met >= 0:
                    arrived[a] = best
                    absent[met] -= 1
                    if absent[met] > 0:
                        continue
                    opened[met] = best
            if arrived[a] >= 0:
                waited[i] = best - arrived[a]
                arrived[a] = -1
            started[i] = best
            position[a] += 1
            if local >= _QUEUE:
                trigger_free[trigger], trigger_by[trigger] = best + table[row, _INTERVAL], i
                begin[i] = best + table[row, _BEGIN]
                outstanding[a] += 1
                if admitted[a] == position[a] - 1:
                    _admission(a, best, order, template, table, begin, position, admitted, in_service, admit_at)
            else:
                stop = best + table[row, _INTERVAL]
                begin[i] = best
                finish[i] = stop
                end[i] = best + table[row, _LATENCY]
                if local == _TENSOR:
                    tiles = table[row, _TILES]
                    for g in range(_TILE_COUNT):
                        if tiles >> g & 1:
                            tile_free[_TILE_COUNT * core + g] = stop
                            tile_swap[_TILE_COUNT * core + g] = best
                    issue_floor[core] = best + table[row, _TILE_ISSUE]
                else:
                    free[a] = stop
                    if table[row, _TABLE] != 0:
                        table_loaded[core] = table[row, _TABLE]
                    if ports[a] & 1:
                        port_free[port], port_by[port] = stop, i
                    if ports[a] & 2:
                        port_free[port + 1], port_by[port + 1] = stop, i
                left -= 1
            if position[a] < limit[a + 1]:
                edge[a] = start[order[position[a]]]
                ready[a], ready_by[a] = 0, -1
                wait[a] = -2
        else:
            break  # nobody can go on: an edge that points forward
    return started, begin, finish, end, bound, bound_by, data_by, waited
