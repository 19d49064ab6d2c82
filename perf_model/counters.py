"""Counters: what a program moves and computes, counted from the stream and not from time.

Bytes and operations of an instruction depend only on its template, so each template is looked at once and multiplied.
Elements that a pattern names repeatedly (stride 0) count each time.  Run-time skipped rows of gathers count as moved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isa.engine import Engine
from isa.instruction import INSTRUCTIONS
from isa.operands import Space
from isa.program import Program, Template
from isa.work import WorkFlag, WorkKind
from perf_model.rates import Rates

__all__ = ["Counters", "count", "matmul_flops", "peak_flops_per_s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Totals of a program.

    Attributes:
        hbm_read_bytes ... psum_write_bytes: bytes by memory and direction, DMA and engines together.
        dma_bytes: bytes written by DMA.
        descriptors: DMA descriptors.
        model_flops: of matmuls that are not transposes, multiply and add counted as two.
        transpose_flops: of transposes on the Tensor Engine.
        vector_flops: of all other engines.
        peak_flops_per_s: of one core for the inputs most model flops have.
        peak_inputs: name of those inputs, e.g. ``bfloat16``.
        template_bytes: HBM bytes, read and written, of one instruction of each template.
    """

    hbm_read_bytes: int
    hbm_write_bytes: int
    sbuf_read_bytes: int
    sbuf_write_bytes: int
    psum_read_bytes: int
    psum_write_bytes: int
    dma_bytes: int
    descriptors: int
    model_flops: int
    transpose_flops: int
    vector_flops: int
    peak_flops_per_s: float
    peak_inputs: str
    template_bytes: npt.NDArray[np.int64]

    @property
    def hardware_flops(self) -> int:
        """All Tensor Engine flops, transposes included."""
        return self.model_flops + self.transpose_flops

    @property
    def hbm_bytes(self) -> int:
        """Read and written."""
        return self.hbm_read_bytes + self.hbm_write_bytes


def matmul_flops(template: Template) -> int:
    """Flops of one Tensor Engine instruction; transposes count what the PE array multiplies."""
    work = template.work
    return work.flops or 2 * work.rows * work.columns * work.elements


def _packing(template: Template) -> int:
    """Contraction elements per PE row: 1, 2 (double row) or 4 (MX)."""
    work = template.work
    plain = 2 * work.rows * work.columns * work.elements
    return max(1, round(work.flops / plain)) if plain and work.flops else 1


def peak_flops_per_s(template: Template, rates: Rates) -> float:
    """What the Tensor Engine of one core reaches at most with the inputs of ``template``."""
    target = rates.target
    peak = 2e9 * target.matmul_rows * target.matmul_stationary_columns * rates.value("tensor.clock_ghz")
    if template.work.flags & WorkFlag.FP32:
        return peak / rates.value("tensor.fp32_factor")
    packing = _packing(template)
    if packing >= 4:
        return peak * rates.value("tensor.mx_speedup")
    return peak * rates.value("tensor.double_row_speedup") if packing == 2 else peak


def is_transpose(template: Template) -> bool:
    """A Tensor Engine instruction that only moves data."""
    return template.work.kind is WorkKind.PE_TRANSPOSE or bool(template.work.flags & WorkFlag.TRANSPOSE)


def count(program: Program, rates: Rates) -> Counters:
    """Count a program."""
    chosen = program.rows()[:, 0]
    times = np.bincount(chosen, minlength=len(program.templates))
    seen, first = np.unique(chosen, return_index=True)
    example = dict(zip(seen.tolist(), first.tolist(), strict=True))
    moved = {(space, written): 0 for space in Space for written in (False, True)}
    totals = dict.fromkeys(("dma", "descriptors", "model", "transpose", "vector"), 0)
    template_bytes = np.zeros(len(program.templates), np.int64)
    inputs: dict[str, tuple[int, float]] = {}  # name -> (flops, peak)
    for number, template in enumerate(program.templates):
        if number not in example:
            continue
        n, work = int(times[number]), template.work
        operands = [] if INSTRUCTIONS[template.opcode].orders else program.operands(example[number])
        for place, (_, pattern) in enumerate(operands):
            for written, mask in ((False, template.reads), (True, template.writes)):
                if mask >> place & 1:
                    moved[pattern.space, written] += n * pattern.nbytes
                    if pattern.space is Space.HBM:
                        template_bytes[number] += pattern.nbytes
        if template.engine is Engine.dma:
            totals["dma"] += n * work.nbytes
            totals["descriptors"] += n * work.descriptors
        elif template.engine is not Engine.tensor or work.kind is WorkKind.CONTROL:
            totals["vector"] += n * work.flops
        elif is_transpose(template):
            totals["transpose"] += n * matmul_flops(template)
        else:
            flops = n * matmul_flops(template)
            totals["model"] += flops
            named = next((str(p.dtype) for f, p in operands if f == "moving"), "bfloat16")
            name = f"{named} double row" if _packing(template) == 2 else named
            before = inputs.get(name, (0, 0.0))
            inputs[name] = (before[0] + flops, peak_flops_per_s(template, rates))
    name = max(inputs, key=lambda key: inputs[key][0], default="bfloat16")
    target = rates.target
    plain = 2e9 * target.matmul_rows * target.matmul_stationary_columns * rates.value("tensor.clock_ghz")
    return Counters(
        hbm_read_bytes=moved[Space.HBM, False], hbm_write_bytes=moved[Space.HBM, True],
        sbuf_read_bytes=moved[Space.SBUF, False], sbuf_write_bytes=moved[Space.SBUF, True],
        psum_read_bytes=moved[Space.PSUM, False], psum_write_bytes=moved[Space.PSUM, True],
        dma_bytes=totals["dma"], descriptors=totals["descriptors"], model_flops=totals["model"],
        transpose_flops=totals["transpose"], vector_flops=totals["vector"],
        peak_flops_per_s=inputs[name][1] if name in inputs else plain, peak_inputs=name,
        template_bytes=template_bytes,
    )  # fmt: skip
