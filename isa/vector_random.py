"""Random numbers on the Vector Engine: bits, uniform values, dropout.

The engine's generator is in :mod:`isa.random`; its sequence is ours, only its distribution is the chip's.  Semantics
and limits: NKI documentation (0.6).
"""

from __future__ import annotations

import numpy as np

from isa import dtypes
from isa.engine import Engine
from isa.instruction import Dst, Imm, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern, Space
from isa.target import Target
from isa.work import Work, WorkKind

__all__ = ["Dropout", "Rand2", "Rng", "SetRngSeed"]

_INTEGERS = frozenset({"int8", "int16", "int32", "uint8", "uint16", "uint32"})
_WORDS = frozenset({"int32", "uint32", "float32"})


def _work(dst: AccessPattern, flags: int) -> Work:
    return Work(kind=WorkKind.RANDOM, elements=dst.elements, rows=dst.partitions, flags=flags)


@instruction(opcode=52, mnemonic="rng", engines=(Engine.vector, Engine.gpsimd), source="NKI 0.6 nki.isa.rng")
class Rng(Instruction):
    """dst = 32 random bits per element, of which the low ones are kept.  GpSimd from NeuronCore-v3 on, SBUF only."""

    dst: AccessPattern = Dst(dtypes=_INTEGERS)
    engine: Engine = Imm(Engine.vector)

    def select_engine(self, target: Target) -> Engine:
        return Engine.vector if self.engine is Engine.unknown else self.engine

    def constrain(self, target: Target) -> None:
        engine = self.select_engine(target)
        if engine not in self.engines:
            raise self.refuse(
                None, f"the {engine.title} Engine has no generator", limit="engine: vector or gpsimd", target=target
            )
        if engine is Engine.gpsimd:
            if target.generation < 3:
                raise self.refuse(
                    None,
                    "the GpSimd Engine has no generator on this generation",
                    target=target,
                    limit="gpsimd from NeuronCore-v3",
                )
            if self.dst.space is Space.PSUM:
                raise self.refuse("dst", "the GpSimd Engine cannot access PSUM", limit="memory: SBUF", target=target)

    def work(self, target: Target) -> Work:
        return _work(self.dst, self.pattern_flags())

    def run(self, machine: Machine) -> None:
        generator = machine.random_state(self.select_engine(machine.target))
        bits = generator.bits((self.dst.partitions, self.dst.elements), start=self.dst.start)
        machine.store_raw(self.dst, bits.astype(self.dst.dtype.storage))


@instruction(opcode=53, mnemonic="set_rng_seed", engines=(Engine.vector,), source="NKI 0.6 nki.isa.set_rng_seed")
class SetRngSeed(Instruction):
    """Seed the Vector Engine's generator with a (1, 1) tile of 32 bits."""

    src_seeds: AccessPattern = Src(dtypes=_WORDS, vector=True)

    def constrain(self, target: Target) -> None:
        if self.src_seeds.partitions != 1:
            raise self.refuse("src_seeds", "is not one element", limit="shape (1, 1)", target=target)

    def work(self, target: Target) -> Work:
        return _work(self.src_seeds, self.pattern_flags())

    def run(self, machine: Machine) -> None:
        seed = np.ascontiguousarray(machine.raw(self.src_seeds)).view(np.uint32)
        machine.random_state(Engine.vector).seed(int(seed[0, 0]))


@instruction(opcode=54, mnemonic="rand2", engines=(Engine.vector,), source="NKI 0.6 nki.isa.rand2", generations=(4,))
class Rand2(Instruction):
    """dst = uniform float32 values from min to max, rounded to dst's dtype; min and max are numbers or (P, 1) tiles."""

    dst: AccessPattern = Dst()
    min: AccessPattern | float = Src(match="dst", scalar=True, vector=True)
    max: AccessPattern | float = Src(match="dst", scalar=True, vector=True)

    def constrain(self, target: Target) -> None:
        low, high = self.min, self.max
        if not isinstance(low, AccessPattern) and not isinstance(high, AccessPattern) and not low < high:
            raise self.refuse(None, f"min {low} is not below max {high}", limit="min < max", target=target)

    def work(self, target: Target) -> Work:
        return _work(self.dst, self.pattern_flags())

    def run(self, machine: Machine) -> None:
        generator = machine.random_state(Engine.vector)
        uniform = generator.uniform((self.dst.partitions, self.dst.elements), start=self.dst.start)
        low, high = machine.scalar(self.min), machine.scalar(self.max)
        machine.store(self.dst, low + uniform * (high - low))


@instruction(opcode=55, mnemonic="dropout", engines=(Engine.vector,), source="NKI 0.6 nki.isa.dropout")
class Dropout(Instruction):
    """dst = data with each element set to zero with probability prob (a number or a (P, 1) tile); no rescaling."""

    dst: AccessPattern = Dst()
    data: AccessPattern = Src(match="dst")
    prob: AccessPattern | float = Src(match="dst", scalar=True, vector=True)

    def constrain(self, target: Target) -> None:
        if self.dst.dtype != self.data.dtype:
            raise self.refuse(
                "dst", f"dtype differs from data's {self.data.dtype}", limit="equal dtypes", target=target
            )
        prob = self.prob
        if isinstance(prob, AccessPattern) and (
            not prob.dtype.is_float or (self.data.dtype.is_integer and prob.dtype != dtypes.float32)
        ):
            raise self.refuse(
                "prob",
                "dtype does not fit the data",
                target=target,
                limit="float32; any float dtype where data is float",
            )

    def work(self, target: Target) -> Work:
        return _work(self.dst, self.pattern_flags())

    def run(self, machine: Machine) -> None:
        generator = machine.random_state(Engine.vector)
        uniform = generator.uniform((self.dst.partitions, self.dst.elements), start=self.dst.start)
        kept = uniform >= machine.scalar(self.prob)
        data = machine.raw(self.data)
        machine.store_raw(self.dst, np.where(kept, data, np.zeros(1, data.dtype)))
