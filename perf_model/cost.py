"""Cost: the work of one instruction turned into time with the rates of one generation.

Of every instruction three times are told apart:

- ``cycles``: throughput cycles of its documented formula, to the cycle;
- ``interval_ps``: how long it keeps its engine from starting the next independent instruction;
- ``latency_ps``: from its start until its results are there.

Interval and latency add the measured or documented overheads to the throughput.  With N the throughput cycles without
the minimum interval, on Vector, Scalar and GpSimd

    interval = max(minimum, N + overhead)        latency = N + overhead of the latency

so that without a known overhead (NeuronCore-v2) the interval is the documented formula itself.

Tensor Engine: one instruction is LoadStationary and MultiplyMoving; ``load_ps`` is the interval of the load, hidden
behind the multiply before it, ``load_latency_ps`` what a load costs that nothing hides.  float32 takes several
passes, each with its load.

DMA: ``service_ps`` is the time the transfer takes alone, its descriptors dealt evenly to the DMA engines; ``width``
the share of all DMA engines it keeps busy in that time and ``hbm_share`` the share of HBM bandwidth it draws, both in
1/65536.

Left out: SBUF and PSUM bank conflicts, HBM rows and banks, the Tensor Engine's power limit, descriptor generation on
the GpSimd Engine's time.  Formulas: instruction cost sections of nki.isa, architecture guides; numbers: the rates
files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from isa.engine import Engine
from isa.faults import InternalFault
from isa.work import Work, WorkFlag, WorkKind
from perf_model._cycles import NO_MINIMUM, gpsimd_cycles, scalar_cycles, speed_mode, vector_cycles
from perf_model.rates import Rates

__all__ = ["ONE", "Cost", "Exclusion", "cost", "descriptor_mode"]

ONE = 1 << 16
"""The whole of a shared resource: shares are in 1/65536, so that they add without rounding."""


class Exclusion:
    """Bits of :attr:`Cost.exclusion`: memory ports that one engine at a time may hold."""

    SBUF_PORT = 1
    PSUM_PORT = 2


@dataclass(slots=True, frozen=True, kw_only=True)
class Cost:
    """Time of one instruction; see the module docstring.  Times in integer picoseconds.

    Attributes:
        cycles: throughput cycles of the documented formula (0 for DMA and control).
        interval_ps, latency_ps: see above; for DMA: of the trigger, and of the whole transfer alone.
        fixed_ps: the part of ``latency_ps`` that does not depend on sizes.
        load_ps, load_latency_ps: Tensor Engine, LoadStationary.
        tiles: Tensor Engine: bit 4 * row group + column group for each 32 x 32 part of the PE array in use.
        tile_issue_ps: Tensor Engine: shortest distance to the next matmul on other tiles.
        table: Scalar Engine: function table needed (0: any).
        table_load_ps: Scalar Engine: time to load one.
        exclusion: bits of :class:`Exclusion`.
        begin_ps, service_ps, completion_ps: DMA: trigger to first data, data alone, last data to consumer.
        width, hbm_share: DMA: shares of DMA engines and HBM bandwidth drawn in ``service_ps``, in 1/65536.
        guessed_share: part of ``latency_ps`` that rests on guessed rates, 0 to 1.
        band: relative half-width of ``latency_ps``.
    """

    cycles: float
    interval_ps: int
    latency_ps: int
    fixed_ps: int = 0
    load_ps: int = 0
    load_latency_ps: int = 0
    tiles: int = 0
    tile_issue_ps: int = 0
    table: int = 0
    table_load_ps: int = 0
    exclusion: int = 0
    begin_ps: int = 0
    service_ps: int = 0
    completion_ps: int = 0
    width: int = 0
    hbm_share: int = 0
    guessed_share: float = 0.0
    band: float = 0.0


class _Tally:
    """Adds up how far the terms of a latency can be trusted."""

    def __init__(self, rates: Rates) -> None:
        self.rates = rates
        self.total = self.guessed = self.spread = 0.0

    def add(self, ps: float, *names: str) -> float:
        """Count a term of ``ps`` that rests on the rates ``names``; returns it."""
        self.total += ps
        self.spread += ps * max((self.rates[name].band for name in names), default=0.0)
        if any(self.rates[name].guessed for name in names):
            self.guessed += ps
        return ps

    @property
    def guessed_share(self) -> float:
        """Part of the total that rests on guessed rates."""
        return self.guessed / self.total if self.total else 0.0

    @property
    def band(self) -> float:
        """Relative half-width of the total."""
        return self.spread / self.total if self.total else 0.0


def cost(work: Work, engine: Engine, rates: Rates) -> Cost:
    """Time that ``work`` takes on ``engine``.

    Raises:
        InternalFault: the engine does not execute instructions.
    """
    if work.kind is WorkKind.COLLECTIVE:
        return _collective(work, rates)
    if engine is Engine.dma:
        return _dma(work, rates)
    if engine not in _ENGINES:
        raise InternalFault(f"no cost for work {work.kind.name} on engine {engine.name}")
    if work.kind is WorkKind.CONTROL:
        return _control(work, engine, rates)
    if engine is Engine.tensor:
        return _tensor(work, rates)
    return _lanes(work, engine, rates)


_ENGINES = (Engine.tensor, Engine.vector, Engine.scalar, Engine.gpsimd, Engine.sync)


def _control(work: Work, engine: Engine, rates: Rates) -> Cost:
    """Sequencer instructions; those that touch HBM wait for it."""
    tally = _Tally(rates)
    name = f"{engine.name}.control_ns"
    ps = tally.add(1e3 * rates.value(name), name)
    if work.flags & (WorkFlag.HBM_READ | WorkFlag.HBM_WRITE):
        ps += tally.add(1e3 * rates.value("register.memory_ns"), "register.memory_ns")
    return Cost(
        cycles=0.0,
        interval_ps=round(ps),
        latency_ps=round(ps),
        fixed_ps=round(ps),
        guessed_share=tally.guessed_share,
        band=tally.band,
    )


# --- Tensor Engine --------------------------------------------------------------------------------


def _tensor(work: Work, rates: Rates) -> Cost:
    value, tally = rates.value, _Tally(rates)
    cycle_ps = 1e3 / value("tensor.clock_ghz")
    transpose = work.kind is WorkKind.PE_TRANSPOSE or bool(work.flags & WorkFlag.TRANSPOSE)
    names = ["tensor.clock_ghz", "tensor.moving_minimum_cycles"]
    columns = work.columns or 128
    rows_cycles = max(min(value("tensor.moving_minimum_cycles"), columns), work.elements)
    factor = passes = 1.0
    if work.flags & WorkFlag.FP32:
        factor, passes = value("tensor.fp32_factor"), value("tensor.fp32_passes")
        names.append("tensor.fp32_factor")
        if transpose:
            factor, passes = value("tensor.transpose_fp32_factor"), 1.0
            names.append("tensor.transpose_fp32_factor")
        elif work.flags & WorkFlag.ONE_ZERO:
            factor /= value("tensor.onezero_fp32_factor")
            passes = max(1.0, passes / value("tensor.onezero_fp32_factor"))
            names.append("tensor.onezero_fp32_factor")
    if transpose:
        factor /= value("tensor.background_transpose_speedup")
        names.append("tensor.background_transpose_speedup")
    cycles = factor * rows_cycles
    overhead_ps = 1e3 * value("tensor.interval_overhead_ns")
    width = max(1.0, value("tensor.fp32_factor") / value("tensor.fp32_passes")) if work.flags & WorkFlag.FP32 else 1.0
    load_ps = width * (
        value("tensor.load_cycles_per_column") * columns * cycle_ps + 1e3 * value("tensor.load_overhead_ns")
    )
    fill_ps = 1e3 * value("tensor.load_fill_ns") * width
    pass_ps = cycles / passes * cycle_ps + overhead_ps
    # Between the passes of one instruction the next load is in the background and shows only where it is longer.
    between_ps = max(pass_ps, load_ps)
    interval_ps = between_ps * (passes - 1) + pass_ps
    throughput_ps = tally.add(between_ps * (passes - 1) + cycles / passes * cycle_ps, *names)
    fixed_ps = tally.add(1e3 * value("tensor.latency_overhead_ns"), "tensor.latency_overhead_ns")
    return Cost(
        cycles=cycles,
        interval_ps=round(interval_ps),
        latency_ps=round(throughput_ps + fixed_ps),
        fixed_ps=round(fixed_ps),
        load_ps=round(load_ps),
        load_latency_ps=round(load_ps + fill_ps),
        tiles=_tiles(work.row_tile),
        tile_issue_ps=round(1e3 * value("tensor.tile_issue_ns")),
        guessed_share=tally.guessed_share,
        band=tally.band,
    )


def _tiles(tile: tuple[int, int, int, int]) -> int:
    """The 32 x 32 parts of the PE array that a tile (row size, column size, start row, start column) covers."""
    row_size, column_size, row, column = tile
    mask = 0
    for r in range(row // 32, -(-(row + row_size) // 32)):
        for c in range(column // 32, -(-(column + column_size) // 32)):
            mask |= 1 << (4 * r + c)
    return mask


# --- Vector, Scalar, GpSimd -----------------------------------------------------------------------


def _lanes(work: Work, engine: Engine, rates: Rates) -> Cost:
    value, tally, flags, part = rates.value, _Tally(rates), work.flags, engine.name
    cycle_ps = 1e3 / value(f"{part}.clock_ghz")
    by_engine = {Engine.vector: vector_cycles, Engine.scalar: scalar_cycles, Engine.gpsimd: gpsimd_cycles}
    raw, names = by_engine[engine](work, rates)
    if flags & WorkFlag.WIDE_STRIDE:
        raw *= value("access.wide_stride_factor")
        names += ("access.wide_stride_factor",)
    minimum = 0.0 if work.kind in NO_MINIMUM else value(f"{part}.minimum_interval_cycles")
    if flags & WorkFlag.DYNAMIC and engine is not Engine.gpsimd:
        minimum = value(f"{part}.minimum_dynamic_cycles")
    elif flags & WorkFlag.DYNAMIC:
        minimum = max(minimum, value("gpsimd.minimum_dynamic_cycles"))
    extra = value(f"{part}.accumulate_cycles") if flags & WorkFlag.REDUCED and engine is not Engine.gpsimd else 0.0
    cycles = max(minimum, raw) + extra
    interval_overhead, latency_overhead = _overheads(work, engine, rates, tally)
    throughput_ps = tally.add((raw + extra) * cycle_ps, f"{part}.clock_ghz", *names)
    interval_ps = max(minimum * cycle_ps, raw * cycle_ps + interval_overhead) + extra * cycle_ps
    latency_ps = throughput_ps + latency_overhead
    if flags & WorkFlag.DYNAMIC:
        latency_ps = max(latency_ps, interval_ps)  # the address is read before anything else happens
    return Cost(
        cycles=cycles,
        interval_ps=round(interval_ps),
        latency_ps=round(latency_ps),
        fixed_ps=round(latency_overhead),
        exclusion=_exclusion(work, engine, rates),
        table=work.table if engine is Engine.scalar else 0,
        table_load_ps=round(1e3 * value("scalar.table_load_ns")) if engine is Engine.scalar else 0,
        guessed_share=tally.guessed_share,
        band=tally.band,
    )


def _overheads(work: Work, engine: Engine, rates: Rates, tally: _Tally) -> tuple[float, float]:
    """Picoseconds that interval and latency take beyond the throughput."""
    part = engine.name

    def ps(name: str) -> float:
        return 1e3 * rates.value(name)

    latency = tally.add(ps(f"{part}.latency_overhead_ns"), f"{part}.latency_overhead_ns")
    if engine is Engine.gpsimd:
        return 0.0, latency  # the documented formulas hold its start-up
    interval = ps(f"{part}.interval_overhead_ns")
    if work.flags & WorkFlag.VECTOR_OPERAND:
        if engine is Engine.vector:
            name = "vector.operand_overhead_ns"
            return interval + ps(name), latency + tally.add(ps(name), name)
        if work.kind is WorkKind.ACTIVATION:
            space = "psum" if work.flags & WorkFlag.SRC_PSUM else "sbuf"
            name = f"scalar.operand_latency_{space}_ns"
            interval += ps(f"scalar.operand_interval_{space}_ns")
            return interval, latency + tally.add(ps(name), name)
    return interval, latency


def _exclusion(work: Work, engine: Engine, rates: Rates) -> int:
    """Ports the instruction holds while it is on its engine."""
    flags, held = work.flags, 0
    shared = rates.value("exclusion.vector_gpsimd_sbuf")
    in_sbuf = flags & WorkFlag.SRC_SBUF or not flags & WorkFlag.DST_PSUM
    if shared and in_sbuf and engine in (Engine.vector, Engine.gpsimd):
        fast = engine is Engine.vector and speed_mode(work, rates) is not None
        if shared == 2 or engine is Engine.gpsimd or fast:
            held |= Exclusion.SBUF_PORT
    in_psum = flags & (WorkFlag.SRC_PSUM | WorkFlag.DST_PSUM)
    if rates.value("exclusion.vector_scalar_psum") == 2 and in_psum and engine in (Engine.vector, Engine.scalar):
        held |= Exclusion.PSUM_PORT
    return held


# --- DMA ------------------------------------------------------------------------------------------


def descriptor_mode(flags: int) -> str:
    """Who makes the descriptors of a transfer, as the rates call it."""
    if flags & WorkFlag.HARDWARE_DGE:
        return "hardware"
    return "software" if flags & WorkFlag.SOFTWARE_DGE else "static"


def _collective(work: Work, rates: Rates) -> Cost:
    """Steps that follow each other, and the bytes a rank sends over its share of the links.

    How many steps: by the size of the message two in a mesh, log2(n) by recursive doubling, or n/2 around the ring
    (runtime documentation, intra-node collectives).
    """
    value, tally = rates.value, _Tally(rates)
    if work.columns < value("collective.mesh_bytes"):
        steps = 2.0 if work.inputs > 2 else 1.0
    elif work.columns < value("collective.doubling_bytes"):
        steps = max(1.0, math.ceil(math.log2(max(work.inputs, 1))))
    else:
        steps = max(1.0, work.inputs / 2)
    latency_ps = tally.add(1e3 * steps * max(work.rows, 1) * value("collective.step_ns"), "collective.step_ns")
    data_ps = tally.add(1e3 * work.nbytes / value("collective.link_gb_s"), "collective.link_gb_s")
    service_ps = max(1, round(latency_ps + data_ps))
    # What is sent is read from HBM here and written there, and as much comes in.
    moved = 2 * work.nbytes if work.flags & WorkFlag.HBM_READ else 0
    begin_ps = round(tally.add(1e3 * value("collective.begin_ns"), "collective.begin_ns"))
    completion_ps = round(tally.add(1e3 * value("dma.completion_ns"), "dma.completion_ns"))
    engines_gb_s = value("dma.engines") * value("dma.engine_gb_s")
    return Cost(
        cycles=0.0,
        interval_ps=round(1e3 * value("dma.static_issue_ns")),
        latency_ps=begin_ps + service_ps + completion_ps,
        fixed_ps=begin_ps + completion_ps,
        begin_ps=begin_ps,
        service_ps=service_ps,
        completion_ps=completion_ps,
        width=max(1, min(ONE, round(ONE * 1e3 * work.nbytes / engines_gb_s / service_ps))),
        hbm_share=round(ONE * 1e3 * moved / value("hbm.core_gb_s") / service_ps),
        guessed_share=tally.guessed_share,
        band=tally.band,
    )


def _dma(work: Work, rates: Rates) -> Cost:
    value, tally, flags = rates.value, _Tally(rates), work.flags
    engines = int(value("dma.engines"))
    count = max(work.descriptors, 1)
    moved = work.nbytes * max(work.inputs, 1) if work.kind is WorkKind.DMA_COMPUTE else work.nbytes
    names = ["dma.engine_gb_s"]
    if work.kind is WorkKind.DMA_TRANSPOSE:
        names.append(f"dma.transpose_{'hbm' if flags & WorkFlag.HBM_READ else 'sbuf'}_efficiency")
    elif work.kind is WorkKind.DMA_COMPUTE:
        names.append("dma.compute_efficiency")
    elif flags & WorkFlag.CAST:
        names.append("dma.cast_efficiency")
    bytes_per_ns = value("dma.engine_gb_s")
    for name in names[1:]:
        bytes_per_ns *= value(name)
    rowwise = flags & (WorkFlag.GATHER | WorkFlag.SCATTER)
    overhead = "dma.scatter_descriptor_ns" if rowwise else "dma.descriptor_ns"
    rounds = -(-count // engines)
    data_ps = tally.add(rounds * 1e3 * moved / count / bytes_per_ns, *names)
    service_ps = max(1, round(data_ps + tally.add(rounds * 1e3 * value(overhead), overhead)))
    hbm_bytes = (moved if flags & WorkFlag.HBM_READ else 0) + (work.nbytes if flags & WorkFlag.HBM_WRITE else 0)
    hbm_share = round(ONE * 1e3 * hbm_bytes / value("hbm.core_gb_s") / service_ps)
    mode = descriptor_mode(flags)
    begin_ps = round(tally.add(1e3 * value(f"dma.{mode}_begin_ns"), f"dma.{mode}_begin_ns"))
    completion_ps = round(tally.add(1e3 * value("dma.completion_ns"), "dma.completion_ns"))
    return Cost(
        cycles=0.0,
        interval_ps=round(1e3 * value(f"dma.{mode}_issue_ns")),
        latency_ps=begin_ps + service_ps + completion_ps,
        fixed_ps=begin_ps + completion_ps,
        begin_ps=begin_ps,
        service_ps=service_ps,
        completion_ps=completion_ps,
        width=max(1, round(ONE * count / (engines * rounds))),
        hbm_share=hbm_share,
        guessed_share=tally.guessed_share,
        band=tally.band,
    )
