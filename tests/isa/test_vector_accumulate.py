"""Instructions that keep sums and maxima in the Vector Engine's registers."""

import numpy as np
import pytest

from isa.alu import ALU_OPS
from isa.engine import Engine
from isa.enums import ReduceCmd
from isa.faults import ConstraintFault
from isa.operands import Space
from isa.target import TRN1, TRN2, TRN3
from isa.vector_accumulate import (
    FP32_MIN,
    Exponential,
    RangeSelect,
    SelectReduce,
    TensorScalarCumulative,
    TensorScalarReduce,
)
from tests.isa.reference_machine import ReferenceMachine

ADD, MULTIPLY, MAXIMUM, MINIMUM = (ALU_OPS[name] for name in ("add", "multiply", "maximum", "minimum"))
X = np.random.default_rng(0).standard_normal((8, 24)).astype(np.float32)


@pytest.fixture
def machine():
    return ReferenceMachine(TRN3)


def registers(machine, count=8):
    return machine.accumulator(Engine.vector)[:count]


# --- tensor_scalar_reduce ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "reduce"), [("add", np.sum), ("multiply", np.prod), ("maximum", np.max), ("minimum", np.min)]
)
def test_tensor_scalar_reduce(machine, op, reduce):
    dst, result = machine.empty(X.shape, "float32"), machine.empty((8, 1), "float32")
    machine.execute(TensorScalarReduce(dst, machine.tile(X), MULTIPLY, 2.0, ALU_OPS[op], result))
    np.testing.assert_array_equal(machine.values(dst), X * 2)
    np.testing.assert_allclose(machine.values(result)[:, 0], reduce(X * 2, axis=1), rtol=1e-4)


def test_registers_go_on_and_are_negated_only_outside(machine):
    data, dst, result = machine.tile(X), machine.empty(X.shape, "float32"), machine.empty((8, 1), "float32")
    machine.execute(TensorScalarReduce(dst, data, ADD, 0.0, MAXIMUM))
    machine.execute(
        TensorScalarReduce(dst, data, ADD, 5.0, MAXIMUM, result, reduce_cmd=ReduceCmd.reduce, reduce_res_negate=True)
    )
    np.testing.assert_array_equal(machine.values(result)[:, 0], -(X + 5).max(1))
    np.testing.assert_array_equal(registers(machine), (X + 5).max(1))


def test_load_reduce_starts_from_a_value(machine):
    dst, result = machine.empty(X.shape, "float32"), machine.empty((8, 1), "float32")
    start = machine.tile(np.full((8, 1), 100, np.float32))
    machine.execute(
        TensorScalarReduce(
            dst, machine.tile(X), ADD, 0.0, MAXIMUM, result, reduce_cmd=ReduceCmd.load_reduce, reduce_init=start
        )
    )
    assert (machine.values(result) == 100).all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"op0": ALU_OPS["bitwise_or"]}, "bitwise"),
        ({"reduce_op": ALU_OPS["subtract"]}, "reduce_op subtract"),
        ({"reverse0": True}, "reverse0"),
        ({"reduce_cmd": ReduceCmd.idle}, "reduce_cmd idle"),
        ({"reduce_init": 1.0}, "reduce_init"),
        ({"operand0": None}, "needs operand0"),
    ],
)
def test_tensor_scalar_reduce_refuses(machine, changed, message):
    tile = machine.empty((8, 4), "float32")
    legal = {"dst": tile, "data": tile, "op0": ADD, "operand0": 1.0, "reduce_op": ADD}
    TensorScalarReduce(**legal).check(TRN2)
    with pytest.raises(ConstraintFault, match=message):
        TensorScalarReduce(**(legal | changed)).check(TRN2)


# --- tensor_scalar_cumulative -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op1", "running"), [("add", np.cumsum), ("maximum", np.maximum.accumulate), ("multiply", np.cumprod)]
)
def test_tensor_scalar_cumulative(machine, op1, running):
    dst = machine.empty(X.shape, "float32")
    machine.execute(TensorScalarCumulative(dst, machine.tile(X), MULTIPLY, ALU_OPS[op1], 0.5))
    np.testing.assert_allclose(machine.values(dst), running(X * np.float32(0.5), axis=1), rtol=1e-4, atol=1e-30)
    np.testing.assert_array_equal(registers(machine), machine.values(dst)[:, -1])


def test_cumulative_goes_on_or_starts_from_a_value(machine):
    dst, ones = machine.empty((8, 4), "float32"), machine.tile(np.ones((8, 4), np.float32))
    machine.execute(TensorScalarCumulative(dst, ones, MULTIPLY, ADD, 1.0, imm1=10.0, reduce_cmd=ReduceCmd.load_reduce))
    assert machine.values(dst)[0].tolist() == [11, 12, 13, 14]
    machine.execute(TensorScalarCumulative(dst, ones, MULTIPLY, ADD, 2.0, reduce_cmd=ReduceCmd.reduce))
    assert machine.values(dst)[0].tolist() == [16, 18, 20, 22]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"op1": ALU_OPS["equal"]}, "cannot accumulate"),
        ({"op0": ALU_OPS["bitwise_and"]}, "bitwise_and"),
        ({"imm1": 1.0}, "imm1"),
        ({"reduce_cmd": ReduceCmd.idle}, "reduce_cmd idle"),
    ],
)
def test_cumulative_refuses(machine, changed, message):
    tile = machine.empty((8, 4), "float32")
    legal = {"dst": tile, "src": tile, "op0": ADD, "op1": ADD, "imm0": 1.0}
    TensorScalarCumulative(**legal).check(TRN2)
    with pytest.raises(ConstraintFault, match=message):
        TensorScalarCumulative(**(legal | changed)).check(TRN2)
    integers = machine.empty((8, 4), "int32")
    with pytest.raises(ConstraintFault, match="32-bit integers"):
        TensorScalarCumulative(**(legal | {"src": integers})).check(TRN2)


# --- range_select -----------------------------------------------------------------------------------


def bounds(machine, low, high):
    return (machine.tile(np.full((8, 1), value, np.float32)) for value in (low, high))


def test_range_select_keeps_a_window(machine):
    dst, result = machine.empty(X.shape, "float32"), machine.empty((8, 1), "float32")
    low, high = bounds(machine, 105, 110)
    machine.execute(
        RangeSelect(
            dst,
            machine.tile(X),
            ALU_OPS["greater_equal"],
            ALU_OPS["less"],
            low,
            high,
            reduce_res=result,
            range_start=100,
        )
    )
    want = np.full(X.shape, FP32_MIN, np.float32)
    want[:, 5:10] = X[:, 5:10]
    np.testing.assert_array_equal(machine.values(dst), want)
    np.testing.assert_array_equal(machine.values(result)[:, 0], want.max(1))


def test_range_select_in_16_bits_gives_minus_infinity(machine):
    dst = machine.empty(X.shape, "bfloat16")
    low, high = bounds(machine, 0, 0)
    machine.execute(RangeSelect(dst, machine.tile(X), ALU_OPS["greater"], ALU_OPS["less"], low, high))
    assert (machine.values(dst) == -np.inf).all()


def test_range_select_refuses(machine):
    tile, (low, high) = machine.empty((8, 4), "float32"), bounds(machine, 0, 1)
    less, equal = ALU_OPS["less"], ALU_OPS["equal"]
    RangeSelect(tile, tile, less, equal, low, high).check(TRN2)
    with pytest.raises(ConstraintFault, match="does not exist on this generation"):
        RangeSelect(tile, tile, less, equal, low, high).check(TRN1)
    with pytest.raises(ConstraintFault, match="does not compare"):
        RangeSelect(tile, tile, ADD, equal, low, high).check(TRN2)
    with pytest.raises(ConstraintFault, match="on_false_value"):
        RangeSelect(tile, tile, less, equal, low, high, on_false_value=0.0).check(TRN2)
    with pytest.raises(ConstraintFault, match="reduce_op add"):
        RangeSelect(tile, tile, less, equal, low, high, reduce_op=ADD).check(TRN2)
    with pytest.raises(ConstraintFault, match="indices reach"):
        RangeSelect(tile, tile, less, equal, low, high, range_start=2**24).check(TRN2)


# --- select_reduce ----------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
def test_select_reduce(machine, reverse):
    mask = (X > 0).astype(np.uint8)
    dst, result = machine.empty(X.shape, "float32"), machine.empty((8, 1), "float32")
    machine.execute(
        SelectReduce(
            dst,
            machine.tile(mask),
            machine.tile(X),
            -7.0,
            result,
            reduce_cmd=ReduceCmd.reset_reduce,
            reverse_pred=reverse,
        )
    )
    want = np.where(mask if not reverse else 1 - mask, X, -7)
    np.testing.assert_array_equal(machine.values(dst), want)
    np.testing.assert_array_equal(machine.values(result)[:, 0], want.max(1))


def test_select_reduce_of_two_tiles_and_bits(machine):
    mask, other = np.tile(np.array([0, 5], np.int16), (8, 12)), np.arange(8, dtype=np.float32)[:, None]
    dst = machine.empty(X.shape, "float32")
    source = X.copy()
    source.view(np.uint32)[:, 1::2] = 0x7FC01234  # a NaN with a payload
    machine.execute(SelectReduce(dst, machine.tile(mask), machine.tile(source), machine.tile(other)))
    found = machine.raw(dst)
    assert (found.view(np.uint32)[:, 1::2] == 0x7FC01234).all()
    assert (found[:, ::2] == other).all()


def test_select_reduce_refuses(machine):
    tile, mask = machine.empty((8, 4), "float32"), machine.empty((8, 4), "uint8")
    psum, psum_mask = (machine.empty((8, 4), dtype, space=Space.PSUM) for dtype in ("float32", "uint8"))
    SelectReduce(tile, mask, psum, 0.0).check(TRN2)
    with pytest.raises(ConstraintFault, match="both in PSUM"):
        SelectReduce(tile, psum_mask, psum, 0.0).check(TRN2)
    with pytest.raises(ConstraintFault, match="reduce_op add"):
        SelectReduce(tile, mask, tile, 0.0, reduce_op=ADD).check(TRN2)
    with pytest.raises(ConstraintFault, match="reduce_cmd load_reduce"):
        SelectReduce(tile, mask, tile, 0.0, reduce_cmd=ReduceCmd.load_reduce).check(TRN2)
    with pytest.raises(ConstraintFault, match="dtype int32"):
        SelectReduce(tile, mask, machine.empty((8, 4), "int32"), 0.0).check(TRN2)


# --- exponential ------------------------------------------------------------------------------------


def test_exponential_is_a_softmax_in_one(machine):
    peak = machine.tile(X.max(1, keepdims=True))
    dst, total = machine.empty(X.shape, "float32"), machine.empty((8, 1), "float32")
    machine.execute(Exponential(dst, machine.tile(X), peak, total, ReduceCmd.reset_reduce))
    want = np.exp(X.astype(np.float64) - X.max(1, keepdims=True))
    np.testing.assert_allclose(machine.values(dst), want, rtol=1e-6)
    np.testing.assert_allclose(machine.values(total)[:, 0], want.sum(1), rtol=1e-5)
    machine.execute(Exponential(dst, machine.tile(X), peak, total, ReduceCmd.reduce))
    np.testing.assert_allclose(machine.values(total)[:, 0], 2 * want.sum(1), rtol=1e-5)
    machine.execute(Exponential(dst, machine.tile(X), peak, total, ReduceCmd.load_reduce, 3.0))
    np.testing.assert_allclose(machine.values(total)[:, 0], 3 + want.sum(1), rtol=1e-5)


def test_exponential_refuses(machine):
    tile, narrow = machine.empty((8, 4), "float32"), machine.empty((8, 1), "bfloat16")
    Exponential(tile, tile).check(TRN3)
    with pytest.raises(ConstraintFault, match="does not exist on this generation"):
        Exponential(tile, tile).check(TRN2)
    with pytest.raises(ConstraintFault, match="must be float32"):
        Exponential(tile, tile, narrow).check(TRN3)
    with pytest.raises(ConstraintFault, match="reduce_init"):
        Exponential(tile, tile, reduce_init=1.0).check(TRN3)


def test_idle_leaves_nothing_to_rely_on(machine):
    dst, data = machine.empty(X.shape, "float32"), machine.tile(X)
    machine.execute(TensorScalarReduce(dst, data, ADD, 0.0, ADD))
    machine.execute(Exponential(dst, data))
    assert np.isnan(registers(machine)).all()
