"""The eight largest, their places and their replacement, against what the documentation says of duplicates."""

import numpy as np
import pytest

from isa.faults import ConstraintFault
from isa.target import TRN2
from isa.vector_search import FindIndex8, MatchReplace8, Max8
from tests.isa.reference_machine import ReferenceMachine

ALL_ONES = {"uint16": 0xFFFF, "uint32": 0xFFFFFFFF}


@pytest.fixture
def machine():
    return ReferenceMachine(TRN2)


def row(*values):
    return np.array([values], np.float32)


def test_max8_is_descending_and_keeps_duplicates(machine):
    dst = machine.empty((1, 8), "float32")
    machine.execute(Max8(dst, machine.tile(row(1, 9, 3, 9, -2, 7, 0, 5, 6, 4))))
    assert machine.values(dst)[0].tolist() == [9, 9, 7, 6, 5, 4, 3, 1]


@pytest.mark.parametrize("shape", [(128, 8), (64, 3, 40), (16, 1000)])
def test_max8_of_any_shape(machine, shape):
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    dst = machine.empty((shape[0], 8), "float32")
    machine.execute(Max8(dst, machine.tile(values)))
    want = np.sort(values.reshape(shape[0], -1), axis=1)[:, ::-1][:, :8]
    np.testing.assert_array_equal(machine.values(dst), want)


@pytest.mark.parametrize("dtype", ALL_ONES)
def test_find_index8_takes_duplicates_in_ascending_order(machine, dtype):
    data = machine.tile(row(1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8))
    dst = machine.empty((1, 8), dtype)
    machine.execute(FindIndex8(dst, data, machine.tile(row(3, 8, 8, 8, 8, 8, 8, 8))))
    assert machine.raw(dst)[0].tolist() == [2, 4, 5, 6, 7, 8, 9, 10]
    machine.execute(FindIndex8(dst, data, machine.tile(row(7, 1, 1, 4, 3, 2, 8, 9))))
    missing = ALL_ONES[dtype]
    assert machine.raw(dst)[0].tolist() == [missing, 0, missing, 3, 2, 1, 4, missing]


def test_match_replace8_takes_duplicates_in_descending_order(machine):
    data = machine.tile(row(1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8))
    dst, places = machine.empty((1, 11), "float32"), machine.empty((1, 8), "uint32")
    machine.execute(MatchReplace8(dst, data, machine.tile(row(3, 8, 8, 8, 8, 8, 8, 8)), -1.0, places))
    assert machine.raw(places)[0].tolist() == [2, 10, 9, 8, 7, 6, 5, 4]
    assert machine.values(dst)[0].tolist() == [1, 2, -1, 4, -1, -1, -1, -1, -1, -1, -1]


def test_match_replace8_replaces_first_occurrences_only(machine):
    data = machine.tile(row(5, 5, 5, 1, 2, 3, 4, 6))
    dst = machine.empty((1, 8), "float32")
    machine.execute(MatchReplace8(dst, data, machine.tile(row(5, 1, 9, 9, 9, 9, 9, 9)), 0.5))
    assert machine.values(dst)[0].tolist() == [0.5, 5, 5, 0.5, 2, 3, 4, 6]


def test_a_top_16_by_two_rounds(machine):
    """What the three are for."""
    values = np.random.default_rng(1).permutation(64).astype(np.float32).reshape(1, 64)
    data, rest = machine.tile(values), machine.empty((1, 64), "float32")
    first, second = machine.empty((1, 8), "float32"), machine.empty((1, 8), "float32")
    machine.execute(Max8(first, data))
    machine.execute(MatchReplace8(rest, data, first, float("-inf")))
    machine.execute(Max8(second, rest))
    found = np.concatenate([machine.values(first)[0], machine.values(second)[0]])
    assert found.tolist() == list(range(63, 47, -1))


@pytest.mark.parametrize(("elements", "legal"), [(7, False), (8, True), (16384, True), (16385, False)])
def test_elements(machine, elements, legal):
    ins = Max8(machine.empty((1, 8), "float32"), machine.empty((1, elements), "float32"))
    if legal:
        ins.check(TRN2)
        return
    with pytest.raises(ConstraintFault, match=f"has {elements} elements"):
        ins.check(TRN2)


def test_eight_values(machine):
    data, eight, nine = (machine.empty((2, n), "float32") for n in (16, 8, 9))
    index = machine.empty((2, 8), "uint16")
    FindIndex8(index, data, eight).check(TRN2)
    MatchReplace8(data, data, eight, 0.0, index).check(TRN2)
    for ins in (FindIndex8(index, data, nine), MatchReplace8(data, data, nine, 0.0), Max8(nine, data)):
        with pytest.raises(ConstraintFault, match="does not have eight elements"):
            ins.check(TRN2)
    with pytest.raises(ConstraintFault, match="dtype float32 is not accepted"):
        FindIndex8(eight, data, eight).check(TRN2)
