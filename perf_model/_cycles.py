"""Throughput cycles of Vector, Scalar and GpSimd instructions: the documented formulas, and the modes that change them.

N is elements per partition.  Minimum intervals, overheads and latencies are added in :mod:`perf_model.cost`.
"""

from __future__ import annotations

from isa.work import Work, WorkFlag, WorkKind
from perf_model.rates import Rates

NO_MINIMUM = frozenset(
    {
        WorkKind.SCALAR_TENSOR_TENSOR,
        WorkKind.REDUCE,
        WorkKind.MAX8,
        WorkKind.FIND_INDEX8,
        WorkKind.AFFINE_SELECT,
        WorkKind.IOTA,
        WorkKind.LOCAL_GATHER,
        WorkKind.N_GATHER,
        WorkKind.PARTITION_REDUCE,
        WorkKind.GPSIMD_OTHER,
    }
)
"""Documented without the minimum interval of 64 cycles.  nc_match_replace8 is printed with min(64, N); max is meant."""

Cycles = tuple[float, tuple[str, ...]]
"""Throughput cycles and the rates they rest on."""


def speed_mode(work: Work, rates: Rates) -> str | None:
    """The rate that names the Vector Engine's performance mode of this work; None in normal mode."""
    flags = work.flags
    if rates.value("vector.perf_mode_2x") == 1:
        return None
    psum = bool(flags & WorkFlag.SRC_PSUM) + bool(flags & WorkFlag.DST_PSUM)
    narrow = flags & (WorkFlag.ALL_8OR16BIT if rates.target.generation >= 4 else WorkFlag.ALL_16BIT)
    contiguous = flags & WorkFlag.CONTIGUOUS
    if work.kind in (WorkKind.COPY, WorkKind.TENSOR_SCALAR):
        if narrow and not psum:
            return "vector.perf_mode_4x" if contiguous else "vector.perf_mode_2x"
        if narrow and psum == 1 and contiguous:
            return "vector.perf_mode_2x"
        if flags & WorkFlag.ALL_32BIT and not psum and contiguous:
            return "vector.fp32_tensor_scalar_speedup"
    elif work.kind is WorkKind.TENSOR_TENSOR and narrow and not flags & WorkFlag.SRC_PSUM:
        return "vector.perf_mode_2x"
    return None


def vector_cycles(work: Work, rates: Rates) -> Cycles:
    n, flags, kind, value = float(work.elements), work.flags, work.kind, rates.value
    mixed = bool(flags & WorkFlag.SRC_PSUM) and bool(flags & WorkFlag.SRC_SBUF)
    mode = speed_mode(work, rates)
    if kind is WorkKind.TENSOR_TENSOR:
        name = "vector.two_tensor_factor"
        fast_v2 = (
            rates.value("vector.perf_mode_2x") == 1
            and flags & WorkFlag.ALL_16BIT
            and flags & WorkFlag.FAST_OPS
            and flags & WorkFlag.CONTIGUOUS
            and not flags & WorkFlag.SRC_PSUM
        )
        if mixed or fast_v2:
            return n, (name,)
        slow = n * value(name)
        return (slow / value(mode), (name, mode)) if mode else (slow, (name,))
    if mode:
        return n / value(mode), (mode,)
    if kind is WorkKind.SCALAR_TENSOR_TENSOR:
        fast = flags & WorkFlag.ALL_16BIT and flags & WorkFlag.FAST_OPS and work.elements % 2 == 0
        return (n if fast else n * value("vector.two_tensor_factor")), ("vector.two_tensor_factor",)
    if kind is WorkKind.COPY_PREDICATED and not mixed:
        return n * value("vector.predicated_sbuf_factor"), ("vector.predicated_sbuf_factor",)
    if kind is WorkKind.REDUCE and flags & WorkFlag.ALL_16BIT and flags & WorkFlag.FAST_OPS:
        return n / value("vector.reduce_fast_speedup"), ("vector.reduce_fast_speedup",)
    if kind is WorkKind.MEMSET and flags & WorkFlag.ZERO and flags & WorkFlag.ALL_16BIT:
        return n / value("vector.memset_zero_speedup"), ("vector.memset_zero_speedup",)
    if kind is WorkKind.EXPONENTIAL:
        return n / value("vector.exponential_speedup"), ("vector.exponential_speedup",)
    if kind is WorkKind.QUANTIZE_MX:
        return n / value("vector.quantize_mx_per_cycle"), ("vector.quantize_mx_per_cycle",)
    if kind is WorkKind.RANDOM:
        return n / value("vector.random_per_cycle"), ("vector.random_per_cycle",)
    name = _VECTOR_FACTORS.get(kind, "")
    return (n * value(name), (name,)) if name else (n, ("vector.minimum_interval_cycles",))


_VECTOR_FACTORS = {
    WorkKind.RECIPROCAL: "vector.reciprocal_factor",
    WorkKind.SCAN: "vector.scan_factor",
    WorkKind.BN_AGGR: "vector.bn_aggr_factor",
}


def scalar_cycles(work: Work, rates: Rates) -> Cycles:
    n = float(work.elements)
    if work.kind in (WorkKind.COPY, WorkKind.TENSOR_SCALAR) and work.flags & WorkFlag.ALL_16BIT:
        return n / rates.value("scalar.perf_mode_2x"), ("scalar.perf_mode_2x",)
    return n, ("scalar.minimum_interval_cycles",)


def gpsimd_cycles(work: Work, rates: Rates) -> Cycles:
    n, kind, value = float(work.elements), work.kind, rates.value
    start = value("gpsimd.start_cycles")
    if kind in (WorkKind.IOTA, WorkKind.AFFINE_SELECT, WorkKind.GPSIMD_OTHER):
        return start + n, ("gpsimd.start_cycles",)
    if kind is WorkKind.LOCAL_GATHER:
        per_index = max(work.inputs, 1)
        itemsize = work.nbytes / max(work.rows * work.columns, 1) or (4.0 if work.flags & WorkFlag.ALL_32BIT else 2.0)
        speed = ((28 + 4 * per_index) / (4 * per_index)) / min(4 / itemsize, per_index)
        return start + n * per_index / speed, ("gpsimd.start_cycles",)
    if kind is WorkKind.N_GATHER:
        groups = -(-work.elements // int(value("gpsimd.gather_group_elements")))
        return groups * start + n * value("gpsimd.gather_cycles_per_element"), ("gpsimd.gather_cycles_per_element",)
    if kind is WorkKind.PARTITION_REDUCE:
        return start + n * value("gpsimd.partition_reduce_factor"), ("gpsimd.partition_reduce_factor",)
    name = "gpsimd.element_factor"
    if kind is WorkKind.RSQRT:
        name = "gpsimd.rsqrt_factor"
    elif work.flags & WorkFlag.TWO_TENSORS:
        name = "gpsimd.two_tensor_factor"
    return n * value(name), (name,)
