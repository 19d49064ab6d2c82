"""Instructions with which the two cores of a pair (LNC2) meet: a barrier, and an exchange of tiles.

Both are issued by each of the cores.  A core that comes first waits; :meth:`isa.instruction.Machine.meet` is where it
does.  Collectives among ranks are in :mod:`isa.collective`.

Sources: NKI documentation (0.6), nki.isa.core_barrier and nki.isa.sendrecv.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from isa._descriptors import move_work
from isa.engine import Engine
from isa.enums import DgeMode, DmaEngine
from isa.instruction import Dst, Imm, Instruction, Machine, Src, SrcDst, instruction
from isa.operands import AccessPattern, Space
from isa.place import Place
from isa.sync import SEQUENCERS
from isa.target import Target
from isa.work import Work, WorkFlag, WorkKind

__all__ = ["CoreBarrier", "SendRecv"]

PAIR = (3, 4)
"""Generations whose cores come in pairs (logical NeuronCore configuration 2)."""

GPSIMD_DMA_BYTES = {4: 1024, 2: 512, 1: 256}
"""Bytes per partition that the GpSimd Engine's own DMA takes, by bytes of an element."""


@instruction(
    opcode=120, mnemonic="core_barrier", engines=SEQUENCERS, source="NKI 0.6 nki.isa.core_barrier", generations=PAIR
)
class CoreBarrier(Instruction):
    """The cores of ``cores`` wait for each other; what they did to ``data`` before is done, and no value changes.

    Only the engine ``engine`` of each core waits, and what touches ``data`` afterwards.
    """

    data: AccessPattern = SrcDst(spaces=(Space.HBM, Space.SBUF), quadrant=False)  # what comes after waits, reads too
    cores: tuple[int, ...] | int = Imm()
    engine: Engine = Imm(Engine.gpsimd)
    takes_packed = True
    orders = True

    @classmethod
    def meeting(cls, constants: Mapping[str, str], work: Work, place: Place) -> tuple[str, tuple[int, ...]]:
        return "core_barrier", place.beside(int(core) for core in re.findall(r"\d+", constants["cores"]))

    @property
    def members(self) -> tuple[int, ...]:
        """The cores that meet, in order; kernels write ``(0)`` for one core."""
        return (self.cores,) if isinstance(self.cores, int) else tuple(sorted(self.cores))

    def select_engine(self, target: Target) -> Engine:
        return Engine.gpsimd if self.engine is Engine.unknown else self.engine

    def constrain(self, target: Target) -> None:
        if self.select_engine(target) not in self.engines:
            raise self.refuse(
                None,
                f"engine {self.engine.name} has no sequencer",
                limit=", ".join(one.name for one in self.engines),
                target=target,
            )
        if not self.members or len(set(self.members)) != len(self.members) or not set(self.members) <= {0, 1}:
            raise self.refuse(None, f"cores={self.cores}", limit="each core of the pair (0, 1) once", target=target)

    def work(self, target: Target) -> Work:
        return Work(kind=WorkKind.CONTROL, flags=int(WorkFlag.HBM_READ))

    def run(self, machine: Machine) -> None:
        agents = machine.place.beside(self.members)
        machine.meet("core_barrier", agents, lambda: None, lane=self.select_engine(machine.target).name)


@instruction(
    opcode=104, mnemonic="sendrecv", engines=(Engine.dma,), source="NKI 0.6 nki.isa.sendrecv", generations=PAIR
)
class SendRecv(Instruction):
    """My src goes into the other core's dst, and its src into mine; calls with the same pipe_id pair up in order."""

    src: AccessPattern = Src(spaces=(Space.SBUF,), quadrant=False)
    dst: AccessPattern = Dst(spaces=(Space.SBUF,), quadrant=False, match="src")
    send_to_rank: int = Imm()
    recv_from_rank: int = Imm()
    pipe_id: int = Imm()
    dma_engine: DmaEngine = Imm(DmaEngine.dma)
    takes_packed = True

    @classmethod
    def meeting(cls, constants: Mapping[str, str], work: Work, place: Place) -> tuple[str, tuple[int, ...]]:
        return f"sendrecv pipe {constants['pipe_id']}", place.beside((0, 1))

    def queue(self, target: Target) -> int:
        return int(Engine.gpsimd if self.dma_engine is DmaEngine.gpsimd_dma else Engine.sync)

    def constrain(self, target: Target) -> None:
        if self.dst.dtype != self.src.dtype:
            raise self.refuse("dst", f"dtype differs from src's {self.src.dtype}", limit="equal dtypes", target=target)
        for name in ("send_to_rank", "recv_from_rank"):
            if getattr(self, name) not in (0, 1):
                raise self.refuse(None, f"{name}={getattr(self, name)}", limit="ranks 0 and 1", target=target)
        if self.dma_engine is DmaEngine.gpsimd_dma:
            size = self.src.dtype.itemsize
            limit = GPSIMD_DMA_BYTES[size]
            if self.src.elements * size > limit:
                raise self.refuse(
                    "src",
                    f"has {self.src.elements * size} bytes in a partition",
                    limit=f"{limit} bytes of {size}-byte elements with dma_engine.gpsimd_dma",
                    target=target,
                    advice="use dma_engine.dma",
                )

    def work(self, target: Target) -> Work:
        return move_work(DgeMode.none, self.dst, self.src)

    def run(self, machine: Machine) -> None:
        bits = machine.raw(self.src).copy()
        what, place = f"sendrecv pipe {self.pipe_id}", machine.place
        came = machine.meet(
            what, place.beside((0, 1)), lambda: (bits, self.send_to_rank, self.recv_from_rank), lane=what
        )
        given = dict(enumerate(came[agent] for agent in sorted(came)))
        received, sent_to, _ = given[self.recv_from_rank]
        if sent_to != place.core or given[self.send_to_rank][2] != place.core:
            routes = ", ".join(f"core {core} sends to {to} and takes from {of}" for core, (_, to, of) in given.items())
            raise self.refuse(
                None,
                f"the two sides disagree: {routes}",
                limit="what one core sends to another, the other takes from it",
                target=machine.target,
            )
        if received.nbytes != bits.nbytes or received.dtype != bits.dtype:
            raise self.refuse(
                "dst",
                f"the other core sends {received.shape} {received.dtype}",
                limit="equal shapes and dtypes on both cores",
                target=machine.target,
            )
        machine.store_raw(self.dst, received)
