"""NeuronCore-v3: what public device traces show, within the spread of the traces."""

import pytest

from isa.engine import Engine
from isa.faults import InternalFault
from isa.work import Work, WorkFlag, WorkKind
from perf_model.cost import ONE, cost
from perf_model.rates import load_rates

F, K = WorkFlag, WorkKind
RATES = load_rates("trn2")
FP32_SBUF = F.SRC_SBUF | F.ALL_32BIT | F.CONTIGUOUS
FP32_PSUM = F.SRC_PSUM | F.ALL_32BIT | F.CONTIGUOUS

TRACES = [
    # engine, kind, N, flags, interval ns, latency ns (None: not measured)
    (Engine.tensor, K.MATMUL, 512, F.NONE, 215, 376),
    (Engine.tensor, K.PE_TRANSPOSE, 128, F.TRANSPOSE, 55, 216),
    (Engine.tensor, K.MATMUL, 512, F.FP32, 2 * 429, 429 + 589),
    (Engine.tensor, K.MATMUL, 128, F.FP32, 2 * 110, 112 + 272),
    (Engine.tensor, K.PE_TRANSPOSE, 128, F.TRANSPOSE | F.FP32, 109, 272),
    (Engine.vector, K.REDUCE, 512, FP32_SBUF, 603, 676),
    (Engine.vector, K.REDUCE, 512, FP32_PSUM, 598, 680),
    (Engine.vector, K.REDUCE, 16, FP32_SBUF, None, 169),
    (Engine.vector, K.REDUCE, 4, FP32_SBUF, None, 157),
    (Engine.vector, K.COPY, 512, FP32_PSUM, 608, 690),
    (Engine.vector, K.COPY, 128, FP32_PSUM, None, 290),
    (Engine.vector, K.TENSOR_SCALAR, 512, FP32_SBUF | F.VECTOR_OPERAND, 396, 481),
    (Engine.vector, K.TENSOR_SCALAR, 128, FP32_PSUM | F.VECTOR_OPERAND, None, 350),
    (Engine.vector, K.RECIPROCAL, 4, FP32_SBUF, None, 178),
    (Engine.vector, K.RECIPROCAL, 8, FP32_SBUF, None, 202),
    (Engine.scalar, K.COPY, 128, FP32_PSUM, 157, 265),
    (Engine.scalar, K.COPY, 512, FP32_PSUM, 477, 585),
    (Engine.scalar, K.ACTIVATION, 512, FP32_PSUM | F.VECTOR_OPERAND, 570, 686),
    (Engine.scalar, K.ACTIVATION, 512, FP32_SBUF | F.VECTOR_OPERAND, 612, 707),
]


@pytest.mark.parametrize(("engine", "kind", "n", "flags", "interval_ns", "latency_ns"), TRACES)
def test_engine_traces(engine, kind, n, flags, interval_ns, latency_ns):
    got = cost(Work(kind=kind, elements=n, rows=128, columns=128, flags=int(flags)), engine, RATES)
    if interval_ns is not None:
        assert got.interval_ps / 1e3 == pytest.approx(interval_ns, rel=0.025)
    assert got.latency_ps / 1e3 == pytest.approx(latency_ns, rel=0.025)


def test_load_stationary_traces():
    got = cost(Work(kind=K.MATMUL, elements=512, rows=128, columns=128), Engine.tensor, RATES)
    fp32 = cost(Work(kind=K.MATMUL, elements=512, rows=128, columns=128, flags=int(F.FP32)), Engine.tensor, RATES)
    assert got.load_ps / 1e3 == pytest.approx(32, rel=0.02)
    assert got.load_latency_ps / 1e3 == pytest.approx(95, rel=0.02)
    assert fp32.load_latency_ps / 1e3 == pytest.approx(188, rel=0.02)


def transfer(nbytes, descriptors, flags=F.HBM_READ | F.HARDWARE_DGE, kind=K.DMA, rates=RATES, **more):
    return cost(Work(kind=kind, nbytes=nbytes, descriptors=descriptors, flags=int(flags), **more), Engine.dma, rates)


@pytest.mark.parametrize(("nbytes", "spacing_ns"), [(256, 14), (512, 24), (2048, 80), (4096, 155)])
def test_descriptor_traces(nbytes, spacing_ns):
    rounds = 8
    got = transfer(nbytes * 16 * rounds, 16 * rounds)
    assert got.service_ps / 1e3 / rounds == pytest.approx(spacing_ns, abs=0.9)
    assert got.width == ONE


def test_scattered_descriptor_trace():
    got = transfer(256 * 16, 16, F.HBM_WRITE | F.SOFTWARE_DGE | F.SCATTER)
    assert got.service_ps / 1e3 == pytest.approx(22, abs=0.9)


def test_one_large_descriptor_uses_one_engine():
    got = transfer(32768, 1)
    assert got.width == ONE // 16
    assert got.service_ps / 1e3 == pytest.approx(32768 / 27.2 + 4.7, abs=0.01)


def test_a_broken_last_round_leaves_engines_idle():
    even, broken = transfer(16 * 4096, 16), transfer(17 * 4096, 17)
    assert broken.service_ps == pytest.approx(2 * even.service_ps, abs=1)
    assert broken.width == round(ONE * 17 / 32)


def test_short_descriptors_lose_bandwidth():
    wide, narrow = transfer(128 * 4096, 128), transfer(128 * 4096, 128 * 16)
    efficiency = wide.service_ps / narrow.service_ps
    assert efficiency == pytest.approx((4096 / 27.2 + 4.7) / (16 * (256 / 27.2 + 4.7)), rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "flags", "efficiency"),
    [
        (K.DMA_TRANSPOSE, F.HBM_READ, 0.9),
        (K.DMA_TRANSPOSE, F.SRC_SBUF, 0.5),
        (K.DMA_COMPUTE, F.HBM_READ, 0.5),
        (K.DMA, F.HBM_READ | F.CAST, 0.5),
    ],
)
def test_transfers_that_do_more_than_copy_are_slower(kind, flags, efficiency):
    rates = RATES.override("dma.descriptor_ns", 0)
    plain = transfer(128 * 4096, 128, rates=rates)
    assert plain.service_ps / transfer(128 * 4096, 128, flags, kind, rates).service_ps == pytest.approx(efficiency)


def test_dma_compute_moves_every_source():
    one, two = (transfer(128 * 4096, 128 * n, kind=K.DMA_COMPUTE, inputs=n) for n in (1, 2))
    assert two.service_ps == pytest.approx(2 * one.service_ps, abs=1)


def test_hbm_to_hbm_draws_hbm_bandwidth_twice():
    once, twice = transfer(128 * 4096, 128), transfer(128 * 4096, 128, F.HBM_READ | F.HBM_WRITE)
    assert twice.hbm_share == pytest.approx(2 * once.hbm_share, abs=1)
    assert transfer(128 * 4096, 128, F.SRC_SBUF).hbm_share == 0


@pytest.mark.parametrize(("flags", "begin_ns", "issue_ns"), [(F.HARDWARE_DGE, 1300, 560), (F.SOFTWARE_DGE, 633, 37)])
def test_fixed_latency_by_descriptor_mode(flags, begin_ns, issue_ns):
    got = transfer(4096, 1, F.HBM_READ | flags)
    assert (got.begin_ps, got.interval_ps, got.completion_ps) == (1000 * begin_ns, 1000 * issue_ns, 375_000)


def test_trust_follows_the_rates_used():
    measured = transfer(128 * 4096, 128)
    guessed = transfer(128 * 4096, 128, F.HBM_READ | F.HARDWARE_DGE | F.CAST)
    assert measured.guessed_share == 0
    assert 0 < guessed.guessed_share < 1
    assert guessed.band > measured.band > 0


def test_control_costs_a_semaphore_instruction_and_waits_for_hbm():
    plain = cost(Work(kind=K.CONTROL), Engine.sync, RATES)
    from_hbm = cost(Work(kind=K.CONTROL, flags=int(F.HBM_READ)), Engine.sync, RATES)
    assert plain.interval_ps == 18_000
    assert from_hbm.interval_ps > 1_000_000
    assert from_hbm.guessed_share > 0.9


def test_an_engine_that_executes_nothing_has_no_cost():
    with pytest.raises(InternalFault, match="no cost"):
        cost(Work(kind=K.COPY), Engine.unknown, RATES)
