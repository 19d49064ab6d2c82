"""A kernel on the two cores of a pair: who is who, which memory is whose, and how they meet."""

import threading
from pathlib import Path

import numpy as np
import pytest

from isa.faults import (
    ConstraintFault,
    DeadlockFault,
    KernelFault,
    OutOfBoundsFault,
    RaceFault,
    UnimplementedFault,
    UninitializedReadFault,
)
from trn_sim import nki
from trn_sim.nki import isa as nisa
from trn_sim.nki import language as nl
from trn_sim.nki.kernel import last_run

ROWS, WIDTH = 128, 64


def values(seed=0, rows=2 * ROWS):
    return np.random.default_rng(seed).standard_normal((rows, WIDTH)).astype(np.float32)


def load(array, rank):
    tile = nl.ndarray((ROWS, WIDTH), array.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, array[rank * ROWS : (rank + 1) * ROWS])
    return tile


@nki.jit
def halves(x):
    """Each core doubles its half."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    rank = nl.program_id(0)
    tile = load(x, rank)
    nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
    nisa.dma_copy(out[rank * ROWS : (rank + 1) * ROWS], tile)
    return out


@nki.jit
def swap(x, engine=nisa.dma_engine.dma):
    """Each core gets the other one's half, and adds its rank."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    rank = nl.program_id(0)
    mine = load(x, rank)
    theirs = nl.ndarray(mine.shape, mine.dtype, buffer=nl.sbuf)
    nisa.sendrecv(mine, theirs, 1 - rank, 1 - rank, 0, dma_engine=engine)
    nisa.tensor_scalar(theirs, theirs, nl.add, float(rank))
    nisa.dma_copy(out[rank * ROWS : (rank + 1) * ROWS], theirs)
    return out


@nki.jit
def through_hbm(x):
    """Each core takes the other's half out of a shared tensor, after a barrier."""
    shared = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="scratch")
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    rank = nl.program_id(0)
    tile = load(x, rank)
    nisa.tensor_scalar(tile, tile, nl.add, 10.0 * rank)
    nisa.dma_copy(shared[rank * ROWS : (rank + 1) * ROWS], tile)
    nisa.core_barrier(shared, (0, 1))
    nisa.dma_copy(out[rank * ROWS : (rank + 1) * ROWS], load(shared, 1 - rank))
    return out


# --- who is who -----------------------------------------------------------------------------------


def test_each_core_does_its_half():
    x = values()
    np.testing.assert_array_equal(halves[2](x), 2 * x)
    assert len(last_run().cores) == 2
    assert [len(core.program) for core in last_run().cores] == [3, 3]


@pytest.mark.parametrize(("grid", "expected"), [(None, [(0, 1, 0)]), (1, [(0, 1, 1)]), (2, [(0, 2, 1), (1, 2, 1)])])
def test_the_launch_grid(grid, expected):
    seen = []

    @nki.jit
    def kernel(x):
        seen.append((nl.program_id(0), nl.num_programs(0), nl.program_ndim()))

    (kernel if grid is None else kernel[grid])(values())
    assert seen == expected


def test_core_0_runs_on_the_thread_of_the_caller():
    threads = []

    @nki.jit
    def kernel(x):
        threads.append(threading.current_thread())

    kernel[2](values())
    assert threads[0] is threading.current_thread()
    assert threads[1] is not threads[0]


def test_the_first_generation_has_no_pairs(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    with pytest.raises(ConstraintFault, match="do not make a pair"):
        halves[2](values())
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    np.testing.assert_array_equal(halves[2](values()), 2 * values())


def test_a_kernel_inside_a_kernel_runs_on_the_same_core():
    @nki.jit
    def inner(x):
        return load(x, nl.program_id(0))

    @nki.jit
    def outer(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        rank = nl.program_id(0)
        nisa.dma_copy(out[rank * ROWS : (rank + 1) * ROWS], inner(x))
        return out

    np.testing.assert_array_equal(outer[2](values()), values())


# --- memory ---------------------------------------------------------------------------------------


def test_a_shared_tensor_is_one_and_private_ones_are_two():
    storages = {}

    @nki.jit
    def kernel(x):
        rank = nl.program_id(0)
        for buffer in (nl.shared_hbm, nl.private_hbm, nl.sbuf, nl.psum):
            tensor = nl.ndarray((ROWS, 8), nl.float32, buffer=buffer)
            storages[buffer, rank] = tensor.storage

    kernel[2](values())
    assert storages[nl.shared_hbm, 0] is storages[nl.shared_hbm, 1]
    for buffer in (nl.private_hbm, nl.sbuf, nl.psum):
        assert storages[buffer, 0] is not storages[buffer, 1]
    assert storages[nl.private_hbm, 0].address != storages[nl.private_hbm, 1].address
    assert storages[nl.sbuf, 0].offset == storages[nl.sbuf, 1].offset


def test_private_memories_do_not_mix():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        rank = nl.program_id(0)
        tile = nl.ndarray((ROWS, WIDTH), nl.float32, buffer=nl.sbuf)
        nisa.memset(tile, float(rank + 1))
        scratch = nl.ndarray((ROWS, WIDTH), nl.float32, buffer=nl.private_hbm)
        nisa.dma_copy(scratch, tile)
        nisa.core_barrier(out, (0, 1))
        nisa.dma_copy(out[rank * ROWS : (rank + 1) * ROWS], scratch)
        return out

    result = kernel[2](values())
    assert (result[:ROWS] == 1).all()
    assert (result[ROWS:] == 2).all()


def test_shared_tensors_pair_up_by_name():
    @nki.jit
    def kernel(x):
        rank = nl.program_id(0)
        names = ("a", "b") if rank == 0 else ("b", "a")
        made = {name: nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=name) for name in names}
        for number, name in enumerate(("a", "b")):
            tile = load(x, rank)
            nisa.tensor_scalar(tile, tile, nl.add, float(number))
            nisa.dma_copy(made[name][rank * ROWS : (rank + 1) * ROWS], tile)
        return made["a"], made["b"]

    first, second = kernel[2](values())
    np.testing.assert_array_equal(first, values())
    np.testing.assert_array_equal(second, values() + 1)


def test_cores_that_disagree_on_a_shared_tensor():
    @nki.jit
    def kernel(x):
        nl.ndarray((ROWS, 8 + nl.program_id(0)), nl.float32, buffer=nl.shared_hbm)

    with pytest.raises(KernelFault, match=r"\(128, 9\).*\(128, 8\)") as caught:
        kernel[2](values())
    assert caught.value.line is not None


def test_an_output_that_one_core_left_unwritten():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == 1:
            nisa.dma_copy(out[ROWS:], load(x, 1))
        return out

    with pytest.raises(UninitializedReadFault, match="8192 of 16384"):
        kernel[2](values())


@pytest.mark.parametrize("silent", [0, 1])
def test_one_core_may_return_nothing(silent):
    @nki.jit
    def kernel(x):
        out = halves(x)
        return None if nl.program_id(0) == silent else out

    np.testing.assert_array_equal(kernel[2](values()), 2 * values())


def test_cores_return_the_same_tensors():
    @nki.jit
    def kernel(x):
        a, b = halves(x), halves(x)
        return a if nl.program_id(0) == 0 else b

    with pytest.raises(KernelFault, match="the cores return different tensors"):
        kernel[2](values())


# --- meeting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize("engine", list(nisa.dma_engine))
def test_sendrecv_swaps(monkeypatch, target, engine):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    x = values()
    expected = np.concatenate([x[ROWS:], x[:ROWS] + 1])
    np.testing.assert_array_equal(swap[2](x, engine=engine), expected)


def test_sendrecv_may_bring_its_part_of_one_tile():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((2 * ROWS, 2 * WIDTH), x.dtype, buffer=nl.shared_hbm)
        rank = nl.program_id(0)
        both = nl.ndarray((ROWS, 2 * WIDTH), x.dtype, buffer=nl.sbuf)
        mine, theirs = both[:, nl.ds(rank * WIDTH, WIDTH)], both[:, nl.ds((1 - rank) * WIDTH, WIDTH)]
        nisa.dma_copy(mine, x[rank * ROWS : (rank + 1) * ROWS])
        nisa.sendrecv(mine, theirs, 1 - rank, 1 - rank, 3)
        nisa.dma_copy(out[rank * ROWS : (rank + 1) * ROWS], both)
        return out

    x = values()
    both = np.concatenate([x[:ROWS], x[ROWS:]], axis=1)
    np.testing.assert_array_equal(kernel[2](x), np.concatenate([both, both]))


def test_a_barrier_lets_the_other_see_what_was_written():
    x = values()
    np.testing.assert_array_equal(through_hbm[2](x), np.concatenate([x[ROWS:] + 10, x[:ROWS]]))


def test_without_the_barrier_the_same_fault_every_time():
    @nki.jit
    def kernel(x):
        shared = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        rank = nl.program_id(0)
        nisa.dma_copy(shared[rank * ROWS : (rank + 1) * ROWS], load(x, rank))
        load(shared, 1 - rank)

    for _ in range(3):
        with pytest.raises(UninitializedReadFault) as caught:
            kernel[2](values())
        assert "on core 0" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("cores", [(0,), 0, [0]])
def test_a_barrier_of_one_core_waits_for_nobody(cores):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((ROWS, WIDTH), x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, load(x, 0))
        nisa.core_barrier(out, cores)
        return out

    np.testing.assert_array_equal(kernel[1](values()), values()[:ROWS])


def test_a_pair_of_one_core():
    @nki.jit
    def barrier(x):
        nisa.core_barrier(x, (0, 1))

    for kernel in (barrier, swap):
        with pytest.raises(ConstraintFault, match="kernel runs on 1"):
            kernel(values())


def test_sides_of_an_exchange_that_disagree():
    @nki.jit
    def routes(x):
        tile = load(x, 0)
        nisa.sendrecv(tile, tile, 0, 0, 0)

    with pytest.raises(ConstraintFault, match="the two sides disagree"):
        routes[2](values())

    @nki.jit
    def shapes(x):
        rank = nl.program_id(0)
        tile = load(x, 0)[:, : 8 + rank]
        nisa.sendrecv(tile, tile, 1 - rank, 1 - rank, 0)

    with pytest.raises(ConstraintFault, match="the other core sends"):
        shapes[2](values())


def test_limits_of_an_exchange():
    def refused(match, **changed):
        @nki.jit
        def kernel(x):
            rank = nl.program_id(0)
            tile = nl.ndarray((ROWS, 512), nl.float32, buffer=nl.sbuf)
            nisa.memset(tile, 0.0)
            arguments = {"src": tile, "dst": tile, "send_to_rank": 1 - rank, "recv_from_rank": 1 - rank, "pipe_id": 0}
            nisa.sendrecv(**(arguments | changed))

        if match is None:
            kernel[2](values())
            return
        with pytest.raises(ConstraintFault, match=match):
            kernel[2](values())

    refused(None)
    refused("ranks 0 and 1", send_to_rank=2)
    refused("1024 bytes", dma_engine=nisa.dma_engine.gpsimd_dma)


# --- going wrong ----------------------------------------------------------------------------------


def test_a_core_that_has_ended_is_never_met():
    @nki.jit
    def kernel(x):
        if nl.program_id(0) == 0:
            nisa.core_barrier(x, (0, 1))  # the line

    with pytest.raises(DeadlockFault, match=r"core 1 has ended; core 0 waits at core_barrier for core 1") as caught:
        kernel[2](values())
    assert caught.value.file == __file__
    assert "the line" in Path(__file__).read_text().splitlines()[caught.value.line - 1]


def test_cores_that_wait_for_each_other_in_different_places():
    @nki.jit
    def kernel(x):
        rank = nl.program_id(0)
        if rank == 0:
            nisa.core_barrier(x, (0, 1))
        tile = load(x, rank)
        nisa.sendrecv(tile, tile, 1 - rank, 1 - rank, 0)

    with pytest.raises(UnimplementedFault) as caught:  # the chip's exchange would not wait for the barrier before it
        kernel[2](values())
    assert "core 0 waits at core_barrier for core 1" in str(caught.value)
    assert "core 1 waits at sendrecv pipe 0 for core 0" in str(caught.value)
    assert last_run().error is caught.value


@pytest.mark.parametrize("rank", [0, 1])
def test_a_fault_of_one_core_ends_both(rank):
    ended = []

    @nki.jit
    def kernel(x):
        try:
            if nl.program_id(0) == rank:
                load(x, 2)  # beyond the tensor
            nisa.core_barrier(x, (0, 1))
        finally:
            ended.append(nl.program_id(0))

    with pytest.raises(OutOfBoundsFault) as caught:
        kernel[2](values())
    assert caught.value.file == __file__
    assert f"on core {rank}" in "".join(caught.value.__notes__)
    assert sorted(ended) == [0, 1] if rank == 1 else ended == [0]


@pytest.mark.parametrize("rank", [0, 1])
def test_ctrl_c_ends_every_core(rank):
    @nki.jit
    def kernel(x):
        if nl.program_id(0) == rank:
            signal_me()
            while True:
                pass
        nisa.core_barrier(x, (0, 1))

    def signal_me():
        import _thread

        _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        kernel[2](values())
    np.testing.assert_array_equal(halves[2](values()), 2 * values())


def test_every_run_issues_the_same():
    def streams():
        swap[2](values())
        through_hbm[2](values())
        return [tuple(core.program.disassemble()) for core in last_run().cores]

    first = streams()
    assert all(streams() == first for _ in range(3))


def test_the_callers_error_state_holds_on_every_core():
    seen = []

    @nki.jit
    def kernel(x):
        seen.append(np.geterr()["over"])

    with np.errstate(over="raise"):
        kernel[2](values())
    assert seen == ["raise", "raise"]


# --- races ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", ["no", "barrier", "sendrecv"])
def test_a_read_of_what_the_other_core_writes(ordered):
    @nki.jit
    def kernel(x):
        shared = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        rank = nl.program_id(0)
        tile = load(x, rank)
        if rank == 0:
            nisa.dma_copy(shared[:ROWS], tile)
        if ordered == "barrier":
            nisa.core_barrier(shared, (0, 1))
        if ordered == "sendrecv":
            nisa.sendrecv(tile, load(x, 0), 1 - rank, 1 - rank, 0)
        if rank == 1:
            load(shared, 0)

    if ordered != "no":
        kernel[2](values())
        return
    for _ in range(2):
        with pytest.raises(RaceFault, match=r"core 1 reads 8192 elements .* that core 0 wrote") as caught:
            kernel[2](values())
        assert caught.value.file == __file__
        assert caught.value.instruction == "dma_copy"


def test_a_race_is_a_matter_of_bytes():
    @nki.jit
    def kernel(x, column, own):
        shared = nl.ndarray((ROWS, 8), x.dtype, buffer=nl.shared_hbm)
        tile = load(x, 0)
        if nl.program_id(0) == 0:
            nisa.dma_copy(shared[:, 0:4], tile[:, 0:4])
        else:
            nisa.dma_copy(shared[:, 4:8] if own else shared, tile[:, 4:8] if own else tile[:, 0:8])
            nisa.dma_copy(tile[:, 0:2], shared[:, column : column + 2])

    kernel[2](values(), 4, True)
    with pytest.raises(RaceFault, match="core 1 reads 128 elements"):
        kernel[2](values(), 3, True)
    kernel[2](values(), 3, False)  # core 1 wrote it itself, afterwards
