"""Tiles: indexing, assignment, results that wait for their destination, accumulation, blocks, operators."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from isa.faults import ConstraintFault, OutOfBoundsFault, UninitializedReadFault

A = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
I = np.arange(128)[:, None]  # noqa: E741


def given(values):
    return nl.load(nl.shared_constant(values))


def mnemonics(core):
    from trn_sim.neuronxcc.nki._tile import settle

    settle()
    return [core.program.templates[row].mnemonic for row in core.program.rows()[:, 0]]


# --- indexing -----------------------------------------------------------------------------------------


def test_index_tiles_pick_what_numpy_picks(core):
    tile = given(A)
    p, f = nl.arange(32)[:, None], nl.arange(10)[None, :]
    np.testing.assert_array_equal(tile[p + 32, 3 * f + 2].numpy(), A[32:64, 2:32:3])
    q, x, y = nl.mgrid[0:16, 0:4, 0:3]
    np.testing.assert_array_equal(
        tile[q, 5 * x + y].numpy(), A[np.arange(16)[:, None, None], 5 * np.arange(4)[None, :, None] + np.arange(3)]
    )
    np.testing.assert_array_equal(tile[p, 63 - f].numpy(), A[:32, 63 - np.arange(10)])
    np.testing.assert_array_equal(tile[p, 7].numpy(), A[:32, 7:8])
    np.testing.assert_array_equal(tile[3, f].numpy(), A[3:4, :10])
    np.testing.assert_array_equal(tile[-1, nl.ds(4, 8)].numpy(), A[127:, 4:12])
    np.testing.assert_array_equal(tile[:, None, 0:2].numpy(), A[:, None, 0:2])


def test_windows_overlap(core):
    tile = given(A)
    p, x, k = nl.mgrid[0:128, 0:62, 0:3]
    expected = np.stack([A[:, i : i + 62] for i in range(3)], -1)
    np.testing.assert_array_equal(tile[p, x + k].numpy(), expected)


@pytest.mark.parametrize(
    ("index", "word"),
    [
        (lambda: (nl.arange(8)[:, None], slice(0, 4)), "mixing"),
        (lambda: (nl.arange(8), 0), "1d_arange"),
        (lambda: (nl.arange(8)[None, :], nl.arange(8)[:, None]), "partition"),
        (lambda: (nl.arange(8)[:, None],), "2 dimensions"),
        (lambda: (0, 0, 0), "3 indices"),
        (lambda: (0, nl.arange(8)[:, None]), "partition"),
    ],
)
def test_what_is_no_access_pattern_is_refused(core, index, word):
    tile = given(A)
    with pytest.raises(ConstraintFault) as refused:
        tile[index()]
    assert word in str(refused.value) + str(refused.value.limit)


def test_positions_beyond_the_tensor_need_a_mask(core):
    source = nl.shared_constant(A)
    p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
    beyond = source[p + 64, f]
    with pytest.raises(OutOfBoundsFault, match="64 to 191"):
        nl.load(beyond).settle()
    np.testing.assert_array_equal(nl.load(source[p + 64, f], mask=p < 64)[0:64].numpy(), A[64:])
    np.testing.assert_array_equal(nl.load(source[64:192, 0:64], mask=p < 64)[0:64].numpy(), A[64:])
    with pytest.raises(OutOfBoundsFault):
        nl.load(source[p + 64, f], mask=p < 65).settle()


def test_members(core):
    tile = given(A)
    assert (tile.shape, tile.ndim, tile.dtype, tile.itemsize) == ((128, 64), 2, nl.float32, 4)
    assert tile.assert_shape((128, 64)) is tile
    with pytest.raises(ConstraintFault, match="not of shape"):
        tile.assert_shape((64, 128))
    np.testing.assert_array_equal(tile.astype(nl.int32).numpy(), A.astype(np.int32))
    np.testing.assert_array_equal(tile.reshape((128, 8, 8)).numpy(), A.reshape(128, 8, 8))
    np.testing.assert_array_equal(tile.view(nl.int32).numpy(), A.view(np.int32))
    np.testing.assert_array_equal(tile.expand_dims(1).numpy(), A[:, None])
    np.testing.assert_array_equal(tile[:, 0:1].broadcast_to((128, 5)).numpy(), np.repeat(A[:, :1], 5, 1))
    assert isinstance(tile, nki.tensor)
    with pytest.raises(AttributeError, match="nothing"):
        _ = tile.nothing


# --- where results go ---------------------------------------------------------------------------------


def test_a_result_goes_where_it_is_assigned(core):
    x = given(A)
    out = nl.ndarray((128, 2, 64), dtype=nl.float32, buffer=nl.sbuf)
    out[:, 0, :] = nl.exp(x * 0)
    out[:, 1, :] = nl.load(nl.shared_constant(A))
    np.testing.assert_array_equal(out.numpy(), np.stack([np.ones_like(A), A], 1))
    assert mnemonics(core) == ["dma_copy", "tensor_scalar", "activation", "dma_copy"]


def test_a_tile_that_exists_is_copied(core):
    x = given(A)
    y = nl.ndarray((128, 64), dtype=nl.float32)
    y[...] = x
    y[0:32, :] = 3
    assert mnemonics(core) == ["dma_copy", "tensor_copy", "memset"]
    np.testing.assert_array_equal(y.numpy(), np.where(I < 32, 3, A))


def test_a_narrow_result_is_rounded_before_it_is_assigned(core):
    x = given(A)
    wide = nl.ndarray((128, 64), dtype=nl.float32)
    wide[...] = nl.add(x, 0.0, dtype=nl.bfloat16)
    np.testing.assert_array_equal(wide.numpy(), A.astype(nl.bfloat16).astype(np.float32))
    narrow = nl.ndarray((128, 64), dtype=nl.bfloat16)
    narrow[...] = nl.add(x, 0.0)
    np.testing.assert_array_equal(narrow.numpy(), A.astype(nl.bfloat16))
    assert mnemonics(core) == ["dma_copy", "tensor_scalar", "tensor_copy", "tensor_scalar"]


def test_order_is_that_of_the_program(core):
    x = given(A)
    y = nl.add(x, 1.0)
    x[...] = 0.0  # y was asked for before
    np.testing.assert_array_equal(y.numpy(), A + 1)


def test_lines_are_those_of_the_calls(core):
    x = given(A)
    y = nl.exp(x * 0)
    nl.store(nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm), y)
    mnemonics(core)
    lines = [core.program.source_of(index).line for index in range(len(core.program))]
    assert lines[2] == lines[1] < lines[3]
    assert lines[3] == lines[2] + 1


def test_in_place(core):
    x = given(A)
    x += 1.0
    x[0:64, :] *= 2.0
    x[:, 0:8] -= x[:, 8:16]
    expected = A + 1
    expected[:64] *= 2
    expected[:, :8] -= expected[:, 8:16]
    np.testing.assert_array_equal(x.numpy(), expected)
    assert mnemonics(core) == ["dma_copy", "tensor_scalar", "tensor_scalar", "tensor_tensor"]


# --- accumulation -------------------------------------------------------------------------------------


def test_matmuls_accumulate_in_psum(core):
    x, y = given(A[:, :32]), given(A / 1000)
    acc = nl.zeros((nl.par_dim(32), 64), dtype=nl.float32, buffer=nl.psum)
    for _ in nl.affine_range(3):
        acc[...] += nisa.nc_matmul(x, y)
    np.testing.assert_allclose(nl.copy(acc).numpy(), 3 * A[:, :32].T @ (A / 1000), rtol=1e-5)
    assert mnemonics(core) == ["dma_copy"] * 2 + ["nc_matmul"] * 3 + ["tensor_copy"]


def test_matmul_adds_to_values_of_other_engines(core):
    x, y = given(np.eye(32, dtype=np.float32)), given(A[:32])
    acc = nl.full((32, 64), 2.0, dtype=nl.float32, buffer=nl.psum)
    acc += nl.matmul(x, y, transpose_x=True)
    acc += nl.matmul(x, y, transpose_x=True)
    np.testing.assert_array_equal(acc.numpy(), 2 * A[:32] + 2)


def test_zeros_in_psum_are_written_where_nothing_else_is(core):
    acc = nl.zeros((32, 64), dtype=nl.float32, buffer=nl.psum)
    acc[:, 0:8] += nisa.nc_matmul(given(np.eye(32, dtype=np.float32)), given(A[:32, :8]))
    expected = np.zeros((32, 64), np.float32)
    expected[:, :8] = A[:32, :8]
    np.testing.assert_array_equal(nl.copy(acc).numpy(), expected)
    assert mnemonics(core).count("memset") == 1


def test_uninitialized_tiles_stay_a_fault(core):
    tile = nl.ndarray((32, 8), dtype=nl.float32)
    with pytest.raises(UninitializedReadFault):
        nl.exp(tile).settle()


# --- blocks -------------------------------------------------------------------------------------------


def test_blocks_are_tiles_of_their_own(core):
    blocks = nl.ndarray((2, 3, nl.par_dim(16), 4), dtype=nl.float32, buffer=nl.sbuf)
    i_p, i_f = nl.mgrid[0:16, 0:4]
    for i in nl.affine_range(2):
        for j in nl.affine_range(3):
            blocks[i, j, i_p, i_f] = nl.load(nl.shared_constant(np.full((16, 4), 10 * i + j, np.float32)))
    assert blocks.shape == (2, 3, 16, 4)
    for i in range(2):
        for j in range(3):
            np.testing.assert_array_equal(blocks[i, j].numpy(), np.full((16, 4), 10 * i + j))
    np.testing.assert_array_equal(blocks[1][2].numpy(), blocks[1, 2].numpy())
    np.testing.assert_array_equal(blocks[1, 2, 0:8, 1:3].numpy(), np.full((8, 2), 12))
    with pytest.raises(ConstraintFault, match="block dimensions"):
        nl.exp(blocks[0]).settle()
    with pytest.raises(ConstraintFault, match="block dimension"):
        blocks[0:1]
    with pytest.raises(OutOfBoundsFault):
        blocks[2, 0]


@pytest.mark.parametrize("width", [512, 400, 128, 100, 600])
def test_blocks_in_psum_do_not_cross_banks(core, width):
    blocks = nl.ndarray((3, nl.par_dim(8), width), dtype=nl.float32, buffer=nl.psum)
    for i in range(3):
        operand = blocks[i].operand()
        assert width > 512 or operand.offset // 2048 == (operand.offset + 4 * width - 1) // 2048
        blocks[i] = float(i)
    for i in range(3):
        np.testing.assert_array_equal(blocks[i].numpy(), np.full((8, width), i))


def test_zeros_of_blocks(core):
    sums = nl.zeros((2, nl.par_dim(8), 4), dtype=nl.float32, buffer=nl.sbuf)
    sums[1] += 5.0
    np.testing.assert_array_equal(sums[0].numpy(), np.zeros((8, 4)))
    np.testing.assert_array_equal(sums[1].numpy(), np.full((8, 4), 5))


def test_tiles_without_room_live_behind_the_memory():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        big = nl.ndarray((40, nl.par_dim(128), 2048), dtype=nl.float32, buffer=nl.sbuf)
        for i in nl.affine_range(40):
            big[i, :, 0:64] = nl.load(x) + i
        nl.store(out, big[39, :, 0:64])
        return out

    with pytest.warns(UserWarning, match="SBUF overflows"):
        np.testing.assert_array_equal(kernel(A), A + 39)


# --- operators ----------------------------------------------------------------------------------------


def test_operators(core):
    x, y = given(A % 7), given(A % 5 + 1)
    a, b = A % 7, A % 5 + 1
    for ours, theirs in [
        (x + y, a + b), (x - y, a - b), (x * y, a * b), (x / y, a / b), (2 - x, 2 - a), (1 / y, 1 / b), (-x, -a),
        (abs(-x), a), (y**2, b**2), (x < y, a < b), (x >= 3, a >= 3), (x == y, a == b), (x != 2, a != 2),
    ]:  # fmt: skip
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-6)
    i = given((A % 7).astype(np.int32))
    np.testing.assert_array_equal(((i << 2) & 12 | 1).numpy(), (A % 7).astype(np.int32) << 2 & 12 | 1)
    np.testing.assert_array_equal(((x < 3) & (y > 2)).numpy(), (a < 3) & (b > 2))
    np.testing.assert_array_equal((~(x < 3)).numpy(), ~(a < 3))
    assert (x == None) is False  # noqa: E711


def test_broadcasting(core):
    x, column, row = given(A), given(A[:, :1].copy()), given(A[:1].copy())
    np.testing.assert_array_equal((x * column).numpy(), A * A[:, :1])
    np.testing.assert_array_equal((column - x).numpy(), A[:, :1] - A)
    np.testing.assert_array_equal((x + row).numpy(), A + A[:1])
    cube = x.reshape((128, 8, 8))
    np.testing.assert_array_equal((cube + cube[:, :, 0:1]).numpy(), cube.numpy() + cube.numpy()[:, :, :1])
    np.testing.assert_array_equal((cube * column).numpy(), cube.numpy() * A[:, :1, None])
    with pytest.raises(ConstraintFault, match="shapes"):
        x + given(A[:, :5].copy())


def test_dtypes_of_results(core):
    i, h = given(np.ones((8, 4), np.int32)), given(np.ones((8, 4), np.float16))
    assert (i + 1).dtype == nl.int32
    assert (i + 0.5).dtype == nl.float32
    assert (i / 2).dtype == nl.float32
    assert (i + h).dtype == nl.float16
    assert (h < 1).dtype == nl.bool_
