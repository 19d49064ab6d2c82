"""GpSimd instructions against numpy and small cases worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.alu import alu_op
from isa.engine import Engine
from isa.faults import ConstraintFault, OutOfBoundsFault
from isa.gpsimd import AffineSelect, Iota, LocalGather, NGather, PartitionReduce
from isa.operands import Space
from isa.random_state import RandGetState, RandSetState
from isa.target import TRN1, TRN2, TRN3
from isa.work import WorkKind
from tests.isa.reference_machine import ReferenceMachine


@pytest.fixture
def machine() -> ReferenceMachine:
    return ReferenceMachine(TRN2)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# --- iota -----------------------------------------------------------------------------------------


def test_iota_by_hand(machine: ReferenceMachine) -> None:
    dst = machine.empty((2, 2, 3), "int32")
    machine.execute(Iota(dst, ((10, 2), (1, 3)), 100, -1000))
    assert machine.values(dst).tolist() == [
        [[100, 101, 102], [110, 111, 112]],
        [[-900, -899, -898], [-890, -889, -888]],
    ]


def test_iota_counts_partitions_from_the_first_of_dst(machine: ReferenceMachine) -> None:
    dst = machine.empty((3, 1), "int32", start=32)
    machine.execute(Iota(dst, ((0, 1),), 0, 1))
    assert machine.values(dst).ravel().tolist() == [0, 1, 2]


def test_iota_wraps_in_32_bits(machine: ReferenceMachine) -> None:
    dst = machine.empty((2, 2), "int32")
    machine.execute(Iota(dst, ((1, 2),), 2**31 - 1, 2**31 - 1))
    assert machine.values(dst).tolist() == [[2**31 - 1, -(2**31)], [-2, -1]]


def test_iota_converts(machine: ReferenceMachine) -> None:
    dst = machine.empty((1, 4), "float32")
    machine.execute(Iota(dst, ((-2, 4),), 1))
    assert machine.values(dst).tolist() == [[1.0, -1.0, -3.0, -5.0]]
    half = machine.empty((1, 2), "bfloat16")
    machine.execute(Iota(half, ((1, 2),), 256))  # 257 lies half-way between 256 and 258: to even
    assert machine.values(half).tolist() == [[256.0, 256.0]]


def test_iota_offset_in_a_register(machine: ReferenceMachine) -> None:
    dst = machine.empty((1, 2), "int32")
    machine.execute(Iota(dst, ((1, 2),), machine.register(3, 40)))
    assert machine.values(dst).tolist() == [[40, 41]]


@settings(max_examples=30, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(1, 5)), min_size=1, max_size=4),
    offset=st.integers(-(2**31), 2**31 - 1),
    multiplier=st.integers(-(2**31), 2**31 - 1),
)
def test_iota_equals_the_definition(pairs: list[tuple[int, int]], offset: int, multiplier: int) -> None:
    machine = ReferenceMachine(TRN2)
    shape = tuple(count for _, count in pairs)
    dst = machine.empty((3, *shape), "int32")
    machine.execute(Iota(dst, tuple(pairs), offset, multiplier))
    expected = np.empty((3, *shape), np.int64)
    for place in np.ndindex(*expected.shape):
        value = offset + place[0] * multiplier + sum(step * i for (step, _), i in zip(pairs, place[1:], strict=True))
        expected[place] = (value + 2**31) % 2**32 - 2**31
    assert np.array_equal(machine.values(dst), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pattern": ()}, "is not a list"),
        ({"pattern": ((1, 1),) * 4 + ((1, 4),)}, "is not a list"),
        ({"pattern": ((1, 0),)}, "count below 1"),
        ({"pattern": ((1, 3),)}, "generates 3 values per partition, not 4"),
        ({"pattern": ((2**31, 4),)}, "step is 2147483648"),
        ({"pattern": ((1, 4),), "channel_multiplier": -(2**31) - 1}, "channel_multiplier is"),
        ({"pattern": ((1, 4),), "offset": 2**31}, "offset is"),
    ],
)
def test_iota_refuses(machine: ReferenceMachine, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConstraintFault, match=message):
        machine.execute(Iota(machine.empty((2, 4), "int32"), **arguments))


def test_iota_refuses_psum(machine: ReferenceMachine) -> None:
    with pytest.raises(ConstraintFault, match="must be in SBUF"):
        machine.execute(Iota(machine.empty((2, 4), "int32", space=Space.PSUM), ((1, 4),)))


def test_iota_work(machine: ReferenceMachine) -> None:
    ins = Iota(machine.empty((64, 8, 4), "int32"), ((4, 8), (1, 4)))
    work = ins.work(TRN2)
    assert (work.kind, work.elements, work.rows) == (WorkKind.IOTA, 32, 64)
    assert ins.select_engine(TRN2) is Engine.gpsimd


# --- affine_select --------------------------------------------------------------------------------


def test_affine_select_makes_a_causal_mask(machine: ReferenceMachine) -> None:
    scores = random(8, 8)
    tile, dst = machine.tile(scores), machine.empty((8, 8), "float32")
    machine.execute(AffineSelect(dst, ((-1, 8),), 1, tile, -1e9, alu_op("greater_equal")))
    expected = np.where(np.tril(np.ones((8, 8), bool)), scores, np.float32(-1e9))
    assert np.array_equal(machine.values(dst), expected)


@pytest.mark.parametrize("name", ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal"])
def test_affine_select_compares_with_zero(machine: ReferenceMachine, name: str) -> None:
    tile, dst = machine.tile(np.full((1, 3), 7.0, np.float32)), machine.empty((1, 3), "float32")
    machine.execute(AffineSelect(dst, ((1, 3),), 0, tile, 0.0, alu_op(name), -1))  # values -1, 0, 1
    truth = {
        "equal": "010",
        "not_equal": "101",
        "greater": "001",
        "greater_equal": "011",
        "less": "100",
        "less_equal": "110",
    }[name]
    assert machine.values(dst).tolist() == [[7.0 * int(digit) for digit in truth]]


def test_affine_select_defaults_to_equal(machine: ReferenceMachine) -> None:
    tile, dst = machine.tile(np.ones((3, 3), np.float32)), machine.empty((3, 3), "float32")
    machine.execute(AffineSelect(dst, ((-1, 3),), 1, tile, 0.0))
    assert np.array_equal(machine.values(dst), np.eye(3))


def test_affine_select_keeps_bits_or_converts(machine: ReferenceMachine) -> None:
    integers = np.array([[2**24 + 1, 2**24 + 1]], np.int32)
    same, other = machine.empty((1, 2), "int32"), machine.empty((1, 2), "float32")
    for dst in (same, other):
        machine.execute(AffineSelect(dst, ((1, 2),), 0, machine.tile(integers), 3.0))
    assert machine.values(same).tolist() == [[2**24 + 1, 3]]
    assert machine.values(other).tolist() == [[2.0**24, 3.0]]  # float32 has 24 bits


def test_affine_select_refuses(machine: ReferenceMachine) -> None:
    dst, tile = machine.empty((2, 4), "float32"), machine.tile(random(2, 4))
    with pytest.raises(ConstraintFault, match="does not compare"):
        machine.execute(AffineSelect(dst, ((1, 4),), 0, tile, 0.0, alu_op("add")))
    with pytest.raises(ConstraintFault, match="generates 5 values"):
        machine.execute(AffineSelect(dst, ((1, 5),), 0, tile, 0.0))
    with pytest.raises(ConstraintFault, match="offset is"):
        machine.execute(AffineSelect(dst, ((1, 4),), 0, tile, 0.0, offset=-(2**32)))
    with pytest.raises(ConstraintFault, match="3 elements per partition where 'dst'"):
        machine.execute(AffineSelect(dst, ((1, 4),), 0, machine.tile(random(2, 3)), 0.0))
    machine.execute(AffineSelect(dst, ((1, 4),), 0, tile, 0.0))


# --- gathers --------------------------------------------------------------------------------------


def test_local_gather_by_hand(machine: ReferenceMachine) -> None:
    """Index list of a group: column 0 of its 16 partitions, then column 1."""
    source = np.arange(32 * 100).reshape(32, 100).astype(np.float32)
    index = np.arange(32 * 2).reshape(32, 2).astype(np.uint16)
    dst = machine.empty((32, 32), "float32")
    machine.execute(LocalGather(dst, machine.tile(source), machine.tile(index)))
    got = machine.values(dst)
    assert got[0].tolist() == [*range(0, 32, 2), *range(1, 32, 2)]
    assert got[17].tolist() == [1700 + i for i in (*range(32, 64, 2), *range(33, 64, 2))]


def test_local_gather_takes_runs_at_element_offsets(machine: ReferenceMachine) -> None:
    """As in AWS's published example: indices multiplied by the run length before the call."""
    rng = np.random.default_rng(1)
    source = rng.standard_normal((128, 64, 4)).astype(np.float32)
    index = np.tile(rng.integers(0, 64, (16, 2)).astype(np.uint16), (8, 1))
    dst = machine.empty((128, 2, 10, 4), "float32")
    machine.execute(LocalGather(dst, machine.tile(source), machine.tile(index * 4), 4, 20))
    expected = np.concatenate(
        [np.take(source[g : g + 16], index[g : g + 16].flatten(order="F")[:20], axis=1) for g in range(0, 128, 16)]
    )
    assert np.array_equal(machine.values(dst), expected.reshape(dst.shape))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": (24, 8)}, "multiples of 16 partitions"),
        ({"index": (32, 1)}, "does not have the 16 partitions"),
        ({"dst_dtype": "bfloat16"}, "another dtype"),
        ({"index_dtype": np.uint32}, "dtype uint32 is not accepted"),
        ({"run": 3, "dst": (16, 48)}, "num_elem_per_idx is 3"),
        ({"valid": 17}, "num_valid_indices is 17"),
        ({"valid": 0}, "num_valid_indices is 0"),
        ({"valid": 8}, "takes 16 elements per partition where 8 indices"),
        ({"index": (16, 257), "dst": (16, 4112)}, "at most 4096 indices"),
    ],
)
def test_local_gather_refuses(machine: ReferenceMachine, change: dict[str, Any], message: str) -> None:
    source = machine.tile(np.zeros(change.get("source", (16, 8)), np.float32))
    index = machine.tile(np.zeros(change.get("index", (16, 1)), change.get("index_dtype", np.uint16)))
    dst = machine.empty(change.get("dst", (16, 16)), change.get("dst_dtype", "float32"))
    with pytest.raises(ConstraintFault, match=message):
        machine.execute(LocalGather(dst, source, index, change.get("run", 1), change.get("valid")))


def test_gathers_refuse_indices_out_of_range(machine: ReferenceMachine) -> None:
    source = machine.tile(random(16, 8))
    index = np.zeros((16, 2), np.uint16)
    index[5, 1] = 7
    dst = machine.empty((16, 64), "float32")
    with pytest.raises(OutOfBoundsFault, match=r"index 7 \(partition 5, element 1\)"):
        machine.execute(LocalGather(dst, source, machine.tile(index), 2))
    machine.execute(LocalGather(machine.empty((16, 32), "float32"), source, machine.tile(index)))
    wrong = np.zeros((16, 4), np.uint32)
    wrong[3, 2] = 8
    gathered = machine.empty((16, 4), "float32")
    with pytest.raises(OutOfBoundsFault, match="index 8 at partition 3, element 2"):
        machine.execute(NGather(gathered, source, machine.tile(wrong)))
    wrong[3, 2] = 7
    machine.execute(NGather(gathered, source, machine.tile(wrong)))


def test_n_gather_flattens_the_free_dimensions(machine: ReferenceMachine) -> None:
    data = random(128, 6, 10)
    indices = np.random.default_rng(2).integers(0, 60, (128, 3, 5)).astype(np.uint32)
    dst = machine.empty((128, 15), "float32")
    machine.execute(NGather(dst, machine.tile(data), machine.tile(indices)))
    expected = np.take_along_axis(data.reshape(128, -1), indices.reshape(128, -1).astype(np.int64), 1)
    assert np.array_equal(machine.values(dst), expected)


def test_n_gather_refuses(machine: ReferenceMachine) -> None:
    data, indices = machine.tile(random(16, 8)), machine.tile(np.zeros((16, 4), np.uint32))
    with pytest.raises(ConstraintFault, match="another dtype"):
        machine.execute(NGather(machine.empty((16, 4), "bfloat16"), data, indices))
    with pytest.raises(ConstraintFault, match="dtype int32 is not accepted"):
        machine.execute(NGather(machine.empty((16, 4), "float32"), data, machine.tile(np.zeros((16, 4), np.int32))))
    with pytest.raises(ConstraintFault, match="has 16 partitions where 'dst' has 32"):
        machine.execute(NGather(machine.empty((32, 4), "float32"), data, machine.tile(np.zeros((32, 4), np.uint32))))


# --- reduction over partitions --------------------------------------------------------------------


@pytest.mark.parametrize(("name", "function"), [("add", np.sum), ("average", np.mean), ("maximum", np.max)])
def test_partition_reduce(machine: ReferenceMachine, name: str, function: Any) -> None:
    data = np.random.default_rng(3).integers(-50, 50, (128, 2, 6)).astype(np.float32)  # exact in float32
    dst = machine.empty((1, 12), "float32")
    machine.execute(PartitionReduce(dst, alu_op(name), machine.tile(data)))
    assert np.array_equal(machine.values(dst), function(data.reshape(128, -1), axis=0, keepdims=True))


@pytest.mark.parametrize(("name", "function"), [("bitwise_or", np.bitwise_or), ("bitwise_and", np.bitwise_and)])
def test_partition_reduce_of_bits(machine: ReferenceMachine, name: str, function: np.ufunc) -> None:
    data = np.random.default_rng(4).integers(0, 2**32, (5, 7)).astype(np.uint32)
    dst = machine.empty((1, 7), "uint32")
    machine.execute(PartitionReduce(dst, alu_op(name), machine.tile(data)))
    assert np.array_equal(machine.values(dst), function.reduce(data, axis=0)[None])


def test_partition_reduce_refuses(machine: ReferenceMachine) -> None:
    data = machine.tile(random(8, 4))
    one = machine.empty((1, 4), "float32")
    for arguments, message in (
        ((one, alu_op("multiply"), data), "does not reduce over partitions"),
        ((machine.empty((2, 4), "float32"), alu_op("add"), data), "limit: one partition"),
        ((machine.empty((1, 5), "float32"), alu_op("add"), data), "has 5 elements where"),
        ((one, alu_op("bitwise_or"), data), "needs integers"),
        ((one, alu_op("bitwise_or"), machine.tile(np.zeros((8, 4), np.int32))), "another dtype"),
        ((one, alu_op("add"), machine.tile(random(8, 4), space=Space.PSUM)), "must be in SBUF"),
    ):
        with pytest.raises(ConstraintFault, match=message):
            machine.execute(PartitionReduce(*arguments))
    machine.execute(PartitionReduce(one, alu_op("add"), data))


# --- random states --------------------------------------------------------------------------------


def test_random_state_round_trip(machine: ReferenceMachine) -> None:
    seeds = np.random.default_rng(5).integers(1, 2**32, (64, 6)).astype(np.uint32)
    machine.execute(RandSetState(machine.tile(seeds, start=64)))
    back = machine.empty((64, 6), "uint32", start=64)
    machine.execute(RandGetState(back))
    assert np.array_equal(machine.values(back), seeds)
    generator = machine.random_state(Engine.gpsimd)
    assert np.array_equal(generator.get_state(64, start=64), seeds)


def test_random_state_of_the_vector_engine() -> None:
    machine = ReferenceMachine(TRN3)
    seeds = np.arange(128 * 24).reshape(128, 24).astype(np.uint32)
    ins = RandSetState(machine.tile(seeds), Engine.vector)
    assert ins.select_engine(TRN3) is Engine.vector
    machine.execute(ins)
    back = machine.empty((128, 24), "uint32", space=Space.PSUM)
    machine.execute(RandGetState(back, Engine.vector))
    assert np.array_equal(machine.values(back), seeds)


def test_random_state_refuses(machine: ReferenceMachine) -> None:
    seeds = machine.tile(np.ones((4, 6), np.uint32))
    with pytest.raises(ConstraintFault, match="engine vector on NeuronCore-v4"):
        machine.execute(RandSetState(machine.tile(np.ones((4, 24), np.uint32)), Engine.vector))
    with pytest.raises(ConstraintFault, match="engine scalar has no XORWOW state"):
        machine.execute(RandSetState(seeds, Engine.scalar))
    with pytest.raises(ConstraintFault, match="6 words per lane"):
        machine.execute(RandGetState(machine.empty((4, 24), "uint32")))
    with pytest.raises(ConstraintFault, match="is in PSUM"):
        machine.execute(RandGetState(machine.empty((4, 6), "uint32", space=Space.PSUM)))
    with pytest.raises(ConstraintFault, match="dtype int32 is not accepted"):
        machine.execute(RandSetState(machine.tile(np.ones((4, 6), np.int32))))
    with pytest.raises(ConstraintFault, match="does not exist on this generation"):
        ReferenceMachine(TRN1).execute(RandSetState(seeds))
    machine.execute(RandSetState(seeds))
