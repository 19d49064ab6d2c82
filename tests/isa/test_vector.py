"""Element-wise arithmetic of the Vector Engine: one rounding, integers, engines, limits."""

import numpy as np
import pytest

from isa import dtypes
from isa.alu import ALU_OPS
from isa.engine import Engine
from isa.faults import ConstraintFault
from isa.operands import Space
from isa.target import TRN1, TRN2, TRN3
from isa.vector import Reciprocal, ScalarTensorTensor, TensorScalar, TensorTensor
from tests.isa.reference_machine import ReferenceMachine

OPS = ALU_OPS
RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal((16, 24)).astype(np.float32) for _ in range(2))


@pytest.fixture
def machine():
    return ReferenceMachine(TRN2)


# --- tensor_tensor ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "function"),
    [("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply), ("maximum", np.maximum),
     ("minimum", np.minimum), ("greater", np.greater), ("equal", np.equal)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_tensor_tensor_rounds_once(machine, op, function, dtype):
    left, right, dst = machine.tile(X, dtype), machine.tile(Y, dtype), machine.empty(X.shape, dtype)
    machine.execute(TensorTensor(dst, left, right, OPS[op]))
    exact = function(machine.load(left), machine.load(right)).astype(np.float32)
    np.testing.assert_array_equal(machine.load(dst), dtypes.round_to(exact, dtypes.dtype(dtype)))


@pytest.mark.parametrize(
    ("op", "function"),
    [("bitwise_and", np.bitwise_and), ("bitwise_or", np.bitwise_or), ("bitwise_xor", np.bitwise_xor)],
)
def test_tensor_tensor_on_bits(machine, op, function):
    left, right = (RNG.integers(0, 2**32, (4, 8), dtype=np.uint32) for _ in range(2))
    dst = machine.empty((4, 8), "uint32")
    machine.execute(TensorTensor(dst, machine.tile(left), machine.tile(right), OPS[op]))
    np.testing.assert_array_equal(machine.raw(dst), function(left, right))
    with pytest.raises(ConstraintFault, match="is no integer"):
        TensorTensor(dst, machine.tile(X[:4, :8]), machine.tile(right), OPS[op]).check(TRN2)


def test_integers_are_exact_on_gpsimd_and_lose_bits_on_vector(machine):
    left = machine.tile(np.array([[2**24 + 1, 2**31 - 1, -5]], np.int32))
    right = machine.tile(np.array([[1, 1, 3]], np.int32))
    dst = machine.empty((1, 3), "int32")
    ins = TensorTensor(dst, left, right, OPS["add"])
    assert ins.select_engine(TRN2) is Engine.gpsimd
    machine.execute(ins)
    assert machine.raw(dst)[0].tolist() == [2**24 + 2, -(2**31), -2]
    machine.execute(TensorTensor(dst, left, right, OPS["multiply"], Engine.vector))
    assert machine.raw(dst)[0].tolist() == [2**24, 2**31 - 1, -15]


def test_power_is_gpsimd_s(machine):
    base, exponent = machine.tile(np.array([[2, 3, 9]], np.float32)), machine.tile(np.array([[10, 2, 0.5]], np.float32))
    dst = machine.empty((1, 3), "float32")
    ins = TensorTensor(dst, base, exponent, OPS["power"])
    assert ins.select_engine(TRN2) is Engine.gpsimd
    machine.execute(ins)
    np.testing.assert_allclose(machine.values(dst)[0], [1024, 9, 3], rtol=1e-6)
    with pytest.raises(ConstraintFault, match="op is power"):
        TensorTensor(dst, base, exponent, OPS["power"], Engine.vector).check(TRN2)


def test_tensor_tensor_refuses(machine):
    tile, psum = machine.empty((4, 4), "float32"), machine.empty((4, 4), "float32", space=Space.PSUM)
    TensorTensor(psum, psum, tile, OPS["add"]).check(TRN2)
    for ins, message in (
        (TensorTensor(tile, psum, psum, OPS["add"]), "is in PSUM, as 'data1' is"),
        (TensorTensor(tile, psum, tile, OPS["add"], Engine.gpsimd), "GpSimd Engine does not reach"),
        (TensorTensor(tile, tile, tile, OPS["rsqrt"]), "takes one input"),
        (TensorTensor(tile, tile, tile, OPS["add"], Engine.scalar), "does not have this instruction"),
        (TensorTensor(tile, tile, machine.empty((4, 5), "float32"), OPS["add"]), "has 5 elements"),
        (TensorTensor(tile, tile, machine.empty((3, 4), "float32"), OPS["add"]), "has 3 partitions"),
    ):
        with pytest.raises(ConstraintFault, match=message):
            ins.check(TRN2)


def test_by_magnitude_on_v4_ties_to_the_second():
    machine = ReferenceMachine(TRN3)
    left, right = machine.tile(np.array([[-3, 1, -2]], np.float32)), machine.tile(np.array([[2, -4, 2]], np.float32))
    dst = machine.empty((1, 3), "float32")
    machine.execute(TensorTensor(dst, left, right, OPS["abs_max"]))
    assert machine.values(dst)[0].tolist() == [-3, -4, 2]
    machine.execute(TensorTensor(dst, left, right, OPS["abs_min"]))
    assert machine.values(dst)[0].tolist() == [2, 1, 2]
    with pytest.raises(ConstraintFault, match="does not exist on this generation"):
        TensorTensor(dst, left, right, OPS["abs_max"]).check(TRN2)


# --- tensor_scalar ----------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
def test_two_stages_with_one_rounding(machine, reverse0, reverse1):
    column = machine.tile(Y[:, :1])
    dst = machine.empty(X.shape, "bfloat16")
    machine.execute(
        TensorScalar(dst, machine.tile(X), OPS["subtract"], column, reverse0, OPS["subtract"], 0.3, reverse1)
    )
    first = Y[:, :1] - X if reverse0 else X - Y[:, :1]
    second = np.float32(0.3) - first if reverse1 else first - np.float32(0.3)
    np.testing.assert_array_equal(machine.values(dst), dtypes.round_to(second, dtypes.bfloat16))


def test_shifts_of_bits(machine):
    values = RNG.integers(0, 2**32, (2, 8), dtype=np.uint32)
    dst = machine.empty((2, 8), "uint32")
    machine.execute(
        TensorScalar(dst, machine.tile(values), OPS["right_shift"], 5, op1=OPS["bitwise_and"], operand1=0xFF)
    )
    np.testing.assert_array_equal(machine.raw(dst), values >> 5 & 0xFF)


def test_exact_address_arithmetic(machine):
    data, dst = machine.tile(np.array([[2**24 + 1, 7]], np.int32)), machine.empty((1, 2), "int32")
    machine.execute(TensorScalar(dst, data, OPS["multiply"], 3, op1=OPS["add"], operand1=1))
    assert machine.raw(dst)[0].tolist() == [3 * (2**24 + 1) + 1, 22]
    machine.execute(TensorScalar(dst, data, OPS["multiply"], 1.0))
    assert machine.raw(dst)[0].tolist() == [2**24, 7]


def test_rsqrt_is_gpsimd_s(machine):
    dst, data = machine.empty((1, 2), "float32"), machine.tile(np.array([[4, 0.25]], np.float32))
    ins = TensorScalar(dst, data, OPS["rsqrt"], None)
    assert ins.select_engine(TRN2) is Engine.gpsimd
    machine.execute(ins)
    np.testing.assert_allclose(machine.values(dst)[0], [0.5, 2], rtol=1e-6)
    with pytest.raises(ConstraintFault, match="takes one input"):
        machine.execute(TensorScalar(dst, data, OPS["rsqrt"], 2.0))


@pytest.mark.parametrize(
    ("more", "target", "message"),
    [
        ({"op0": OPS["add"], "operand0": None}, TRN2, "operand0 is None"),
        ({"op1": OPS["bitwise_and"], "operand1": 1}, TRN2, "both operators bitwise"),
        ({"operand1": 1.0}, TRN2, "operand1 without op1"),
        ({"op0": OPS["square"], "operand0": None}, TRN2, "does not exist on this generation"),
        ({"engine": Engine.gpsimd}, TRN2, "rsqrt on engine gpsimd"),
        ({"engine": Engine.scalar}, TRN1, "engine scalar on NeuronCore-v3"),
        ({"engine": Engine.scalar, "op0": OPS["maximum"]}, TRN2, "multiply then add"),
        ({"op0": OPS["bitwise_and"], "operand0": 1}, TRN2, "is no integer"),
    ],
)
def test_tensor_scalar_refuses(machine, more, target, message):
    tile = machine.empty((4, 4), "float32")
    legal = {"dst": tile, "data": tile, "op0": OPS["multiply"], "operand0": 2.0}
    TensorScalar(**legal).check(target)
    with pytest.raises(ConstraintFault) as caught:
        TensorScalar(**(legal | more)).check(target)
    assert message in str(caught.value)


def test_tensor_scalar_on_the_scalar_engine(machine):
    tile = machine.empty((4, 4), "float32")
    TensorScalar(tile, tile, OPS["multiply"], 2.0, op1=OPS["add"], operand1=1.0, engine=Engine.scalar).check(TRN2)
    TensorScalar(tile, tile, OPS["maximum"], 2.0, engine=Engine.scalar).check(TRN3)


def test_operands_are_float32(machine):
    tile, narrow = machine.empty((4, 4), "float32"), machine.empty((4, 1), "bfloat16")
    with pytest.raises(ConstraintFault, match="must be float32"):
        TensorScalar(tile, tile, OPS["add"], narrow).check(TRN2)


# --- scalar_tensor_tensor, reciprocal ---------------------------------------------------------------


@pytest.mark.parametrize(("reverse0", "reverse1"), [(False, False), (True, False), (False, True), (True, True)])
def test_scalar_tensor_tensor(machine, reverse0, reverse1):
    dst = machine.empty(X.shape, "float16")
    machine.execute(
        ScalarTensorTensor(
            dst, machine.tile(X), OPS["subtract"], 0.7, OPS["subtract"], machine.tile(Y), reverse0, reverse1
        )
    )
    first = np.float32(0.7) - X if reverse0 else X - np.float32(0.7)
    second = Y - first if reverse1 else first - Y
    np.testing.assert_array_equal(machine.values(dst), dtypes.round_to(second, dtypes.float16))


def test_scalar_tensor_tensor_refuses(machine):
    tile, psum = machine.empty((4, 4), "float32"), machine.empty((4, 4), "float32", space=Space.PSUM)
    ScalarTensorTensor(tile, psum, OPS["add"], 1.0, OPS["multiply"], tile).check(TRN2)
    with pytest.raises(ConstraintFault, match="is in PSUM, as 'data' is"):
        ScalarTensorTensor(tile, psum, OPS["add"], 1.0, OPS["multiply"], psum).check(TRN2)
    with pytest.raises(ConstraintFault, match="arithmetic operators"):
        ScalarTensorTensor(tile, tile, OPS["bitwise_and"], 1.0, OPS["multiply"], tile).check(TRN2)


def test_reciprocal(machine):
    values = np.array([[3, -0.5, 0, np.inf, 1e-40]], np.float32)
    dst, narrow = machine.empty((1, 5), "float32"), machine.empty((1, 5), "bfloat16")
    machine.execute(Reciprocal(dst, machine.tile(values)))
    with np.errstate(all="ignore"):
        want = np.float32(1) / values
    np.testing.assert_array_equal(machine.values(dst), want)
    machine.execute(Reciprocal(narrow, machine.tile(values)))
    np.testing.assert_array_equal(machine.values(narrow), dtypes.round_to(want, dtypes.bfloat16))
