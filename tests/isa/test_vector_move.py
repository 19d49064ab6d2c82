"""Copies, fills, shuffles and small transposes: bits, dtypes, limits."""

import numpy as np
import pytest

from isa.engine import Engine
from isa.faults import ConstraintFault
from isa.operands import Space
from isa.target import TRN1, TRN2
from isa.vector_move import Memset, StreamShuffle, TensorCopy, TensorCopyPredicated, VectorTranspose
from tests.isa.reference_machine import ReferenceMachine

NAN_WITH_PAYLOAD = 0x7FC01234


@pytest.fixture
def machine():
    return ReferenceMachine(TRN2)


def test_copy_between_equal_dtypes_keeps_bits(machine):
    bits = np.array([[NAN_WITH_PAYLOAD, 1, 0x80000000, 0xFFFFFFFF]], np.uint32)
    src, dst = machine.empty((1, 4), "float32"), machine.empty((1, 4), "float32")
    machine.store_raw(src, bits.view(np.float32))
    machine.execute(TensorCopy(dst, src))
    assert machine.raw(dst).view(np.uint32).tolist() == bits.tolist()
    large = machine.tile(np.array([[2**24 + 1]], np.int32))
    kept = machine.empty((1, 1), "int32")
    machine.execute(TensorCopy(kept, large))
    assert machine.raw(kept)[0, 0] == 2**24 + 1


def test_copy_between_other_dtypes_goes_through_float32(machine):
    src = machine.tile(np.array([[2.5, 3.5, -1e9, 300.0, np.nan]], np.float32))
    dst = machine.empty((1, 5), "uint8")
    machine.execute(TensorCopy(dst, src))
    assert machine.raw(dst)[0].tolist() == [2, 4, 0, 255, 0]
    wide = machine.empty((1, 1), "uint32")
    machine.execute(TensorCopy(wide, machine.tile(np.array([[2**24 + 1]], np.int32))))
    assert machine.raw(wide)[0, 0] == 2**24


def test_copy_engines(machine):
    tile, psum = machine.empty((4, 4), "float32"), machine.empty((4, 4), "float32", space=Space.PSUM)
    assert TensorCopy(tile, psum).select_engine(TRN2) is Engine.vector
    TensorCopy(tile, psum, Engine.scalar).check(TRN2)
    TensorCopy(tile, tile, Engine.gpsimd).check(TRN1)
    for ins, target, message in (
        (TensorCopy(tile, psum, Engine.scalar), TRN1, "no tensor_copy on this generation"),
        (TensorCopy(tile, psum, Engine.gpsimd), TRN2, "cannot access PSUM"),
        (TensorCopy(tile, tile, Engine.tensor), TRN2, "cannot copy"),
    ):
        with pytest.raises(ConstraintFault, match=message):
            ins.check(target)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("number", [False, True])
def test_predicated(machine, reverse, number):
    mask = np.array([[0, 1, 2, 0]], np.uint16)
    old, new = np.array([[1, 2, 3, 4]], np.float32), np.array([[9, 9, 9, 9]], np.float32)
    dst = machine.tile(old)
    machine.execute(TensorCopyPredicated(dst, 9.0 if number else machine.tile(new), machine.tile(mask), reverse))
    np.testing.assert_array_equal(machine.values(dst), np.where((mask != 0) != reverse, new, old))


def test_predicated_refuses(machine):
    tile, mask = machine.empty((4, 4), "float32"), machine.empty((4, 4), "uint8")
    psum, psum_mask = (machine.empty((4, 4), dtype, space=Space.PSUM) for dtype in ("float32", "uint8"))
    TensorCopyPredicated(tile, psum, mask).check(TRN2)
    with pytest.raises(ConstraintFault, match="both in PSUM"):
        TensorCopyPredicated(tile, psum, psum_mask).check(TRN2)
    with pytest.raises(ConstraintFault, match="dtype differs"):
        TensorCopyPredicated(tile, machine.empty((4, 4), "bfloat16"), mask).check(TRN2)
    with pytest.raises(ConstraintFault, match="dtype float32"):
        TensorCopyPredicated(tile, tile, tile).check(TRN2)


@pytest.mark.parametrize(
    ("dtype", "value", "want"),
    [("float32", 1.5, 1.5), ("bfloat16", 1e9, 998244352.0), ("int8", -3, -3), ("uint32", 7, 7)],
)
def test_memset(machine, dtype, value, want):
    dst = machine.empty((4, 3), dtype)
    machine.execute(Memset(dst, value))
    assert (machine.values(dst) == want).all()


def test_memset_of_packed_numbers_is_zero(machine):
    dst = machine.empty((4, 3), "float8_e4m3fn_x4")
    machine.store_raw(dst, np.ones((4, 3), np.uint32))
    machine.execute(Memset(dst, 0))
    assert not machine.raw(dst).any()
    with pytest.raises(ConstraintFault, match="packed dtype cannot be filled"):
        Memset(dst, 1).check(TRN2)


def test_memset_refuses(machine):
    psum = machine.empty((4, 4), "int32", space=Space.PSUM)
    Memset(psum, 1).check(TRN2)
    with pytest.raises(ConstraintFault, match="takes an integer"):
        Memset(psum, 1.5).check(TRN2)
    with pytest.raises(ConstraintFault, match="cannot access PSUM"):
        Memset(psum, 1, Engine.gpsimd).check(TRN2)
    with pytest.raises(ConstraintFault, match="cannot fill memory"):
        Memset(psum, 1, Engine.scalar).check(TRN2)


def test_shuffle_in_every_quadrant(machine):
    values = np.arange(128 * 2, dtype=np.float32).reshape(128, 2)
    mask = [(7 * i + 3) % 32 for i in range(32)]
    dst = machine.empty((128, 2), "float32")
    machine.execute(StreamShuffle(dst, machine.tile(values), tuple(mask)))
    want = values.reshape(4, 32, 2)[:, mask].reshape(128, 2)
    np.testing.assert_array_equal(machine.values(dst), want)


def test_shuffle_keeps_and_works_in_place(machine):
    values = np.arange(32, dtype=np.int32)[:, None]
    tile = machine.tile(values)
    machine.execute(StreamShuffle(tile, tile, (255, 0, *([255] * 30))))
    assert machine.raw(tile)[:, 0].tolist() == [0, 0, *range(2, 32)]


def test_shuffle_spreads_one_partition(machine):
    row = np.arange(5, dtype=np.float32)[None]
    dst = machine.empty((32, 5), "float32")
    machine.execute(StreamShuffle(dst, machine.tile(row), (0,) * 32))
    assert (machine.values(dst) == row).all()
    four = np.arange(128, dtype=np.float32).reshape(128, 1)
    every = machine.empty((128, 1), "float32")
    machine.execute(StreamShuffle(every, machine.tile(four), (0,) * 32))
    assert machine.values(every)[:, 0].tolist() == np.repeat([0, 32, 64, 96], 32).tolist()


def test_shuffle_keeps_what_src_does_not_have(machine):
    dst = machine.tile(np.full((32, 1), 7, np.float32))
    machine.execute(StreamShuffle(dst, machine.tile(np.array([[1], [2]], np.float32)), (1, 0, *([255] * 30))))
    assert machine.values(dst)[:, 0].tolist() == [2, 1, *([7] * 30)]


def test_shuffle_refuses(machine):
    tile = machine.empty((32, 2), "float32")
    StreamShuffle(tile, tile, tuple(range(32))).check(TRN2)
    for mask, message in ((tuple(range(31)), "31 entries"), ((32, *range(31)), "holds 32")):
        with pytest.raises(ConstraintFault, match=message):
            StreamShuffle(tile, tile, mask).check(TRN2)
    with pytest.raises(ConstraintFault, match="dtype differs"):
        StreamShuffle(tile, machine.empty((32, 2), "int32"), tuple(range(32))).check(TRN2)
    with pytest.raises(ConstraintFault, match="has 3 elements"):
        StreamShuffle(tile, machine.empty((32, 3), "float32"), tuple(range(32))).check(TRN2)
    few = machine.tile(np.zeros((16, 1), np.float32))
    with pytest.raises(ConstraintFault, match="names partition 31"):
        machine.execute(StreamShuffle(few, few, tuple(range(31, -1, -1))))


def test_transpose_of_a_block(machine):
    values = np.arange(32 * 6, dtype=np.uint16).reshape(32, 2, 3)
    dst = machine.empty((6, 32), "uint16")
    machine.execute(VectorTranspose(dst, machine.tile(values)))
    np.testing.assert_array_equal(machine.raw(dst), values.reshape(32, 6).T)
    with pytest.raises(ConstraintFault, match="too large"):
        VectorTranspose(machine.empty((33, 32), "uint16"), machine.empty((32, 33), "uint16")).check(TRN2)
    with pytest.raises(ConstraintFault, match="does not hold the transpose"):
        VectorTranspose(machine.empty((6, 31), "uint16"), machine.empty((32, 6), "uint16")).check(TRN2)
    with pytest.raises(ConstraintFault, match="dtype differs"):
        VectorTranspose(machine.empty((6, 32), "int16"), machine.empty((32, 6), "uint16")).check(TRN2)
