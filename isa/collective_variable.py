"""Collectives whose sizes are known at run time, and the numbers of ranks in registers.

The variable forms take tensors as flat buffers.  A ``uint32`` table holds, with a column for each rank of the group:
elements sent, where they start in src, elements received (written unless ``recv_counts_known``), and where they go in
dst (only with ``has_rdispls``; otherwise dst has equal slots, one per sender).

Sources: NKI documentation (0.6), nki.collectives; limits that depend on which ranks are on one chip are left out.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from isa._collective import Collective, Groups, check_groups, check_single, group_of
from isa._descriptors import check_priority
from isa.engine import Engine
from isa.faults import OutOfBoundsFault
from isa.instruction import Array, Dst, Imm, Instruction, Machine, Src, SrcDst, instruction
from isa.operands import AccessPattern, Space
from isa.sync import REGISTER, SEQUENCERS
from isa.target import Target
from isa.work import Work, WorkKind

__all__ = ["AllGatherV", "AllToAllV", "CurrentRank", "RankId"]

_HBM = (Space.HBM,)
_COUNTS, _STARTS, _RECEIVED, _PLACES = range(4)
_GATHER_RANKS = 4  # in one group of all_gather_v


def _flat(tensor: AccessPattern, first: int, count: int) -> AccessPattern:
    """Elements ``first`` to ``first + count`` of a dense tensor of one row."""
    return AccessPattern(
        tensor.space,
        tensor.dtype,
        tensor.offset + first * tensor.dtype.itemsize,
        ((1, count),),
        start=tensor.start,
        buffer=tensor.buffer,
        storage=tensor.storage,
    )


class _Variable(Collective):
    """What the variable forms share."""

    __slots__ = ()
    takes_packed = True
    srcs: tuple[AccessPattern, ...]
    dsts: tuple[AccessPattern, ...]
    replica_group: Groups
    metadata_tensor: AccessPattern
    recv_counts_known: bool
    has_rdispls: bool
    priority: int | None
    columns: ClassVar[int]  # of the table that a sender reads; 0 stands for all

    def constrain(self, target: Target) -> None:
        check_priority(self, self.priority, target)
        ranks = check_groups(self, self.replica_group, target)
        check_single(self, self.srcs, target)
        check_single(self, self.dsts, target)
        if self.srcs[0].dtype != self.dsts[0].dtype:
            raise self.refuse("dsts[0]", f"is not of dtype {self.srcs[0].dtype}", limit="equal dtypes", target=target)
        rows = 4 if self.has_rdispls else 3
        table = self.metadata_tensor
        if table.partitions != 1 or table.elements != rows * ranks:
            raise self.refuse(
                "metadata_tensor",
                f"is no table of {rows} rows and {ranks} ranks",
                limit=f"shape ({rows}, {ranks}) in HBM, (1, {rows}, {ranks}) in SBUF",
                target=target,
            )
        for name, tensor in (("srcs[0]", self.srcs[0]), ("dsts[0]", self.dsts[0]), ("metadata_tensor", table)):
            if tensor.contiguous_run != tensor.elements * tensor.dtype.itemsize:
                raise self.refuse(name, "is not contiguous", limit="flat buffers", target=target)
        if not self.has_rdispls and self.dsts[0].elements % ranks:
            raise self.refuse("dsts[0]", f"has no {ranks} equal slots", limit="a multiple of the ranks", target=target)

    def work(self, target: Target) -> Work:
        sent = (self.ranks - 1) / (1 if self.columns else self.ranks)
        return self.collective_work(self.srcs, ranks=self.ranks, sent=sent)

    def run(self, machine: Machine) -> None:
        order = self.group(machine)
        ranks, mine = len(order), order.index(machine.place.rank)

        def give() -> list[Array]:
            columns = self.columns or ranks
            table = np.stack([self._row(machine, row, ranks, columns) for row in (_COUNTS, _STARTS)])
            return [self._chunk(machine, table, to) for to in range(columns)]

        given = self.exchange(machine, give)
        slot = self.dsts[0].elements // ranks
        places = self._row(machine, _PLACES, ranks, ranks) if self.has_rdispls else np.arange(ranks) * slot
        received = np.zeros(ranks, np.uint32)
        for sender, rank in enumerate(order):
            chunk = given[rank][0 if self.columns else mine]
            received[sender] = count = chunk.size
            room = self.dsts[0].elements - int(places[sender]) if self.has_rdispls else slot
            if count > room:
                raise OutOfBoundsFault(
                    f"rank {rank} sends {count} elements where dst has room for {room}",
                    instruction=self.mnemonic,
                    operand="dsts[0]",
                    advice="make dst larger: it has one equal slot per rank" if not self.has_rdispls else None,
                )
            if count:
                machine.store_raw(_flat(self.dsts[0], int(places[sender]), count), chunk)
        if not self.recv_counts_known:
            machine.store_raw(_flat(self.metadata_tensor, _RECEIVED * ranks, ranks), received)

    def _row(self, machine: Machine, row: int, ranks: int, columns: int) -> Array:
        return machine.raw(_flat(self.metadata_tensor, row * ranks, columns)).ravel().astype(np.int64)

    def _chunk(self, machine: Machine, table: Array, to: int) -> Array:
        """What goes to the group's rank number ``to``."""
        src = self.srcs[0]
        count, start = int(table[_COUNTS, to]), int(table[_STARTS, to])
        if start + count > src.elements:
            raise OutOfBoundsFault(
                f"sends elements {start} to {start + count} of {src.elements}",
                instruction=self.mnemonic,
                operand="srcs[0]",
            )
        return machine.raw(_flat(src, start, count)).copy() if count else np.zeros(0, src.dtype.storage)


@instruction(
    opcode=135,
    mnemonic="all_gather_v",
    engines=(Engine.dma,),
    source="NKI 0.6 nki.collectives.all_gather_v",
)
class AllGatherV(_Variable):
    """The chunk that the table names of each rank's src goes into that rank's slot of every dst."""

    columns = 1

    srcs: tuple[AccessPattern, ...] = Src(spaces=_HBM, quadrant=False, many=True)
    dsts: tuple[AccessPattern, ...] = Dst(spaces=_HBM, quadrant=False, many=True)
    replica_group: Groups = Imm()
    metadata_tensor: AccessPattern = SrcDst(
        spaces=(Space.HBM, Space.SBUF), quadrant=False, dtypes=frozenset({"uint32"})
    )
    recv_counts_known: bool = Imm(False)
    has_rdispls: bool = Imm(False)
    priority: int | None = Imm(None)

    def constrain(self, target: Target) -> None:
        if self.has_rdispls:
            raise self.refuse(None, "has_rdispls=True", limit="has_rdispls=False", target=target)
        if check_groups(self, self.replica_group, target) != _GATHER_RANKS:
            raise self.refuse(
                None, f"groups {self.replica_group}", limit=f"{_GATHER_RANKS} ranks, those of a chip", target=target
            )
        _Variable.constrain(self, target)


@instruction(
    opcode=136,
    mnemonic="all_to_all_v",
    engines=(Engine.dma,),
    source="NKI 0.6 nki.collectives.all_to_all_v",
)
class AllToAllV(_Variable):
    """A chunk for each rank, as the table says, goes into the sender's slot of that rank's dst."""

    columns = 0

    srcs: tuple[AccessPattern, ...] = Src(spaces=_HBM, quadrant=False, many=True)
    dsts: tuple[AccessPattern, ...] = Dst(spaces=_HBM, quadrant=False, many=True)
    replica_group: Groups = Imm()
    metadata_tensor: AccessPattern = SrcDst(
        spaces=(Space.HBM, Space.SBUF), quadrant=False, dtypes=frozenset({"uint32"})
    )
    recv_counts_known: bool = Imm(False)
    has_rdispls: bool = Imm(False)
    priority: int | None = Imm(None)

    def constrain(self, target: Target) -> None:
        if self.has_rdispls and target.generation < 4:
            raise self.refuse(None, "has_rdispls=True", limit="NeuronCore-v4 and later", target=target)
        _Variable.constrain(self, target)


class _Number(Instruction):
    """A number of a rank into a register."""

    __slots__ = ()
    control = True

    def work(self, target: Target) -> Work:
        return Work(kind=WorkKind.CONTROL)


@instruction(opcode=122, mnemonic="rank_id", engines=SEQUENCERS, source="NKI 0.6 nki.collectives.rank_id")
class RankId(_Number):
    """Register dst = the number of this rank."""

    dst: AccessPattern = Dst(spaces=REGISTER)

    def run(self, machine: Machine) -> None:
        machine.write_register(self.dst, machine.place.rank)


@instruction(
    opcode=123,
    mnemonic="collective_permute_implicit_current_processing_rank_id",
    engines=SEQUENCERS,
    source="NKI 0.6 nki.collectives.collective_permute_implicit_current_processing_rank_id",
)
class CurrentRank(_Number):
    """Register dst = the rank whose data this one holds after ``iteration_id`` steps around the ring."""

    dst: AccessPattern = Dst(spaces=REGISTER)
    iteration_id: int = Imm()
    replica_group: Groups = Imm()
    channel_id: int = Imm(0)

    def constrain(self, target: Target) -> None:
        check_groups(self, self.replica_group, target)

    def run(self, machine: Machine) -> None:
        group = group_of(self.replica_group, machine.place.rank, self.mnemonic)
        at = group.index(machine.place.rank) - self.iteration_id
        machine.write_register(self.dst, group[at % len(group)])
