"""Direct allocation of the older namespace, and directives to AWS's compiler."""

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from isa.faults import ConstraintFault, OutOfBoundsFault

A = np.arange(32 * 16, dtype=np.float32).reshape(32, 16)


def given(values):
    return nl.load(nl.shared_constant(values))


def place(tile):
    operand = tile.operand()
    return operand.start, operand.offset


def test_mod_alloc(core):
    blocks = nl.ndarray(
        (5, nl.par_dim(32), 16), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=1024, num_free_tiles=(2,))
    )
    assert [place(blocks[i]) for i in range(5)] == [(0, 1024), (0, 1088), (0, 1024), (0, 1088), (0, 1024)]
    blocks[0] = given(A)
    blocks[1] = given(A + 1)
    np.testing.assert_array_equal(blocks[0].numpy(), A)
    blocks[2] = given(A + 2)
    np.testing.assert_array_equal(blocks[0].numpy(), A + 2)  # they share the slot
    two = nl.ndarray(
        (2, 3, nl.par_dim(32), 4), dtype=nl.float32,
        buffer=ncc.sbuf.mod_alloc(base_addr=0, base_partition=32, num_free_tiles=(1, 3), num_par_tiles=(2, 1)),
    )  # fmt: skip
    assert [place(two[i, j]) for i in range(2) for j in range(3)] == [
        (32, 0), (32, 16), (32, 32), (64, 0), (64, 16), (64, 32),
    ]  # fmt: skip
    banks = nl.ndarray(
        (4, nl.par_dim(32), 16), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=3, num_bank_tiles=(2,))
    )
    assert [place(banks[i]) for i in range(4)] == [(0, 3 * 2048), (0, 4 * 2048)] * 2
    with pytest.raises(ConstraintFault, match="tile counts"):
        nl.ndarray((4, nl.par_dim(8), 4), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(num_free_tiles=(2, 2)))[0]


def test_alloc(core):
    def address(idx, pdim_size, fdim_size):
        return 0, 100 + idx[0] * fdim_size

    tiles = nl.ndarray((3, nl.par_dim(32), 16), dtype=nl.float32, buffer=ncc.sbuf.alloc(address))
    assert [place(tiles[i]) for i in range(3)] == [(0, 100), (0, 164), (0, 228)]
    single = nl.ndarray((32, 16), dtype=nl.float32, buffer=ncc.psum.alloc(lambda block, p, f: (2, 0, 0)))
    assert place(single) == (0, 4096)
    with pytest.raises(ConstraintFault, match="allocation of block"):
        nl.ndarray((32, 16), dtype=nl.float32, buffer=ncc.psum.alloc(lambda block, p, f: (0, 0)))
    with pytest.raises(OutOfBoundsFault):
        nl.ndarray((32, 16), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=1 << 20))
    with pytest.raises(ConstraintFault, match="block dimensions at once"):
        tiles[0:1]
    with pytest.raises(OutOfBoundsFault):
        tiles[3]


def test_auto_alloc(core):
    for chosen, buffer in ((ncc.sbuf.auto_alloc(), nl.sbuf), (ncc.psum.auto_alloc(), nl.psum)):
        tiles = nl.ndarray((2, nl.par_dim(32), 16), dtype=nl.float32, buffer=chosen)
        assert tiles.buffer == buffer
        tiles[1] = 3.0
        np.testing.assert_array_equal(tiles[1].numpy(), np.full((32, 16), 3))


def test_blocks_in_one_bank_begin_their_sums_anew(core):
    x = given(np.eye(32, dtype=np.float32))
    sums = nl.ndarray((2, nl.par_dim(32), 16), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=0))
    for i in nl.affine_range(2):
        for _ in nl.affine_range(2):
            sums[i] += nisa.nc_matmul(x, given(A * (i + 1)))
        np.testing.assert_array_equal(nl.copy(sums[i]).numpy(), 2 * A * (i + 1))


def test_addresses_that_grow_with_a_counter_stay_where_they_were(core):
    """AWS's tracer runs the body of an affine loop once."""
    address = 100 * 1024
    for i in nl.affine_range(4):
        tile = nl.ndarray((nl.par_dim(32), 16), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=address))
        address += 50 * 1024
        tile[...] = given(A + i)
        assert tile.operand().offset == [100 * 1024, 150 * 1024, 200 * 1024, 100 * 1024][i]
        np.testing.assert_array_equal(tile.numpy(), A + i)


@pytest.mark.parametrize(
    "directive", [ncc.enable_stack_allocator, ncc.force_auto_alloc, ncc.skip_middle_end_transformations]
)
def test_directives_change_nothing(directive):
    @directive
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        with ncc.no_reorder():
            nl.store(out, nl.load(x))
        return out

    np.testing.assert_array_equal(kernel(A), A)
    assert directive()(kernel) is kernel
