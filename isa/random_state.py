"""Loading and storing the random states of the GpSimd and Vector Engines, lane by lane.

Semantics and limits: NKI documentation (0.6) of ``nki.isa.rand_set_state`` and ``rand_get_state``; the generator and
the order of a state's words: :mod:`isa.random`.
"""

from __future__ import annotations

from isa.engine import Engine
from isa.instruction import Dst, Imm, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern, Space
from isa.random import STATE_WORDS, Generator
from isa.target import Target
from isa.work import Work, WorkKind

__all__ = ["RandGetState", "RandSetState"]


def _check_state(ins: RandSetState | RandGetState, operand: str, target: Target) -> None:
    tile: AccessPattern = getattr(ins, operand)
    if ins.engine not in ins.engines:
        raise ins.refuse(None, f"engine {ins.engine.name} has no XORWOW state", limit="gpsimd or vector", target=target)
    if ins.engine is Engine.vector and target.generation < 4:
        raise ins.refuse(
            None,
            "the Vector Engine has no XORWOW state here",
            target=target,
            limit="engine vector on NeuronCore-v4 and later",
            advice="use engine=gpsimd, or set_rng_seed for the Vector Engine",
        )
    columns = STATE_WORDS * Generator.streams_of(ins.engine)
    if tile.elements != columns:
        raise ins.refuse(
            operand,
            f"has {tile.elements} elements per partition",
            target=target,
            limit=f"{columns} words per lane on engine {ins.engine.name}",
        )


@instruction(
    opcode=69,
    mnemonic="rand_set_state",
    engines=(Engine.gpsimd, Engine.vector),
    generations=(3, 4),
    source="NKI 0.6 nki.isa.rand_set_state",
)
class RandSetState(Instruction):
    """Load the XORWOW states of the lanes (partitions) of ``src_seeds``: 6 words a lane on GpSimd, 24 on Vector."""

    src_seeds: AccessPattern = Src(spaces=(Space.SBUF,), dtypes=frozenset({"uint32"}))
    engine: Engine = Imm(Engine.gpsimd)

    def select_engine(self, target: Target) -> Engine:
        return self.engine

    def constrain(self, target: Target) -> None:
        _check_state(self, "src_seeds", target)

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.RANDOM,
            elements=self.src_seeds.elements,
            rows=self.src_seeds.partitions,
            flags=self.pattern_flags(),
        )

    def run(self, machine: Machine) -> None:
        machine.random_state(self.engine).set_state(machine.raw(self.src_seeds), start=self.src_seeds.start)


@instruction(
    opcode=70,
    mnemonic="rand_get_state",
    engines=(Engine.gpsimd, Engine.vector),
    generations=(3, 4),
    source="NKI 0.6 nki.isa.rand_get_state",
)
class RandGetState(Instruction):
    """Store the XORWOW states of the lanes (partitions) of dst; the inverse of ``rand_set_state``."""

    dst: AccessPattern = Dst(dtypes=frozenset({"uint32"}))
    engine: Engine = Imm(Engine.gpsimd)

    def select_engine(self, target: Target) -> Engine:
        return self.engine

    def constrain(self, target: Target) -> None:
        _check_state(self, "dst", target)
        if self.dst.space is Space.PSUM and self.engine is Engine.gpsimd:
            raise self.refuse(
                "dst", "is in PSUM, which GpSimd does not reach", limit="SBUF on engine gpsimd", target=target
            )

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.RANDOM, elements=self.dst.elements, rows=self.dst.partitions, flags=self.pattern_flags()
        )

    def run(self, machine: Machine) -> None:
        state = machine.random_state(self.engine).get_state(self.dst.partitions, start=self.dst.start)
        machine.store_raw(self.dst, state)
