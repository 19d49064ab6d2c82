"""Vector Engine instructions that also reduce what they write into the engine's accumulator registers.

The 128 registers (float32, one per partition) outlive instructions and are shared by everything here.  ``reduce_cmd``
says what happens to them: reset_reduce starts from the operator's identity, reduce goes on from the present value,
load_reduce starts from a given one.  NKI leaves them undefined after idle; here they become NaN, so that a later
``reduce`` on top shows.  Registers add float32 values, not those rounded to dst.  Semantics and limits: NKI
documentation (0.6).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from isa import dtypes
from isa.alu import ALU_OPS, AluOp
from isa.engine import Engine
from isa.enums import ReduceCmd
from isa.instruction import Array, Dst, Imm, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern, Space
from isa.target import Target
from isa.work import Work, WorkFlag, WorkKind

__all__ = ["Exponential", "RangeSelect", "SelectReduce", "TensorScalarCumulative", "TensorScalarReduce"]

FP32_MIN = float(np.finfo(np.float32).min)
_ADD, _MAXIMUM = ALU_OPS["add"], ALU_OPS["maximum"]
_FLOATS = frozenset(str(one) for one in dtypes.ALL if one.is_float)
_FLOAT32 = frozenset({"float32"})
_COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
_REDUCING = (ReduceCmd.reset_reduce, ReduceCmd.reduce, ReduceCmd.load_reduce)


class _Accumulate(Instruction):
    """What the instructions here share: commands and registers."""

    __slots__ = ()
    dst: AccessPattern
    reduce_cmd: ReduceCmd

    def _check_command(self, target: Target, allowed: tuple[ReduceCmd, ...]) -> None:
        if self.reduce_cmd not in allowed:
            raise self.refuse(
                None,
                f"reduce_cmd {self.reduce_cmd.name} is not accepted",
                target=target,
                limit="reduce_cmd: " + ", ".join(one.name for one in allowed),
            )

    def _accumulate(
        self,
        machine: Machine,
        values: Array,
        op: AluOp,
        result: AccessPattern | None,
        *,
        initial: Any = 0.0,
        negate: bool = False,
    ) -> None:
        """Serve the registers with the values of this instruction, (P, F) float32."""
        start = self.dst.start
        registers = machine.accumulator(Engine.vector)[start : start + self.dst.partitions]
        if self.reduce_cmd not in _REDUCING:
            if self.reduce_cmd is ReduceCmd.idle:
                registers[...] = np.nan
            else:
                registers[...] = op.identity
        else:
            if self.reduce_cmd is ReduceCmd.reset_reduce:
                registers[...] = op.identity
            elif self.reduce_cmd is ReduceCmd.load_reduce:
                registers[...] = np.asarray(initial, np.float32).reshape(-1)
            with np.errstate(all="ignore"):
                registers[...] = op(registers, op.reduce(values, 1))
        if result is not None:
            out = registers.reshape(-1, 1)
            machine.store(result, -out if negate else out.copy())

    def _work(self, kind: WorkKind, reduced: bool) -> Work:
        flags = self.pattern_flags() | (WorkFlag.REDUCED if reduced else 0)
        return Work(kind=kind, elements=self.dst.elements, rows=self.dst.partitions, flags=flags)


@instruction(
    opcode=42,
    mnemonic="tensor_scalar_reduce",
    engines=(Engine.vector,),
    source="NKI 0.6 nki.isa.tensor_scalar_reduce",
)
class TensorScalarReduce(_Accumulate):
    """dst = data op0 operand0, and a reduction of it over all free dimensions.

    reduce_res (P, 1) receives the registers, with reduce_res_negate times -1 (the registers keep their sign).
    reduce_init is the start value with load_reduce.
    """

    dst: AccessPattern = Dst(indirect="data")
    data: AccessPattern = Src(indirect="data", match="dst")
    op0: AluOp = Imm()
    operand0: AccessPattern | float | None = Src(match="dst", scalar=True, vector=True, optional=True, required=True)
    reduce_op: AluOp = Imm()
    reduce_res: AccessPattern | None = Dst(match="dst", vector=True, optional=True)
    reverse0: bool = Imm(False)
    reduce_cmd: ReduceCmd = Imm(ReduceCmd.reset_reduce)
    reduce_init: AccessPattern | float | None = Src(match="dst", scalar=True, vector=True, optional=True)
    reduce_res_negate: bool = Imm(False)

    def constrain(self, target: Target) -> None:
        if self.op0.bitwise:
            raise self.refuse(None, f"operator {self.op0} is bitwise", limit="arithmetic operators", target=target)
        if self.op0.arity == 2 and self.operand0 is None:
            raise self.refuse(None, f"operator {self.op0} needs operand0", target=target)
        if self.reduce_op.name not in ("add", "multiply", "maximum", "minimum"):
            raise self.refuse(
                None,
                f"reduce_op {self.reduce_op} is not accepted",
                target=target,
                limit="reduce_op: add, multiply, maximum, minimum",
            )
        if self.reverse0:
            raise self.refuse(None, "reverse0 is not supported", limit="reverse0=False (NKI 0.6)", target=target)
        self._check_command(target, _REDUCING)
        if (self.reduce_cmd is ReduceCmd.load_reduce) != (self.reduce_init is not None):
            raise self.refuse(None, "reduce_init goes with reduce_cmd load_reduce, and only with it", target=target)

    def work(self, target: Target) -> Work:
        return self._work(WorkKind.TENSOR_SCALAR, reduced=True)

    def run(self, machine: Machine) -> None:
        with np.errstate(all="ignore"):
            data = machine.load(self.data)
            values = self.op0(data) if self.op0.arity == 1 else self.op0(data, machine.scalar(self.operand0))  # type: ignore[arg-type]
        initial = None if self.reduce_init is None else machine.scalar(self.reduce_init)
        machine.store(self.dst, values)
        self._accumulate(
            machine, values, self.reduce_op, self.reduce_res, initial=initial, negate=self.reduce_res_negate
        )


@instruction(
    opcode=43,
    mnemonic="tensor_scalar_cumulative",
    engines=(Engine.vector,),
    source="NKI 0.6 nki.isa.tensor_scalar_cumulative",
)
class TensorScalarCumulative(_Accumulate):
    """dst[i] = register = (src[i] op0 imm0) op1 register, along the free dimension of each partition.

    The register starts at the identity of op1 (reset_reduce), at imm1 (load_reduce) or goes on (reduce).
    """

    dst: AccessPattern = Dst(indirect="src")
    src: AccessPattern = Src(indirect="src", match="dst")
    op0: AluOp = Imm()
    op1: AluOp = Imm()
    imm0: AccessPattern | float = Src(match="dst", scalar=True, vector=True)
    imm1: AccessPattern | float | None = Src(match="dst", scalar=True, vector=True, optional=True)
    reduce_cmd: ReduceCmd = Imm(ReduceCmd.reset_reduce)

    def constrain(self, target: Target) -> None:
        if self.op0.bitwise or self.op0.arity != 2:
            raise self.refuse(
                None, f"operator {self.op0} is not accepted", limit="arithmetic operators of two inputs", target=target
            )
        if self.op1.name not in ("add", "subtract", "multiply", "maximum", "minimum"):
            raise self.refuse(
                None,
                f"operator {self.op1} cannot accumulate",
                target=target,
                limit="op1: add, subtract, multiply, maximum, minimum",
            )
        for name in ("dst", "src"):
            if getattr(self, name).dtype in ("int32", "uint32"):
                raise self.refuse(
                    name,
                    "32-bit integers are not accepted",
                    target=target,
                    limit="floats and integers of up to 16 bits",
                )
        self._check_command(target, _REDUCING)
        if (self.reduce_cmd is ReduceCmd.load_reduce) != (self.imm1 is not None):
            raise self.refuse(None, "imm1 goes with reduce_cmd load_reduce, and only with it", target=target)

    def work(self, target: Target) -> Work:
        return self._work(WorkKind.SCAN, reduced=False)

    def run(self, machine: Machine) -> None:
        from isa._scan import cumulate

        start = self.dst.start
        registers = machine.accumulator(Engine.vector)[start : start + self.dst.partitions]
        with np.errstate(all="ignore"):
            values = np.ascontiguousarray(self.op0(machine.load(self.src), machine.scalar(self.imm0)), np.float32)
        if self.reduce_cmd is ReduceCmd.reset_reduce:
            registers[...] = self.op1.identity
        elif self.imm1 is not None:
            registers[...] = np.asarray(machine.scalar(self.imm1), np.float32).reshape(-1)
        out = np.empty_like(values)
        cumulate(values, registers, self.op1.code, out)
        machine.store(self.dst, out)


@instruction(
    opcode=44,
    mnemonic="range_select",
    engines=(Engine.vector,),
    source="NKI 0.6 nki.isa.range_select",
    generations=(3, 4),
)
class RangeSelect(_Accumulate):
    """dst = on_true_tile where comp_op0(i, bound0) and comp_op1(i, bound1), else FP32_MIN; and the maximum of it.

    i = range_start + flat free index, compared in float32.  A 16-bit dst turns FP32_MIN into -inf.
    """

    dst: AccessPattern = Dst()
    on_true_tile: AccessPattern = Src(match="dst", dtypes=_FLOATS)
    comp_op0: AluOp = Imm()
    comp_op1: AluOp = Imm()
    bound0: AccessPattern = Src(match="dst", vector=True, dtypes=_FLOAT32)
    bound1: AccessPattern = Src(match="dst", vector=True, dtypes=_FLOAT32)
    reduce_cmd: ReduceCmd = Imm(ReduceCmd.reset_reduce)
    reduce_res: AccessPattern | None = Dst(match="dst", vector=True, optional=True)
    reduce_op: AluOp = Imm(_MAXIMUM)
    range_start: int = Imm(0)
    on_false_value: float = Imm(FP32_MIN)

    def constrain(self, target: Target) -> None:
        for op in (self.comp_op0, self.comp_op1):
            if op.name not in _COMPARISONS:
                raise self.refuse(None, f"operator {op} does not compare", limit=", ".join(_COMPARISONS), target=target)
        if self.reduce_op.name != "maximum":
            raise self.refuse(
                None, f"reduce_op {self.reduce_op} is not accepted", limit="reduce_op: maximum", target=target
            )
        if np.float32(self.on_false_value) != np.float32(FP32_MIN):
            raise self.refuse(
                None, f"on_false_value is {self.on_false_value}", target=target, limit=f"FP32_MIN, {FP32_MIN}"
            )
        if self.range_start + self.dst.elements > 2**24:
            raise self.refuse(
                "dst",
                f"indices reach {self.range_start + self.dst.elements - 1}",
                target=target,
                limit="range_start + index below 2**24",
            )
        self._check_command(target, (ReduceCmd.idle, ReduceCmd.reset, ReduceCmd.reduce, ReduceCmd.reset_reduce))

    def work(self, target: Target) -> Work:
        return self._work(WorkKind.SELECT, reduced=False)

    def run(self, machine: Machine) -> None:
        index = np.arange(self.range_start, self.range_start + self.dst.elements, dtype=np.float32)
        inside = (self.comp_op0(index, machine.load(self.bound0)) != 0) & (
            self.comp_op1(index, machine.load(self.bound1)) != 0
        )
        values = np.where(inside, machine.load(self.on_true_tile), np.float32(FP32_MIN))
        machine.store(self.dst, values)
        self._accumulate(machine, values, self.reduce_op, self.reduce_res)


@instruction(
    opcode=45,
    mnemonic="select_reduce",
    engines=(Engine.vector,),
    source="NKI 0.6 nki.isa.select_reduce",
)
class SelectReduce(_Accumulate):
    """dst = on_true where predicate is not zero (is zero with reverse_pred), else on_false; optionally the maximum.

    on_false is a float32 number or a (P, 1) tile.
    """

    dst: AccessPattern = Dst()
    predicate: AccessPattern = Src(match="dst", dtypes=frozenset({"int8", "uint8", "int16", "uint16"}))
    on_true: AccessPattern = Src(match="dst", dtypes=(_FLOATS - {"tfloat32"}) | {"int8", "int16", "uint8", "uint16"})
    on_false: AccessPattern | float = Src(match="dst", scalar=True, vector=True)
    reduce_res: AccessPattern | None = Dst(match="dst", vector=True, optional=True, dtypes=_FLOATS)
    reduce_cmd: ReduceCmd = Imm(ReduceCmd.idle)
    reduce_op: AluOp = Imm(_MAXIMUM)
    reverse_pred: bool = Imm(False)

    def constrain(self, target: Target) -> None:
        if self.on_true.space is Space.PSUM and self.predicate.space is Space.PSUM:
            raise self.refuse(
                "predicate",
                "on_true and predicate are both in PSUM",
                target=target,
                limit="at most one of on_true and predicate in PSUM",
            )
        if self.reduce_op.name != "maximum":
            raise self.refuse(
                None, f"reduce_op {self.reduce_op} is not accepted", limit="reduce_op: maximum", target=target
            )
        self._check_command(target, (ReduceCmd.idle, ReduceCmd.reduce, ReduceCmd.reset_reduce))

    def work(self, target: Target) -> Work:
        return self._work(WorkKind.SELECT, reduced=False)

    def run(self, machine: Machine) -> None:
        chosen = machine.raw(self.predicate) != 0
        if self.reverse_pred:
            chosen = ~chosen
        values = np.where(chosen, machine.load(self.on_true), machine.scalar(self.on_false))
        if self.dst.dtype == self.on_true.dtype:  # the chosen elements keep their bits
            other = np.broadcast_to(np.asarray(machine.scalar(self.on_false), np.float32), (self.dst.partitions, 1))
            bits = dtypes.encode(np.ascontiguousarray(other), self.dst.dtype)
            machine.store_raw(self.dst, np.where(chosen, machine.raw(self.on_true), bits))
        else:
            machine.store(self.dst, values)
        self._accumulate(machine, values, self.reduce_op, self.reduce_res)


@instruction(
    opcode=46,
    mnemonic="exponential",
    engines=(Engine.vector,),
    source="NKI 0.6 nki.isa.exponential",
    generations=(4,),
)
class Exponential(_Accumulate):
    """dst = exp(src - max_value), and optionally its sum.

    max_value and reduce_init are numbers or (P, 1) float32 tiles; reduce_init goes with load_reduce.
    """

    dst: AccessPattern = Dst(indirect="src")
    src: AccessPattern = Src(indirect="src", match="dst")
    max_value: AccessPattern | float = Src(match="dst", scalar=True, vector=True, default=0.0)
    reduce_res: AccessPattern | None = Dst(default=None, match="dst", vector=True, optional=True, dtypes=_FLOATS)
    reduce_cmd: ReduceCmd = Imm(default=ReduceCmd.idle)
    reduce_init: AccessPattern | float = Src(match="dst", scalar=True, vector=True, default=0.0)

    def constrain(self, target: Target) -> None:
        self._check_command(target, (ReduceCmd.idle, *_REDUCING))
        for name in ("max_value", "reduce_init"):
            value = getattr(self, name)
            if isinstance(value, AccessPattern) and value.dtype != "float32":
                raise self.refuse(name, "must be float32", limit="dtype float32", target=target)
        given = isinstance(self.reduce_init, AccessPattern) or self.reduce_init != 0
        if given and self.reduce_cmd is not ReduceCmd.load_reduce:
            raise self.refuse(None, "reduce_init goes with reduce_cmd load_reduce", target=target)

    def work(self, target: Target) -> Work:
        return self._work(WorkKind.EXPONENTIAL, reduced=False)

    def run(self, machine: Machine) -> None:
        with np.errstate(all="ignore"):
            values = np.exp(machine.load(self.src) - machine.scalar(self.max_value))
        initial = machine.scalar(self.reduce_init)
        machine.store(self.dst, values)
        self._accumulate(machine, values, _ADD, self.reduce_res, initial=initial)
