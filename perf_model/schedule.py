"""Schedule: when each instruction of a stream starts and ends, and what held it back.

The model, as :func:`simulate` spells it out with simpy processes (:func:`schedule` runs the compiled twin, which
gives the same picoseconds):

- An engine starts its instructions in program order.  The next may start when ``interval`` has passed; its result is
  there ``latency`` after its start.
- An instruction waits for the end of every producer plus the time a semaphore takes to its engine.  Between
  instructions of one engine, WAR and WAW need no more than the order; RAW waits for the producer's end.  On the
  Tensor Engine all edges between matmuls are order: accumulation is pipelined.
- Tensor Engine: the load of the next stationary tile runs behind the multiply, from the moment that multiply starts,
  and shows where it is longer; after a wait for producers it shows in full.  Matmuls on disjoint tiles of the PE
  array overlap. Producers of the moving tile also hold back the load: edges do not say which operand they are for.
- Scalar Engine: a function table that is not the last one loads first, behind the wait for producers.
- Instructions that exclude each other from a memory port hold it for their interval; first come, first served, and at
  the same picosecond the lower engine number goes first.
- A DMA trigger waits like an instruction but takes the time of descriptor generation, not of the engine that issues
  it.  ``begin`` later its data may move: queues are in order, a transfer shares its turn with the next ones only while
  they find free DMA engines, and the transfers of all queues share bandwidth (:mod:`perf_model.bandwidth`).  Its
  consumers may start ``completion`` after the last data.  A queue holds ``queue_depth`` transfers; then its trigger
  waits.  What a queue is: :mod:`perf_model.stream`.
- An instruction at which cores meet starts when all its partners could start, too; its engine or trigger waits.  Cores
  have nothing else in common: each one has its own share of the HBM bandwidth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from isa.engine import Engine
from isa.faults import InternalFault
from perf_model.bandwidth import Pool
from perf_model.cost import ONE
from perf_model.stream import AGENTS, QUEUE, TRIGGERS, Column, Stream

if TYPE_CHECKING:
    import simpy
    from simpy.events import EventPriority

__all__ = ["Bound", "Schedule", "schedule", "simulate"]


class Bound(IntEnum):
    """What decided the start of an instruction."""

    NONE = 0
    ORDER = 1  # the instruction before it on its engine, or the trigger before it
    PRODUCER = 2  # an instruction it depends on
    EXCLUSION = 3  # the holder of a memory port
    DEPTH = 4  # its DMA queue was full
    TABLE = 5  # loading a function table, after the instruction before it
    LOAD = 6  # loading the stationary tile, longer than the multiply before it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """Times in ps, (n,) each.

    Attributes:
        start: of the instruction or DMA trigger.
        begin, finish: busy on the engine; for DMA, first and last data.
        end: results are there for consumers.
        bound: :class:`Bound` of the start.
        bound_by: the instruction that ``bound`` is about, or -1.
        data_by: DMA: the earlier transfer of the queue whose last data (or whose first data, where it began at the same
            time) let the data begin; -1 where it began as soon as it could.
        waited: time that the start lost at a meeting of cores; ``bound`` says what held it back until then.
    """

    start: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    finish: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    bound: npt.NDArray[np.int8]
    bound_by: npt.NDArray[np.int32]
    data_by: npt.NDArray[np.int32]
    waited: npt.NDArray[np.int64]

    @property
    def total_ps(self) -> int:
        """From 0 to the last end."""
        return int(self.end.max()) if len(self.end) else 0


def schedule(stream: Stream) -> Schedule:
    """Schedule a stream with the compiled code.

    The first call in a fresh installation compiles for some seconds (kept on disk).

    Raises:
        InternalFault: an edge does not point to an earlier instruction.
    """
    from perf_model import _schedule  # numba: not at import time

    result = Schedule(
        **dict(
            zip(
                Schedule.__dataclass_fields__,
                _schedule.run(
                    stream.template,
                    stream.table,
                    stream.start,
                    stream.producer,
                    stream.kind,
                    stream.queue_depth,
                    stream.cores,
                    _meeting(stream),
                ),
                strict=True,
            )
        )
    )
    _check(result)
    return result


def _meeting(stream: Stream) -> npt.NDArray[np.int32]:
    return stream.meeting if len(stream.meeting) else np.full(len(stream), -1, np.int32)


def _check(result: Schedule) -> None:
    if len(result.end) and int(result.end.min()) < 0:
        stuck = int(np.argmax(result.end < 0))
        raise InternalFault(f"instruction {stuck} never ends: it waits, directly or not, for a later instruction")


def simulate(stream: Stream) -> Schedule:
    """The same schedule, step by step.  For reading, teaching and checking; about 500 times slower.

    Raises:
        InternalFault: an edge does not point to an earlier instruction.
    """
    return _Simulation(stream).run()


_Steps = Generator["simpy.Event", Any, None]

# Events of one picosecond: data ends and results are signalled, data begins, agents start in order of their number.
_SIGNAL, _ADMIT, _START = 1, 2, 10


class _Simulation:
    """All cores of a stream; what happens within one is :class:`_Core`."""

    def __init__(self, stream: Stream) -> None:
        import simpy

        self.environment = simpy.Environment()
        self.table: list[list[int]] = stream.table.tolist()
        self.template: list[int] = stream.template.tolist()
        self.stream = stream
        n = len(stream)
        self.ended = [self.environment.event() for _ in range(n)]
        self.issued = [self.environment.event() for _ in range(n)]
        self.columns = {name: [-1] * n for name in Schedule.__dataclass_fields__}
        self.columns["bound"] = [0] * n
        self.columns["waited"] = [0] * n
        self.meeting: list[int] = _meeting(stream).tolist()
        self.absent = Counter(self.meeting)
        self.opened = {number: self.environment.event() for number in self.absent}

    def run(self) -> Schedule:
        orders: dict[int, list[int]] = {}
        for i, row in enumerate(self.template):
            orders.setdefault(self.table[row][Column.AGENT], []).append(i)
        for number in range(self.stream.cores):
            core = _Core(self, number)
            for agent, order in sorted(orders.items()):
                if agent // AGENTS == number:
                    core.begin(agent, order)
        self.environment.run()
        fields = {
            name: np.array(self.columns[name], np.int64) for name in ("start", "begin", "finish", "end", "waited")
        }
        result = Schedule(
            **fields,
            bound=np.array(self.columns["bound"], np.int8),
            bound_by=np.array(self.columns["bound_by"], np.int32),
            data_by=np.array(self.columns["data_by"], np.int32),
        )
        _check(result)
        return result

    def at(self, time_ps: int, priority: int) -> simpy.Event:
        """An event at a time, after all events of that time with a smaller priority number."""
        event = self.environment.event()
        event._ok, event._value = True, None
        self.environment.schedule(event, priority=cast("EventPriority", priority), delay=time_ps - self.now)
        return event

    @property
    def now(self) -> int:
        return int(self.environment.now)

    def record(self, index: int, **values: int) -> None:
        for name, value in values.items():
            self.columns[name][index] = value

    def end(self, index: int, time_ps: int) -> None:
        """Results of ``index`` are there at ``time_ps``."""
        self.record(index, end=time_ps)
        event = self.at(time_ps, _SIGNAL)
        assert event.callbacks is not None
        event.callbacks.append(lambda _: self.signal(index))

    def signal(self, index: int) -> None:
        self.ended[index].succeed()

    def producers(self, agent: int, index: int) -> Generator[simpy.Event, Any, tuple[int, int]]:
        """Wait for the producers of ``index``; returns when all have signalled, and the last of them."""
        ready, by = 0, -1
        row = self.table[self.template[index]]
        for e in range(int(self.stream.start[index]), int(self.stream.start[index + 1])):
            producer = int(self.stream.producer[e])
            other = self.table[self.template[producer]][Column.AGENT]
            delay = row[Column.SEMAPHORE] if other % AGENTS < QUEUE else 0
            if other == agent and agent % AGENTS < QUEUE:
                if agent % AGENTS == Engine.tensor or self.stream.kind[e] in (1, 2):
                    continue
                delay = row[Column.SAME_ENGINE]
            yield self.ended[producer]
            signalled = self.columns["end"][producer] + delay
            if signalled > ready:
                ready, by = signalled, producer
        return ready, by

    def meet(self, agent: int, index: int) -> _Steps:
        """Come to the meeting of ``index`` now, and wait until everybody has."""
        number = self.meeting[index]
        self.absent[number] -= 1
        if self.absent[number] == 0:
            self.opened[number].succeed()
        else:
            yield self.opened[number]
            yield self.at(self.now, _START + agent)


class _Core:
    """Engines, queues and DMA engines of one core."""

    def __init__(self, simulation: _Simulation, number: int) -> None:
        self.simulation = simulation
        self.number = number
        self.environment = simulation.environment
        self.table, self.template = simulation.table, simulation.template
        self.columns, self.record, self.at = simulation.columns, simulation.record, simulation.at
        self.port_free = {1: 0, 2: 0}
        self.port_by = {1: -1, 2: -1}
        self.tile_free = [0] * 16
        self.tile_swap = [0] * 16
        self.tile_issue = 0
        self.function_table = 0
        self.pool = Pool()
        self.pool_changed = self.environment.event()
        self.trigger_free = [0] * TRIGGERS
        self.trigger_by = [-1] * TRIGGERS
        self.outstanding: dict[int, int] = {}
        self.in_service: dict[int, int] = {}
        self.last_done: dict[int, int] = {}
        self.turn: dict[int, simpy.Event] = {}
        self.environment.process(self.drive())

    @property
    def now(self) -> int:
        return self.simulation.now

    def begin(self, agent: int, order: Sequence[int]) -> None:
        """Start the processes of one agent."""
        if agent % AGENTS < QUEUE:
            self.environment.process(self.engine(agent, order))
            return
        self.outstanding[agent] = self.in_service[agent] = 0
        self.last_done[agent] = -1
        self.turn[agent] = self.environment.event()
        self.environment.process(self.trigger(agent, order))
        self.environment.process(self.move(agent, order))

    def tiles(self, row: Sequence[int]) -> list[int]:
        return [tile for tile in range(16) if row[Column.TILES] >> tile & 1]

    # --- engines ----------------------------------------------------------------------------------

    def engine(self, agent: int, order: Sequence[int]) -> _Steps:
        """Start the instructions of one engine, one after the other."""
        free, previous = 0, -1
        for index in order:
            row = self.table[self.template[index]]
            ready, producer = yield from self.simulation.producers(agent, index)
            at, why = self.order_bound(agent, row, free)
            by = previous
            if agent % AGENTS == Engine.tensor:
                ready += row[Column.LOAD_LATENCY]
            if ready > at:
                at = ready
                why, by = (Bound.PRODUCER, producer) if producer >= 0 else (Bound.LOAD, previous)
            elif previous < 0 and why is Bound.ORDER:
                why = Bound.NONE
            yield self.at(at, _START + agent)
            held = [port for port in (1, 2) if row[Column.EXCLUSION] & port]
            while held and (released := max(self.port_free[port] for port in held)) > self.now:
                yield self.at(released, _START + agent)
            if self.now > at:
                last = next(port for port in held if self.port_free[port] == self.now)
                why, by = Bound.EXCLUSION, self.port_by[last]
            if self.simulation.meeting[index] >= 0:
                came = self.now
                yield from self.simulation.meet(agent, index)
                while held and (released := max(self.port_free[port] for port in held)) > self.now:
                    yield self.at(released, _START + agent)
                self.record(index, waited=self.now - came)
            free = self.now + row[Column.INTERVAL]
            for port in held:
                self.port_free[port], self.port_by[port] = free, index
            if agent % AGENTS == Engine.tensor:
                for tile in self.tiles(row):
                    self.tile_free[tile], self.tile_swap[tile] = free, self.now
                self.tile_issue = self.now + row[Column.TILE_ISSUE]
            self.function_table = row[Column.TABLE] or self.function_table
            self.record(index, start=self.now, begin=self.now, finish=free, bound=why, bound_by=by)
            self.simulation.end(index, self.now + row[Column.LATENCY])
            previous = index

    def order_bound(self, agent: int, row: Sequence[int], free: int) -> tuple[int, Bound]:
        """When the engine could take the next instruction if it had no producers."""
        if agent % AGENTS == Engine.tensor:
            at, why = self.tile_issue, Bound.ORDER
            for tile in self.tiles(row):
                if self.tile_free[tile] > at:
                    at, why = self.tile_free[tile], Bound.ORDER
                if self.tile_swap[tile] + row[Column.LOAD] > at:
                    at, why = self.tile_swap[tile] + row[Column.LOAD], Bound.LOAD
            return at, why
        if agent % AGENTS == Engine.scalar and row[Column.TABLE] not in (0, self.function_table):
            return free + row[Column.TABLE_LOAD], Bound.TABLE
        return free, Bound.ORDER

    # --- DMA --------------------------------------------------------------------------------------

    def trigger(self, agent: int, order: Sequence[int]) -> _Steps:
        """Issue the transfers of one queue."""
        trigger = agent % TRIGGERS
        for index in order:
            row = self.table[self.template[index]]
            ready, producer = yield from self.simulation.producers(agent, index)
            while self.outstanding[agent] >= self.simulation.stream.queue_depth:
                yield self.turn[agent]
            yield self.at(max(ready, self.now), _START + agent)
            while self.trigger_free[trigger] > self.now:
                yield self.at(self.trigger_free[trigger], _START + agent)
            why, by = (Bound.PRODUCER, producer) if producer >= 0 else (Bound.NONE, -1)
            if self.now > ready or (producer < 0 and self.trigger_by[trigger] >= 0):
                if self.trigger_free[trigger] == self.now:
                    why, by = Bound.ORDER, self.trigger_by[trigger]
                else:
                    why, by = Bound.DEPTH, self.last_done[agent]
            if self.simulation.meeting[index] >= 0:
                came = self.now
                yield from self.simulation.meet(agent, index)
                while self.trigger_free[trigger] > self.now:
                    yield self.at(self.trigger_free[trigger], _START + agent)
                self.record(index, waited=self.now - came)
            self.trigger_free[trigger], self.trigger_by[trigger] = self.now + row[Column.INTERVAL], index
            self.outstanding[agent] += 1
            self.record(index, start=self.now, begin=self.now + row[Column.BEGIN], bound=why, bound_by=by)
            self.simulation.issued[index].succeed()

    def move(self, agent: int, order: Sequence[int]) -> _Steps:
        """Let the data of one queue's transfers begin, in order."""
        previous = -1
        for index in order:
            row = self.table[self.template[index]]
            yield self.simulation.issued[index]
            arrival = self.columns["begin"][index]
            yield self.at(max(arrival, self.now), _ADMIT)
            while self.in_service[agent] and self.in_service[agent] + row[Column.WIDTH] > ONE:
                yield self.turn[agent]
                yield self.at(self.now, _ADMIT)
            if self.now > arrival:
                done = self.last_done[agent]
                just_done = done >= 0 and self.columns["finish"][done] == self.now
                self.record(index, data_by=done if just_done else previous)
            self.record(index, begin=self.now)
            self.in_service[agent] += row[Column.WIDTH]
            self.pool.admit(index, row[Column.SERVICE], row[Column.WIDTH], row[Column.HBM_SHARE], self.now)
            self.change()
            previous = index

    def change(self) -> None:
        """Tell :meth:`drive` that the set of transfers in flight is another."""
        if not self.pool_changed.triggered:
            self.pool_changed.succeed()

    def drive(self) -> _Steps:
        """End transfers when the pool has served them."""
        while True:
            following = self.pool.next_completion()
            if following is None:
                yield self.pool_changed
            else:
                time_ps, index = following
                yield self.at(time_ps, _SIGNAL) | self.pool_changed
            if self.pool_changed.triggered:
                self.pool_changed = self.environment.event()
                continue
            row = self.table[self.template[index]]
            agent = row[Column.AGENT]
            self.pool.complete(index, self.now)
            self.in_service[agent] -= row[Column.WIDTH]
            self.outstanding[agent] -= 1
            self.last_done[agent] = index
            self.record(index, finish=self.now)
            self.simulation.end(index, self.now + row[Column.COMPLETION])
            turn, self.turn[agent] = self.turn[agent], self.environment.event()
            turn.succeed()
