"""The fast executor against the plain reference machine: same operands, same bits.

Matmul operands are small integers, so that every sum is exact in float32 and the order of additions cannot show.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

from isa import dtypes
from isa.alu import alu_op
from isa.operands import AccessPattern, Space
from isa.target import TRN2, TRN3
from isa.vector import TensorTensor
from trn_sim.machine import Core, Options

sys.path.insert(0, str(Path(__file__).parents[1] / "isa"))
from reference_machine import ReferenceMachine


class Twins:
    """The same tile in both machines."""

    def __init__(self, target=TRN2):
        self.core = Core(Options(target=target))
        self.reference = ReferenceMachine(target)

    def tile(self, values, dtype, space=Space.SBUF):
        storage = self.core.allocate(space, values.shape, dtype)
        pattern = storage.pattern()
        self.core.executor.store(pattern, values)
        mirror = self.reference.tile(values, dtype, space=space)
        return pattern, mirror

    def psum(self, shape, dtype=dtypes.float32):
        storage = self.core.allocate(Space.PSUM, shape, dtype)
        return storage.pattern(), self.reference.empty(shape, dtype, space=Space.PSUM)

    def matmul(self, dst, stationary, moving, accumulate):
        self.core.executor.matmul(dst[0], stationary[0], moving[0], accumulate=accumulate)
        self.reference.matmul(dst[1], stationary[1], moving[1], accumulate=accumulate)

    def assert_equal(self, operand):
        mine = np.array(self.core.executor.load(operand[0]))
        np.testing.assert_array_equal(mine, self.reference.load(operand[1]))


def window(pattern, first, count):
    """Columns [first, first + count) of a dense two-dimensional tile."""
    return AccessPattern(
        pattern.space,
        pattern.dtype,
        pattern.offset + first * pattern.dtype.itemsize,
        ((1, count),),
        start=pattern.start,
        partitions=pattern.partitions,
        storage=pattern.storage,
    )


def integers(rng, *shape):
    return rng.integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize("seed", range(20))
def test_random_matmuls(seed):
    """Groups, overwrites, overlapping windows and reads in random order give the reference's bits."""
    rng = np.random.default_rng(seed)
    twins = Twins()
    stationaries = [twins.tile(integers(rng, 32, 16), dtypes.bfloat16) for _ in range(3)]
    movings = [twins.tile(integers(rng, 32, 64), dtypes.bfloat16) for _ in range(3)]
    tiles = [twins.psum((16, 128)) for _ in range(2)]
    for tile in tiles:  # so that nothing read below is unwritten
        for half in (0, 64):
            part = (window(tile[0], half, 64), window(tile[1], half, 64))
            twins.matmul(part, stationaries[0], movings[0], False)
    for _ in range(40):
        action = rng.random()
        tile = tiles[rng.integers(2)]
        first = int(rng.choice([0, 0, 0, 32, 64]))
        part = (window(tile[0], first, 64), window(tile[1], first, 64))
        if action < 0.75:
            accumulate = [None, None, True, False][rng.integers(4)]
            twins.matmul(part, stationaries[rng.integers(3)], movings[rng.integers(3)], accumulate)
        elif action < 0.9:
            twins.assert_equal(part)
        else:  # a write by another engine resets the tile: the next matmul overwrites it
            values = integers(rng, 16, 64)
            twins.core.executor.store(part[0], values)
            twins.reference.store(part[1], values)
    for tile in tiles:
        twins.assert_equal(tile)


def test_operands_may_change_after_issue():
    rng = np.random.default_rng(0)
    twins = Twins()
    left = twins.tile(integers(rng, 32, 16), dtypes.float32)
    right = twins.tile(integers(rng, 32, 64), dtypes.float32)
    dst = twins.psum((16, 64))
    twins.matmul(dst, left, right, None)
    fresh = integers(rng, 32, 16)
    twins.core.executor.store(left[0], fresh)
    twins.reference.store(left[1], fresh)
    twins.matmul(dst, left, right, None)
    twins.assert_equal(dst)


def test_narrow_psum_is_rounded_at_every_write():
    """bfloat16 PSUM (NeuronCore-v4): 256 + 1 + 1 stays 256 when each sum is rounded, and would be 258 otherwise."""
    twins = Twins(TRN3)
    one = twins.tile(np.ones((1, 1), np.float32), dtypes.float32)
    big = twins.tile(np.full((1, 4), 256, np.float32), dtypes.float32)
    ones = twins.tile(np.ones((1, 4), np.float32), dtypes.float32)
    dst = twins.psum((1, 4), dtypes.bfloat16)
    for moving in (big, ones, ones):
        twins.matmul(dst, one, moving, None)
    np.testing.assert_array_equal(twins.core.executor.load(dst[0]), np.full((1, 4), 256))
    twins.assert_equal(dst)


def test_accumulating_onto_nothing_is_a_fault():
    from isa.faults import UninitializedReadFault

    twins = Twins()
    one = twins.tile(np.ones((1, 1), np.float32), dtypes.float32)
    dst = twins.psum((1, 1))
    with pytest.raises(UninitializedReadFault):
        twins.core.executor.matmul(dst[0], one[0], one[0], accumulate=True)
    twins.core.executor.matmul(dst[0], one[0], one[0], accumulate=False)
    twins.core.executor.matmul(dst[0], one[0], one[0], accumulate=True)
    assert twins.core.executor.load(dst[0]) == 2


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.float16, dtypes.float8_e4m3, dtypes.int32])
@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "greater"])
def test_element_wise(dtype, op):
    rng = np.random.default_rng(1)
    twins = Twins()
    values = [rng.standard_normal((128, 96)).astype(np.float32) * 10 for _ in range(3)]
    if dtype == dtypes.int32:
        values = [np.round(v) for v in values]
    a, b, c = (twins.tile(v, dtype) for v in values)
    twins.core.issue(TensorTensor(dst=c[0], data1=a[0], data2=b[0], op=alu_op(op)))
    twins.reference.execute(TensorTensor(dst=c[1], data1=a[1], data2=b[1], op=alu_op(op)))
    twins.assert_equal(c)


def test_soft_mode_keeps_float32():
    """NKI_PRECISE_FP=0: a third stays a third in a bfloat16 tile; with the default it is rounded."""
    third = np.full((4, 4), 1 / 3, np.float32)
    for precise, expected in ((False, np.float32(1 / 3)), (True, np.float32(0.333984375))):
        core = Core(Options(target=TRN2, precise=precise))
        tile = core.allocate(Space.SBUF, (4, 4), dtypes.bfloat16).pattern()
        core.executor.store(tile, third)
        assert (core.executor.load(tile) == expected).all()
        assert tile.dtype.itemsize == 2  # addresses and sizes stay the chip's


def test_tensors_at_one_address_accumulate_apart():
    """Two PSUM tensors placed at the same address on purpose: the first matmul into the second overwrites."""
    core = Core(Options(target=TRN2))
    one = core.allocate(Space.SBUF, (1, 1), dtypes.float32).pattern()
    core.executor.store(one, np.ones((1, 1), np.float32))
    first, second = (core.allocate(Space.PSUM, (1, 1), dtypes.float32, address=(0, 2048)).pattern() for _ in range(2))
    for tile in (first, first, second):
        core.executor.matmul(tile, one, one, accumulate=None)
    assert core.executor.load(second) == 1
    core.executor.matmul(second, one, one, accumulate=None)
    assert core.executor.load(second) == 2
