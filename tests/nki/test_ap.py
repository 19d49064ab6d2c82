"""``.ap`` and run-time addresses: patterns over the storage, scalar and vector offsets, and their traps."""

import numpy as np
import pytest

import trn_sim

trn_sim.activate()

import nki.isa as nisa
import nki.language as nl

from isa.faults import (
    ConstraintFault,
    OutOfBoundsFault,
    UnverifiedFault,
)


def hbm(shape, dtype=np.int32):
    values = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    return nl.shared_constant(values), values


def sbuf(values):
    tile = nl.ndarray(values.shape, values.dtype)
    nisa.dma_copy(tile, nl.shared_constant(values))
    return tile


def index(*values, dtype=np.int32):
    return sbuf(np.array(values, dtype).reshape(-1, 1))


def moved(source, shape):
    tile = nl.ndarray(shape, source.dtype)
    nisa.dma_copy(tile, source)
    return tile.numpy()


# --- static patterns --------------------------------------------------------------------------------


def test_pattern_addresses_the_storage_not_the_view(core):
    tensor, values = hbm((16, 16))
    view = tensor[4:8, 8:16]
    whole = view.ap([[16, 16], [1, 16]], offset=0)
    np.testing.assert_array_equal(whole.numpy(), values)  # trap: shape and strides of the view do not matter


def test_offset_none_inherits_the_view(core):
    tensor, values = hbm((16, 16))
    part = tensor[4:8, 8:16].ap([[16, 4], [1, 8]])
    assert part.offset == 4 * 16 + 8
    np.testing.assert_array_equal(part.numpy(), values[4:8, 8:16])


def test_ap_does_not_compose(core):
    tile = sbuf(np.arange(128 * 256, dtype=np.int32).reshape(128, 256))
    inner = tile.ap([[256, 128], [2, 128]])
    outer = inner.ap([[256, 128], [1, 64]])
    np.testing.assert_array_equal(outer.numpy(), tile.numpy()[:, :64])


def test_stride_zero_repeats(core):
    tensor, values = hbm((4, 8))
    repeated = tensor.ap([[0, 3], [8, 4], [1, 8]])
    np.testing.assert_array_equal(repeated.numpy(), np.broadcast_to(values, (3, 4, 8)))


def test_equal_to_slice(core):
    tile = nl.ndarray((128, 64), nl.float32)
    cut = tile.slice(1, 8, 24)
    same = tile.ap([[64, 128], [1, 16]], offset=8)
    assert cut.get_pattern() == same.get_pattern()
    assert cut.offset == same.offset
    assert cut.operand().words == same.operand().words


def test_dtype_reinterprets_in_units_of_the_new_one(core):
    tile = sbuf(np.arange(8 * 4, dtype=np.int32).reshape(8, 4))
    halves = tile.ap([[8, 8], [1, 8]], dtype=nl.uint16)
    np.testing.assert_array_equal(halves.numpy(), tile.numpy().view(np.uint16))
    second = tile.ap([[8, 8], [2, 4]], offset=1, dtype=nl.uint16)
    np.testing.assert_array_equal(second.numpy(), tile.numpy().view(np.uint16)[:, 1::2])
    inherited = tile[2:4, 1:3].ap([[8, 2], [1, 4]], dtype=nl.uint16)
    np.testing.assert_array_equal(inherited.numpy(), tile.numpy().view(np.uint16)[2:4, 2:6])


def test_one_partition_may_have_any_stride(core):
    tile = sbuf(np.arange(8 * 4, dtype=np.int32).reshape(8, 4))
    assert tile.ap([[1, 1], [1, 4]], offset=8).numpy().tolist() == [[8, 9, 10, 11]]


def test_every_other_partition_is_for_dma_only(core):
    tile = sbuf(np.arange(16 * 4, dtype=np.int32).reshape(16, 4))
    skipping = tile.ap([[8, 8], [1, 4]])
    np.testing.assert_array_equal(moved(skipping, (8, 4)), tile.numpy()[::2])
    out = nl.ndarray((8, 4), nl.int32)
    with pytest.raises(ConstraintFault, match="partition"):
        nisa.tensor_copy(out, skipping)


@pytest.mark.parametrize("pattern", [[], [[1]], [[4, 0], [1, 4]], [[4, 8]], "ab", [[4, 8], [1, "x"]]])
def test_what_is_no_pattern(core, pattern):
    with pytest.raises(ConstraintFault, match="pairs"):
        nl.ndarray((8, 4), nl.int32).ap(pattern)


def test_first_stride_must_be_whole_partitions(core):
    with pytest.raises(ConstraintFault, match="its stride is 4"):
        nl.ndarray((8, 4), nl.int32).ap([[3, 8], [1, 4]])


@pytest.mark.parametrize(
    ("pattern", "offset"),
    [
        ([[4, 8], [1, 5]], 0),
        ([[4, 8], [1, 4]], 1),
        ([[4, 9], [1, 4]], 0),
        ([[4, 8], [1, 4]], 4),
        ([[4, 8], [1, 4]], -4),
    ],
)
def test_patterns_outside_the_tile(core, pattern, offset):
    tile = nl.ndarray((8, 4), nl.int32, name="t")
    with pytest.raises(OutOfBoundsFault, match="'t'"):
        tile.ap(pattern, offset=offset)
    assert tile.ap([[4, 8], [1, 4]], offset=0).shape == (8, 4)


def test_patterns_outside_an_hbm_tensor(core):
    tensor, _ = hbm((8, 4))
    with pytest.raises(OutOfBoundsFault, match="32 elements"):
        tensor.ap([[4, 8], [1, 4]], offset=1)
    assert tensor.ap([[4, 7], [1, 4]], offset=1).shape == (7, 4)


def test_negative_strides_are_not_documented(core):
    with pytest.raises(UnverifiedFault):
        hbm((8, 4))[0].ap([[-1, 4]], offset=3)


# --- one run-time index -----------------------------------------------------------------------------


def test_select_by_a_tile(core):
    tensor, values = hbm((4, 8, 16))
    picked = tensor.select(0, index(3))
    assert picked.shape == (8, 16)
    assert picked.is_indirect()
    np.testing.assert_array_equal(moved(picked, (8, 16)), values[3])
    middle = tensor.select(1, index(5))
    np.testing.assert_array_equal(moved(middle, (4, 16)), values[:, 5])


def test_select_by_a_register(core):
    tensor, values = hbm((4, 8, 16))
    register = nisa.register_alloc(2)
    np.testing.assert_array_equal(moved(tensor[register], (8, 16)), values[2])
    np.testing.assert_array_equal(moved(tensor[:, nl.ds(register, 4)], (4, 4, 16)), values[:, 2:6])
    np.testing.assert_array_equal(tensor.select(0, register).numpy(), values[2])


def test_scalar_offset_is_scaled_by_the_base_tensor(core):
    tensor, values = hbm((16, 32))
    # trap: the pattern's outermost stride is 64, but one step of the index is one row of the tensor
    picked = tensor.ap([[64, 2], [1, 32]], scalar_offset=index(3))
    np.testing.assert_array_equal(moved(picked, (2, 32)), values[[3, 5]])
    columns = tensor.ap([[32, 16], [1, 8]], scalar_offset=index(5), indirect_dim=1)
    np.testing.assert_array_equal(moved(columns, (16, 8)), values[:, 5:13])


def test_scalar_offset_with_reshaped_base(core):
    tensor, values = hbm((16, 32))
    blocks = tensor.reshape((4, 4, 32))
    picked = blocks.ap([[32, 4], [1, 32]], scalar_offset=index(2), indirect_dim=0)
    np.testing.assert_array_equal(moved(picked, (4, 32)), values[8:12])


def test_scalar_offset_adds_to_the_offset(core):
    tensor, values = hbm((16, 32))
    picked = tensor.ap([[32, 4], [1, 8]], offset=8, scalar_offset=index(12))
    np.testing.assert_array_equal(moved(picked, (4, 8)), values[12:16, 8:16])


def test_scalar_offset_on_chip_moves_along_the_free_dimension(core):
    tile = sbuf(np.arange(8 * 32, dtype=np.int32).reshape(8, 32))
    out = nl.ndarray((8, 4), nl.int32)
    nisa.tensor_copy(out, tile.ap([[32, 8], [1, 4]], scalar_offset=index(20), indirect_dim=1))
    np.testing.assert_array_equal(out.numpy(), tile.numpy()[:, 20:24])
    with pytest.raises(ConstraintFault, match="partitions"):
        tile.ap([[32, 1], [1, 4]], scalar_offset=index(2), indirect_dim=0)
    with pytest.raises(ConstraintFault, match="partitions"):
        tile.select(0, index(2))


@pytest.mark.parametrize("value", [-1, 4, 1000])
def test_run_time_index_out_of_bounds(core, value):
    tensor, _ = hbm((4, 8, 16))
    out = nl.ndarray((8, 16), nl.int32)
    with pytest.raises(OutOfBoundsFault) as caught:
        nisa.dma_copy(out, tensor.select(0, index(value)))
    assert str(value) in str(caught.value)
    assert caught.value.instruction == "dma_copy"


def test_one_run_time_index_per_view(core):
    tensor, _ = hbm((4, 8, 16))
    register = nisa.register_alloc(1)
    picked = tensor.select(0, register)
    for again in (
        lambda: picked.select(0, register),
        lambda: picked.vector_select(0, index(0, 1)),
        lambda: tensor[register, register],
    ):
        with pytest.raises(ConstraintFault, match="one run-time index"):
            again()
    with pytest.raises(ConstraintFault, match="run-time address"):
        picked.view(nl.uint8)
    assert picked[2:4, 0:8].shape == (2, 8)


def test_scalar_offset_wants_a_run_time_value(core):
    tensor, _ = hbm((4, 8))
    with pytest.raises(ConstraintFault, match="offset="):
        tensor.ap([[8, 1], [1, 8]], scalar_offset=2)
    with pytest.raises(ConstraintFault, match="one of them"):
        tensor.ap([[8, 1], [1, 8]], scalar_offset=index(1), vector_offset=index(1))


# --- one run-time index per row ---------------------------------------------------------------------


def test_vector_offset_ignores_the_first_stride(core):
    tensor, values = hbm((16, 32))
    rows = [3, 0, 15, 3]
    picked = tensor.ap([[7, 4], [1, 32]], vector_offset=index(*rows))  # trap: 7 means nothing
    np.testing.assert_array_equal(moved(picked, (4, 32)), values[rows])
    part = tensor.ap([[32, 4], [1, 8]], offset=8, vector_offset=index(*rows))
    np.testing.assert_array_equal(moved(part, (4, 8)), values[rows, 8:16])


def test_vector_select(core):
    tensor, values = hbm((6, 4, 8))
    picked = tensor.vector_select(0, index(5, 1, 2))
    assert picked.shape == (3, 4, 8)
    np.testing.assert_array_equal(moved(picked, (3, 4, 8)), values[[5, 1, 2]])
    with pytest.raises(ConstraintFault, match="dimension 0"):
        picked[0:2]
    with pytest.raises(ConstraintFault, match="row"):
        picked.permute((1, 0, 2))
    np.testing.assert_array_equal(moved(picked[:, 1, 2:6], (3, 4)), values[[5, 1, 2], 1, 2:6])
    np.testing.assert_array_equal(moved(picked.reshape((3, 32)), (3, 32)), values[[5, 1, 2]].reshape(3, 32))


def test_scatter(core):
    target = nl.zeros((8, 4), nl.int32, nl.shared_hbm)
    nisa.dma_copy(target.vector_select(0, index(6, 2)), sbuf(np.array([[1] * 4, [2] * 4], np.int32)))
    expected = np.zeros((8, 4), np.int32)
    expected[6], expected[2] = 1, 2
    np.testing.assert_array_equal(target.numpy(), expected)


def test_vector_offset_rules(core):
    tensor, _ = hbm((16, 32))
    with pytest.raises(ConstraintFault, match="indirect_dim=0"):
        tensor.ap([[32, 2], [1, 32]], vector_offset=index(1, 2), indirect_dim=1)
    with pytest.raises(ConstraintFault, match="HBM"):
        nl.ndarray((16, 32), nl.int32).vector_select(0, index(1, 2))
    with pytest.raises(ConstraintFault, match="dimension 1"):
        tensor.vector_select(1, index(1, 2))
    with pytest.raises(ConstraintFault, match="look at it"):
        tensor.vector_select(0, index(1, 2)).numpy()
