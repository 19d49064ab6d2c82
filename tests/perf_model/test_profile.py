"""Profiles: counters from the stream, times from the schedule, tables, and the sentence on what bounds."""

import json
import subprocess
import sys

import numpy as np
import pytest

from isa import dtypes
from isa.dma import DmaCopy
from isa.engine import Engine
from isa.operands import AccessPattern, Space
from isa.program import Program
from isa.target import resolve_target
from isa.tensor import Matmul, TensorTranspose
from isa.vector_move import TensorCopy
from isa.work import Work, WorkFlag, WorkKind
from memory_model.hazards import edges
from perf_model.profile import profile
from perf_model.rates import load_rates
from tests.perf_model.script import Script

BF16, FP32 = dtypes.dtype("bfloat16"), dtypes.dtype("float32")
F, K = WorkFlag, WorkKind


def hbm(rows, columns, dtype, buffer):
    return AccessPattern(Space.HBM, dtype, 0, ((columns, rows), (1, columns)), buffer=buffer)


def sbuf(columns, dtype, offset, partitions=128):
    return AccessPattern(Space.SBUF, dtype, offset, ((1, columns),), partitions=partitions)


def psum(columns, dtype, offset=0, partitions=128):
    return AccessPattern(Space.PSUM, dtype, offset, ((1, columns),), partitions=partitions)


def issue(program, ins, line=1):
    target = program.target
    ins.check(target)
    template = program.add_template(ins, ins.select_engine(target), ins.queue(target), ins.work(target))
    return program.append(template, program.source_id("kernel.py", line, "kernel"), ins)


def matmul_program(dtype=BF16, repeats=1, target="trn2"):
    """Load a stationary and a moving tile, multiply, transpose, copy out, store."""
    program = Program(resolve_target(target))
    size = dtype.itemsize
    for _ in range(repeats):
        issue(program, DmaCopy(dst=sbuf(128, dtype, 0), src=hbm(128, 128, dtype, 0)), line=10)
        issue(program, DmaCopy(dst=sbuf(512, dtype, 1024), src=hbm(128, 512, dtype, 1)), line=11)
        issue(
            program, Matmul(dst=psum(512, FP32), stationary=sbuf(128, dtype, 0), moving=sbuf(512, dtype, 1024)), line=12
        )
        issue(program, TensorTranspose(dst=psum(128, dtype, 2048), data=sbuf(128, dtype, 0)), line=13)
        issue(program, TensorCopy(dst=sbuf(512, FP32, 8192), src=psum(512, FP32)), line=14)
        issue(program, DmaCopy(dst=hbm(128, 512, FP32, 2), src=sbuf(512, FP32, 8192)), line=15)
    assert size in (2, 4)
    return program


def profiled(program, **options):
    return profile(program, edges(program), **options)


def test_bytes_are_counted_from_the_operands():
    c = profiled(matmul_program()).counters
    tile, wide, out = 128 * 128 * 2, 128 * 512 * 2, 128 * 512 * 4
    assert (c.hbm_read_bytes, c.hbm_write_bytes) == (tile + wide, out)
    assert c.dma_bytes == tile + wide + out
    assert c.descriptors == 3 * 128
    assert c.sbuf_write_bytes == tile + wide + out
    assert c.sbuf_read_bytes == tile + wide + tile + out
    assert (c.psum_read_bytes, c.psum_write_bytes) == (out, out + tile)


def test_flops_tell_transposes_from_the_model():
    c = profiled(matmul_program()).counters
    assert c.model_flops == 2 * 128 * 128 * 512
    assert c.transpose_flops == 2 * 128**3
    assert c.hardware_flops == c.model_flops + c.transpose_flops


@pytest.mark.parametrize(
    ("target", "dtype", "tflops"),
    [("trn1", BF16, 91.75), ("trn1", FP32, 22.94), ("trn2", BF16, 78.64), ("trn2", FP32, 19.66), ("trn3", BF16, 78.64)],
)
def test_mfu_is_against_the_peak_of_one_core(target, dtype, tflops):
    result = profiled(matmul_program(dtype, target=target))
    assert result.counters.peak_flops_per_s / 1e12 == pytest.approx(tflops, rel=1e-3)
    assert result.counters.peak_inputs == str(dtype)
    expected = 100 * 2 * 128 * 128 * 512 / (result.total_ns * 1e-9) / (tflops * 1e12)
    assert result.mfu_percent == pytest.approx(expected, rel=1e-3)
    assert result.hfu_percent > result.mfu_percent


def test_a_tensor_engine_that_never_waits_has_nearly_full_mfu():
    s = Script()
    for _ in range(2000):
        s.matmul()
    result = profile(s.program, s.edges())
    assert result.mfu_percent == pytest.approx(100, abs=2)
    assert result.bound_by.startswith("bound by the Tensor Engine: active 100 %")


def test_mx_and_double_row_have_their_own_peaks():
    for target, packing, factor in (("trn2", 2, 2), ("trn3", 4, 4)):
        s = Script(target)
        work = Work(kind=K.MATMUL, elements=512, rows=128, columns=128, flops=packing * 2 * 128 * 128 * 512)
        s.add(Engine.tensor, work)
        peak = profile(s.program, s.edges()).counters.peak_flops_per_s
        assert peak == pytest.approx(factor * 2 * 128 * 128 * 2.4e9)


def test_counters_do_not_depend_on_rates():
    program = matmul_program()
    slow = load_rates("trn2").override("dma.engine_gb_s", "x0.1")
    first, second = profiled(program), profiled(program, rates=slow)
    assert second.total_ns > first.total_ns
    assert first.counters.hbm_bytes == second.counters.hbm_bytes
    assert first.counters.model_flops == second.counters.model_flops


def test_times_add_up():
    result = profiled(matmul_program(repeats=3))
    assert result.total_ns == result.schedule.end.max() / 1e3
    assert sum(row.ns for row in result.critical) == pytest.approx(result.total_ns)
    assert sum(row.critical_ns for row in result.lines) == pytest.approx(result.total_ns)
    assert sum(row.instructions for row in result.instructions) == len(result.stream) == 18
    assert sum(row.busy_percent for row in result.instructions) == pytest.approx(100)
    low, high = result.band_ns
    assert low < result.total_ns < high
    assert result.guessed_percent == 0


def test_tables_name_engines_queues_instructions_and_lines():
    result = profiled(matmul_program(repeats=2))
    counts = {row.engine: row.instructions for row in result.engines}
    assert counts == {"Tensor": 4, "Vector": 2, "Scalar": 0, "GpSimd": 0, "Sync": 0}
    assert {row.queue: row.transfers for row in result.queues} == {"Sync loads": 4, "Sync stores": 2}
    assert {(row.mnemonic, row.engine) for row in result.instructions} == {
        ("dma_copy", "DMA"), ("nc_matmul", "Tensor"), ("nc_transpose", "Tensor"), ("tensor_copy", "Vector"),
    }  # fmt: skip
    assert {row.line for row in result.lines} == {10, 11, 12, 13, 14, 15}
    assert all(0 <= row.active_percent <= 100 for row in result.engines)


def test_active_time_counts_overlapping_matmuls_once():
    s = Script()
    for start in (0, 64):
        s.matmul(k=64, tile=(64, 128, start, 0))
    result = profile(s.program, s.edges())
    (tensor,) = [row for row in result.engines if row.engine == "Tensor"]
    begin, finish = result.schedule.begin, result.schedule.finish
    assert tensor.active_ns == (finish.max() - begin.min()) / 1e3 < (finish - begin).sum() / 1e3


def test_bound_by_hbm():
    s = Script()
    for _ in range(20):
        s.dma(nbytes=2**23, descriptors=1024)
    result = profile(s.program, s.edges())
    assert result.bound_by.startswith("bound by DMA: data moves")
    assert 90 < 100 * result.dma_active_ns / result.total_ns <= 100


def test_bound_by_dma_latency():
    s = Script()
    last = s.dma(nbytes=4096)
    for _ in range(10):
        last = s.dma(last, nbytes=4096)
    assert profile(s.program, s.edges()).bound_by.startswith("bound by DMA latency")


def test_bound_by_latency():
    s = Script()
    last = s.vector(n=4)
    for _ in range(10):
        last = s.vector(s.activation(last, n=4), n=4)
    assert profile(s.program, s.edges()).bound_by.startswith("bound by latency")


def test_the_band_grows_with_what_is_guessed():
    s = Script()
    s.dma(flags=F.HBM_READ | F.HARDWARE_DGE | F.CAST)
    result = profile(s.program, s.edges())
    assert result.guessed_percent > 20
    assert result.band > 0.1


def test_as_dict_is_plain_and_complete():
    data = json.loads(json.dumps(profiled(matmul_program()).as_dict(), allow_nan=False))
    summary = data["summary"]
    assert summary["total_time"] == pytest.approx(summary["total_time_ns"] * 1e-9)
    for name in ("mfu_estimated_percent", "hfu_estimated_percent", "hbm_read_bytes", "hbm_write_bytes",
                 "tensor_engine_active_time_percent", "dma_active_time_percent", "bound_by"):  # fmt: skip
        assert name in summary
    assert {"engines", "dma_queues", "instructions", "source_lines", "critical_path"} < data.keys()


def test_an_empty_program_has_a_profile():
    program = Program(resolve_target("trn2"))
    result = profiled(program)
    assert result.total_ns == result.mfu_percent == result.band == 0
    assert result.bound_by == "no instructions: nothing to bound"
    json.dumps(result.as_dict(), allow_nan=False)


def test_a_program_is_timed_for_another_generation():
    program = matmul_program(target="trn2")
    assert profiled(program).target.name == "trn2"
    faster = profiled(program, target="trn3")
    assert faster.target.name == "trn3"
    assert np.array_equal(faster.stream.template, profiled(program).stream.template)


def test_rates_and_target_must_agree():
    program = matmul_program()
    assert profiled(program, rates=load_rates("trn3"), target="trn3").target.name == "trn3"
    with pytest.raises(ValueError, match="give one"):
        profiled(program, rates=load_rates("trn3"), target="trn2")


def test_slack_is_zero_on_a_chain():
    s = Script()
    first = s.vector()
    s.activation(first)
    alone = s.iota(n=4)
    slack = profile(s.program, s.edges()).slack_ns
    assert slack[:2].tolist() == [0, 0]
    assert slack[alone] > 0


def test_importing_the_model_loads_neither_numba_nor_simpy():
    code = "import sys, perf_model.profile; print([m for m in ('numba', 'simpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
