"""Transfers in flight share DMA engines and HBM; both versions of the schedule agree (Script.run)."""

import pytest

from isa.engine import Engine
from isa.work import WorkFlag
from perf_model.bandwidth import Pool
from perf_model.cost import ONE
from tests.perf_model.script import Script

F = WorkFlag
QUEUES = (Engine.sync, Engine.scalar, Engine.gpsimd, Engine.vector)
BIG = {"nbytes": 2**24, "descriptors": 4096}


def durations(count, *, same=True, flags=F.HBM_READ | F.HARDWARE_DGE, transfer=BIG, **overrides):
    s = Script(**overrides)
    loads = [s.dma(queue=queue, flags=flags, **transfer) for queue in QUEUES[:count]]
    result = s.run()
    return [(result.finish[load] - result.begin[load]) / 1e3 for load in loads]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_equal_transfers_share_the_engines_equally(count):
    (alone,) = durations(1, hbm__core_gb_s=1e6)
    shared = durations(count, hbm__core_gb_s=1e6)
    assert shared == pytest.approx([count * alone] * count, rel=1e-4)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_equal_transfers_share_hbm_equally(count):
    assert durations(count, hbm__core_gb_s=100) == pytest.approx([count * 2**24 / 100] * count, rel=1e-3)


def test_hbm_caps_the_rate_of_the_engines():
    nbytes = 2**24
    (ns,) = durations(1)
    assert nbytes / ns == pytest.approx(362.5, rel=1e-3)
    (ns,) = durations(1, hbm__core_gb_s=1e6)
    assert nbytes / ns == pytest.approx(16 * 4096 / (4096 / 27.2 + 4.7), rel=1e-3)


def test_transfers_inside_the_core_do_not_draw_on_hbm():
    (ns,) = durations(1, flags=F.SRC_SBUF | F.HARDWARE_DGE, hbm__core_gb_s=1)
    assert 2**24 / ns > 400


def test_hbm_to_hbm_takes_twice_as_long_where_hbm_is_the_limit():
    (once,) = durations(1, hbm__core_gb_s=100)
    (twice,) = durations(1, flags=F.HBM_READ | F.HBM_WRITE | F.HARDWARE_DGE, hbm__core_gb_s=100)
    assert twice == pytest.approx(2 * once, rel=1e-3)


def test_a_transfer_of_one_descriptor_leaves_fifteen_engines_to_others():
    narrow = {"nbytes": 2**20, "descriptors": 1}
    alone = durations(1, transfer=narrow, hbm__core_gb_s=1e6)
    assert durations(4, transfer=narrow, hbm__core_gb_s=1e6) == pytest.approx(4 * alone, rel=1e-4)


def test_a_late_transfer_takes_half_from_then_on():
    s = Script(hbm__core_gb_s=1e6)
    early = s.dma(**BIG)
    late = s.dma(s.iota(n=10_000), queue=Engine.scalar, **BIG)
    result = s.run()
    alone = durations(1, hbm__core_gb_s=1e6)[0]
    before = (result.begin[late] - result.begin[early]) / 1e3
    assert (result.finish[early] - result.begin[early]) / 1e3 == pytest.approx(2 * alone - before, rel=1e-4)
    assert (result.finish[late] - result.begin[late]) / 1e3 == pytest.approx(2 * alone - before, rel=1e-4)


def test_the_pool_conserves_work():
    pool = Pool()
    services = {1: 7_000_000, 2: 3_000_000, 3: 5_500_000}
    for index, service in services.items():
        pool.admit(index, service, ONE, 0, 0)
    done = {}
    while (following := pool.next_completion()) is not None:
        time_ps, index = following
        pool.complete(index, time_ps)
        done[index] = time_ps
    assert done[2] == pytest.approx(9_000_000, rel=1e-4)  # a third each until the shortest is done
    assert max(done.values()) == pytest.approx(sum(services.values()), rel=1e-4)
    assert list(done) == [2, 3, 1]


def test_an_idle_pool_has_nothing_to_complete():
    assert Pool().next_completion() is None
