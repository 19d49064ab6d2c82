"""View methods and indexing of tensors, against numpy on the same numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trn_sim

trn_sim.activate()

import nki.isa as nisa
import nki.language as nl

from isa.faults import ConstraintFault, KernelFault, OutOfBoundsFault
from isa.target import TRN2
from trn_sim.machine import Core, Options, use_core
from trn_sim.nki._support import NkiNote


def hbm(core, shape):
    """An HBM tensor of consecutive integers, and the same numbers in numpy."""
    values = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    return nl.shared_constant(values), values


def sbuf(core, shape):
    source, values = hbm(core, shape)
    tile = nl.ndarray(shape, nl.int32)
    nisa.dma_copy(tile, source)
    return tile, values


# --- random chains ----------------------------------------------------------------------------------


def draw_step(data, tensor, values, on_chip):
    """One random view operation on both sides; dimension 0 is left alone on-chip."""
    first = 1 if on_chip else 0
    rank = values.ndim
    dims = range(first, rank)
    choices = ["slice", "getitem"]
    if rank - first >= 2:
        choices += ["permute"]
    if rank > (2 if on_chip else 1):
        choices += ["select"]
    if rank < 5:
        choices += ["expand"]
    ones = [d for d in dims if values.shape[d] == 1]
    if ones:
        choices += ["broadcast"] + (["squeeze"] if rank > (2 if on_chip else 1) else [])
    split = [d for d in dims if values.shape[d] % 2 == 0]
    if split and rank < 5:
        choices += ["split"]
    kind = data.draw(st.sampled_from(choices))
    dim = data.draw(st.sampled_from(list(dims)))
    size = values.shape[dim]
    if kind == "slice":
        start = data.draw(st.integers(0, size - 1))
        end = data.draw(st.integers(start + 1, size))
        step = data.draw(st.integers(1, 3))
        return tensor.slice(dim, start, end, step), values[(slice(None),) * dim + (slice(start, end, step),)]
    if kind == "getitem":
        start = data.draw(st.integers(-size, size - 1))
        index = (Ellipsis, slice(start, None), *(slice(None) for _ in range(rank - dim - 1)))
        return tensor[index], values[index]
    if kind == "permute":
        order = (*range(first), *data.draw(st.permutations(list(dims))))
        return tensor.permute(order), values.transpose(order)
    if kind == "select":
        index = data.draw(st.integers(0, size - 1))
        return tensor.select(dim, index), values[(slice(None),) * dim + (index,)]
    if kind == "expand":
        return tensor.expand_dim(dim), np.expand_dims(values, dim)
    if kind == "broadcast":
        dim = data.draw(st.sampled_from(ones))
        shape = list(values.shape)
        shape[dim] = data.draw(st.integers(1, 3))
        return tensor.broadcast(dim, shape[dim]), np.broadcast_to(values, shape)
    if kind == "squeeze":
        dim = data.draw(st.sampled_from(ones))
        return tensor.squeeze_dim(dim), np.squeeze(values, dim)
    dim = data.draw(st.sampled_from(split))
    shape = (*values.shape[:dim], 2, values.shape[dim] // 2, *values.shape[dim + 1 :])
    return tensor.reshape_dim(dim, (2, -1)), values.reshape(shape)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), on_chip=st.booleans())
def test_chains_of_views_agree_with_numpy(data, on_chip):
    with use_core(Core(Options(target=TRN2))) as core:
        tensor, values = (sbuf if on_chip else hbm)(core, (4, 6, 4, 2))
        for _ in range(data.draw(st.integers(1, 6))):
            tensor, values = draw_step(data, tensor, values, on_chip)
            assert tensor.shape == values.shape
            assert tensor.size == values.size
            assert tensor.ndim == values.ndim
        np.testing.assert_array_equal(tensor.numpy(), values)
        assert tensor.get_pattern() == [[s, n] for s, n in zip(tensor.strides, tensor.shape, strict=True)]
        free = values[0] if on_chip else values
        if free.size > 1 and 0 not in free.strides:
            assert tensor.is_contiguous() == free.flags.c_contiguous
        # the same elements through an instruction
        copied = nl.ndarray((tensor.size,), nl.int32, nl.shared_hbm)
        nisa.dma_copy(copied, tensor)
        np.testing.assert_array_equal(copied.numpy(), values.ravel())


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_reshape_is_a_view_where_numpy_needs_no_copy(data):
    with use_core(Core(Options(target=TRN2))) as core:
        tensor, values = hbm(core, (4, 6, 4))
        for _ in range(data.draw(st.integers(0, 2))):
            tensor, values = draw_step(data, tensor, values, on_chip=False)
        shapes = [(values.size,), (values.size, 1), (1, *values.shape)]
        shapes += [(values.size // n, n) for n in (2, 3, 4) if values.size % n == 0]
        shape = data.draw(st.sampled_from(shapes))
        try:
            expected = values.view()
            expected.shape = shape  # numpy refuses where a copy is needed
        except AttributeError:
            with pytest.raises(ConstraintFault, match="copy"):
                tensor.reshape(shape)
        else:
            np.testing.assert_array_equal(tensor.reshape(shape).numpy(), expected)


# --- attributes and single methods ------------------------------------------------------------------


def test_attributes_of_a_new_tensor(core):
    tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, name="weights")
    assert tile.shape == (128, 64)
    assert tile.strides == (64, 1)
    assert tile.offset == 0
    assert tile.dtype == nl.float32
    assert tile.buffer == nl.sbuf
    assert tile.name == "weights"
    assert (tile.ndim, tile.size) == (2, 8192)
    assert tile.is_contiguous()
    assert not tile.is_indirect()
    assert tile.get_pattern() == [[64, 128], [1, 64]]


def test_views_share_storage(core):
    tile = nl.zeros((128, 64), nl.float32)
    nisa.memset(tile.reshape((128, 8, 8))[:, 2:4, :], 1.0)
    assert (tile.numpy()[:, 16:32] == 1).all()
    assert tile.numpy().sum() == 128 * 16


def test_partition_slice_offset_counts_whole_partitions(core):
    tile, values = sbuf(core, (128, 16))
    part = tile[64:96, 4:8]
    assert part.offset == 64 * 16 + 4
    operand = part.operand()
    assert (operand.start, operand.partitions) == (64, 32)
    np.testing.assert_array_equal(part.numpy(), values[64:96, 4:8])


def test_on_chip_indexing_keeps_two_dimensions(core):
    tile, values = sbuf(core, (64, 8, 4))
    assert tile[0, 0, 3].shape == (1, 1)
    assert tile[:, 0].shape == (64, 4)
    assert tile[:, 0, 3].shape == (64, 1)
    assert tile[0, ..., :].shape == (1, 8, 4)
    assert tile[0].shape == (1, 8, 4)
    assert tile[:, :, ::2].shape == (64, 8, 2)
    assert tile[...] is tile
    np.testing.assert_array_equal(tile[:, 5, 3].numpy(), values[:, 5, 3:])
    np.testing.assert_array_equal(tile[-1, -1, -1].numpy(), values[-1:, -1, -1:])


def test_hbm_indexing_keeps_one_dimension(core):
    tensor, values = hbm(core, (4, 128, 32))
    assert tensor[0].shape == (128, 32)
    assert tensor[1, 2].shape == (32,)
    assert tensor[1, 2, 3].shape == (1,)
    assert tensor[1, 2, 3].numpy() == values[1, 2, 3]
    assert tensor[..., -1].shape == (4, 128)


def test_numpy_integers_and_ds_are_indices(core):
    tile, values = sbuf(core, (8, 16))
    np.testing.assert_array_equal(tile[np.int64(2), nl.ds(np.int32(4), 8)].numpy(), values[2:3, 4:12])
    np.testing.assert_array_equal(tile[nl.ds(0, 4), 3:].numpy(), values[:4, 3:])
    np.testing.assert_array_equal(tile[0 : np.int64(4), -3:-1].numpy(), values[:4, -3:-1])


@pytest.mark.parametrize("key", [slice(3, 3), nl.ds(8, 0)])
def test_empty_views_exist_and_no_instruction_takes_them(core, key):
    empty = nl.ndarray((8, 16), nl.float32)[:, key]
    assert empty.shape == (8, 0)
    with pytest.raises(ConstraintFault, match="empty"):
        nisa.memset(empty, 0.0)


@pytest.mark.parametrize("key", [(slice(0, 9),), (slice(3, 2),), (8,), (-9,), (0, nl.ds(10, 8)), (slice(-9, None),)])
def test_out_of_bounds_names_tensor_dimension_and_size(core, key):
    tile = nl.ndarray((8, 16), nl.float32, name="scores")
    with pytest.raises(OutOfBoundsFault) as caught:
        tile[key]
    text = str(caught.value)
    assert "'scores'" in text
    assert "(8, 16)" in text
    assert f"dimension {len(key) - 1}" in text
    assert f"size {16 if len(key) == 2 else 8}" in text
    assert caught.value.file == __file__


@pytest.mark.parametrize(
    ("key", "word"),
    [((slice(None), None), "expand_dim"), ((slice(None, None, -1),), "step"), (("x",), "integer"), ((0, 0, 0), "2 dim"),
     ((True,), "integer"), ((1.5,), "integer")],
)  # fmt: skip
def test_other_indices_are_refused(core, key, word):
    tile = nl.ndarray((8, 16), nl.float32)
    with pytest.raises(ConstraintFault, match=word):
        tile[key]


def test_a_tensor_is_no_index(core):
    tile = nl.zeros((8, 16), nl.int32)
    with pytest.raises(ConstraintFault, match="select"):
        tile[tile]


def test_setitem_copies_into_the_view(core):
    tile = nl.zeros((8, 16), nl.float32)
    tile[:, 4:8] = 2.0
    other = nl.ones((8, 4), nl.bfloat16)
    tile[:, 0:4] = other
    source = nl.shared_constant(np.full((8, 2), 5.0, np.float32))
    tile[:, 8:10] = source
    expected = np.zeros((8, 16), np.float32)
    expected[:, 4:8], expected[:, 0:4], expected[:, 8:10] = 2, 1, 5
    np.testing.assert_array_equal(tile.numpy(), expected)
    out = nl.ndarray((8, 16), nl.float32, nl.shared_hbm)
    out[...] = tile
    np.testing.assert_array_equal(out.numpy(), expected)


# --- partition and rank rules -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.permute((1, 0, 2)),
        lambda t: t[0:1].broadcast(0, 4),
        lambda t: t.expand_dim(0),
        lambda t: t[0:1].squeeze_dim(0),
        lambda t: t.reshape_dim(0, (2, 4)),
        lambda t: t.flatten_dims(0, 1),
        lambda t: t.reshape((4, 12, 4)),
        lambda t: t.reshape((96 * 2,)),
    ],
)
def test_views_leave_the_partition_alone_on_chip(core, view):
    with pytest.raises(ConstraintFault, match="partition"):
        view(nl.ndarray((8, 6, 4), nl.float32))
    tensor = nl.ndarray((8, 6, 4), nl.float32, nl.shared_hbm)
    assert view(tensor).ndim >= 1  # in HBM there is no partition


def test_flatten_needs_neighbours(core):
    tile, values = sbuf(core, (8, 6, 4, 2))
    np.testing.assert_array_equal(tile.flatten_dims(1, 3).numpy(), values.reshape(8, 48))
    with pytest.raises(ConstraintFault, match="contiguous"):
        tile.permute((0, 2, 1, 3)).flatten_dims(1, 2)


def test_reshape_checks_the_number_of_elements(core):
    tile = nl.ndarray((8, 6), nl.float32)
    with pytest.raises(ConstraintFault, match="48 elements"):
        tile.reshape((8, 7))
    assert tile.reshape((8, 2, -1)).shape == (8, 2, 3)
    assert tile.reshape([8, 3, 2]).shape == (8, 3, 2)
    with pytest.raises(ConstraintFault, match="6 elements"):
        tile.reshape_dim(1, (4, -1))


def test_squeeze_and_select_keep_two_dimensions_on_chip(core):
    tile, values = sbuf(core, (8, 6))
    np.testing.assert_array_equal(tile.select(1, 3).numpy(), values[:, 3:4])
    assert tile.select(0, 2).shape == (1, 6)
    with pytest.raises(ConstraintFault, match="two dimensions"):
        tile[:, 0:1].squeeze_dim(1)
    with pytest.raises(OutOfBoundsFault):
        tile.select(1, 6)
    with pytest.raises(OutOfBoundsFault, match="no dimension 2"):
        tile.select(2, 0)


def test_broadcast_needs_size_one(core):
    with pytest.raises(ConstraintFault, match="size 1"):
        nl.ndarray((8, 6), nl.float32).broadcast(1, 12)


def test_rearrange(core):
    tile, values = sbuf(core, (8, 24))
    turned = tile.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4})
    np.testing.assert_array_equal(turned.numpy(), values.reshape(8, 4, 6).transpose(0, 2, 1))
    tensor, numbers = hbm(core, (4, 6, 10))
    merged = tensor.rearrange(("a", "b", ("c", "d")), ("d", ("a", "b"), "c"), {"d": 5})
    np.testing.assert_array_equal(merged.numpy(), numbers.reshape(24, 2, 5).transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("src", "dst", "sizes"),
    [(("a",), ("a",), None), (("a", "a"), ("a", "a"), None), (("a", "b"), ("a", "c"), None),
     (("a", ("b", "c")), ("a", "b", "c"), {"b": 5}), (("a", "b"), ("a", "b"), {"b": 5}),
     (("a", ("b", "c")), ("a", ("c", "b")), {"b": 4})],
)  # fmt: skip
def test_rearrange_refuses_what_does_not_fit(core, src, dst, sizes):
    with pytest.raises(ConstraintFault):
        nl.ndarray((8, 24), nl.float32).rearrange(src, dst, sizes)


def test_view_reinterprets_bits(core):
    tile = nl.ndarray((8, 6), nl.float32)
    nisa.memset(tile, 1.5)
    bytes_ = tile.view(nl.uint8)
    assert bytes_.shape == (8, 24)
    np.testing.assert_array_equal(bytes_.numpy(), np.full((8, 6), 1.5, np.float32).view(np.uint8))
    assert bytes_.view(nl.float32).shape == (8, 6)
    assert tile.reinterpret_cast(nl.int32).numpy()[0, 0] == np.float32(1.5).view(np.int32)
    part = tile[2:4, 2:6].view(nl.uint16)
    assert (part.shape, part.offset) == ((2, 8), 2 * 12 + 4)
    assert part.numpy()[0, 1] == 0x3FC0


@pytest.mark.parametrize(
    "make",
    [lambda t: t[:, ::2].view(nl.uint8), lambda t: t.view(nl.uint8)[:, 0:6].view(nl.float32),
     lambda t: t.view(nl.uint8)[:, 1:5].view(nl.float32)],
)  # fmt: skip
def test_view_needs_whole_neighbouring_elements(core, make):
    with pytest.raises(ConstraintFault, match="reinterpreted"):
        make(nl.ndarray((8, 6), nl.float32))


def test_too_many_dimensions_for_an_operand(core):
    tensor, _ = hbm(core, (2, 3, 2, 3, 2, 3))
    assert len(tensor.operand().pairs) == 1  # merged: it is dense
    scattered = tensor.permute((5, 4, 3, 2, 1, 0))
    with pytest.raises(ConstraintFault, match="at most 5"):
        scattered.operand()
    tile = nl.ndarray((4, 2, 3, 2, 3, 2), nl.float32)
    assert tile.operand().shape == (4, 72)
    with pytest.raises(ConstraintFault, match="at most 4 of them in each partition"):
        tile.permute((0, 5, 4, 3, 2, 1)).operand()


# --- for people -------------------------------------------------------------------------------------


def test_repr_shows_values_and_never_fails(core):
    tile = nl.ndarray((8, 6), nl.float32, name="acc")
    assert repr(tile) == "<NkiTensor 'acc' (8, 6) float32 sbuf, unwritten>"
    nisa.memset(tile[:, 0:3], 2.0)
    assert "24 elements unwritten" in repr(tile)
    nisa.memset(tile, 3.0)
    assert repr(tile).startswith("<NkiTensor 'acc' (8, 6) float32 sbuf>\n[[3.")


def test_repr_outside_of_a_kernel():
    with use_core(Core(Options(target=TRN2))):
        tile = nl.zeros((8, 6), nl.float32)
    assert repr(tile) == "<NkiTensor (8, 6) float32 sbuf>"


def test_looking_does_not_change_the_program(core):
    tile = nl.zeros((8, 6), nl.float32)
    before = len(core.program)
    assert np.asarray(tile, np.float64).dtype == np.float64
    assert tile.numpy().sum() == 0
    assert len(core.program) == before


def test_a_tensor_is_true_with_a_note(core):
    with pytest.warns(NkiNote, match="truth value"):
        assert bool(nl.zeros((8, 6), nl.float32))


@pytest.mark.parametrize(
    ("use", "advice"),
    [(lambda t: t + 1, "nl.add"), (lambda t: 2 * t, "nl.multiply"), (lambda t: np.float32(2) * t, "nl.multiply"),
     (lambda t: -t, "nl.negative"), (lambda t: t < 1, "nl.less"), (lambda t: t / t, "nl.divide"),
     (lambda t: t @ t, "nl.matmul"), (lambda t: t & 1, "nl.bitwise_and")],
)  # fmt: skip
def test_old_operators_name_the_function(core, use, advice):
    with pytest.raises(KernelFault, match=advice):
        use(nl.zeros((8, 6), nl.float32))


def test_augmented_assignment_is_refused(core):
    tile = nl.zeros((8, 6), nl.float32)
    with pytest.raises(KernelFault, match=r"nl\.add"):
        tile[:, 0:2] += tile[:, 2:4]


def test_old_members_are_explained(core):
    tile = nl.zeros((8, 6), nl.float32)
    assert not hasattr(tile, "astype")
    with pytest.raises(AttributeError, match=r"nl\.copy"):
        tile.astype(nl.bfloat16)
