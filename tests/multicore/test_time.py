"""Modelled time of several cores: each has its own stream, meetings tie them together, the longest counts."""

import json

import numpy as np
import pytest

import trn_sim
from isa.engine import Engine
from isa.faults import DeadlockFault
from isa.meetings import meetings
from memory_model.hazards import edges
from perf_model.analysis import Part
from perf_model.launch import profile_launch
from perf_model.rates import load_rates
from trn_sim import nki
from trn_sim.machine import launch_profile
from trn_sim.nki import collectives as ncc
from trn_sim.nki import isa as nisa
from trn_sim.nki import language as nl
from trn_sim.view.launch_report import report_of

ROWS, WIDTH, STEPS = 128, 512, 30
X = np.ones((2 * ROWS, WIDTH), np.float32)


def tile_of(x):
    tile = nl.ndarray((ROWS, WIDTH), x.dtype)
    rank = nl.program_id(0)
    nisa.dma_copy(tile, x[rank * ROWS : (rank + 1) * ROWS])
    return tile


def work(tile, steps):
    for _ in range(steps):
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)


@nki.jit
def uneven(x, meet):
    """Core 0 works; then both meet, where ``meet`` says so."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    rank = nl.program_id(0)
    tile = tile_of(x)
    work(tile, STEPS if rank == 0 else 1)
    part = out[rank * ROWS : (rank + 1) * ROWS]
    if meet == "sendrecv":
        other = nl.ndarray(tile.shape, tile.dtype)
        nisa.sendrecv(tile, other, 1 - rank, 1 - rank, 0)
        tile = other
    nisa.dma_copy(part, tile)
    if meet == "barrier":
        nisa.core_barrier(out, (0, 1))
        nisa.dma_copy(tile, out[(1 - rank) * ROWS : (2 - rank) * ROWS])
    return out


def timed(kernel, *inputs, **more):
    kernel[2](*inputs, **more)
    return trn_sim.last_run().profile


def test_cores_that_do_not_meet_take_their_own_time():
    profile = timed(uneven, X, None)
    busy, idle = profile.cores
    assert busy.total_ns > idle.total_ns + 1000
    assert profile.total_ns == busy.total_ns
    assert profile.longest is busy
    assert profile.waiting_ns == [0.0, 0.0]
    alone = [core.profile() for core in trn_sim.last_run().cores]
    assert [one.total_ns for one in alone] == [core.total_ns for core in profile.cores]


@pytest.mark.parametrize("meet", ["barrier", "sendrecv"])
def test_the_one_waits_for_the_other(meet):
    profile = timed(uneven, X, meet)
    free = timed(uneven, X, None)
    busy, idle = profile.cores
    assert idle.total_ns == pytest.approx(busy.total_ns, rel=0.02)
    assert idle.total_ns > free.cores[1].total_ns + 1000
    assert profile.waiting_ns[0] == 0.0
    assert profile.waiting_ns[1] == pytest.approx(free.cores[0].total_ns - free.cores[1].total_ns, rel=0.15)
    assert "another core" in idle.bound_by
    for core in profile.cores:
        assert core.path.weight_ps.sum() == core.schedule.total_ps
        assert (core.slack_ns >= 0).all()


def test_who_meets_starts_at_the_same_time():
    profile = timed(uneven, X, "sendrecv")
    programs = [core.program for core in trn_sim.last_run().cores]
    (members,) = meetings(programs)
    starts = {int(profile.cores[core].schedule.start[index]) for core, index in members}
    assert len(starts) == 1


def test_a_barrier_counts_no_bytes():
    with_barrier, without = timed(uneven, X, "barrier"), timed(uneven, X, None)
    for one, other in zip(with_barrier.cores, without.cores, strict=True):
        assert one.counters.hbm_read_bytes == other.counters.hbm_read_bytes + ROWS * WIDTH * 4
        assert one.counters.hbm_write_bytes == other.counters.hbm_write_bytes


def test_time_alone_is_the_same():
    expected = timed(uneven, X, "barrier")
    options = trn_sim.Options.from_environment(values=False)
    profile = uneven[2].run((X, "barrier"), {}, options).profile
    assert [core.total_ns for core in profile.cores] == [core.total_ns for core in expected.cores]


def test_time_alone_finds_a_deadlock():
    @nki.jit
    def kernel(x):
        if nl.program_id(0) == 0:
            nisa.core_barrier(x, (0, 1))

    run = kernel[2].run((X,), {}, trn_sim.Options.from_environment(values=False))
    with pytest.raises(DeadlockFault, match="core 0 waits at core_barrier for core 1") as caught:
        run.profile  # noqa: B018
    assert caught.value.file == __file__


def test_other_rates_and_targets():
    timed(uneven, X, "barrier")
    cores = trn_sim.last_run().cores
    later = launch_profile(cores, target="trn3")
    assert later.target.name == "trn3"
    slow = load_rates("trn2").override("vector.clock_ghz", 0.1)
    assert launch_profile(cores, rates=slow).total_ns > 3 * launch_profile(cores).total_ns
    programs = [core.program for core in cores]
    found = [edges(program) for program in programs]
    with pytest.raises(ValueError, match="give one of them"):
        profile_launch(programs, found, meetings(programs), rates=slow, target="trn3")


# --- ranks ----------------------------------------------------------------------------------------


@nki.jit
def reduce_all(x, ranks):
    src, dst = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm) for _ in range(2))
    nisa.dma_copy(src, x)
    ncc.all_reduce([src], [dst], ncc.ReplicaGroup([list(range(ranks))]), nl.add)
    return dst


def reduced(ranks, elements=1024):
    x = np.ones((1, elements), np.float32)
    return trn_sim.run_ranks(reduce_all, [(x, ranks)] * ranks)


def collective_ns(run):
    """Time during which the data of the collective moves, on rank 0."""
    profile = run.profile.cores[0]
    (index,) = [i for i, line in enumerate(profile.program.disassemble()) if "all_reduce" in line]
    return (profile.schedule.finish[index] - profile.schedule.begin[index]) / 1e3


def test_a_collective_takes_steps_and_bytes():
    rates = load_rates("trn2")
    step, link = rates.value("collective.step_ns"), rates.value("collective.link_gb_s")
    assert collective_ns(reduced(2)) == pytest.approx(2 * step + 4096 / link, rel=1e-3)
    assert collective_ns(reduced(4)) == pytest.approx(4 * step + 1.5 * 4096 / link, rel=1e-3)
    large = 1 << 20
    assert collective_ns(reduced(8, large)) == pytest.approx(6 * step + 2 * 7 / 8 * 4 * large / link, rel=1e-3)


def test_ranks_wait_for_the_last_one():
    @nki.jit
    def kernel(x, steps):
        src, dst = (nl.ndarray((ROWS, WIDTH), x.dtype, buffer=nl.shared_hbm) for _ in range(2))
        tile = tile_of(x)
        work(tile, steps)
        nisa.dma_copy(src, tile)
        ncc.all_reduce([src], [dst], ncc.ReplicaGroup([[0, 1], [2, 3]]), nl.add)
        return dst

    profile = trn_sim.run_ranks(kernel, [(X, steps) for steps in (1, 2 * STEPS, 1, 1)]).profile
    assert profile.titles == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert profile.cores[0].total_ns == pytest.approx(profile.cores[1].total_ns, rel=0.01)
    assert profile.cores[2].total_ns < profile.cores[0].total_ns - 1000
    assert profile.waiting_ns[0] > 1000
    assert profile.waiting_ns[1:] == [0.0, 0.0, 0.0]


# --- reports -------------------------------------------------------------------------


def test_the_plain_data():
    profile = timed(uneven, X, "barrier")
    data = profile.as_dict()
    json.dumps(data, allow_nan=False)
    assert data["summary"]["core_count"] == 2
    assert data["summary"]["total_time_ns"] == max(core["summary"]["total_time_ns"] for core in data["cores"])
    assert data["summary"]["instruction_count"] == sum(len(core.stream) for core in profile.cores)
    assert [core["core"] for core in data["cores"]] == ["core 0", "core 1"]
    assert data["cores"][1]["waiting_time_ns"] > 0
    assert {row["part"] for row in data["cores"][1]["critical_path"]} >= {Part.CORES.title}


def test_the_text():
    text = report_of("uneven", timed(uneven, X, "barrier")).text()
    assert text.startswith("uneven on trn2, 2 cores of NeuronCore-v3\n")
    assert "uneven, core 0 on trn2" in text
    assert "waiting for other cores" in text
    (line,) = [line for line in text.splitlines() if line.startswith("core 1 ")]
    assert "us" in line


def test_engines_are_not_shared():
    """What one core does on an engine does not hold up the other."""

    @nki.jit
    def kernel(x):
        work(tile_of(x), STEPS)

    kernel(X)
    alone = trn_sim.last_run().profile
    pair = timed(kernel, X)
    assert [core.total_ns for core in pair.cores] == [alone.total_ns] * 2
    busy = [row.active_ns for core in pair.cores for row in core.engines if row.engine == Engine.vector.title]
    assert busy[0] == busy[1] > 0


def test_time_alone_finds_cores_that_meet_crosswise():
    @nki.jit
    def kernel(x):
        rank = nl.program_id(0)
        tile = tile_of(x)
        calls = [lambda: nisa.core_barrier(x, (0, 1)), lambda: nisa.sendrecv(tile, tile, 1 - rank, 1 - rank, 0)]
        for call in calls if rank == 0 else reversed(calls):
            call()

    run = kernel[2].run((X,), {}, trn_sim.Options.from_environment(values=False))
    with pytest.raises(DeadlockFault, match=r"core 0 waits at core_barrier.*core 1 waits at sendrecv pipe 0"):
        run.profile  # noqa: B018
