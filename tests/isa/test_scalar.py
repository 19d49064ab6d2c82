"""Scalar Engine: scale, bias, registers and limits of the three activation instructions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.activation import ACTIVATIONS, ActivationFunction
from isa.alu import ALU_OPS
from isa.engine import Engine
from isa.enums import ReduceCmd
from isa.faults import ConstraintFault
from isa.instruction import Instruction
from isa.operands import Space
from isa.scalar import Activate2, Activation, ActivationReduce
from isa.target import TRN1, TRN2, TRN3, Target
from isa.work import WorkFlag, WorkKind
from tests.isa.reference_machine import ReferenceMachine

EXP, COPY, SQUARE, PRELU = (ACTIVATIONS[name] for name in ("exp", "copy", "square", "prelu"))
ADD, MULTIPLY, SUBTRACT, BYPASS = (ALU_OPS[name] for name in ("add", "multiply", "subtract", "bypass"))


@pytest.fixture
def machine() -> ReferenceMachine:
    return ReferenceMachine(TRN2)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def refuses(ins: Instruction, target: Target, operand: str | None, words: str) -> None:
    with pytest.raises(ConstraintFault, match=words) as caught:
        ins.check(target)
    assert caught.value.operand == operand
    assert caught.value.limit
    assert target.core in str(caught.value)


# --- values ---------------------------------------------------------------------------------------


def test_by_hand(machine: ReferenceMachine) -> None:
    data = machine.tile([[1.0, 2.0], [3.0, 4.0]], "float32")
    dst = machine.empty((2, 2), "float32")
    bias = machine.tile([[1.0], [-1.0]], "float32")
    machine.execute(Activation(dst, SQUARE, data, bias, 2.0))
    assert machine.values(dst).tolist() == [[9, 25], [25, 49]]


@settings(max_examples=30, deadline=None)
@given(
    p=st.integers(1, 128), n=st.integers(1, 40), dtype=st.sampled_from(["float32", "bfloat16", "float16", "int8"]),
    into=st.sampled_from(["float32", "bfloat16", "float16"]), scale=st.sampled_from([1.0, -0.5, "tensor"]),
    bias=st.sampled_from([None, 0.25, "tensor"]), space=st.sampled_from([Space.SBUF, Space.PSUM]),
)  # fmt: skip
def test_scale_and_bias(p: int, n: int, dtype: str, into: str, scale: Any, bias: Any, space: Space) -> None:
    machine = ReferenceMachine(TRN2)
    values = random(p, n, seed=p)
    data = machine.tile(values * 4 if dtype == "int8" else values, dtype, space=space)
    columns = {"scale": random(p, 1, seed=1), "bias": random(p, 1, seed=2)}
    dst = machine.empty((p, n), into)
    machine.execute(Activation(
        dst, EXP, data,
        machine.tile(columns["bias"]) if bias == "tensor" else bias,
        machine.tile(columns["scale"]) if scale == "tensor" else scale,
    ))  # fmt: skip
    x = machine.values(data).astype(np.float32)
    x = x * (columns["scale"] if scale == "tensor" else np.float32(scale))
    x = x + (columns["bias"] if bias == "tensor" else np.float32(bias or 0.0))
    expected = machine.empty((p, n), into)
    machine.store(expected, np.exp(x))
    assert np.array_equal(machine.values(dst), machine.values(expected))


def test_one_rounding(machine: ReferenceMachine) -> None:
    """The square of 1 + 2^-9 is just over 1 + 2^-8, half way between two bfloat16; rounded on the way it would be 1."""
    data = machine.tile([[1 + 2.0**-9]], "float32")
    dst = machine.empty((1, 1), "bfloat16")
    machine.execute(Activation(dst, SQUARE, data))
    assert machine.values(dst) == 1 + 2.0**-7
    minus = machine.tile([[-1.0]], "bfloat16")
    machine.execute(Activation(dst, COPY, data, minus))
    assert machine.values(dst) == 2.0**-9


def test_ranks_may_differ(machine: ReferenceMachine) -> None:
    values = random(4, 2, 6)
    dst = machine.empty((4, 3, 4), "float32")
    machine.execute(Activation(dst, COPY, machine.tile(values)))
    assert np.array_equal(machine.values(dst), values.reshape(4, 3, 4))


def test_in_place(machine: ReferenceMachine) -> None:
    data = machine.tile([[1.0, 2.0]], "float32")
    machine.execute(Activation(data, SQUARE, data, None, 3.0))
    assert machine.values(data).tolist() == [[9, 36]]


def test_prelu_without_a_slope_is_relu(machine: ReferenceMachine) -> None:
    dst = machine.empty((1, 3), "float32")
    machine.execute(Activation(dst, PRELU, machine.tile([[-2.0, 0.0, 2.0]], "float32")))
    assert machine.values(dst).tolist() == [[0, 0, 2]]


def test_infinities_do_not_warn(machine: ReferenceMachine) -> None:
    data = machine.tile([[np.inf, -np.inf, 1e30]], "float32")
    dst = machine.empty((1, 3), "float32")
    with np.errstate(all="raise"):
        machine.execute(Activation(dst, EXP, data, None, 1e30))
    assert machine.values(dst).tolist() == [[np.inf, 0, np.inf]]


# --- registers ------------------------------------------------------------------------------------


def ones(machine: ReferenceMachine, command: ReduceCmd, columns: int, res: Any = None, op: Any = ADD) -> Activation:
    data = machine.tile(np.ones((2, columns), np.float32))
    return Activation(machine.empty((2, columns), "float32"), COPY, data, None, 1.0, op, res, command)


def test_registers_outlive_instructions(machine: ReferenceMachine) -> None:
    res = machine.empty((2, 1), "float32")
    seen = []
    for command, columns in [
        (ReduceCmd.reset_reduce, 3), (ReduceCmd.reduce, 4), (ReduceCmd.idle, 5), (ReduceCmd.reset, 6),
        (ReduceCmd.reduce, 7), (ReduceCmd.reset_reduce, 8),
    ]:  # fmt: skip
        machine.execute(ones(machine, command, columns, res))
        assert (machine.values(res) == machine.values(res)[0]).all()
        seen.append(float(machine.values(res)[0, 0]))
    assert seen == [3, 7, 7, 0, 7, 8]


def test_registers_without_a_result(machine: ReferenceMachine) -> None:
    machine.execute(ones(machine, ReduceCmd.reset_reduce, 5))
    assert machine.accumulator(Engine.scalar)[:3].tolist() == [5, 5, 0]
    assert not machine.accumulator(Engine.vector).any()  # another set


def test_registers_belong_to_partitions(machine: ReferenceMachine) -> None:
    data = machine.tile(np.ones((2, 3), np.float32), start=32)
    dst = machine.empty((2, 3), "float32")
    machine.execute(Activation(dst, COPY, data, reduce_op=ADD, reduce_cmd=ReduceCmd.reset_reduce))
    registers = machine.accumulator(Engine.scalar)
    assert registers[32:34].tolist() == [3, 3]
    assert registers.sum() == 6


def test_registers_add_before_rounding(machine: ReferenceMachine) -> None:
    data = machine.tile(np.full((1, 4), 1 + 2.0**-9, np.float32))
    dst, res = machine.empty((1, 4), "bfloat16"), machine.empty((1, 1), "float32")
    machine.execute(Activation(dst, COPY, data, None, 1.0, ADD, res, ReduceCmd.reset_reduce))
    assert machine.values(dst).tolist() == [[1, 1, 1, 1]]
    assert machine.values(res) == 4 + 2.0**-7


def test_the_sum_runs_over_all_free_dimensions(machine: ReferenceMachine) -> None:
    data = machine.tile(np.arange(12.0).reshape(2, 2, 3), "float32")
    dst, res = machine.empty((2, 6), "float32"), machine.empty((2, 1), "float32")
    machine.execute(ActivationReduce(dst, COPY, data, ADD, res, None, 2.0))
    assert machine.values(res).tolist() == [[30], [102]]


def test_activation_reduce_is_activation_with_reset_reduce(machine: ReferenceMachine) -> None:
    data, bias = machine.tile(random(4, 7)), machine.tile(random(4, 1, seed=1))
    results = []
    for make in (
        lambda dst, res: ActivationReduce(dst, EXP, data, ADD, res, bias, 0.5),
        lambda dst, res: Activation(dst, EXP, data, bias, 0.5, ADD, res, ReduceCmd.reset_reduce),
    ):
        dst, res = machine.empty((4, 7), "bfloat16"), machine.empty((4, 1), "float32")
        machine.execute(make(dst, res))
        results.append((machine.values(dst), machine.values(res)))
    assert np.array_equal(results[0][0], results[1][0])
    assert np.array_equal(results[0][1], results[1][1])


def test_result_of_the_reduction_may_alias_dst(machine: ReferenceMachine) -> None:
    data = machine.tile([[2.0], [3.0]], "float32")
    machine.execute(Activation(data, SQUARE, data, None, 1.0, ADD, data, ReduceCmd.reset_reduce))
    assert machine.values(data).tolist() == [[4], [9]]


# --- activate2 ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op0", "op1", "reverse0", "reverse1", "expected"),
    [
        (MULTIPLY, ADD, False, False, 10 * 3 + 2), (MULTIPLY, SUBTRACT, False, False, 10 * 3 - 2),
        (MULTIPLY, SUBTRACT, False, True, 2 - 10 * 3), (MULTIPLY, BYPASS, False, False, 30),
        (ADD, BYPASS, True, False, 13), (SUBTRACT, BYPASS, False, False, 7), (SUBTRACT, BYPASS, True, False, -7),
        (BYPASS, BYPASS, False, False, 10), (None, None, False, False, 10),
    ],
)  # fmt: skip
def test_stages(op0: Any, op1: Any, reverse0: bool, reverse1: bool, expected: float) -> None:
    machine = ReferenceMachine(TRN3)
    data, dst = machine.tile([[10.0], [10.0]], "float32"), machine.empty((2, 1), "float32")
    imm0 = machine.tile([[3.0], [3.0]], "bfloat16")
    machine.execute(Activate2(dst, COPY, data, imm0, 2.0, op0, op1, 0.0, reverse0, reverse1))
    assert machine.values(dst).tolist() == [[expected]] * 2


@pytest.mark.parametrize("slope", [0.25, "tensor"])
def test_slope_of_prelu(slope: Any) -> None:
    machine = ReferenceMachine(TRN3)
    data, dst = machine.tile([[-4.0, 4.0], [-8.0, 0.0]], "float32"), machine.empty((2, 2), "float32")
    column = machine.tile([[0.25], [0.5]], "float32") if slope == "tensor" else slope
    machine.execute(Activate2(dst, PRELU, data, 0.0, 0.0, BYPASS, BYPASS, column))
    assert machine.values(dst).tolist() == [[-1, 4], [-4 if slope == "tensor" else -2, 0]]


@pytest.mark.parametrize(
    ("op", "first", "both", "start"),
    [("add", 2, 3, 0), ("maximum", 5, 6, -np.inf), ("minimum", -5, -7, np.inf), ("abs_max", 5, -7, 0),
     ("abs_min", 2, 2, np.inf)],
)  # fmt: skip
def test_reductions(op: str, first: float, both: float, start: float) -> None:
    machine = ReferenceMachine(TRN3)
    res = machine.empty((1, 1), "float32")

    def run(values: list[float], command: ReduceCmd) -> float:
        data = machine.tile([values], "float32")
        dst = machine.empty((1, len(values)), "float32")
        machine.execute(
            Activate2(
                dst, COPY, data, 0.0, 0.0, BYPASS, BYPASS, reduce_op=ALU_OPS[op], reduce_res=res, reduce_cmd=command
            )
        )
        return float(machine.values(res)[0, 0])

    assert run([2, -5, 5], ReduceCmd.reset_reduce) == first
    assert run([6, -7, 2], ReduceCmd.reduce) == both
    assert run([1], ReduceCmd.reset) == start


def test_activate2_limits() -> None:
    machine = ReferenceMachine(TRN3)
    dst = data = machine.empty((2, 4), "float32")
    column, other = machine.empty((2, 1), "float32"), machine.empty((2, 1), "bfloat16")

    def make(op0: Any = MULTIPLY, op1: Any = ADD, imm0: Any = 1.0, imm1: Any = 1.0, **fields: Any) -> Activate2:
        return Activate2(dst, COPY, data, imm0, imm1, op0, op1, **fields)

    make().check(TRN3)
    make(imm0=column, imm1=column, relu_param=other).check(TRN3)
    refuses(make(), TRN2, None, "does not exist on this generation")
    refuses(make(BYPASS, ADD), TRN3, None, "op0 bypass with op1 add")
    refuses(make(ADD, ADD), TRN3, None, "op0 add with op1 add")
    refuses(make(ALU_OPS["maximum"], BYPASS), TRN3, None, "op0 maximum")
    refuses(make(BYPASS, BYPASS, reverse0=True), TRN3, None, "reverse0 without op0")
    refuses(make(ADD, None, reverse1=True), TRN3, None, "reverse1 without op1")
    refuses(make(imm0=column, imm1=other), TRN3, "imm1", "dtype bfloat16 differs from that of 'imm0', float32")
    refuses(make(imm0=data), TRN3, "imm0", "4 elements per partition")
    refuses(make(reduce_op=MULTIPLY), TRN3, None, "reduce_op multiply")
    refuses(make(reduce_cmd=ReduceCmd.load_reduce, reduce_op=ADD), TRN3, None, "load_reduce")


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [Activation, ActivationReduce])
def test_scale_and_bias_limits(cls: Any) -> None:
    machine = ReferenceMachine(TRN2)
    dst = data = machine.empty((4, 6), "bfloat16")
    rest: dict[str, Any] = {"reduce_op": ADD, "reduce_res": None} if cls is ActivationReduce else {}

    def make(**fields: Any) -> Instruction:
        return cls(dst, COPY, data, **rest, **fields)

    column = {dtype: machine.empty((4, 1), dtype) for dtype in ("float32", "bfloat16", "int32", "tfloat32")}
    for target in (TRN1, TRN2, TRN3):
        make().check(target)
        make(bias=column["bfloat16"], scale=column["float32"]).check(target)
        make(bias=column["int32"], scale=2.0).check(target)
    make(bias=1.0).check(TRN2)
    refuses(make(bias=1.0), TRN1, None, "bias 1.0 is a number")
    refuses(make(bias=column["tfloat32"]), TRN2, "bias", "dtype tfloat32 is not accepted")
    refuses(make(scale=column["bfloat16"]), TRN2, "scale", "dtype bfloat16 is not accepted")
    refuses(make(scale=machine.empty((4, 2), "float32")), TRN2, "scale", "2 elements per partition")
    refuses(make(bias=machine.empty((3, 1), "float32")), TRN2, "bias", "3 partitions where 'dst'")


def test_reduction_limits() -> None:
    machine = ReferenceMachine(TRN2)
    dst = data = machine.empty((4, 6), "float32")

    def make(op: Any, command: ReduceCmd, res: Any = None) -> Activation:
        return Activation(dst, COPY, data, reduce_op=op, reduce_res=res, reduce_cmd=command)

    make(ADD, ReduceCmd.reset_reduce, machine.empty((4, 1), "float32")).check(TRN2)
    make(None, ReduceCmd.reset).check(TRN2)
    refuses(make(None, ReduceCmd.reduce), TRN2, None, "reduce without reduce_op")
    refuses(make(ALU_OPS["maximum"], ReduceCmd.reduce), TRN2, None, "reduce_op maximum is not accepted")
    refuses(make(ADD, ReduceCmd.load_reduce), TRN2, None, "load_reduce")
    refuses(make(ADD, ReduceCmd.reduce, machine.empty((4, 2), "float32")), TRN2, "reduce_res", "2 elements")
    refuses(ActivationReduce(dst, COPY, data, MULTIPLY), TRN2, None, "reduce_op multiply")


def test_operand_limits() -> None:
    machine = ReferenceMachine(TRN2)
    data = machine.empty((4, 6), "float32")
    Activation(machine.empty((4, 6), "int8", space=Space.PSUM), COPY, data).check(TRN2)
    refuses(Activation(machine.empty((4, 5), "float32"), COPY, data), TRN2, "data", "6 elements per partition where")
    refuses(Activation(machine.empty((3, 6), "float32"), COPY, data), TRN2, "data", "4 partitions where")
    hbm = machine.empty((4, 6), "float32", space=Space.HBM)
    refuses(Activation(hbm, COPY, data), TRN2, "dst", "must be in SBUF or PSUM")


def test_generations_of_a_function() -> None:
    machine = ReferenceMachine(TRN2)
    data = machine.empty((4, 6), "float32")
    future = ActivationFunction("future", 99, np.square, generations=(4,))
    Activation(data, future, data).check(TRN3)
    refuses(Activation(data, future, data), TRN2, None, "function future does not exist")


# --- work -----------------------------------------------------------------------------------------


def test_work() -> None:
    machine = ReferenceMachine(TRN2)
    data, psum = machine.empty((4, 6), "float32"), machine.empty((4, 6), "float32", space=Space.PSUM)
    column = machine.empty((4, 1), "float32")
    plain = Activation(data, EXP, psum).work(TRN2)
    assert (plain.kind, plain.elements, plain.rows, plain.table) == (WorkKind.ACTIVATION, 6, 4, EXP.table)
    assert plain.flags & WorkFlag.SRC_PSUM
    assert not plain.flags & (WorkFlag.VECTOR_OPERAND | WorkFlag.REDUCED)
    assert Activation(data, COPY, data).work(TRN2).table == 0
    assert Activation(data, EXP, data, column).work(TRN2).flags & WorkFlag.VECTOR_OPERAND
    reduced = Activation(data, EXP, data, reduce_op=ADD, reduce_res=column, reduce_cmd=ReduceCmd.reduce).work(TRN2)
    assert reduced.flags & WorkFlag.REDUCED
    assert not reduced.flags & WorkFlag.VECTOR_OPERAND  # a written column is not an input


def test_the_key_ignores_numbers() -> None:
    machine = ReferenceMachine(TRN2)
    data = machine.empty((4, 6), "float32")
    key = Activation(data, EXP, data, 1.0, 2.0).key()
    assert Activation(data, EXP, data, 3.0, 4.0).key() == key
    assert Activation(data, EXP, data, None, 2.0).key() != key
    assert Activation(data, COPY, data, 1.0, 2.0).key() != key
