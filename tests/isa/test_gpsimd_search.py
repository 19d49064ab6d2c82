"""Searching instructions of the GpSimd Engine against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from isa.faults import ConstraintFault
from isa.gpsimd_search import NonzeroWithCount, SequenceBounds, TopK
from isa.operands import Space
from isa.target import TRN1, TRN2
from tests.isa.reference_machine import ReferenceMachine


@pytest.fixture
def machine() -> ReferenceMachine:
    return ReferenceMachine(TRN2)


# --- nonzero_with_count ---------------------------------------------------------------------------


def test_nonzero_of_the_documented_example(machine: ReferenceMachine) -> None:
    src = machine.tile(np.array([[0, 1, 1, 0, 0, 1, 0, 0]], np.int32))
    dst = machine.empty((1, 9), "int32")
    machine.execute(NonzeroWithCount(dst, src, 16))
    assert machine.values(dst).tolist() == [[17, 18, 21, -1, -1, -1, -1, -1, 3]]


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_nonzero_works_on_every_16th_partition(machine: ReferenceMachine, dtype: Any) -> None:
    data = np.random.default_rng(0).integers(0, 2, (40, 11)).astype(dtype)
    dst = machine.tile(np.full((40, 12), 99, np.int32))
    machine.execute(NonzeroWithCount(dst, machine.tile(data), padding_val=-7))
    got = machine.values(dst)
    for partition in range(40):
        found = np.flatnonzero(data[partition]).tolist()
        expected = [*found, *[-7] * (11 - len(found)), len(found)] if partition % 16 == 0 else [99] * 12
        assert got[partition].tolist() == expected


def test_nonzero_refuses(machine: ReferenceMachine) -> None:
    src, dst = machine.tile(np.zeros((16, 4), np.int32)), machine.empty((16, 5), "int32")
    for arguments, message in (
        ((machine.empty((16, 4), "int32"), src), "one element more than src"),
        ((machine.empty((32, 5), "int32"), src), "equal numbers of partitions"),
        ((machine.empty((16, 5), "float32"), src), "dtype float32 is not accepted"),
        ((dst, machine.tile(np.zeros((16, 4), np.int16))), "dtype int16 is not accepted"),
        ((dst, src, 2**31), "index_offset is"),
        ((dst, src, 0, -(2**31) - 1), "padding_val is"),
    ):
        with pytest.raises(ConstraintFault, match=message):
            machine.execute(NonzeroWithCount(*arguments))
    with pytest.raises(ConstraintFault, match="does not exist on this generation"):
        ReferenceMachine(TRN1).execute(NonzeroWithCount(dst, src))
    machine.execute(NonzeroWithCount(dst, src))


# --- sequence_bounds ------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [np.int32, np.float32])
@pytest.mark.parametrize("result", ["int32", "float32"])
def test_sequence_bounds_of_the_documented_example(machine: ReferenceMachine, source: Any, result: str) -> None:
    ids = np.array([[0, 1, 1, 2, 2, 2, 0, 3, 3]], source)
    dst = machine.empty((1, 2, 9), result)
    machine.execute(SequenceBounds(dst, machine.tile(ids)))
    assert machine.values(dst).tolist() == [[[9, 1, 1, 3, 3, 3, 9, 7, 7], [-1, 3, 3, 6, 6, 6, -1, 9, 9]]]


def test_sequence_bounds_of_one_id(machine: ReferenceMachine) -> None:
    dst = machine.empty((1, 2), "int32")
    for segment, expected in ((5, [0, 1]), (0, [1, -1])):
        machine.execute(SequenceBounds(dst, machine.tile(np.array([[segment]], np.int32))))
        assert machine.values(dst).ravel().tolist() == expected


def test_sequence_bounds_refuses(machine: ReferenceMachine) -> None:
    ids, dst = machine.tile(np.ones((1, 4), np.int32)), machine.empty((1, 2, 4), "int32")
    for arguments, message in (
        ((machine.empty((2, 2, 4), "int32"), machine.tile(np.ones((2, 4), np.int32))), "limit: one partition"),
        ((machine.empty((2, 2, 4), "int32"), ids), "equal numbers of partitions"),
        ((machine.empty((1, 4), "int32"), ids), r"shape \(1, 2, n\)"),
        ((machine.empty((1, 2, 4), "int16"), ids), "dtype int16 is not accepted"),
    ):
        with pytest.raises(ConstraintFault, match=message):
            machine.execute(SequenceBounds(*arguments))
    machine.execute(SequenceBounds(dst, ids))


# --- topk -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "count"), [(42, 8), (100, 37), (64, 64), (48, 16), (8, 1)])
def test_topk(machine: ReferenceMachine, n: int, count: int) -> None:
    columns = -(-n // 16)
    rng = np.random.default_rng(n)
    data = np.stack([rng.permutation(16 * columns) for _ in range(2)]).astype(np.float32)  # exact in bfloat16
    snake = data.reshape(2, columns, 16).transpose(0, 2, 1).reshape(32, columns)
    values = machine.tile(np.full((32, count), -1.0, np.float32), "bfloat16")
    places = machine.tile(np.full((32, count), 12345, np.uint32))
    machine.execute(TopK(values, places, machine.tile(snake, "bfloat16"), n))
    got, where = machine.values(values), machine.values(places)
    for group in range(2):
        best = sorted(range(n), key=lambda i: data[group, i])[-count:]
        for j in range(16 * -(-count // 16)):
            slot = (16 * group + j % 16, j // 16)
            if slot[1] >= count:
                continue
            expected = (data[group, best[j]], best[j]) if j < count else (-1.0, 12345)  # unwritten slots keep theirs
            assert (got[slot], where[slot]) == expected
    assert (where[:, -(-count // 16) :] == 12345).all()


def test_topk_of_equal_values_and_nan(machine: ReferenceMachine) -> None:
    data = np.array([3, 7, np.nan, 7, 1, 7, 0, 2] + [0] * 8, np.float32)[:, None]
    values, places = machine.empty((16, 2), "bfloat16"), machine.empty((16, 2), "uint32")
    machine.execute(TopK(values, places, machine.tile(data, "bfloat16"), 8))
    assert machine.values(values)[:2, 0].tolist() == [7.0, 7.0]
    assert machine.values(places)[:2, 0].tolist() == [3, 1]


def test_topk_refuses(machine: ReferenceMachine) -> None:
    def tiles(partitions: int = 16, count: int = 8, columns: int = 4, **dtypes: str) -> list[Any]:
        return [
            machine.empty((partitions, count), dtypes.get("val", "bfloat16")),
            machine.empty((partitions, count), dtypes.get("idx", "uint32")),
            machine.empty((partitions, columns), dtypes.get("src", "bfloat16")),
        ]

    for arguments, message in (
        ([*tiles(partitions=24), 64], "multiples of 16 partitions"),
        ([*tiles(), 7], "8 to 65535 values"),
        ([*tiles(count=17, columns=1), 16], "at most n"),
        ([*tiles(), 65], r"ceil\(n / 16\) columns"),
        ([*tiles(val="float32"), 64], "dtype float32 is not accepted"),
        ([*tiles(idx="int32"), 64], "dtype int32 is not accepted"),
        ([*tiles(src="float16"), 64], "dtype float16 is not accepted"),
        ([*tiles()[:2], machine.empty((32, 4), "bfloat16"), 64], "equal numbers of partitions"),
        ([*tiles()[:2], machine.empty((16, 2, 2), "bfloat16"), 64], "more than one free dimension"),
        ([*tiles()[:2], machine.empty((16, 4), "bfloat16", space=Space.PSUM), 64], "must be in SBUF"),
    ):
        with pytest.raises(ConstraintFault, match=message):
            machine.execute(TopK(*arguments))
    machine.execute(TopK(*tiles(), 64))
