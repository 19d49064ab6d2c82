"""tensor_tensor_scan against a loop in float32."""

import numpy as np
import pytest

from isa.alu import ALU_OPS
from isa.faults import ConstraintFault
from isa.operands import Space
from isa.target import TRN2
from isa.vector_scan import TensorTensorScan
from tests.isa.reference_machine import ReferenceMachine

PLAIN = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


@pytest.fixture
def machine():
    return ReferenceMachine(TRN2)


def scanned(data0, data1, initial, op0, op1, reverse0=False, reverse1=False):
    state = np.broadcast_to(np.float32(initial), (len(data0), 1))[:, 0].astype(np.float32)
    out = np.empty(data0.shape, np.float32)
    for i in range(data0.shape[1]):
        first = (state, data0[:, i]) if reverse0 else (data0[:, i], state)
        middle = PLAIN[op0](*first).astype(np.float32)
        second = (data1[:, i], middle) if reverse1 else (middle, data1[:, i])
        state = PLAIN[op1](*second).astype(np.float32)
        out[:, i] = state
    return out


@pytest.mark.parametrize(
    ("op0", "op1"), [("multiply", "add"), ("add", "maximum"), ("subtract", "minimum"), ("add", "subtract")]
)
@pytest.mark.parametrize("reverse", [(False, False), (True, False), (False, True)])
def test_scan(machine, op0, op1, reverse):
    rng = np.random.default_rng(0)
    data0, data1 = (rng.standard_normal((16, 40)).astype(np.float32) for _ in range(2))
    dst = machine.empty((16, 40), "float32")
    machine.execute(
        TensorTensorScan(dst, machine.tile(data0), machine.tile(data1), 0.5, ALU_OPS[op0], ALU_OPS[op1], *reverse)
    )
    np.testing.assert_array_equal(machine.values(dst), scanned(data0, data1, 0.5, op0, op1, *reverse))


def test_state_starts_from_a_column_and_is_not_rounded(machine):
    data0, data1 = np.ones((4, 300), np.float32), np.full((4, 300), 1e-3, np.float32)
    start = np.arange(4, dtype=np.float32)[:, None]
    dst = machine.empty((4, 300), "bfloat16")
    machine.execute(
        TensorTensorScan(
            dst, machine.tile(data0), machine.tile(data1), machine.tile(start), ALU_OPS["multiply"], ALU_OPS["add"]
        )
    )
    np.testing.assert_allclose(machine.values(dst)[:, -1], start[:, 0] + 0.3, rtol=2**-8)


def test_limits(machine):
    tile, psum = machine.empty((4, 8), "float32"), machine.empty((4, 8), "float32", space=Space.PSUM)
    add = ALU_OPS["add"]
    TensorTensorScan(tile, psum, tile, 0.0, add, add).check(TRN2)
    with pytest.raises(ConstraintFault, match="both inputs are in PSUM"):
        TensorTensorScan(tile, psum, psum, 0.0, add, add).check(TRN2)
    with pytest.raises(ConstraintFault, match="cannot scan"):
        TensorTensorScan(tile, tile, tile, 0.0, ALU_OPS["bitwise_and"], add).check(TRN2)
