"""Stream: a recorded program as the arrays that a schedule needs.

What depends only on the shape of an instruction is one row of :attr:`Stream.table`, costed once per template; what
is per instruction is the number of its template and its producers.

Agents are what starts instructions in order: each engine (its :class:`isa.engine.Engine` value), and each DMA queue.
An engine that triggers DMA has two queues, one for transfers that write HBM and one for all others: a compiler orders
its triggers so that a store that waits for results does not hold up the loads behind it.  The two share the trigger's
time.

Cores that run together are one stream, made of theirs by :func:`join`: the agents of core ``c`` are ``c * AGENTS`` and
up, and instructions at which cores meet bear the number of their meeting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from isa.engine import Engine
from isa.faults import InternalFault
from isa.program import Program, Template
from isa.work import WorkFlag
from perf_model.cost import Cost, cost, descriptor_mode
from perf_model.rates import Rates

__all__ = [
    "AGENTS",
    "QUEUE",
    "STORE_QUEUE",
    "TRIGGERS",
    "Column",
    "EdgeArrays",
    "Stream",
    "agent_title",
    "join",
    "stream_of",
]

QUEUE = 8
"""First DMA queue among the agents: ``QUEUE + engine`` loads, ``STORE_QUEUE + engine`` writes HBM."""
STORE_QUEUE = 16
AGENTS = 24
TRIGGERS = 8
"""Agents ``a`` and ``b`` that are queues share a trigger where ``a % TRIGGERS == b % TRIGGERS``."""
WHOLE_ARRAY = 0xFFFF
"""Every 32 x 32 part of the PE array."""

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]


class EdgeArrays(Protocol):
    """Producers of each instruction in compressed rows; kinds 0 RAW, 1 WAR, 2 WAW, 3 explicit."""

    @property
    def start(self) -> Int32:
        """First edge of each instruction, and the number of edges at the end."""

    @property
    def producer(self) -> Int32:
        """An earlier instruction each."""

    @property
    def kind(self) -> npt.NDArray[np.int8]:
        """Why the instruction waits for it."""


class Column(IntEnum):
    """Columns of :attr:`Stream.table`; times in ps.

    Compiled code holds these numbers and numba's cache on disk does not see them change: whoever changes them (or
    ``Bound``, ``Part``, ``ONE``) edits ``_schedule.py`` and ``_analysis.py`` as well, if only a comment.
    """

    AGENT = 0
    INTERVAL = 1
    LATENCY = 2
    LOAD = 3
    LOAD_LATENCY = 4
    TILES = 5
    TILE_ISSUE = 6
    TABLE = 7
    TABLE_LOAD = 8
    EXCLUSION = 9
    BEGIN = 10
    SERVICE = 11
    COMPLETION = 12
    WIDTH = 13
    HBM_SHARE = 14
    SEMAPHORE = 15  # from the end of a producer on another engine to the start
    SAME_ENGINE = 16  # from the end of a producer on the same engine to the start


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stream:
    """What a schedule needs to know of a program.

    Attributes:
        template: row of ``table`` for each instruction, (n,).
        table: per template, (templates, len(Column)).
        start, producer, kind: edges, see :class:`EdgeArrays`.
        queue_depth: transfers that one queue holds.
        cores: number of cores.
        meeting: for each instruction the number of the meeting that it waits for, -1 without one; or empty.
    """

    template: Int32
    table: Int64
    start: Int32
    producer: Int32
    kind: npt.NDArray[np.int8]
    queue_depth: int
    cores: int = 1
    meeting: Int32 = field(default_factory=lambda: np.zeros(0, np.int32))

    def __len__(self) -> int:
        return len(self.template)

    def agent(self) -> Int64:
        """Agent of each instruction, (n,)."""
        agents: Int64 = self.table[self.template, Column.AGENT]
        return agents


def _semaphore_ns(engine: Engine, flags: int, rates: Rates) -> float:
    """From the last write of a producer on another engine to the start of the one that waits."""
    if engine is Engine.dma:
        return rates.value(f"semaphore.to_{descriptor_mode(flags)}_dma_ns")
    return rates.value(f"semaphore.to_{engine.name}_ns")


def agent_title(agent: int) -> str:
    """The name of an agent in reports: ``Tensor``, ``Sync loads``, ``GpSimd stores``."""
    if agent < QUEUE:
        return Engine(agent).title
    if agent % TRIGGERS == Engine.dma:
        return "Collectives" if agent < STORE_QUEUE else "HBM collectives"
    kind = "loads" if agent < STORE_QUEUE else "stores"
    return f"{Engine(agent % TRIGGERS).title} {kind}"


def _table_row(template: Template, costed: Cost, rates: Rates) -> list[int]:
    """The row of :attr:`Stream.table` for one template, in the order of :class:`Column`."""
    engine = template.engine
    agent = int(engine)
    if engine is Engine.dma:
        agent = template.queue + (STORE_QUEUE if template.work.flags & WorkFlag.HBM_WRITE else QUEUE)
    if not 0 < agent < AGENTS or not 0 <= template.queue < TRIGGERS:
        raise InternalFault(f"{template.mnemonic} is issued by queue {template.queue} of engine {engine.name}")
    tiles = costed.tiles or (WHOLE_ARRAY if engine is Engine.tensor else 0)
    return [
        agent, costed.interval_ps, costed.latency_ps, costed.load_ps, costed.load_latency_ps, tiles,
        costed.tile_issue_ps, costed.table, costed.table_load_ps, costed.exclusion, costed.begin_ps,
        costed.service_ps, costed.completion_ps, costed.width, costed.hbm_share,
        round(1e3 * _semaphore_ns(engine, template.work.flags, rates)),
        round(1e3 * rates.value("semaphore.same_engine_ns")),
    ]  # fmt: skip


def stream_of(program: Program, edges: EdgeArrays, rates: Rates) -> tuple[Stream, list[Cost]]:
    """The arrays of a recorded program, and the cost of each of its templates."""
    costs = [cost(t.work, t.engine, rates) for t in program.templates]
    rows = [_table_row(t, c, rates) for t, c in zip(program.templates, costs, strict=True)]
    if len(edges.start) != len(program) + 1:
        raise InternalFault(f"edges of {len(edges.start) - 1} instructions for a program of {len(program)}")
    return Stream(
        template=np.ascontiguousarray(program.rows()[:, 0]),
        table=np.array(rows, dtype=np.int64).reshape(-1, len(Column)),
        start=np.asarray(edges.start, np.int32),
        producer=np.asarray(edges.producer, np.int32),
        kind=np.asarray(edges.kind, np.int8),
        queue_depth=int(rates.value("dma.queue_depth")),
    ), costs


def join(streams: Sequence[Stream], meetings: Sequence[Sequence[tuple[int, int]]]) -> Stream:
    """One stream of cores that run at the same time, one core's instructions behind the other's.

    Args:
        streams: of each core, of the same rates.
        meetings: for each meeting the (core, instruction) of everybody who takes part.
    """
    first = np.cumsum([0, *(len(stream) for stream in streams)])
    row = np.cumsum([0, *(len(stream.table) for stream in streams)])
    edge = np.cumsum([0, *(len(stream.producer) for stream in streams)])
    tables = [stream.table.copy() for stream in streams]
    for core, table in enumerate(tables):
        table[:, Column.AGENT] += core * AGENTS
    starts = [stream.start[:-1] + at for stream, at in zip(streams, edge[:-1], strict=True)]
    meeting = np.full(first[-1], -1, np.int32)
    for number, members in enumerate(meetings):
        for core, index in members:
            meeting[first[core] + index] = number

    def shifted(arrays: Sequence[Int32], by: npt.NDArray[np.intp]) -> Int32:
        return np.concatenate([array + at for array, at in zip(arrays, by, strict=False)]).astype(np.int32)

    return Stream(
        template=shifted([stream.template for stream in streams], row),
        table=np.concatenate(tables),
        start=np.concatenate([*starts, edge[-1:]]).astype(np.int32),
        producer=shifted([stream.producer for stream in streams], first),
        kind=np.concatenate([stream.kind for stream in streams]),
        queue_depth=streams[0].queue_depth,
        cores=len(streams),
        meeting=meeting,
    )
