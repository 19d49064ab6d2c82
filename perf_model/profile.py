"""Profile: when every instruction of a program ran, and what that adds up to.

    >>> result = profile(program, edges)                     # doctest: +SKIP
    >>> result.total_ns, result.bound_by                     # doctest: +SKIP

Columns (numpy, one entry per instruction) are in :attr:`Profile.schedule`; tables are lists of small records.  Counters
come from the stream, times from the schedule.  Names and units in :meth:`Profile.as_dict` follow the summary of Neuron
Explorer where it has the same quantity (times there are in seconds); other names carry their unit.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from isa.engine import Engine
from isa.program import Program
from isa.target import Target
from perf_model.analysis import CriticalPath, Part, critical_path, slack_ps
from perf_model.cost import ONE, Cost
from perf_model.counters import Counters, count
from perf_model.rates import Rates, load_rates
from perf_model.schedule import Schedule, schedule
from perf_model.stream import QUEUE, Column, EdgeArrays, Stream, agent_title, stream_of
from perf_model.tables import EngineTime, InstructionTime, LineTime, PathTime, QueueTime

__all__ = ["ENGINES", "Profile", "profile", "rates_for"]

ENGINES = (Engine.tensor, Engine.vector, Engine.scalar, Engine.gpsimd, Engine.sync)
"""The engines in the order of reports."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """Time of one program on one core.

    Attributes:
        program: what was timed.
        rates: with which numbers; ``rates.target`` is the generation.
        stream, schedule, costs: the inputs of the schedule, its columns, and the cost of each template.
        path: the critical path.
        counters: bytes and flops.
    """

    program: Program
    rates: Rates
    stream: Stream
    schedule: Schedule
    costs: list[Cost]
    path: CriticalPath
    counters: Counters

    # --- totals -----------------------------------------------------------------------------------

    @property
    def target(self) -> Target:
        """The generation it was timed for."""
        return self.rates.target

    @property
    def total_ns(self) -> float:
        """From the first instruction's chance to start to the last result."""
        return self.schedule.total_ps / 1e3

    def _weighted(self, values: list[float]) -> float:
        """Mean of a number per template, weighted with time on the critical path."""
        total = self.schedule.total_ps
        if not total:
            return 0.0
        per_template = np.bincount(self.stream.template, weights=self.path.weight_ps, minlength=len(values))
        return float(per_template @ np.array(values)) / total

    @cached_property
    def band(self) -> float:
        """Relative half-width of the total, from the bands of the rates on the critical path."""
        return self._weighted([cost.band for cost in self.costs])

    @property
    def band_ns(self) -> tuple[float, float]:
        """Lowest and highest total that the bands of the rates allow."""
        return self.total_ns * (1 - self.band), self.total_ns * (1 + self.band)

    @cached_property
    def guessed_percent(self) -> float:
        """Share of the critical path that rests on guessed rates."""
        return 100 * self._weighted([cost.guessed_share for cost in self.costs])

    @cached_property
    def slack_ns(self) -> npt.NDArray[np.float64]:
        """How much later each instruction could start without making the whole longer, (n,)."""
        return slack_ps(self.stream, self.schedule) / 1e3

    def _percent(self, part: float, whole: float) -> float:
        return 100 * part / whole if whole else 0.0

    @property
    def mfu_percent(self) -> float:
        """Model flops against the peak of one core for :attr:`Counters.peak_inputs`."""
        return self._percent(self.counters.model_flops, self.counters.peak_flops_per_s * self.total_ns * 1e-9)

    @property
    def hfu_percent(self) -> float:
        """As :attr:`mfu_percent`, transposes included."""
        return self._percent(self.counters.hardware_flops, self.counters.peak_flops_per_s * self.total_ns * 1e-9)

    @property
    def hbm_percent(self) -> float:
        """HBM bytes against the core's share of the chip's bandwidth."""
        return self._percent(self.counters.hbm_bytes, self.rates.value("hbm.core_gb_s") * self.total_ns)

    # --- tables -----------------------------------------------------------------------------------

    @cached_property
    def _agents(self) -> npt.NDArray[np.int64]:
        return self.stream.agent()

    @cached_property
    def _busy_ps(self) -> npt.NDArray[np.int64]:
        return self.schedule.finish - self.schedule.begin

    def _active_ps(self, chosen: npt.NDArray[np.bool_]) -> int:
        """Time during which at least one of the chosen instructions is busy."""
        begin, finish = self.schedule.begin[chosen], self.schedule.finish[chosen]
        if not len(begin):
            return 0
        order = np.argsort(begin, kind="stable")
        begin, finish = begin[order], finish[order]
        covered = np.maximum.accumulate(finish)
        covered_before = np.concatenate(([0], covered[:-1]))
        return int(np.maximum(0, finish - np.maximum(begin, covered_before)).sum())

    @cached_property
    def engines(self) -> list[EngineTime]:
        """The five engines."""
        rows = []
        for engine in ENGINES:
            chosen = self._agents == int(engine)
            active = self._active_ps(chosen)
            rows.append(EngineTime(
                engine=engine.title, instructions=int(chosen.sum()), active_ns=active / 1e3,
                active_percent=self._percent(active, self.schedule.total_ps),
                critical_percent=self._percent(int(self.path.parts_ps[engine, Part.BUSY]), self.schedule.total_ps),
            ))  # fmt: skip
        return rows

    @cached_property
    def dma_active_ns(self) -> float:
        """Time during which the data of at least one transfer moves."""
        return self._active_ps(self._agents >= QUEUE) / 1e3

    @cached_property
    def dma_engine_percent(self) -> float:
        """Mean share of the DMA engines that move data."""
        per_template = self.stream.table[:, Column.WIDTH] * self.stream.table[:, Column.SERVICE]
        work = float(per_template[self.stream.template].sum()) / ONE
        return self._percent(work, self.schedule.total_ps)

    @cached_property
    def queues(self) -> list[QueueTime]:
        """The DMA queues that were used: triggering engine and direction, e.g. ``Sync loads``."""
        nbytes = np.array([t.work.nbytes for t in self.program.templates], np.int64)
        rows = []
        for agent in sorted(set(self._agents[self._agents >= QUEUE].tolist())):
            chosen = self._agents == agent
            active = self._active_ps(chosen)
            rows.append(QueueTime(
                queue=agent_title(agent), transfers=int(chosen.sum()),
                transferred_bytes=int(nbytes[self.stream.template[chosen]].sum()), active_ns=active / 1e3,
                active_percent=self._percent(active, self.schedule.total_ps),
            ))  # fmt: skip
        return rows

    @cached_property
    def instructions(self) -> list[InstructionTime]:
        """By name and engine, the most time first."""
        templates = self.program.templates
        times = np.bincount(self.stream.template, minlength=len(templates))
        busy = np.bincount(self.stream.template, weights=self._busy_ps, minlength=len(templates))
        groups: dict[tuple[str, str], list[float]] = {}
        for template, n, ps in zip(templates, times.tolist(), busy.tolist(), strict=True):
            if n:
                group = groups.setdefault((template.mnemonic, template.engine.title), [0, 0.0])
                group[0] += n
                group[1] += ps
        whole = float(busy.sum())
        rows = [
            InstructionTime(
                mnemonic=name,
                engine=engine,
                instructions=int(n),
                busy_ns=ps / 1e3,
                busy_percent=self._percent(ps, whole),
            )
            for (name, engine), (n, ps) in groups.items()
        ]
        return sorted(rows, key=lambda row: (-row.busy_ns, row.mnemonic, row.engine))

    @cached_property
    def lines(self) -> list[LineTime]:
        """By source line, the most time on the critical path first."""
        sources = self.program.sources
        where = self.program.rows()[:, 1]
        times = np.bincount(where, minlength=len(sources))
        busy = np.bincount(where, weights=self._busy_ps, minlength=len(sources))
        critical = np.bincount(where, weights=self.path.weight_ps, minlength=len(sources))
        rows = [
            LineTime(
                file=s.file,
                line=s.line,
                function=s.function,
                instructions=int(times[k]),
                busy_ns=float(busy[k]) / 1e3,
                critical_ns=float(critical[k]) / 1e3,
                critical_percent=self._percent(float(critical[k]), self.schedule.total_ps),
            )
            for k, s in enumerate(sources)
            if times[k]
        ]
        return sorted(rows, key=lambda row: (-row.critical_ns, -row.busy_ns, row.file, row.line))

    @cached_property
    def critical(self) -> list[PathTime]:
        """What the critical path is spent on, the most first; sums to the total."""
        shares = {f"{e.title} busy": int(self.path.parts_ps[e, Part.BUSY]) for e in ENGINES}
        shares |= {part.title: self.path.part_ps(part) for part in Part if part is not Part.BUSY}
        rows = [
            PathTime(part=name, ns=ps / 1e3, percent=self._percent(ps, self.schedule.total_ps))
            for name, ps in shares.items()
            if ps
        ]
        return sorted(rows, key=lambda row: (-row.ns, row.part))

    # --- words ------------------------------------------------------------------------------------

    @cached_property
    def bound_by(self) -> str:
        """What decides the total time, in one sentence."""
        total = self.schedule.total_ps
        if not total:
            return "no instructions: nothing to bound"

        def share(*parts: Part) -> float:
            return 100 * sum(self.path.part_ps(part) for part in parts) / total

        engine = max(self.engines, key=lambda row: row.critical_percent)
        busiest = max(self.engines, key=lambda row: row.active_percent)
        dma = self._percent(self.dma_active_ns, self.total_ns)
        data = share(Part.DMA_DATA, Part.DMA_SHARING)
        fixed = share(Part.DMA_ISSUE, Part.DMA_BEGIN, Part.DMA_COMPLETION)
        between = share(Part.LATENCY, Part.SEMAPHORE, Part.LOAD, Part.TABLE_LOAD)
        cores = share(Part.CORES)
        most = max(engine.critical_percent, data, fixed, between, cores)
        beside = f"the {busiest.engine} Engine, the busiest, is active {busiest.active_percent:.0f} %"
        if most == engine.critical_percent:
            return (
                f"bound by the {engine.engine} Engine: active {engine.active_percent:.0f} % of the time, "
                f"its work is {engine.critical_percent:.0f} % of the critical path"
            )
        if most == cores:
            return f"bound by another core: {cores:.0f} % of the critical path is spent waiting for it, while {beside}"
        if most == data:
            return (
                f"bound by DMA: data moves {dma:.0f} % of the time (DMA engines {self.dma_engine_percent:.0f} % busy, "
                f"HBM bandwidth {self.hbm_percent:.0f} % used) while {beside}"
            )
        if most == fixed:
            return (
                f"bound by DMA latency: triggers, start-up and completion of transfers are {fixed:.0f} % of the "
                f"critical path, data {data:.0f} %; {beside}"
            )
        return (
            f"bound by latency: pipelines, semaphores and loads between dependent instructions are {between:.0f} % "
            f"of the critical path while {beside}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; see the module docstring for names and units."""
        c, low_high = self.counters, self.band_ns
        summary: dict[str, Any] = {
            "target": self.target.name,
            "neuron_core": self.target.core,
            "total_time": self.total_ns * 1e-9,
            "total_time_ns": self.total_ns,
            "total_time_low_ns": low_high[0],
            "total_time_high_ns": low_high[1],
            "guessed_rates_percent": self.guessed_percent,
            "bound_by": self.bound_by,
            "instruction_count": len(self.stream),
            "model_flops": c.model_flops,
            "hardware_flops": c.hardware_flops,
            "transpose_flops": c.transpose_flops,
            "mfu_estimated_percent": self.mfu_percent,
            "hfu_estimated_percent": self.hfu_percent,
            "mbu_estimated_percent": self.hbm_percent,
            "mfu_peak_flops_per_second": c.peak_flops_per_s,
            "mfu_peak_inputs": c.peak_inputs,
            "mm_arithmetic_intensity": c.model_flops / c.hbm_bytes if c.hbm_bytes else None,
            "peak_flops_bandwidth_ratio": c.peak_flops_per_s / (1e9 * self.rates.value("hbm.core_gb_s")),
            "hbm_read_bytes": c.hbm_read_bytes,
            "hbm_write_bytes": c.hbm_write_bytes,
            "sbuf_read_bytes": c.sbuf_read_bytes,
            "sbuf_write_bytes": c.sbuf_write_bytes,
            "psum_read_bytes": c.psum_read_bytes,
            "psum_write_bytes": c.psum_write_bytes,
            "dma_transfer_bytes": c.dma_bytes,
            "dma_descriptor_count": c.descriptors,
            "dma_active_time": self.dma_active_ns * 1e-9,
            "dma_active_time_percent": self._percent(self.dma_active_ns, self.total_ns),
            "dma_engine_busy_percent": self.dma_engine_percent,
        }
        for row in self.engines:
            summary[f"{row.engine.lower()}_engine_active_time"] = row.active_ns * 1e-9
            summary[f"{row.engine.lower()}_engine_active_time_percent"] = row.active_percent
        return {
            "summary": summary,
            "engines": [asdict(row) for row in self.engines],
            "dma_queues": [asdict(row) for row in self.queues],
            "instructions": [asdict(row) for row in self.instructions],
            "source_lines": [asdict(row) for row in self.lines],
            "critical_path": [asdict(row) for row in self.critical],
        }


def profile(
    program: Program, edges: EdgeArrays, *, rates: Rates | None = None, target: str | Target | None = None
) -> Profile:
    """Time a recorded program.

    Args:
        program: any recorded stream.
        edges: its dependencies, such as ``memory_model.hazards.edges(program)``.
        rates: numbers to use, e.g. with an override; those of ``target`` otherwise.
        target: generation to time the program for; the one it was recorded for otherwise.  The stream stays the one
            recorded: work that differs between generations is not worked out again.

    Raises:
        ValueError: rates and target name different generations, or no such target.
    """
    rates = rates_for(program, rates, target)
    stream, costs = stream_of(program, edges, rates)
    result = schedule(stream)
    return Profile(
        program=program,
        rates=rates,
        stream=stream,
        schedule=result,
        costs=costs,
        path=critical_path(stream, result),
        counters=count(program, rates),
    )


def rates_for(program: Program, rates: Rates | None, target: str | Target | None) -> Rates:
    """The rates that :func:`profile` uses.

    Raises:
        ValueError: rates and target name different generations, or no such target.
    """
    if rates is None:
        return load_rates(program.target if target is None else target)
    if target is not None and load_rates(target).target is not rates.target:
        raise ValueError(
            f"rates are of {rates.target.name}, target is {load_rates(target).target.name}; give one of them"
        )
    return rates
