"""Scalar Engine: a function of scaled and shifted data, with an optional sum into the engine's registers.

All arithmetic is float32, product and sum rounded one after the other; one rounding on the way to dst.  The engine has
128 accumulator registers, one per partition, that outlive instructions and are shared by the three instructions here.

Semantics and limits: NKI documentation (0.6) of each instruction; the functions are in :mod:`isa.activation`.  Where
it is silent or speaks against itself:

- The registers add the float32 function values, not the values rounded to dst.
- ``activation`` has no field for the slope of prelu; it is 0 there, the default of ``activate2``.
- ``activation_reduce`` allows other operators than add from v3 on by omission; here as ``activation``, add only.
- A reset touches the registers of the partitions of ``data``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from isa import dtypes
from isa.activation import ActivationFunction
from isa.alu import AluOp
from isa.engine import Engine
from isa.enums import ReduceCmd
from isa.instruction import Dst, Imm, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern
from isa.target import Target
from isa.work import Work, WorkFlag, WorkKind

__all__ = ["Activate2", "Activation", "ActivationReduce"]

Floats = npt.NDArray[np.float32]
FLOAT32 = frozenset({"float32"})
_BIAS = frozenset(str(one) for one in dtypes.ALL if one != "tfloat32" and one.kind != "x")
_REDUCES = (ReduceCmd.reduce, ReduceCmd.reset_reduce)
_RESETS = (ReduceCmd.reset, ReduceCmd.reset_reduce)


class _Activate(Instruction):
    """What the three instructions share: function, registers, work."""

    __slots__ = ()
    dst: AccessPattern
    op: ActivationFunction
    data: AccessPattern
    reduce_res: AccessPattern | None

    def _check_op(self, target: Target) -> None:
        if target.generation not in self.op.generations:
            names = ", ".join(f"NeuronCore-v{generation}" for generation in self.op.generations)
            raise self.refuse(None, f"function {self.op} does not exist on this generation", limit=names, target=target)

    def _check_reduction(self, command: ReduceCmd, op: AluOp | None, allowed: tuple[str, ...], target: Target) -> None:
        if command is ReduceCmd.load_reduce:
            raise self.refuse(
                None,
                "reduce_cmd load_reduce has no value to load",
                target=target,
                limit="reduce_cmd idle, reset, reduce or reset_reduce",
            )
        if op is None:
            if command in _REDUCES:
                raise self.refuse(
                    None,
                    f"reduce_cmd {command.name} without reduce_op",
                    target=target,
                    limit="reduce_op: " + ", ".join(allowed),
                )
        elif op.name not in allowed:
            raise self.refuse(
                None, f"reduce_op {op} is not accepted", limit="reduce_op: " + ", ".join(allowed), target=target
            )

    def _finish(self, machine: Machine, values: Floats, command: ReduceCmd, op: AluOp | None) -> None:
        """Write the function values and serve the registers."""
        machine.store(self.dst, values)
        if command is ReduceCmd.idle and self.reduce_res is None:
            return
        start = self.data.start
        registers = machine.accumulator(Engine.scalar)[start : start + self.data.partitions]
        if command in _RESETS:
            registers[...] = 0.0 if op is None else _start(op)
        if command in _REDUCES and op is not None:
            with np.errstate(all="ignore"):
                registers[...] = op(registers, _reduce(op, values))
        if self.reduce_res is not None:
            machine.store(self.reduce_res, registers.reshape(-1, 1).copy())

    def work(self, target: Target) -> Work:
        flags = WorkFlag(self.pattern_flags())
        if self.reduce_res is not None:
            flags |= WorkFlag.REDUCED
        return Work(
            kind=WorkKind.ACTIVATION,
            elements=self.dst.elements,
            rows=self.dst.partitions,
            flags=int(flags),
            table=self.op.table,
        )


def _start(op: AluOp) -> float:
    """Value of an empty reduction; by magnitude, the smallest is 0 and the largest infinity."""
    if op.identity is not None:
        return float(op.identity)
    return {"abs_max": 0.0, "abs_min": float("inf")}[op.name]


def _reduce(op: AluOp, values: Floats) -> Floats:
    """Reduce each row; by magnitude, the last one of equals wins, as in a chain of the operator."""
    if op.identity is not None:
        return np.asarray(op.reduce(values, 1), np.float32)
    backwards = np.abs(values[:, ::-1])
    place = backwards.argmax(1) if op.name == "abs_max" else backwards.argmin(1)
    return np.asarray(values[np.arange(len(values)), values.shape[1] - 1 - place])


def _scaled(machine: Machine, data: AccessPattern, scale: Any, bias: Any) -> Floats:
    """float32(data) * scale + bias."""
    values = machine.load(data)
    with np.errstate(all="ignore"):
        if isinstance(scale, AccessPattern) or scale != 1.0:
            values = values * machine.scalar(scale)
            if bias is not None:
                values += machine.scalar(bias)
        elif bias is not None:
            values = values + machine.scalar(bias)
    return values


def _check_bias(ins: Instruction, bias: Any, target: Target) -> None:
    if target.generation < 3 and bias is not None and not isinstance(bias, AccessPattern):
        raise ins.refuse(
            None,
            f"bias {bias} is a number",
            limit="a (P, 1) tensor, or None",
            target=target,
            advice="put the number into a tile with memset",
        )


@instruction(opcode=16, mnemonic="activation", engines=(Engine.scalar,), source="NKI 0.6 nki.isa.activation")
class Activation(_Activate):
    """dst = op(data * scale + bias), element by element; scale and bias are numbers or (P, 1) tensors.

    ``reduce_cmd`` sets the engine's registers to zero (reset), adds the sum of each partition's function values to
    them (reduce), does both (reset_reduce) or leaves them alone (idle); ``reduce_res`` (P, 1) receives them afterwards.
    """

    dst: AccessPattern = Dst(indirect="data")
    op: ActivationFunction = Imm()
    data: AccessPattern = Src(indirect="data", match="dst")
    bias: float | AccessPattern | None = Src(
        match="dst", vector=True, scalar=True, optional=True, default=None, dtypes=_BIAS
    )
    scale: float | AccessPattern = Src(match="dst", vector=True, scalar=True, default=1.0, dtypes=FLOAT32)
    reduce_op: AluOp | None = Imm(default=None)
    reduce_res: AccessPattern | None = Dst(match="dst", vector=True, optional=True, default=None)
    reduce_cmd: ReduceCmd = Imm(default=ReduceCmd.idle)

    def constrain(self, target: Target) -> None:
        self._check_op(target)
        _check_bias(self, self.bias, target)
        self._check_reduction(self.reduce_cmd, self.reduce_op, ("add",), target)

    def run(self, machine: Machine) -> None:
        values = self.op(_scaled(machine, self.data, self.scale, self.bias))
        self._finish(machine, values, self.reduce_cmd, self.reduce_op)


@instruction(
    opcode=17, mnemonic="activation_reduce", engines=(Engine.scalar,), source="NKI 0.6 nki.isa.activation_reduce"
)
class ActivationReduce(_Activate):
    """dst = op(data * scale + bias) and reduce_res = its sum per partition: ``activation`` with reset_reduce.

    Without ``reduce_res`` the sums stay in the engine's registers.
    """

    dst: AccessPattern = Dst(indirect="data")
    op: ActivationFunction = Imm()
    data: AccessPattern = Src(indirect="data", match="dst")
    reduce_op: AluOp = Imm()
    reduce_res: AccessPattern | None = Dst(match="dst", vector=True, optional=True, default=None)
    bias: float | AccessPattern | None = Src(
        match="dst", vector=True, scalar=True, optional=True, default=None, dtypes=_BIAS
    )
    scale: float | AccessPattern = Src(match="dst", vector=True, scalar=True, default=1.0, dtypes=FLOAT32)

    def constrain(self, target: Target) -> None:
        self._check_op(target)
        _check_bias(self, self.bias, target)
        self._check_reduction(ReduceCmd.reset_reduce, self.reduce_op, ("add",), target)

    def run(self, machine: Machine) -> None:
        values = self.op(_scaled(machine, self.data, self.scale, self.bias))
        self._finish(machine, values, ReduceCmd.reset_reduce, self.reduce_op)


_STAGES = (("multiply", "add"), ("multiply", "subtract"), ("multiply", "bypass"), ("add", "bypass"),
           ("subtract", "bypass"), ("bypass", "bypass"))  # fmt: skip


def _stage(op: AluOp | None) -> str:
    return "bypass" if op is None else op.name


@instruction(
    opcode=18, mnemonic="activate2", engines=(Engine.scalar,), generations=(4,), source="NKI 0.6 nki.isa.activate2"
)
class Activate2(_Activate):
    """dst = op((data op0 imm0) op1 imm1), with an optional reduction into the engine's registers.

    op0 and op1 are one of six pairs; bypass leaves a stage out.  ``reverse0`` and ``reverse1`` swap the sides of an
    operator.  ``relu_param`` is the slope of prelu below zero.  A reset gives the registers the start value of
    ``reduce_op``.
    """

    dst: AccessPattern = Dst(indirect="data")
    op: ActivationFunction = Imm()
    data: AccessPattern = Src(indirect="data", match="dst")
    imm0: float | AccessPattern = Src(match="dst", vector=True, scalar=True)
    imm1: float | AccessPattern = Src(match="dst", vector=True, scalar=True)
    op0: AluOp | None = Imm()
    op1: AluOp | None = Imm()
    relu_param: float | AccessPattern = Src(match="dst", vector=True, scalar=True, default=0.0)
    reverse0: bool = Imm(default=False)
    reverse1: bool = Imm(default=False)
    reduce_op: AluOp | None = Imm(default=None)
    reduce_res: AccessPattern | None = Dst(match="dst", vector=True, optional=True, default=None)
    reduce_cmd: ReduceCmd = Imm(default=ReduceCmd.idle)

    def constrain(self, target: Target) -> None:
        self._check_op(target)
        first, second = _stage(self.op0), _stage(self.op1)
        for name, stage, reverse in (("op0", first, self.reverse0), ("op1", second, self.reverse1)):
            if reverse and stage == "bypass":
                raise self.refuse(
                    None,
                    f"reverse{name[-1]} without {name}",
                    target=target,
                    limit=f"reverse{name[-1]} swaps the sides of {name}",
                )
        if (first, second) not in _STAGES:
            raise self.refuse(
                None,
                f"op0 {first} with op1 {second}",
                target=target,
                limit="(op0, op1): " + ", ".join(f"({a}, {b})" for a, b in _STAGES),
            )
        tensors = [value for value in (self.imm0, self.imm1) if isinstance(value, AccessPattern)]
        if len(tensors) == 2 and tensors[0].dtype != tensors[1].dtype:
            raise self.refuse(
                "imm1",
                f"dtype {tensors[1].dtype} differs from that of 'imm0', {tensors[0].dtype}",
                limit="equal dtypes where both are tensors",
                target=target,
            )
        self._check_reduction(
            self.reduce_cmd, self.reduce_op, ("add", "maximum", "minimum", "abs_max", "abs_min"), target
        )

    def run(self, machine: Machine) -> None:
        values = machine.load(self.data)
        with np.errstate(all="ignore"):
            for op, operand, reverse in ((self.op0, self.imm0, self.reverse0), (self.op1, self.imm1, self.reverse1)):
                if op is not None and op.name != "bypass":
                    other = machine.scalar(operand)
                    values = op(other, values) if reverse else op(values, other)
            result = self.op(values)
            if self.op.parameter:
                result = np.where(values < 0, machine.scalar(self.relu_param) * values, result)
        self._finish(machine, result, self.reduce_cmd, self.reduce_op)
