"""bn_stats and bn_aggr: statistics of halves, and of groups merged."""

import numpy as np
import pytest

from isa.faults import ConstraintFault
from isa.target import TRN2
from isa.vector_statistics import BnAggr, BnStats
from tests.isa.reference_machine import ReferenceMachine


@pytest.fixture
def machine():
    return ReferenceMachine(TRN2)


def test_bn_stats_by_hand(machine):
    dst = machine.empty((1, 6), "float32")
    machine.execute(BnStats(dst, machine.tile(np.array([[1, 10, 3, 20, 8]], np.float32))))
    assert machine.values(dst)[0].tolist() == [3, 4, 9 + 1 + 16, 2, 15, 50]


@pytest.mark.parametrize("elements", [1, 2, 7, 512])
def test_bn_stats_of_halves(machine, elements):
    values = np.random.default_rng(elements).standard_normal((64, elements)).astype(np.float32)
    dst = machine.empty((64, 6), "float32")
    machine.execute(BnStats(dst, machine.tile(values)))
    found = machine.values(dst)
    for place, half in ((0, values[:, ::2]), (3, values[:, 1::2])):
        assert (found[:, place] == half.shape[1]).all()
        if half.shape[1]:
            np.testing.assert_allclose(found[:, place + 1], half.astype(np.float64).mean(1), rtol=1e-4, atol=1e-6)
            spread = half.astype(np.float64).var(1) * half.shape[1]
            np.testing.assert_allclose(found[:, place + 2], spread, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("pieces", [(512,), (512, 100), (3, 1, 200)])
def test_bn_aggr_merges_what_bn_stats_wrote(machine, pieces):
    rng = np.random.default_rng(5)
    data = [rng.standard_normal((32, n)).astype(np.float32) * 3 + 2 for n in pieces]
    rows = []
    for piece in data:
        one = machine.empty((32, 6), "float32")
        machine.execute(BnStats(one, machine.tile(piece)))
        rows.append(machine.values(one))
    dst = machine.empty((32, 2), "float32")
    machine.execute(BnAggr(dst, machine.tile(np.concatenate(rows, axis=1))))
    whole = np.concatenate(data, axis=1).astype(np.float64)
    np.testing.assert_allclose(machine.values(dst)[:, 0], whole.mean(1), rtol=1e-4)
    np.testing.assert_allclose(machine.values(dst)[:, 1], whole.var(1), rtol=1e-4)


def test_limits(machine):
    BnStats(machine.empty((4, 6), "float32"), machine.empty((4, 512), "float32")).check(TRN2)
    with pytest.raises(ConstraintFault, match="has 513 elements"):
        BnStats(machine.empty((4, 6), "float32"), machine.empty((4, 513), "float32")).check(TRN2)
    with pytest.raises(ConstraintFault, match="does not hold the statistics"):
        BnStats(machine.empty((4, 5), "float32"), machine.empty((4, 8), "float32")).check(TRN2)
    BnAggr(machine.empty((4, 2), "float32"), machine.empty((4, 9), "float32")).check(TRN2)
    with pytest.raises(ConstraintFault, match="whole triples"):
        BnAggr(machine.empty((4, 2), "float32"), machine.empty((4, 8), "float32")).check(TRN2)
    with pytest.raises(ConstraintFault, match="mean and variance"):
        BnAggr(machine.empty((4, 3), "float32"), machine.empty((4, 9), "float32")).check(TRN2)
