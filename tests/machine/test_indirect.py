"""Tensor indirection: gathered and scattered columns against the definition, and each rule with its legal twin."""

import numpy as np
import pytest

from isa.activation import ACTIVATIONS
from isa.alu import ALU_OPS
from isa.catalogue import INSTRUCTIONS
from isa.engine import Engine
from isa.faults import ConstraintFault, OutOfBoundsFault, UninitializedReadFault, UnverifiedFault
from isa.indirect import GROUP, TENSOR_GROUP, column_offsets, for_tensor_engine
from isa.operands import AccessPattern, Dynamic, DynamicKind, Space, decode_words
from isa.scalar import Activation
from isa.target import TRN2, TRN3
from isa.tensor import Matmul
from isa.vector import TensorScalar, TensorTensor
from isa.vector_move import Memset, TensorCopy, TensorCopyPredicated
from isa.vector_reduce import TensorReduce
from isa.work import WorkFlag
from trn_sim.machine import Core, Options

SBUF, PSUM = Space.SBUF, Space.PSUM


def snake(offsets, partitions, group=GROUP):
    """The tile of offsets: index[i % G, i // G], repeated in every group."""
    columns = -(-len(offsets) // group)
    one = np.zeros((group, columns), np.int32)
    for i, offset in enumerate(offsets):
        one[i % group, i // group] = offset
    return np.tile(one, (partitions // group, 1))


def indirect(tile, index, count, *, group=GROUP):
    return AccessPattern(
        tile.space,
        tile.dtype,
        tile.offset,
        ((0, count),),
        start=tile.start,
        partitions=tile.partitions,
        storage=tile.storage,
        dynamic=Dynamic(DynamicKind.COLUMN, index, 1, tile.elements, group),
    )


@pytest.fixture
def core():
    return Core(Options(target=TRN3))


def put(core, values, dtype="float32", space=SBUF, address=None):
    from isa import dtypes

    kind = dtypes.dtype(dtype)
    tile = core.allocate(space, values.shape, kind, address=address).pattern()
    core.executor.store(tile, values.astype(np.float32 if kind.is_float else kind.numpy))
    return tile


def empty(core, shape, dtype="float32", space=SBUF, address=None):
    from isa import dtypes

    return core.allocate(space, shape, dtypes.dtype(dtype), address=address).pattern()


def picked(core, tile, offsets, *, group=GROUP):
    return indirect(tile, put(core, snake(offsets, tile.partitions, group), "int32"), len(offsets), group=group)


OFFSETS = [7, 0, 3, 3, 15, 1, 9, 2, 4, 6, 5, 8, 10, 11, 12, 13, 14, 0, 7]  # more than one column of a group of 16
ONCE = [7, 0, 3, 15, 1]


# --- gathering and scattering -----------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [16, 64, 128])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_gathers_columns(core, partitions, dtype):
    values = np.arange(partitions * 16).reshape(partitions, 16) % 251
    dst = empty(core, (partitions, len(OFFSETS)), dtype)
    core.issue(TensorCopy(dst, picked(core, put(core, values, dtype), OFFSETS)))
    np.testing.assert_array_equal(core.executor.load(dst), values[:, OFFSETS])


def test_scatters_columns_and_leaves_the_others(core):
    dst = put(core, np.full((32, 16), -1.0))
    values = np.arange(32 * 5).reshape(32, 5)
    core.issue(TensorCopy(picked(core, dst, ONCE), put(core, values)))
    want = np.full((32, 16), -1.0)
    want[:, ONCE] = values
    np.testing.assert_array_equal(core.executor.load(dst), want)


def test_scatter_initialises_what_it_writes_and_no_more(core):
    dst = empty(core, (16, 8))
    core.issue(TensorCopy(picked(core, dst, [6, 2]), put(core, np.ones((16, 2)))))
    core.issue(TensorCopy(empty(core, (16, 2)), picked(core, dst, [2, 6])))
    with pytest.raises(UninitializedReadFault):
        core.issue(TensorCopy(empty(core, (16, 2)), picked(core, dst, [2, 3])))


def test_later_columns_win(core):
    dst = put(core, np.zeros((16, 4)))
    core.issue(TensorCopy(picked(core, dst, [1, 1]), put(core, np.array([[5.0, 6.0]] * 16))))
    assert core.executor.load(dst)[0].tolist() == [0, 6, 0, 0]


def test_offsets_count_from_the_view(core):
    whole = put(core, np.arange(16 * 8).reshape(16, 8))
    part = AccessPattern(SBUF, whole.dtype, whole.offset + 3 * 4, ((1, 5),), partitions=16, storage=whole.storage)
    dst = empty(core, (16, 2))
    core.issue(TensorCopy(dst, picked(core, part, [0, 4])))
    assert core.executor.load(dst)[0].tolist() == [3, 7]


def test_offset_outside_the_view(core):
    with pytest.raises(OutOfBoundsFault, match="index 16"):
        core.issue(TensorCopy(empty(core, (16, 1)), picked(core, put(core, np.zeros((16, 16))), [16])))


def test_groups_have_to_agree(core):
    data, dst = put(core, np.arange(32 * 8).reshape(32, 8)), empty(core, (32, 2))
    table = snake([1, 2], 32)
    core.issue(TensorCopy(dst, indirect(data, put(core, table, "int32"), 2)))
    table[16] += 1
    with pytest.raises(UnverifiedFault, match="different offsets"):
        core.issue(TensorCopy(dst, indirect(data, put(core, table, "int32"), 2)))


def test_column_offsets_follow_the_formula(core):
    data, index = put(core, np.zeros((32, 128))), np.arange(64, dtype=np.int32).reshape(32, 2)
    tile = put(core, index, "int32")
    wide = column_offsets(indirect(data, tile, 40, group=TENSOR_GROUP), index)
    assert wide.tolist() == [int(index[i % 32, i // 32]) for i in range(40)]
    assert for_tensor_engine(indirect(data, tile, 40)).dynamic.group == TENSOR_GROUP
    assert for_tensor_engine(data) is data


# --- instructions -----------------------------------------------------------------------------------


def test_arithmetic_on_gathered_and_scattered_columns(core):
    rng = np.random.default_rng(0)
    values, other = rng.standard_normal((32, 16)).astype(np.float32), rng.standard_normal((32, 5)).astype(np.float32)
    source = picked(core, put(core, values), ONCE)
    dst = put(core, np.zeros((32, 8)))
    into = picked(core, dst, [7, 5, 3, 1, 0])
    core.issue(TensorTensor(into, source, put(core, other), ALU_OPS["add"]))
    np.testing.assert_array_equal(core.executor.load(dst)[:, [7, 5, 3, 1, 0]], values[:, ONCE] + other)
    core.issue(TensorScalar(into, source, ALU_OPS["multiply"], 2.0, False, ALU_OPS["add"], 1.0))
    np.testing.assert_array_equal(core.executor.load(dst)[:, [7, 5, 3, 1, 0]], values[:, ONCE] * 2 + 1)
    core.issue(Activation(into, ACTIVATIONS["square"], source))
    np.testing.assert_array_equal(core.executor.load(dst)[:, [7, 5, 3, 1, 0]], values[:, ONCE] ** 2)
    total = empty(core, (32, 1))
    core.issue(TensorReduce(total, ALU_OPS["maximum"], source, 1))
    np.testing.assert_array_equal(core.executor.load(total)[:, 0], values[:, ONCE].max(1))


def test_predicate_and_destination(core):
    dst = put(core, np.zeros((16, 8)))
    mask = put(core, np.array([[0, 1, 0, 1]] * 16, np.uint8), "uint8")
    src = put(core, np.array([[1.0, 2.0]] * 16))
    core.issue(TensorCopyPredicated(picked(core, dst, [4, 6]), src, picked(core, mask, [1, 2])))
    assert core.executor.load(dst)[3].tolist() == [0, 0, 0, 0, 1, 0, 0, 0]


def test_matmul_gathers_and_scatters(core):
    rng = np.random.default_rng(1)
    left, right = rng.integers(-3, 4, (64, 16)), rng.integers(-3, 4, (64, 16))
    ours, theirs = [3, 1, 0, 9], [2, 15, 4]
    dst = empty(core, (4, 8), space=PSUM)
    stationary = picked(core, put(core, left, "bfloat16"), ours, group=TENSOR_GROUP)
    moving = picked(core, put(core, right, "bfloat16"), theirs, group=TENSOR_GROUP)
    core.issue(Matmul(AccessPattern(PSUM, dst.dtype, dst.offset, ((1, 3),), partitions=4, storage=dst.storage),
                      stationary, moving))  # fmt: skip
    want = left[:, ours].T @ right[:, theirs]
    np.testing.assert_array_equal(core.executor.load(dst_columns(dst, 0, 3)), want)


def dst_columns(dst, first, count):
    offset = dst.offset + first * dst.dtype.itemsize
    return AccessPattern(dst.space, dst.dtype, offset, ((1, count),), partitions=dst.partitions, storage=dst.storage)


def test_matmul_adds_where_it_wrote_before(core):
    left, right = np.ones((32, 32)), np.arange(32 * 3).reshape(32, 3)
    stationary, moving = put(core, left, "bfloat16"), put(core, right, "bfloat16")
    dst = empty(core, (32, 8), space=PSUM)
    first, second = picked(core, dst, [5, 2, 0], group=TENSOR_GROUP), picked(core, dst, [2, 7, 5], group=TENSOR_GROUP)
    core.issue(Matmul(first, stationary, moving))
    core.issue(Matmul(second, stationary, moving))
    sums = right.sum(0)
    for column, want in ((5, sums[0] + sums[2]), (2, sums[1] + sums[0]), (0, sums[2]), (7, sums[1])):
        np.testing.assert_array_equal(core.executor.load(dst_columns(dst, column, 1))[:, 0], np.full(32, want))
    core.issue(Matmul(first, stationary, moving, accumulate=False))
    np.testing.assert_array_equal(core.executor.load(dst_columns(dst, 5, 1))[:, 0], np.full(32, sums[0]))
    with pytest.raises(UnverifiedFault, match="two columns to one place"):
        core.issue(Matmul(picked(core, dst, [1, 1, 0], group=TENSOR_GROUP), stationary, moving))


def test_a_gather_sees_pending_matmuls(core):
    left, right = np.ones((32, 32)), np.arange(32 * 4).reshape(32, 4)
    dst = empty(core, (32, 4), space=PSUM)
    core.issue(Matmul(dst, put(core, left, "bfloat16"), put(core, right, "bfloat16")))
    out = empty(core, (32, 2))
    core.issue(TensorCopy(out, picked(core, dst, [3, 0])))
    np.testing.assert_array_equal(core.executor.load(out)[0], right.sum(0)[[3, 0]])


# --- rules ------------------------------------------------------------------------------------------

INDIRECT = {
    "activate2": {"dst", "data"},
    "activation": {"dst", "data"},
    "activation_reduce": {"dst", "data"},
    "exponential": {"dst", "src"},
    "nc_matmul": {"dst", "stationary", "moving"},
    "nc_matmul_mx": {"dst", "stationary", "moving", "stationary_scale", "moving_scale"},
    "tensor_copy": {"dst", "src"},
    "tensor_copy_predicated": {"dst", "predicate"},
    "tensor_reduce": {"dst", "data"},
    "tensor_scalar": {"dst", "data"},
    "tensor_scalar_cumulative": {"dst", "src"},
    "tensor_scalar_reduce": {"dst", "data"},
    "tensor_tensor": {"dst", "data1"},
}


def test_operands_that_may_be_indirect():
    found = {cls.mnemonic: {name for name, spec in cls.operands if spec.indirect} for cls in INSTRUCTIONS.values()}
    assert {mnemonic: names for mnemonic, names in found.items() if names} == INDIRECT


def test_other_operands_are_refused(core):
    data = picked(core, put(core, np.zeros((16, 16))), [0, 1])
    tile = put(core, np.zeros((16, 2)))
    core.issue(TensorTensor(tile, data, tile, ALU_OPS["add"]))
    with pytest.raises(ConstraintFault, match="which this operand cannot be") as caught:
        core.issue(TensorTensor(tile, tile, data, ALU_OPS["add"]))
    assert "dst, data1" in str(caught.value)
    with pytest.raises(ConstraintFault, match="which this operand cannot be"):
        core.issue(Memset(data, 0.0))


def test_not_before_v4():
    core = Core(Options(target=TRN2))
    with pytest.raises(ConstraintFault, match="does not exist on this generation"):
        core.issue(TensorCopy(empty(core, (16, 1)), picked(core, put(core, np.zeros((16, 4))), [0])))


def test_engines(core):
    dst, data = empty(core, (16, 1)), picked(core, put(core, np.zeros((16, 4))), [0])
    for engine in (Engine.vector, Engine.scalar):
        core.issue(TensorCopy(dst, data, engine))
    with pytest.raises(ConstraintFault, match="indirect on the GpSimd Engine"):
        core.issue(TensorCopy(dst, data, Engine.gpsimd))


def test_scalar_engine_does_not_scatter_into_psum(core):
    src = put(core, np.zeros((16, 1)))
    into = picked(core, empty(core, (16, 4), space=PSUM), [2])
    core.issue(TensorCopy(into, src, Engine.vector))
    with pytest.raises(ConstraintFault, match="scattered into PSUM by the Scalar Engine"):
        core.issue(TensorCopy(into, src, Engine.scalar))


def test_exact_integers_are_not_indirect(core):
    data, dst = picked(core, put(core, np.ones((16, 4)), "int32"), [0]), empty(core, (16, 1), "int32")
    core.issue(TensorScalar(dst, data, ALU_OPS["add"], 1.0))
    with pytest.raises(ConstraintFault, match="exact 32-bit integer arithmetic"):
        core.issue(TensorScalar(dst, data, ALU_OPS["add"], 1))


@pytest.mark.parametrize(
    ("partitions", "rows", "count", "message"),
    [(16, 16, 17, "takes 17 offsets"), (8, 8, 1, "over 8 partitions"), (24, 24, 1, "over 24 partitions")],
)
def test_sizes_of_the_index(core, partitions, rows, count, message):
    index = put(core, np.zeros((rows, 1), np.int32), "int32")
    data = indirect(put(core, np.zeros((partitions, 4))), index, count)
    with pytest.raises(ConstraintFault, match=message):
        core.issue(TensorCopy(empty(core, (partitions, count)), data))


def test_dtype_and_memory_of_the_index(core):
    data, dst = put(core, np.zeros((16, 4))), empty(core, (16, 1))
    with pytest.raises(ConstraintFault, match="offsets in SBUF"):
        core.issue(TensorCopy(dst, indirect(data, put(core, np.zeros((16, 1))), 1)))


def test_partitions_of_the_index(core):
    index = empty(core, (32, 1), "int32", address=(32, 0))
    core.executor.store_raw(index, np.zeros((32, 1), np.int32))
    beside = put(core, np.zeros((32, 4)), address=(32, 1024))
    away = put(core, np.zeros((32, 4)), address=(0, 2048))
    dst = empty(core, (32, 1), address=(0, 4096))
    core.issue(TensorCopy(dst, indirect(beside, index, 1)))
    with pytest.raises(ConstraintFault, match="'src' starts at 0"):
        core.issue(TensorCopy(dst, indirect(away, index, 1)))
    target = empty(core, (32, 4), address=(0, 8192))
    core.issue(TensorCopy(indirect(target, index, 1), put(core, np.zeros((32, 1)), address=(32, 512))))
    with pytest.raises(ConstraintFault, match="'src' starts at 0"):
        core.issue(TensorCopy(indirect(target, index, 1), put(core, np.zeros((32, 1)), address=(0, 512))))
    low = empty(core, (16, 1), "int32", address=(16, 16384))
    with pytest.raises(ConstraintFault, match="from partition 16 on"):
        core.issue(TensorCopy(empty(core, (16, 1), address=(0, 20000)), indirect(
            put(core, np.zeros((16, 4)), address=(0, 24000)), low, 1)))  # fmt: skip


def test_matmul_rules(core):
    left, right = put(core, np.zeros((32, 32)), "bfloat16"), put(core, np.zeros((32, 32)), "bfloat16")
    dst = empty(core, (32, 2), space=PSUM)
    moving = picked(core, right, [0, 1], group=TENSOR_GROUP)
    core.issue(Matmul(dst, left, moving, tile_position=(0, 0), tile_size=(32, 128)))
    with pytest.raises(ConstraintFault, match=r"tile_position \(32, 0\) with an indirect operand"):
        core.issue(Matmul(dst, left, moving, tile_position=(32, 0), tile_size=(32, 128)))
    with pytest.raises(ConstraintFault, match="indirect with is_transpose"):
        core.issue(Matmul(
            empty(core, (32, 32), "bfloat16", space=PSUM), left,
            picked(core, right, list(range(32)), group=TENSOR_GROUP), is_transpose=True,
        ))  # fmt: skip
    wide = put(core, np.zeros((32, 32)))
    with pytest.raises(ConstraintFault, match="indirect with dtype float32"):
        core.issue(Matmul(dst, wide, picked(core, wide, [0, 1], group=TENSOR_GROUP)))


# --- the program ------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [GROUP, TENSOR_GROUP])
def test_words_and_back(core, group):
    pattern = picked(core, put(core, np.zeros((32, 4))), [3, 1], group=group)
    decoded, _ = decode_words(pattern.words, 0)
    assert decoded.indirect
    assert (decoded.dynamic.stride, decoded.dynamic.count, decoded.dynamic.group) == (1, 4, group)
    assert decoded.pairs == pattern.pairs
    assert decoded.words == pattern.words


def test_work_and_hazards(core):
    data, dst = put(core, np.zeros((16, 8))), empty(core, (16, 2))
    core.issue(Memset(data, 1.0))
    core.issue(TensorCopy(dst, picked(core, data, [6, 2])))
    flags = core.program.templates[-1].work.flags
    assert flags & WorkFlag.GATHER
    assert not flags & (WorkFlag.DYNAMIC | WorkFlag.CONTIGUOUS)
    from memory_model.hazards import edges

    found = edges(core.program)
    assert found.producer[found.start[1] : found.start[2]].tolist() == [0]
