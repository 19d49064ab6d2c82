"""tensor_reduce over trailing dimensions."""

import numpy as np
import pytest

from isa.alu import ALU_OPS
from isa.faults import ConstraintFault
from isa.target import TRN2
from isa.vector_reduce import TensorReduce
from tests.isa.reference_machine import ReferenceMachine

X = np.random.default_rng(0).standard_normal((8, 3, 4, 5)).astype(np.float32)


@pytest.fixture
def machine():
    return ReferenceMachine(TRN2)


@pytest.mark.parametrize(
    ("op", "function"), [("add", np.sum), ("multiply", np.prod), ("maximum", np.max), ("minimum", np.min)]
)
@pytest.mark.parametrize("axis", [3, -1, (2, 3), (1, 2, 3)])
@pytest.mark.parametrize("negate", [False, True])
def test_reduce(machine, op, function, axis, negate):
    want = function(X, axis=axis)
    dst = machine.empty((8, want.size // 8), "float32")
    machine.execute(TensorReduce(dst, ALU_OPS[op], machine.tile(X), axis, negate))
    want = (-want if negate else want).reshape(8, -1)
    np.testing.assert_allclose(machine.values(dst), want, rtol=1e-5, atol=1e-5)


def test_subtract_takes_the_rest_from_the_first(machine):
    dst = machine.empty((1, 1), "float32")
    machine.execute(TensorReduce(dst, ALU_OPS["subtract"], machine.tile(np.array([[10, 1, 2, 3]], np.float32)), 1))
    assert machine.values(dst)[0, 0] == 4


def test_bits_and_logic(machine):
    bits = np.array([[0b1100, 0b1010]], np.uint8)
    dst = machine.empty((1, 1), "uint8")
    for op, want in (("bitwise_and", 0b1000), ("bitwise_or", 0b1110), ("bitwise_xor", 0b0110)):
        machine.execute(TensorReduce(dst, ALU_OPS[op], machine.tile(bits), 1))
        assert machine.raw(dst)[0, 0] == want
    out = machine.empty((1, 1), "float32")
    for op, want in (("logical_and", 0), ("logical_or", 1), ("logical_xor", 1)):
        machine.execute(TensorReduce(out, ALU_OPS[op], machine.tile(np.array([[1, 0, 0]], np.float32)), 1))
        assert machine.values(out)[0, 0] == want


@pytest.mark.parametrize("axis", [0, 1, (1, 2), (1, 3), ()])
def test_axes_that_do_not_trail(machine, axis):
    with pytest.raises(ConstraintFault, match="cannot be reduced over axis"):
        TensorReduce(machine.empty((8, 12), "float32"), ALU_OPS["add"], machine.tile(X), axis).check(TRN2)


def test_refused(machine):
    data = machine.tile(X)
    TensorReduce(machine.empty((8, 12), "float32"), ALU_OPS["add"], data, 3).check(TRN2)
    with pytest.raises(ConstraintFault, match="does not hold data"):
        TensorReduce(machine.empty((8, 11), "float32"), ALU_OPS["add"], data, 3).check(TRN2)
    with pytest.raises(ConstraintFault, match="cannot reduce"):
        TensorReduce(machine.empty((8, 12), "float32"), ALU_OPS["power"], data, 3).check(TRN2)
    with pytest.raises(ConstraintFault, match="needs integers"):
        TensorReduce(machine.empty((8, 12), "float32"), ALU_OPS["bitwise_and"], data, 3).check(TRN2)
