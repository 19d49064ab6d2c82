"""Vector Engine: element-wise arithmetic over tiles.

Semantics and limits: NKI documentation (0.6) of each instruction and its table of operators.  Where it is silent:

- 32-bit integers on the GpSimd Engine wrap modulo 2**32.  A negative power of an integer is truncated, so it is 0
  unless the base is 1 or -1; 0 to a negative power is 0.
- The exact form of ``tensor_scalar`` on 32-bit integers (address arithmetic in NKI) is taken for add, subtract and
  multiply where no operand is a float; then it wraps too.
- divide, mod and fmod exist in AWS's simulator only, and are computed here all the same.
"""

from __future__ import annotations

import numpy as np

from isa import dtypes
from isa._vector import (
    INT32,
    apply,
    check_arithmetic,
    check_engine,
    check_integers,
    check_one_in_psum,
    check_operator,
    compute,
    integers,
    store_integers,
)
from isa.alu import AluOp
from isa.engine import Engine
from isa.instruction import Array, Dst, Imm, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern, Space
from isa.target import Target
from isa.work import Work, WorkFlag, WorkKind

__all__ = ["Reciprocal", "ScalarTensorTensor", "TensorScalar", "TensorTensor"]

_RING = frozenset({"add", "subtract", "multiply"})
_FIRST_ONLY = frozenset({"abs_max", "abs_min", "square", "relu"})
_SCALAR_ENGINE_V3 = (("multiply", "add"), ("multiply", None), ("add", None))


@instruction(
    opcode=32,
    mnemonic="tensor_tensor",
    engines=(Engine.vector, Engine.gpsimd),
    source="NKI 0.6 nki.isa.tensor_tensor",
)
class TensorTensor(Instruction):
    """dst = data1 op data2, element by element.

    Arithmetic operators compute in float32 and round once to dst; bitwise operators act on integer bits.  When all
    three tiles are 32-bit integers, arithmetic is exact 32-bit integer arithmetic on the GpSimd Engine, unless a tile
    is in PSUM or the Vector Engine is asked for; then bits beyond 2**24 are lost.  power runs on GpSimd only.
    """

    dst: AccessPattern = Dst(indirect="data1")
    data1: AccessPattern = Src(indirect="data1", match="dst")
    data2: AccessPattern = Src(match="dst")
    op: AluOp = Imm()
    engine: Engine = Imm(Engine.unknown)

    @property
    def _all_int32(self) -> bool:
        return self.dst.dtype in INT32 and self.data1.dtype in INT32 and self.data2.dtype in INT32

    def select_engine(self, target: Target) -> Engine:
        """Vector, except power and 32-bit integer arithmetic, which only GpSimd does exactly."""
        if self.engine is not Engine.unknown:
            return self.engine
        touches_psum = Space.PSUM in (self.dst.space, self.data1.space, self.data2.space)
        if self.op.name == "power" or (self._all_int32 and not self.op.bitwise and not touches_psum):
            return Engine.gpsimd
        return Engine.vector

    def constrain(self, target: Target) -> None:
        engine = self.select_engine(target)
        check_engine(self, engine, target)
        check_one_in_psum(self, "data1", "data2", target)
        check_operator(self, "op", self.op, target)
        if self.op.arity != 2:
            raise self.refuse(
                None,
                f"op is {self.op}, which takes one input",
                limit="operators of two inputs",
                target=target,
                advice="use tensor_scalar",
            )
        if self.op.name == "power" and engine is Engine.vector:
            raise self.refuse(None, "op is power", limit="power on engine gpsimd", target=target)
        if self.op.bitwise:
            check_integers(self, self.op, ("data1", "data2", "dst"), target)

    def work(self, target: Target) -> Work:
        flags = self.pattern_flags()
        if self.op.name in _RING:
            flags |= WorkFlag.FAST_OPS
        return Work(kind=WorkKind.TENSOR_TENSOR, elements=self.dst.elements, rows=self.dst.partitions, flags=flags)

    def run(self, machine: Machine) -> None:
        if self.op.bitwise:
            store_integers(machine, self.dst, self.op(*integers(machine, (self.data1, self.data2), self.dst)))
            return
        with np.errstate(all="ignore"):
            if self._all_int32 and self.op.name != "divide" and self.select_engine(machine.target) is Engine.gpsimd:
                store_integers(machine, self.dst, _exact(self.op, machine.raw(self.data1), machine.raw(self.data2)))
            else:
                compute(machine, self.dst, self.op, machine.load(self.data1), machine.load(self.data2))


def _exact(op: AluOp, x: Array, y: Array) -> Array:
    """x op y of 32-bit integers, to be taken modulo 2**32."""
    if op.name in _RING and x.dtype == y.dtype:
        return op(x, y)
    x, y = x.astype(np.int64), y.astype(np.int64)
    if op.name != "power":
        return op(x, y).astype(np.int64, copy=False)
    negative = np.where(np.abs(x) == 1, x ** (y & 1), 0)
    return np.where(y < 0, negative, x ** np.maximum(y, 0))


@instruction(
    opcode=33,
    mnemonic="tensor_scalar",
    engines=(Engine.vector, Engine.scalar, Engine.gpsimd),
    source="NKI 0.6 nki.isa.tensor_scalar",
)
class TensorScalar(Instruction):
    """dst = (data op0 operand0) op1 operand1, float32 in between, one rounding at the end.

    operand0 and operand1 are numbers or (P, 1) tiles: float32, or integers with bitwise operators, which act on bits.
    reverse0 and reverse1 swap the sides of their operator.  Operators of one input (abs, square, relu, rsqrt,
    reciprocal) take None or 0 as operand.  32-bit integer tiles with integer operands and add, subtract or multiply
    are computed exactly.

    Runs on Vector unless another engine is asked for.  GpSimd has rsqrt only and alone; Scalar, from v3, no bitwise
    operators, and on v3 only multiply then add, multiply, or add.
    """

    dst: AccessPattern = Dst(indirect="data")
    data: AccessPattern = Src(indirect="data", match="dst")
    op0: AluOp = Imm()
    operand0: AccessPattern | float | int | None = Src(
        match="dst", scalar=True, vector=True, optional=True, required=True
    )
    reverse0: bool = Imm(False)
    op1: AluOp | None = Imm(None)
    operand1: AccessPattern | float | int | None = Src(match="dst", scalar=True, vector=True, optional=True)
    reverse1: bool = Imm(False)
    engine: Engine = Imm(Engine.unknown)

    def select_engine(self, target: Target) -> Engine:
        """Vector unless one is asked for; rsqrt is GpSimd's."""
        if self.engine is not Engine.unknown:
            return self.engine
        return Engine.gpsimd if self._has_rsqrt else Engine.vector

    @property
    def _has_rsqrt(self) -> bool:
        return self.op0.name == "rsqrt" or (self.op1 is not None and self.op1.name == "rsqrt")

    @property
    def _is_exact(self) -> bool:
        """Address arithmetic on 32-bit integers."""
        if self.dst.dtype not in INT32 or self.data.dtype not in INT32 or self.op0.name not in _RING:
            return False
        if self.op1 is not None and (self.op1.name not in _RING or not _is_int32(self.operand1)):
            return False
        return _is_int32(self.operand0) and self.engine in (Engine.unknown, Engine.vector)

    def constrain(self, target: Target) -> None:
        engine = self.select_engine(target)
        check_engine(self, engine, target)
        self._check_stage("op0", self.op0, "operand0", target)
        if self.op1 is not None:
            self._check_stage("op1", self.op1, "operand1", target)
            if self.op0.bitwise != self.op1.bitwise:
                raise self.refuse(
                    None,
                    f"op0 is {self.op0} and op1 {self.op1}",
                    limit="both operators bitwise, or both arithmetic",
                    target=target,
                    advice="use two instructions",
                )
        elif self.operand1 is not None:
            raise self.refuse(None, "operand1 without op1", limit="operand1=None without op1", target=target)
        if self.op0.bitwise:
            check_integers(self, self.op0, ("dst", "data"), target)
        self._check_engine_operators(engine, target)
        if self._is_exact and (self.dst.indirect or self.data.indirect):
            raise self.refuse(
                "dst" if self.dst.indirect else "data",
                "is indirect in exact 32-bit integer arithmetic",
                limit="no tensor indirection in address arithmetic",
                target=target,
                advice="gather with tensor_copy first",
            )

    def _check_stage(self, name: str, op: AluOp, operand: str, target: Target) -> None:
        check_operator(self, name, op, target)
        if name == "op1" and op.name in _FIRST_ONLY:
            raise self.refuse(None, f"op1 is {op}", limit=f"{op} as op0 only", target=target)
        value = getattr(self, operand)
        if op.arity == 1:
            if isinstance(value, AccessPattern):
                raise self.refuse(
                    operand, f"is given, but {op} takes one input", limit=f"{operand}=None or 0", target=target
                )
        elif value is None:
            raise self.refuse(None, f"{name} is {op}, but {operand} is None", limit="an operand", target=target)
        elif op.bitwise:
            check_integers(self, op, (operand,), target)
        elif isinstance(value, AccessPattern) and value.dtype != dtypes.float32 and not self._is_exact:
            raise self.refuse(
                operand,
                "must be float32",
                limit="float32 operands; int32 or uint32 where all tiles are, with add, subtract and multiply",
                target=target,
                advice="convert it with tensor_copy",
            )

    def _check_engine_operators(self, engine: Engine, target: Target) -> None:
        if (engine is Engine.gpsimd) != self._has_rsqrt:
            raise self.refuse(
                None,
                f"engine {engine.name} with op0 {self.op0}, op1 {self.op1}",
                limit="rsqrt on engine gpsimd, and nothing else there",
                target=target,
                advice="leave engine out",
            )
        if self.op0.bitwise and engine is not Engine.vector:
            raise self.refuse(None, f"op0 is {self.op0}", limit="bitwise operators on engine vector", target=target)
        if engine is Engine.scalar:
            if target.generation < 3:
                raise self.refuse(
                    None,
                    "the Scalar Engine does not have this instruction here",
                    limit="engine scalar on NeuronCore-v3 and later",
                    target=target,
                    advice="use activation with op=nl.copy, scale and bias",
                )
            pair = self.op0.name, None if self.op1 is None else self.op1.name
            if target.generation == 3 and pair not in _SCALAR_ENGINE_V3:
                raise self.refuse(
                    None,
                    f"the Scalar Engine does not have op0 {self.op0} with op1 {self.op1} here",
                    limit="multiply then add; multiply; add",
                    target=target,
                    advice="use engine=nki.isa.engine.vector",
                )

    def constrain_address(self, target: Target) -> None:
        # Values of numbers are no part of the key, so this one cannot go into ``constrain``.
        if self.op0.arity == 1 and self.operand0:
            raise self._superfluous("op0", self.op0, self.operand0, target)
        if self.op1 is not None and self.op1.arity == 1 and self.operand1:
            raise self._superfluous("op1", self.op1, self.operand1, target)

    def _superfluous(self, name: str, op: AluOp, value: object, target: Target) -> Exception:
        return self.refuse(
            None,
            f"{name} is {op}, which takes one input, but its operand is {value}",
            limit="None or 0",
            target=target,
        )

    def work(self, target: Target) -> Work:
        kind = WorkKind.RSQRT if self.select_engine(target) is Engine.gpsimd else WorkKind.TENSOR_SCALAR
        return Work(kind=kind, elements=self.dst.elements, rows=self.dst.partitions, flags=self.pattern_flags())

    def run(self, machine: Machine) -> None:
        if self.op0.bitwise or self._is_exact:
            self._run_integers(machine)
            return
        with np.errstate(all="ignore"):
            values = machine.load(self.data)
            operand0 = None if self.op0.arity == 1 else machine.scalar(self.operand0)  # type: ignore[arg-type]
            if self.op1 is None:
                compute(machine, self.dst, self.op0, values, operand0, reverse=self.reverse0)
                return
            operand1 = None if self.op1.arity == 1 else machine.scalar(self.operand1)  # type: ignore[arg-type]
            values = apply(self.op0, values, operand0, reverse=self.reverse0)
            if self.dst.dtype == dtypes.float32:
                compute(machine, self.dst, self.op1, values, operand1, reverse=self.reverse1)
            else:
                out = None if self.op0.name == "bypass" else values  # what bypass gives is not ours to overwrite
                machine.store(self.dst, apply(self.op1, values, operand1, reverse=self.reverse1, out=out))

    def _run_integers(self, machine: Machine) -> None:
        operands = [0 if value is None else value for value in (self.operand0, self.operand1)]
        values, operand0, operand1 = integers(machine, (self.data, *operands), self.dst)  # type: ignore[arg-type]
        values = apply(self.op0, values, operand0, reverse=self.reverse0)
        if self.op1 is not None:
            values = apply(self.op1, values, operand1, reverse=self.reverse1)
        store_integers(machine, self.dst, values)


def _is_int32(value: AccessPattern | float | int | None) -> bool:
    """A number or (P, 1) tile that needs no detour through float32."""
    return value.dtype in INT32 if isinstance(value, AccessPattern) else value.__class__ is int


@instruction(
    opcode=38,
    mnemonic="scalar_tensor_tensor",
    engines=(Engine.vector,),
    source="NKI 0.6 nki.isa.scalar_tensor_tensor",
)
class ScalarTensorTensor(Instruction):
    """dst = (data op0 operand0) op1 operand1, float32 in between, one rounding at the end.

    operand0 is a number or a (P, 1) tile, operand1 a tile like data; reverse0 and reverse1 swap the sides of their
    operator.  Both operators are arithmetic.
    """

    dst: AccessPattern = Dst()
    data: AccessPattern = Src(match="dst")
    op0: AluOp = Imm()
    operand0: AccessPattern | float = Src(match="dst", scalar=True, vector=True)
    op1: AluOp = Imm()
    operand1: AccessPattern = Src(match="dst")
    reverse0: bool = Imm(False)
    reverse1: bool = Imm(False)

    def constrain(self, target: Target) -> None:
        check_arithmetic(self, "op0", self.op0, target)
        check_arithmetic(self, "op1", self.op1, target)
        check_one_in_psum(self, "data", "operand1", target)

    def work(self, target: Target) -> Work:
        flags = self.pattern_flags()
        if (self.op0.name, self.op1.name) == ("subtract", "multiply"):
            flags |= WorkFlag.FAST_OPS
        return Work(
            kind=WorkKind.SCALAR_TENSOR_TENSOR, elements=self.dst.elements, rows=self.dst.partitions, flags=flags
        )

    def run(self, machine: Machine) -> None:
        with np.errstate(all="ignore"):
            values = apply(self.op0, machine.load(self.data), machine.scalar(self.operand0), reverse=self.reverse0)
            compute(machine, self.dst, self.op1, values, machine.load(self.operand1), reverse=self.reverse1)


@instruction(
    opcode=39,
    mnemonic="reciprocal",
    engines=(Engine.vector,),
    source="NKI 0.6 nki.isa.reciprocal",
)
class Reciprocal(Instruction):
    """dst = 1 / data in float32, correctly rounded; 1 / 0 is infinite."""

    dst: AccessPattern = Dst()
    data: AccessPattern = Src(match="dst")

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.RECIPROCAL,
            elements=self.dst.elements,
            rows=self.dst.partitions,
            flags=self.pattern_flags(),
        )

    def run(self, machine: Machine) -> None:
        with np.errstate(all="ignore"):
            machine.store(self.dst, np.float32(1) / machine.load(self.data))
