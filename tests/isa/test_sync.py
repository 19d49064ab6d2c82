"""Registers and the control instructions of dynamic loops."""

from __future__ import annotations

import numpy as np
import pytest

from isa.alu import alu_op
from isa.engine import Engine
from isa.faults import ConstraintFault
from isa.operands import Space
from isa.sync import CompareBranch, RegisterAdd, RegisterLoad, RegisterMove, RegisterStore
from isa.target import TRN2
from isa.work import WorkFlag, WorkKind
from tests.isa.reference_machine import ReferenceMachine


@pytest.fixture
def machine() -> ReferenceMachine:
    return ReferenceMachine(TRN2)


def test_move(machine: ReferenceMachine) -> None:
    first, second = machine.register(1), machine.register(2)
    machine.execute(RegisterMove(first, -5))
    machine.execute(RegisterMove(second, first))
    assert machine.registers[1] == machine.registers[2] == -5
    machine.execute(RegisterMove(first, 0xFFFFFFFF))
    assert machine.registers[1] == -1


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (-3, "int32", -3),
        (2**32 - 1, "uint32", -1),
        (-3, "int16", -3),
        (65533, "uint16", 65533),
        (-3, "int8", -3),
        (253, "uint8", 253),
        (1.0, "float32", 0x3F800000),
        (-2.0, "bfloat16", 0xC000),
    ],
)
@pytest.mark.parametrize("space", [Space.SBUF, Space.HBM])
def test_load(machine: ReferenceMachine, value: float, dtype: str, expected: int, space: Space) -> None:
    shape = (1, 1) if space is Space.SBUF else (1,)
    array = np.full(shape, value, np.dtype(dtype) if dtype != "bfloat16" else np.float32)
    register = machine.register(4)
    machine.execute(RegisterLoad(register, machine.tile(array, dtype, space=space)))
    assert machine.registers[4] == expected


@pytest.mark.parametrize(("dtype", "expected"), [("int32", -2), ("uint32", 2**32 - 2), ("int16", -2), ("uint8", 254)])
@pytest.mark.parametrize("space", [Space.SBUF, Space.HBM])
def test_store_writes_low_bits(machine: ReferenceMachine, dtype: str, expected: int, space: Space) -> None:
    dst = machine.empty((1, 1), dtype, space=space)
    machine.execute(RegisterStore(dst, machine.register(0, -2)))
    assert machine.values(dst).ravel().tolist() == [expected]


def test_add_wraps(machine: ReferenceMachine) -> None:
    counter, step = machine.register(0, 2**31 - 2), machine.register(1, 3)
    machine.execute(RegisterAdd(counter, 1))
    assert machine.registers[0] == 2**31 - 1
    machine.execute(RegisterAdd(counter, step))
    assert machine.registers[0] == -(2**31) + 2


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("less", (True, False, False)),
        ("less_equal", (True, True, False)),
        ("equal", (False, True, False)),
        ("not_equal", (True, False, True)),
        ("greater", (False, False, True)),
        ("greater_equal", (False, True, True)),
    ],
)
def test_branch_compares_signed(machine: ReferenceMachine, name: str, outcomes: tuple[bool, ...]) -> None:
    bound = machine.register(9, -1)
    for value, outcome in zip((-2, -1, 0), outcomes, strict=True):
        counter = machine.register(8, value)
        ins = CompareBranch(counter, alu_op(name), bound)
        machine.execute(ins)
        assert ins.taken(machine) is outcome
        assert CompareBranch(counter, alu_op(name), -1).taken(machine) is outcome


def test_a_counted_loop(machine: ReferenceMachine) -> None:
    counter, bound, body = machine.register(0), machine.register(1, 7), []
    machine.execute(RegisterMove(counter, 1))
    branch = CompareBranch(counter, alu_op("less"), bound)
    while branch.taken(machine):
        body.append(machine.read_register(counter))
        machine.execute(RegisterAdd(counter, 2))
        machine.execute(branch)
    assert body == [1, 3, 5]


def test_control_work_and_engine(machine: ReferenceMachine) -> None:
    register, word = machine.register(0), machine.empty((1,), "int32", space=Space.HBM)
    add = RegisterAdd(register, 1, Engine.vector)
    assert add.select_engine(TRN2) is Engine.vector
    assert RegisterMove(register, 1).select_engine(TRN2) is Engine.sync
    assert add.work(TRN2).kind is WorkKind.CONTROL
    assert RegisterLoad(register, word).work(TRN2).flags == WorkFlag.HBM_READ
    assert RegisterStore(word, register).work(TRN2).flags == WorkFlag.HBM_WRITE


def test_refusals(machine: ReferenceMachine) -> None:
    register = machine.register(0)
    pair, word = machine.tile(np.zeros((1, 2), np.int32)), machine.tile(np.zeros((1, 1), np.int32))
    for ins, message in (
        (RegisterMove(word, 1), "must be in REGISTER"),
        (RegisterMove(register, word), "must be in REGISTER"),
        (RegisterMove(register, 2**32), "limit: 32-bit integers"),
        (RegisterMove(register, 1.5), "limit: 32-bit integers"),
        (RegisterAdd(register, -(2**31) - 1), "limit: 32-bit integers"),
        (RegisterAdd(register, 1, Engine.dma), "engine dma has no sequencer"),
        (CompareBranch(register, alu_op("less"), 1, Engine.unknown), "engine unknown has no sequencer"),
        (CompareBranch(register, alu_op("add"), 1), "does not compare"),
        (CompareBranch(register, alu_op("less"), 2**40), "limit: 32-bit integers"),
        (RegisterLoad(register, pair), "exactly one element"),
        (RegisterStore(pair, register), "exactly one element"),
        (RegisterLoad(register, machine.empty((1, 1), "int32", space=Space.PSUM)), "must be in HBM or SBUF"),
    ):
        with pytest.raises(ConstraintFault, match=message):
            machine.execute(ins)
    machine.execute(RegisterLoad(register, word))
    machine.execute(RegisterStore(word, register))
