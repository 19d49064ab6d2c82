"""Random numbers: distribution, seeds, limits."""

import numpy as np
import pytest

from isa.engine import Engine
from isa.faults import ConstraintFault
from isa.operands import Space
from isa.random_state import RandGetState, RandSetState
from isa.target import TRN1, TRN2, TRN3
from isa.vector_random import Dropout, Rand2, Rng, SetRngSeed
from tests.isa.reference_machine import ReferenceMachine


@pytest.fixture
def machine():
    return ReferenceMachine(TRN3)


def drawn(machine, dtype="uint32", **more):
    dst = machine.empty((128, 64), dtype)
    machine.execute(Rng(dst, **more))
    return machine.raw(dst)


def test_rng_gives_different_bits(machine):
    first, second = drawn(machine), drawn(machine)
    assert len(np.unique(first)) > 0.99 * first.size
    assert (first != second).mean() > 0.99
    ones = np.unpackbits(first.view(np.uint8)).mean()
    assert 0.49 < ones < 0.51


@pytest.mark.parametrize("engine", [Engine.vector, Engine.gpsimd])
def test_rng_on_two_engines(machine, engine):
    assert drawn(machine, engine=engine).any()


def test_same_seed_same_sequence(machine):
    seed = machine.tile(np.array([[1234]], np.uint32))
    machine.execute(SetRngSeed(seed))
    first = drawn(machine)
    assert (drawn(machine) != first).any()
    machine.execute(SetRngSeed(seed))
    np.testing.assert_array_equal(drawn(machine), first)


def test_rng_refuses(machine):
    tile, psum = machine.empty((4, 4), "uint32"), machine.empty((4, 4), "uint32", space=Space.PSUM)
    Rng(psum).check(TRN1)
    Rng(tile, Engine.gpsimd).check(TRN2)
    with pytest.raises(ConstraintFault, match="no generator on this generation"):
        Rng(tile, Engine.gpsimd).check(TRN1)
    with pytest.raises(ConstraintFault, match="cannot access PSUM"):
        Rng(psum, Engine.gpsimd).check(TRN2)
    with pytest.raises(ConstraintFault, match="has no generator"):
        Rng(tile, Engine.scalar).check(TRN2)
    with pytest.raises(ConstraintFault, match="dtype float32"):
        Rng(machine.empty((4, 4), "float32")).check(TRN2)
    with pytest.raises(ConstraintFault, match="is not one element"):
        SetRngSeed(machine.empty((2, 1), "uint32")).check(TRN2)


def test_rand2_is_uniform(machine):
    dst, low = machine.empty((128, 256), "float32"), machine.tile(np.full((128, 1), -1, np.float32))
    machine.execute(Rand2(dst, low, 3.0))
    found = machine.values(dst)
    assert found.min() >= -1
    assert found.max() <= 3
    counts, _ = np.histogram(found, bins=8, range=(-1, 3))
    assert abs(counts / found.size - 0.125).max() < 0.01
    with pytest.raises(ConstraintFault, match="is not below"):
        Rand2(dst, 1.0, 1.0).check(TRN3)
    with pytest.raises(ConstraintFault, match="does not exist on this generation"):
        Rand2(dst, 0.0, 1.0).check(TRN2)


@pytest.mark.parametrize("prob", [0.0, 0.25, 1.0])
def test_dropout_zeroes_and_does_not_scale(machine, prob):
    data = np.full((128, 256), 3.0, np.float32)
    dst = machine.empty(data.shape, "bfloat16")
    machine.execute(Dropout(dst, machine.tile(data, "bfloat16"), prob))
    found = machine.values(dst)
    assert set(np.unique(found)) <= {0.0, 3.0}
    assert (found == 0).mean() == pytest.approx(prob, abs=0.01)


def test_dropout_by_partition_and_its_limits(machine):
    data = machine.tile(np.ones((2, 64), np.int32))
    dst = machine.empty((2, 64), "int32")
    machine.execute(Dropout(dst, data, machine.tile(np.array([[0.0], [1.0]], np.float32))))
    assert machine.raw(dst).sum(1).tolist() == [64, 0]
    with pytest.raises(ConstraintFault, match="dtype differs"):
        Dropout(machine.empty((2, 64), "float32"), data, 0.5).check(TRN2)
    with pytest.raises(ConstraintFault, match="does not fit the data"):
        Dropout(dst, data, machine.empty((2, 1), "bfloat16")).check(TRN2)


@pytest.mark.parametrize(("engine", "columns"), [(Engine.gpsimd, 6), (Engine.vector, 24)])
def test_states_are_stored_and_loaded(machine, engine, columns):
    state = machine.empty((128, columns), "uint32")
    machine.execute(RandGetState(state, engine))
    first = drawn(machine, engine=engine)
    machine.execute(RandSetState(state, engine))
    np.testing.assert_array_equal(drawn(machine, engine=engine), first)


def test_states_refuse(machine):
    RandSetState(machine.empty((4, 6), "uint32")).check(TRN2)
    with pytest.raises(ConstraintFault, match="has no XORWOW state here"):
        RandSetState(machine.empty((4, 24), "uint32"), Engine.vector).check(TRN2)
    with pytest.raises(ConstraintFault, match="has 5 elements"):
        RandGetState(machine.empty((4, 5), "uint32")).check(TRN2)
    with pytest.raises(ConstraintFault, match="in PSUM"):
        RandGetState(machine.empty((4, 6), "uint32", space=Space.PSUM)).check(TRN3)
