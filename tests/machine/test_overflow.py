"""Tiles behind SBUF and PSUM, on request: values and times go on where AWS's compiler would spill."""

import numpy as np
import pytest

import trn_sim
from isa.faults import CapacityFault, OutOfBoundsFault
from isa.program import Program
from memory_model.hazards import edges
from trn_sim import nki
from trn_sim.nki import isa as nisa
from trn_sim.nki import language as nl
from trn_sim.nki._support import NkiNote

X = np.random.default_rng(0).standard_normal((128, 25_000)).astype(np.float32)  # 98 KiB a partition


@nki.jit
def three_tiles(x):
    """Needs 293 KiB; NeuronCore-v3 has 224."""
    first, second, third = (nl.ndarray(x.shape, x.dtype) for _ in range(3))
    nisa.dma_copy(first, x)
    nisa.tensor_scalar(second, first, nl.multiply, 2.0)
    nisa.tensor_tensor(third, first, second, nl.add)
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nisa.dma_copy(out, third)
    return out


def test_a_fault_unless_asked():
    with pytest.raises(CapacityFault, match="SBUF is full"):
        trn_sim.run(three_tiles, X, target="trn2")


def test_values_and_dependencies_are_right(tmp_path):
    with pytest.warns(NkiNote, match="SBUF overflows"):
        run = trn_sim.run(three_tiles, X, target="trn2", overflow=True)
    np.testing.assert_array_equal(run.result, X + 2 * X)
    found = edges(run.program)
    assert [[producer for producer, _ in found.of(i)] for i in range(4)] == [[], [0], [0, 1], [2]]
    assert run.profile.total_ns > 0
    run.program.save(tmp_path / "program.npz")
    loaded = Program.load(tmp_path / "program.npz")
    assert loaded.target == run.program.target
    np.testing.assert_array_equal(edges(loaded).producer, found.producer)


def test_what_fits_is_where_it_always_was():
    def addresses(overflow):
        run = trn_sim.run(three_tiles, X[:, :1000], target="trn2", overflow=overflow)
        return [str(pattern) for i in range(len(run.program)) for _, pattern in run.program.operands(i)]

    assert addresses(True) == addresses(False)


def test_sizes_that_kernels_ask_for_and_addresses_they_choose_stay():
    def kernel():
        assert nl.tile_size.total_available_sbuf_size <= 224 * 1024
        nl.ndarray((128, 4), nl.float32, address=(0, 224 * 1024))

    with pytest.raises(OutOfBoundsFault):
        trn_sim.run(kernel, target="trn2", overflow=True)


def test_it_has_an_end():
    def kernel():
        return [nl.ndarray((128, 5_000_000), nl.float32) for _ in range(4)]

    with pytest.raises(CapacityFault):
        trn_sim.run(kernel, target="trn2", overflow=True)


def test_the_environment_asks_too(monkeypatch):
    monkeypatch.setenv("TRN_SIM_OVERFLOW", "1")
    assert trn_sim.Options.from_environment(target="trn2").target.sbuf_reach == 224 * 1024 + (64 << 20)
    monkeypatch.setenv("TRN_SIM_OVERFLOW", "yes")
    with pytest.raises(ValueError, match="TRN_SIM_OVERFLOW is 0 or 1"):
        trn_sim.Options.from_environment()


def test_psum_tiles_never_meet_the_kernels_own_addresses():
    @nki.jit
    def kernel(x):
        sums = [nl.ndarray((128, 512), nl.float32, nl.psum) for _ in range(10)]  # PSUM has eight banks
        mine = nl.ndarray((128, 512), nl.float32, nl.psum, address=(0, 0))
        tile = nl.load(x)
        for factor, total in enumerate(sums):
            nisa.tensor_scalar(total, tile, nl.multiply, float(factor))
        nisa.memset(mine, 7.0)
        out = nl.ndarray((10, *x.shape), x.dtype, nl.shared_hbm)
        for factor, total in enumerate(sums):
            nl.store(out[factor], nl.copy(total))
        return out

    x = X[:, :512]
    with pytest.raises(CapacityFault):
        trn_sim.run(kernel, x, target="trn2")
    run = trn_sim.run(kernel, x, target="trn2", overflow=True)
    np.testing.assert_array_equal(run.result, [x * np.float32(factor) for factor in range(10)])
    assert run.profile.total_ns > 0


def test_psum_goes_on_behind_its_banks():
    def kernel():
        banks = [nl.ndarray((128, 512), nl.float32, nl.psum) for _ in range(20)]
        wide = nl.ndarray((16, 3000), nl.float32, nl.psum)
        for number, bank in enumerate(banks):
            nisa.memset(bank, float(number))
        nisa.memset(wide, -1.0)
        out = nl.ndarray((20, 128, 512), nl.float32, nl.shared_hbm)
        for number, bank in enumerate(banks):
            nisa.dma_copy(out[number], nl.copy(bank))
        assert {bank.operand().offset % 2048 for bank in (*banks, wide)} == {0}
        return out

    run = trn_sim.run(kernel, target="trn2", overflow=True)
    np.testing.assert_array_equal(run.result, np.broadcast_to(np.arange(20.0)[:, None, None], (20, 128, 512)))
    assert run.profile.total_ns > 0


def test_places_behind_the_memory_are_given_again():
    def kernel():
        for _ in range(100):
            nl.ndarray((128, 3_000_000), nl.float32)  # 12 MB a partition, dropped at once
            nl.ndarray((128, 512), nl.float32, nl.psum)

    trn_sim.run(kernel, target="trn2", overflow=True)


def test_patterns_may_reach_beyond_a_tile_on_request():
    def kernel(x):
        tile = nl.load(x)
        columns = tile.ap([[16, 4], [5, 4]], offset=4)  # elements 4, 9, 14 and 19 of 16
        out = nl.ndarray((4, 3), nl.float32, nl.shared_hbm)
        doubled = nl.ndarray((4, 4), nl.float32)
        nisa.tensor_scalar(doubled, columns, nl.multiply, 2.0)
        nisa.dma_copy(out, doubled[:, 0:3])
        return out

    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    with pytest.raises(OutOfBoundsFault, match="outside the storage"):
        trn_sim.run(kernel, x, target="trn2")
    options = trn_sim.Options.from_environment(target="trn2", beyond=True, uninitialized="poison")
    run = nki.simulate(kernel).run((x,), {}, options)
    np.testing.assert_array_equal(run.result, 2 * x[:, [4, 9, 14]])

    def far(x):
        nl.load(x).ap([[16, 4], [100, 2]])

    with pytest.raises(OutOfBoundsFault):
        nki.simulate(far).run((x,), {}, options)
