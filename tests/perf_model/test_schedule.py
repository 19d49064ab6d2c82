"""Facts about schedules; each is checked with the compiled and the readable version (Script.run compares them)."""

import numpy as np
import pytest

from isa.engine import Engine
from isa.faults import InternalFault
from isa.work import Work, WorkFlag, WorkKind
from perf_model.cost import cost
from perf_model.schedule import Bound, schedule, simulate
from tests.perf_model.script import RAW, WAR, WAW, Script

F, K = WorkFlag, WorkKind
LOAD_SBUF_4X = F.SRC_SBUF | F.ALL_16BIT | F.CONTIGUOUS


def costs(script, index):
    template = script.program.templates[script.program.rows()[index, 0]]
    return cost(template.work, template.engine, script.rates)


def bounds(result, index):
    return Bound(int(result.bound[index])), int(result.bound_by[index])


# --- engines --------------------------------------------------------------------------------------


def test_independent_instructions_follow_at_their_interval():
    s = Script()
    first, second = s.vector(), s.vector()
    result = s.run()
    assert result.start[first] == 0
    assert result.start[second] == costs(s, first).interval_ps
    assert bounds(result, first) == (Bound.NONE, -1)
    assert bounds(result, second) == (Bound.ORDER, first)


def test_a_dependent_instruction_of_the_same_engine_waits_for_the_result():
    s = Script()
    first = s.vector()
    second = s.vector(first)
    result = s.run()
    assert result.start[second] == costs(s, first).latency_ps + s.ps("semaphore.same_engine_ns")
    assert bounds(result, second) == (Bound.PRODUCER, first)


def test_dependent_activations_on_v2_take_the_documented_189_ns():
    s = Script("trn1")
    first = s.activation(n=1)
    second = s.activation(first, n=1)
    assert s.run().start[second] / 1e3 == pytest.approx(189, abs=0.5)


@pytest.mark.parametrize("kind", [WAR, WAW])
def test_order_is_enough_for_war_and_waw_on_one_engine(kind):
    s = Script()
    first = s.vector()
    second = s.vector((first, kind))
    assert s.run().start[second] == costs(s, first).interval_ps


@pytest.mark.parametrize("kind", [RAW, WAR, WAW])
def test_engines_wait_for_each_other_through_semaphores(kind):
    s = Script()
    first = s.vector()
    second = s.activation((first, kind))
    assert s.run().start[second] == costs(s, first).latency_ps + s.ps("semaphore.to_scalar_ns")


def test_the_latest_producer_decides():
    s = Script()
    short, long = s.vector(n=4), s.iota(n=4096)
    both = s.activation(short, long)
    result = s.run()
    assert bounds(result, both) == (Bound.PRODUCER, long)
    assert result.start[both] == result.end[long] + s.ps("semaphore.to_scalar_ns")


def test_an_engine_does_not_overtake():
    s = Script()
    slow = s.iota(n=10_000)
    waiting = s.vector(slow)
    behind = s.vector()
    result = s.run()
    assert result.start[behind] > result.start[waiting] > result.end[slow]


def test_engines_run_side_by_side():
    s = Script()
    indices = [s.vector(), s.activation(), s.iota()]
    assert not s.run().start[indices].any()


def test_the_first_function_table_and_each_change_load():
    s = Script()
    a, again, other = s.activation(table=1), s.activation(table=1), s.activation(table=2)
    plain = s.activation(table=0)
    back = s.activation(table=2)
    result, load = s.run(), s.ps("scalar.table_load_ns")
    gaps = result.start[[a, again, other, plain, back]] - np.array([0, *result.finish[[a, again, other, plain]]])
    assert gaps.tolist() == [load, 0, load, 0, 0]
    assert bounds(result, other) == (Bound.TABLE, again)


def test_a_function_table_loads_behind_the_wait_for_a_producer():
    s = Script()
    slow = s.iota(n=10_000)
    after = s.activation(slow, table=1)
    result = s.run()
    assert result.start[after] == result.end[slow] + s.ps("semaphore.to_scalar_ns")


# --- Tensor Engine --------------------------------------------------------------------------------


def test_loads_hide_behind_multiplies():
    s = Script()
    first, second = s.matmul(n=512), s.matmul(n=512)
    result = s.run()
    assert result.start[first] == costs(s, first).load_latency_ps
    assert result.start[second] - result.start[first] == costs(s, first).interval_ps


def test_a_load_longer_than_the_multiply_shows():
    s = Script()
    first, second = s.matmul(n=32, m=32), s.matmul(n=32, m=128)
    result = s.run()
    assert result.start[second] - result.start[first] == costs(s, second).load_ps > costs(s, first).interval_ps
    assert bounds(result, second) == (Bound.LOAD, first)


def test_a_matmul_that_waits_for_its_operands_shows_its_load():
    s = Script()
    slow = s.vector(n=4096)
    after = s.matmul(slow)
    result = s.run()
    wait = s.ps("semaphore.to_tensor_ns") + costs(s, after).load_latency_ps
    assert result.start[after] == result.end[slow] + wait


@pytest.mark.parametrize("kind", [RAW, WAR, WAW])
def test_accumulation_into_one_bank_is_pipelined(kind):
    s = Script()
    first = s.matmul()
    second = s.matmul((first, kind))
    result = s.run()
    assert result.start[second] - result.start[first] == costs(s, first).interval_ps


def test_fp32_takes_four_times_as_long():
    s = Script(tensor__interval_overhead_ns=0)
    one, four = s.matmul(), s.matmul(flags=F.FP32)
    assert costs(s, four).interval_ps == pytest.approx(4 * costs(s, one).interval_ps, abs=1)


def test_matmuls_on_other_rows_of_the_array_overlap():
    s = Script()
    top, bottom = s.matmul(k=64, tile=(64, 128, 0, 0)), s.matmul(k=64, tile=(64, 128, 64, 0))
    top_again = s.matmul(k=64, tile=(64, 128, 0, 0))
    result = s.run()
    assert result.start[bottom] - result.start[top] == s.ps("tensor.tile_issue_ns")
    assert result.start[top_again] - result.start[top] == costs(s, top).interval_ps


def test_a_whole_array_matmul_waits_for_every_tile():
    s = Script()
    s.matmul(k=64, tile=(64, 128, 0, 0), n=64)
    bottom = s.matmul(k=64, tile=(64, 128, 64, 0), n=512)
    whole = s.matmul()
    result = s.run()
    assert result.start[whole] - result.start[bottom] == costs(s, bottom).interval_ps


# --- exclusions -----------------------------------------------------------------------------------


def test_vector_and_gpsimd_share_the_sbuf_port_on_v2():
    s = Script("trn1")
    vector, iota = s.vector(n=2048), s.iota(n=2048)
    result = s.run()
    assert result.start[iota] == 0  # the lower engine number goes first
    assert result.start[vector] == result.finish[iota]
    assert bounds(result, vector) == (Bound.EXCLUSION, iota)


def test_on_v3_only_vector_performance_modes_use_the_shared_port():
    s = Script("trn2")
    plain, fast = s.vector(n=2048), s.vector(n=2048, kind=K.COPY, flags=LOAD_SBUF_4X)
    iota = s.iota(n=8192)
    result = s.run()
    assert result.start[plain] == result.start[iota] == 0
    assert result.start[fast] == result.finish[iota] > result.finish[plain]


@pytest.mark.parametrize(("target", "exclusive"), [("trn1", True), ("trn2", False), ("trn3", False)])
def test_vector_and_scalar_on_psum(target, exclusive):
    s = Script(target)
    activation, vector = s.activation(n=2048, flags=F.SRC_PSUM), s.vector(n=512, flags=F.SRC_PSUM)
    result = s.run()
    assert result.start[vector] == (result.finish[activation] if exclusive else 0)


def test_a_port_is_free_for_those_that_do_not_need_it():
    s = Script("trn1")
    activation, vector = s.activation(n=2048, flags=F.SRC_SBUF), s.vector(n=512, flags=F.SRC_PSUM)
    result = s.run()
    assert result.start[activation] == result.start[vector] == 0


# --- DMA ------------------------------------------------------------------------------------------


def test_a_transfer_alone():
    s = Script(hbm__core_gb_s=1000)
    load = s.dma()
    after = s.matmul(load)
    result, c = s.run(), costs(s, load)
    assert result.begin[load] == c.begin_ps
    assert result.finish[load] == c.begin_ps + c.service_ps
    assert result.end[load] == result.finish[load] + s.ps("dma.completion_ns")
    assert result.start[after] == result.end[load] + costs(s, after).load_latency_ps


def test_triggers_of_one_engine_follow_at_the_time_of_descriptor_generation():
    s = Script()
    first = s.dma()
    store = s.dma(flags=F.SRC_SBUF | F.HBM_WRITE | F.HARDWARE_DGE)
    other = s.dma(queue=Engine.scalar)
    result = s.run()
    assert result.start[store] - result.start[first] == s.ps("dma.hardware_issue_ns")
    assert bounds(result, store) == (Bound.ORDER, first)
    assert result.start[other] == 0


def test_a_store_that_waits_does_not_hold_up_loads():
    s = Script()
    slow = s.vector(n=10_000)
    s.dma(slow, flags=F.SRC_SBUF | F.HBM_WRITE | F.HARDWARE_DGE)
    load = s.dma()
    assert s.run().start[load] == 0


def test_transfers_of_one_queue_go_in_order():
    s = Script(hbm__core_gb_s=1000)
    loads = [s.dma(nbytes=2**23, descriptors=1024) for _ in range(3)]
    result = s.run()
    assert result.begin[loads[1]] == result.finish[loads[0]]
    assert result.begin[loads[2]] == result.finish[loads[1]]
    assert result.data_by[loads].tolist() == [-1, loads[0], loads[1]]


def test_narrow_transfers_of_one_queue_move_side_by_side():
    s = Script(hbm__core_gb_s=1000)
    loads = [s.dma(nbytes=2**20, descriptors=1) for _ in range(3)]
    result = s.run()
    assert (result.begin[loads] - result.start[loads]).tolist() == [s.ps("dma.hardware_begin_ns")] * 3
    assert result.data_by[loads].tolist() == [-1, -1, -1]


def test_a_full_queue_holds_back_its_trigger():
    s = Script(dma__queue_depth=2)
    loads = [s.dma(nbytes=2**23, descriptors=1024) for _ in range(3)]
    result = s.run()
    assert result.start[loads[2]] == result.finish[loads[0]]
    assert bounds(result, loads[2]) == (Bound.DEPTH, loads[0])


def test_software_triggers_hear_late_of_their_producers():
    s = Script()
    first = s.vector()
    load = s.dma(first, flags=F.HBM_READ | F.SOFTWARE_DGE, queue=Engine.gpsimd)
    result = s.run()
    assert result.start[load] - result.end[first] == s.ps("semaphore.to_software_dma_ns") == 1_197_000


def test_a_load_after_a_store_waits_for_its_completion():
    s = Script()
    store = s.dma(flags=F.SRC_SBUF | F.HBM_WRITE | F.HARDWARE_DGE)
    load = s.dma(store)
    result = s.run()
    assert result.start[load] == result.end[store]


# --- determinism and errors -----------------------------------------------------------------------


def test_the_same_stream_gives_the_same_schedule():
    s = Script()
    for _ in range(20):
        load = s.dma()
        s.dma(s.activation(s.matmul(load), table=1), flags=F.HBM_WRITE | F.HARDWARE_DGE)
    first, second = s.run(), s.run()
    np.testing.assert_array_equal(first.end, second.end)


def test_an_empty_stream_takes_no_time():
    assert Script().run().total_ps == 0


@pytest.mark.parametrize("version", [schedule, simulate])
def test_an_edge_that_points_forward_is_our_fault(version):
    s = Script()
    s.vector(1)
    s.activation(0)
    with pytest.raises(InternalFault, match="never ends"):
        version(s.stream())


def test_work_that_no_agent_can_start_is_our_fault():
    s = Script()
    s.add(Engine.dma, Work(kind=K.DMA, nbytes=64, descriptors=1), queue=9)
    with pytest.raises(InternalFault, match="queue 9"):
        s.stream()
