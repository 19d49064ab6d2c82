"""Collectives: instructions with which ranks exchange tensors.

Every rank of a group issues the same collective.  Tensors in HBM are the rank's: its cores all issue the instruction,
and it begins when all of them have.  Tiles in SBUF are the core's: cores with the same number exchange them.  What a
rank gives is read when the last one has come, so nobody sees values from before or after.

Reductions are computed in float32 over the ranks in the order of their group and rounded once; integers in their own
width.  AWS's texts do not say in which order and width the chip reduces.  Rings go in the order of the group, on every
channel.  Left out: the limits that depend on which ranks are on one chip.

Sources: NKI documentation (0.6), nki.collectives.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import numpy as np

from isa._collective import (
    Collective,
    Groups,
    check_channels,
    check_dim,
    check_groups,
    check_single,
    part_of,
    reduced,
)
from isa._descriptors import check_priority
from isa.alu import AluOp
from isa.engine import Engine
from isa.instruction import Array, Dst, Imm, Machine, Src, instruction
from isa.operands import AccessPattern, Space
from isa.place import Place
from isa.target import Target
from isa.work import Work

__all__ = [
    "AllGather",
    "AllReduce",
    "AllToAll",
    "CollectivePermute",
    "CollectivePermuteImplicit",
    "CollectivePermuteImplicitReduce",
    "Groups",
    "ReduceScatter",
]

_HBM = (Space.HBM,)
_MEMORIES = (Space.HBM, Space.SBUF)


@instruction(
    opcode=128,
    mnemonic="all_reduce",
    engines=(Engine.dma,),
    source="NKI 0.6 nki.collectives.all_reduce",
)
class AllReduce(Collective):
    """Every dst = op over the src of all ranks of the group."""

    srcs: tuple[AccessPattern, ...] = Src(spaces=_MEMORIES, quadrant=False, many=True)
    dsts: tuple[AccessPattern, ...] = Dst(spaces=_MEMORIES, quadrant=False, many=True)
    replica_group: Groups = Imm()
    op: AluOp = Imm()
    priority: int | None = Imm(None)

    def constrain(self, target: Target) -> None:
        check_priority(self, self.priority, target)
        check_groups(self, self.replica_group, target)
        self.check_op(self.op, target)
        self.check_pairs(self.srcs, self.dsts, target, grow=1, shrink=1)

    def work(self, target: Target) -> Work:
        ranks = self.ranks
        return self.collective_work(self.srcs, ranks=ranks, sent=2 * (ranks - 1) / ranks, phases=2)

    def run(self, machine: Machine) -> None:
        given = self.exchange_values(machine, self.srcs)
        for number, dst in enumerate(self.dsts):
            self.put(machine, dst, reduced(self.op, [given[rank][number] for rank in given]))


@instruction(
    opcode=129,
    mnemonic="all_gather",
    engines=(Engine.dma,),
    source="NKI 0.6 nki.collectives.all_gather",
)
class AllGather(Collective):
    """Every dst = the src of all ranks one behind the other along ``collective_dim``, in the order of the group."""

    srcs: tuple[AccessPattern, ...] = Src(spaces=_MEMORIES, quadrant=False, many=True)
    dsts: tuple[AccessPattern, ...] = Dst(spaces=_MEMORIES, quadrant=False, many=True)
    replica_group: Groups = Imm()
    collective_dim: int = Imm()
    priority: int | None = Imm(None)
    takes_packed = True

    def constrain(self, target: Target) -> None:
        check_priority(self, self.priority, target)
        ranks = check_groups(self, self.replica_group, target)
        self.check_pairs(self.srcs, self.dsts, target, grow=ranks, shrink=1)
        check_dim(self, self.collective_dim, 1 if self.srcs[0].space is Space.SBUF else 0, target)

    def work(self, target: Target) -> Work:
        return self.collective_work(self.srcs, ranks=self.ranks, sent=self.ranks - 1)

    def run(self, machine: Machine) -> None:
        given = self.exchange_bits(machine, self.srcs)
        axis = self.collective_dim if self.srcs[0].space is Space.SBUF else 1  # HBM: raw values are one row
        order = self.group(machine)
        for number, dst in enumerate(self.dsts):
            machine.store_raw(dst, np.concatenate([given[rank][number] for rank in order], axis=axis))


@instruction(
    opcode=130,
    mnemonic="reduce_scatter",
    engines=(Engine.dma,),
    source="NKI 0.6 nki.collectives.reduce_scatter",
)
class ReduceScatter(Collective):
    """dst of the group's i-th rank = op over the i-th part, along dimension 0, of the src of all ranks."""

    srcs: tuple[AccessPattern, ...] = Src(spaces=_MEMORIES, quadrant=False, many=True)
    dsts: tuple[AccessPattern, ...] = Dst(spaces=_MEMORIES, quadrant=False, many=True)
    replica_group: Groups = Imm()
    collective_dim: int = Imm()
    op: AluOp = Imm()
    priority: int | None = Imm(None)

    def constrain(self, target: Target) -> None:
        check_priority(self, self.priority, target)
        ranks = check_groups(self, self.replica_group, target)
        self.check_op(self.op, target)
        self.check_pairs(self.srcs, self.dsts, target, grow=1, shrink=ranks)
        check_dim(self, self.collective_dim, 0, target)

    def work(self, target: Target) -> Work:
        return self.collective_work(self.srcs, ranks=self.ranks, sent=(self.ranks - 1) / self.ranks)

    def run(self, machine: Machine) -> None:
        given = self.exchange_values(machine, self.srcs)
        order = self.group(machine)
        axis = 0 if self.srcs[0].space is Space.SBUF else 1
        for number, dst in enumerate(self.dsts):
            parts = [part_of(given[rank][number], order, machine.place.rank, axis) for rank in order]
            self.put(machine, dst, reduced(self.op, parts))


@instruction(
    opcode=131,
    mnemonic="all_to_all",
    engines=(Engine.dma,),
    source="NKI 0.6 nki.collectives.all_to_all",
)
class AllToAll(Collective):
    """The j-th part of dst of the group's i-th rank = the i-th part of src of its j-th, along dimension 0."""

    srcs: tuple[AccessPattern, ...] = Src(spaces=_HBM, quadrant=False, many=True)
    dsts: tuple[AccessPattern, ...] = Dst(spaces=_HBM, quadrant=False, many=True)
    replica_group: Groups = Imm()
    collective_dim: int = Imm()
    priority: int | None = Imm(None)
    takes_packed = True

    def constrain(self, target: Target) -> None:
        check_priority(self, self.priority, target)
        ranks = check_groups(self, self.replica_group, target)
        self.check_pairs(self.srcs, self.dsts, target, grow=1, shrink=1)
        check_dim(self, self.collective_dim, 0, target)
        for number, src in enumerate(self.srcs):
            if src.pairs[0][1] % ranks:
                raise self.refuse(
                    f"srcs[{number}]", f"is not split into {ranks}", limit="dimension 0 a multiple", target=target
                )

    def work(self, target: Target) -> Work:
        return self.collective_work(self.srcs, ranks=self.ranks, sent=(self.ranks - 1) / self.ranks)

    def run(self, machine: Machine) -> None:
        given = self.exchange_bits(machine, self.srcs)
        order = self.group(machine)
        for number, dst in enumerate(self.dsts):
            parts = [part_of(given[rank][number], order, machine.place.rank, 1) for rank in order]
            machine.store_raw(dst, np.concatenate(parts, axis=1))


@instruction(
    opcode=132,
    mnemonic="collective_permute",
    engines=(Engine.dma,),
    source="NKI 0.6 nki.collectives.collective_permute",
)
class CollectivePermute(Collective):
    """dst of each target = src of its source; ranks that are no target keep theirs."""

    srcs: tuple[AccessPattern, ...] = Src(spaces=_HBM, quadrant=False, many=True)
    dsts: tuple[AccessPattern, ...] = Dst(spaces=_HBM, quadrant=False, many=True)
    source_target_pairs: tuple[tuple[int, int], ...] = Imm()
    priority: int | None = Imm(None)
    takes_packed = True

    @classmethod
    def meeting(cls, constants: Mapping[str, str], work: Work, place: Place) -> tuple[str, tuple[int, ...]] | None:
        ranks = {rank for pair in ast.literal_eval(constants["source_target_pairs"]) for rank in pair}
        return (cls.mnemonic, place.across(ranks, all_cores=True)) if place.rank in ranks else None

    def constrain(self, target: Target) -> None:
        check_priority(self, self.priority, target)
        pairs = self.source_target_pairs
        nested = bool(pairs) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs)
        sides = [list(side) for side in zip(*pairs, strict=True)] if nested else []
        if not nested or any(len(side) != len(set(side)) for side in sides):
            raise self.refuse(
                None,
                f"source_target_pairs={pairs}",
                limit="pairs (source, target), each rank once as source and once as target at most",
                target=target,
            )
        check_single(self, self.srcs, target)
        self.check_pairs(self.srcs, self.dsts, target, grow=1, shrink=1)

    def work(self, target: Target) -> Work:
        return self.collective_work(self.srcs, ranks=2, sent=1)

    def run(self, machine: Machine) -> None:
        given = self.exchange(machine, lambda: machine.raw(self.srcs[0]).copy())
        for source, destination in self.source_target_pairs:
            if destination == machine.place.rank:
                machine.store_raw(self.dsts[0], given[source])


@instruction(
    opcode=133,
    mnemonic="collective_permute_implicit",
    engines=(Engine.dma,),
    source="NKI 0.6 nki.collectives.collective_permute_implicit",
)
class CollectivePermuteImplicit(Collective):
    """On each channel, dst = src of the predecessor in the ring; one source and one destination per channel."""

    srcs_by_channel: tuple[AccessPattern, ...] = Src(spaces=_MEMORIES, quadrant=False, many=True)
    dsts_by_channel: tuple[AccessPattern, ...] = Dst(spaces=_MEMORIES, quadrant=False, many=True)
    replica_group: Groups = Imm()
    channel_ids: tuple[int, ...] = Imm((0,))
    priority: int | None = Imm(None)
    takes_packed = True

    def constrain(self, target: Target) -> None:
        check_priority(self, self.priority, target)
        check_groups(self, self.replica_group, target)
        check_channels(self, self.srcs_by_channel, self.dsts_by_channel, self.channel_ids, target)

    def work(self, target: Target) -> Work:
        return self.collective_work(self.srcs_by_channel, ranks=2, sent=1)

    def run(self, machine: Machine) -> None:
        given = self.exchange_bits(machine, self.srcs_by_channel)
        before = self.predecessor(machine)
        for number, dst in enumerate(self.dsts_by_channel):
            machine.store_raw(dst, given[before][number])


@instruction(
    opcode=134,
    mnemonic="collective_permute_implicit_reduce",
    engines=(Engine.dma,),
    source="NKI 0.6 nki.collectives.collective_permute_implicit_reduce",
)
class CollectivePermuteImplicitReduce(Collective):
    """On each channel, dst = op(src0, src1) of the predecessor in the ring."""

    srcs0_by_channel: tuple[AccessPattern, ...] = Src(spaces=_MEMORIES, quadrant=False, many=True)
    srcs1_by_channel: tuple[AccessPattern, ...] = Src(spaces=_MEMORIES, quadrant=False, many=True)
    dsts_by_channel: tuple[AccessPattern, ...] = Dst(spaces=_MEMORIES, quadrant=False, many=True)
    replica_group: Groups = Imm()
    op: AluOp = Imm()
    channel_ids: tuple[int, ...] = Imm((0,))
    priority: int | None = Imm(None)

    def constrain(self, target: Target) -> None:
        check_priority(self, self.priority, target)
        check_groups(self, self.replica_group, target)
        self.check_op(self.op, target)
        check_channels(self, self.srcs0_by_channel, self.dsts_by_channel, self.channel_ids, target)
        check_channels(self, self.srcs1_by_channel, self.dsts_by_channel, self.channel_ids, target)

    def work(self, target: Target) -> Work:
        return self.collective_work(self.srcs0_by_channel, ranks=2, sent=1)

    def run(self, machine: Machine) -> None:
        def give() -> list[Array]:
            pairs = zip(
                self.values(machine, self.srcs0_by_channel), self.values(machine, self.srcs1_by_channel), strict=True
            )
            return [reduced(self.op, pair) for pair in pairs]

        given, before = self.exchange_equal(machine, give), self.predecessor(machine)
        for number, dst in enumerate(self.dsts_by_channel):
            self.put(machine, dst, given[before][number])
