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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from isa._descriptors import check_priority
from isa.alu import AluOp
from isa.engine import Engine
from isa.faults import ConstraintFault
from isa.instruction import Array, Dst, Imm, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern, Space
from isa.place import Place
from isa.target import Target
from isa.work import Work, WorkFlag, WorkKind

__all__ = [
    "AllGather",
    "AllReduce",
    "AllToAll",
    "CollectivePermute",
    "CollectivePermuteImplicit",
    "CollectivePermuteImplicitReduce",
    "Groups",
    "ReduceScatter",
    "check_groups",
    "group_of",
    "reduced",
]

Groups = tuple[tuple[int, ...], ...]
"""Ranks that communicate; no rank is in two groups."""

_HBM = (Space.HBM,)
_MEMORIES = (Space.HBM, Space.SBUF)
_OPERATORS: Mapping[str, Any] = {"add": np.add, "minimum": np.minimum, "maximum": np.maximum}
_CHANNELS = 4


def group_of(groups: Groups, rank: int, instruction: str) -> tuple[int, ...]:
    """The group that ``rank`` is in.

    Raises:
        ConstraintFault: it is in none.
    """
    for group in groups:
        if rank in group:
            return group
    raise ConstraintFault(
        f"rank {rank} is in no group of {groups}",
        instruction=instruction,
        limit="every rank that issues a collective is in one of its groups",
    )


def check_groups(ins: Instruction, groups: Groups, target: Target) -> int:
    """Groups are equally large and without overlap; returns how many ranks one has."""
    nested = bool(groups) and all(isinstance(group, tuple) for group in groups)
    flat = [rank for group in groups for rank in group] if nested else []
    sizes = {len(group) for group in groups} if nested else set()
    if len(sizes) != 1 or 0 in sizes or len(flat) != len(set(flat)) or min(flat) < 0:
        raise ins.refuse(
            None,
            f"replica groups {groups}",
            limit="groups of equally many ranks, each rank in one group",
            target=target,
        )
    return sizes.pop()


def reduced(op: AluOp, parts: Sequence[Array]) -> Array:
    """``op`` over arrays of one dtype, from the first to the last."""
    total = parts[0].copy()
    with np.errstate(all="ignore"):
        for part in parts[1:]:
            _OPERATORS[op.name](total, part, out=total)
    return total


class Collective(Instruction):
    """What collectives share: operands, the meeting, and their work."""

    __slots__ = ()

    def queue(self, target: Target) -> int:
        return int(Engine.dma)

    @classmethod
    def meeting(cls, constants: Mapping[str, str], work: Work, place: Place) -> tuple[str, tuple[int, ...]] | None:
        groups = ast.literal_eval(constants["replica_groups"])
        group = group_of(groups, place.rank, cls.mnemonic)
        return cls.mnemonic, place.across(group, all_cores=bool(work.flags & WorkFlag.HBM_READ))

    def exchange(self, machine: Machine, give: Callable[[], Any]) -> dict[int, Any]:
        """Meet the others; what the cores with the number of this one give, by rank."""
        met = self.meeting(dict(self.constants()), self.work(machine.target), machine.place)
        if met is None:
            return {}
        what, agents = met
        place = machine.place
        came = machine.meet(what, agents, give, lane="collectives")
        return {agent // place.cores: came[agent] for agent in agents if agent % place.cores == place.core}

    def check_pairs(
        self, srcs: Sequence[AccessPattern], dsts: Sequence[AccessPattern], target: Target, *, grow: int, shrink: int
    ) -> None:
        """Sources and destinations go together; a destination has ``grow / shrink`` times the elements."""
        if len(srcs) != len(dsts):
            raise self.refuse(None, f"{len(srcs)} sources and {len(dsts)} destinations", limit="as many", target=target)
        if len({tensor.space for tensor in (*srcs, *dsts)}) != 1:
            raise self.refuse(None, "tensors in HBM and in SBUF", limit="all in HBM, or all in SBUF", target=target)
        if len(srcs) > 1 and srcs[0].space is Space.SBUF:
            raise self.refuse(None, f"{len(srcs)} tensors in SBUF", limit="several tensors in HBM only", target=target)
        for number, (src, dst) in enumerate(zip(srcs, dsts, strict=True)):
            name = self.operands[-1][0]
            if dst.dtype != src.dtype:
                raise self.refuse(
                    f"{name}[{number}]", f"is not of dtype {src.dtype}", limit="equal dtypes", target=target
                )
            if dst.partitions * dst.elements * shrink != src.partitions * src.elements * grow:
                raise self.refuse(
                    f"{name}[{number}]",
                    f"does not fit to a source of shape {src.shape}",
                    limit=f"{grow}/{shrink} of the source's elements",
                    target=target,
                )

    def check_op(self, op: AluOp, target: Target) -> None:
        if op.name not in _OPERATORS:
            raise self.refuse(None, f"op={op.name}", limit="add, minimum, maximum", target=target)

    def collective_work(self, srcs: Sequence[AccessPattern], *, ranks: int, sent: float, phases: int = 1) -> Work:
        """Work of a group of ``ranks``, of which each sends ``sent`` times its source."""
        nbytes = sum(src.nbytes for src in srcs)
        hbm = srcs[0].space is Space.HBM
        return Work(
            kind=WorkKind.COLLECTIVE,
            rows=phases,
            columns=nbytes,
            inputs=ranks,
            nbytes=round(nbytes * sent),
            flags=int(WorkFlag.HBM_READ | WorkFlag.HBM_WRITE) if hbm else 0,
        )

    def values(self, machine: Machine, tensors: Sequence[AccessPattern]) -> list[Array]:
        """Numbers to reduce: float32, or integers in their own dtype."""
        return [machine.raw(t).copy() if t.dtype.kind in "iu" else machine.load(t).copy() for t in tensors]

    @staticmethod
    def put(machine: Machine, dst: AccessPattern, values: Array) -> None:
        """Write what :meth:`values` gave, after arithmetic."""
        if dst.dtype.kind in "iu":
            machine.store_raw(dst, values)
        else:
            machine.store(dst, values)

    def check_equal(self, machine: Machine, given: Mapping[int, Sequence[Array]]) -> None:
        """All ranks bring as much."""
        sizes = {rank: [array.shape for array in arrays] for rank, arrays in given.items()}
        if len({str(size) for size in sizes.values()}) > 1:
            raise self.refuse(
                None, f"ranks bring different shapes: {sizes}", limit="equal shapes on all ranks", target=machine.target
            )


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
    replica_groups: Groups = Imm()
    op: AluOp = Imm()
    priority: int | None = Imm(None)

    def constrain(self, target: Target) -> None:
        check_priority(self, self.priority, target)
        check_groups(self, self.replica_groups, target)
        self.check_op(self.op, target)
        self.check_pairs(self.srcs, self.dsts, target, grow=1, shrink=1)

    def work(self, target: Target) -> Work:
        ranks = len(self.replica_groups[0])
        return self.collective_work(self.srcs, ranks=ranks, sent=2 * (ranks - 1) / ranks, phases=2)

    def run(self, machine: Machine) -> None:
        given = self.exchange(machine, lambda: self.values(machine, self.srcs))
        self.check_equal(machine, given)
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
    replica_groups: Groups = Imm()
    collective_dim: int = Imm()
    priority: int | None = Imm(None)
    takes_packed = True

    def constrain(self, target: Target) -> None:
        check_priority(self, self.priority, target)
        ranks = check_groups(self, self.replica_groups, target)
        self.check_pairs(self.srcs, self.dsts, target, grow=ranks, shrink=1)
        check_dim(self, self.collective_dim, 1 if self.srcs[0].space is Space.SBUF else 0, target)

    def work(self, target: Target) -> Work:
        ranks = len(self.replica_groups[0])
        return self.collective_work(self.srcs, ranks=ranks, sent=ranks - 1)

    def run(self, machine: Machine) -> None:
        given = self.exchange(machine, lambda: [machine.raw(src).copy() for src in self.srcs])
        self.check_equal(machine, given)
        axis = self.collective_dim if self.srcs[0].space is Space.SBUF else 1  # HBM: raw values are one row
        order = group_of(self.replica_groups, machine.place.rank, self.mnemonic)
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
    replica_groups: Groups = Imm()
    collective_dim: int = Imm()
    op: AluOp = Imm()
    priority: int | None = Imm(None)

    def constrain(self, target: Target) -> None:
        check_priority(self, self.priority, target)
        ranks = check_groups(self, self.replica_groups, target)
        self.check_op(self.op, target)
        self.check_pairs(self.srcs, self.dsts, target, grow=1, shrink=ranks)
        check_dim(self, self.collective_dim, 0, target)

    def work(self, target: Target) -> Work:
        ranks = len(self.replica_groups[0])
        return self.collective_work(self.srcs, ranks=ranks, sent=(ranks - 1) / ranks)

    def run(self, machine: Machine) -> None:
        given = self.exchange(machine, lambda: self.values(machine, self.srcs))
        self.check_equal(machine, given)
        order = group_of(self.replica_groups, machine.place.rank, self.mnemonic)
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
    replica_groups: Groups = Imm()
    collective_dim: int = Imm()
    priority: int | None = Imm(None)
    takes_packed = True

    def constrain(self, target: Target) -> None:
        check_priority(self, self.priority, target)
        ranks = check_groups(self, self.replica_groups, target)
        self.check_pairs(self.srcs, self.dsts, target, grow=1, shrink=1)
        check_dim(self, self.collective_dim, 0, target)
        for number, src in enumerate(self.srcs):
            if src.pairs[0][1] % ranks:
                raise self.refuse(
                    f"srcs[{number}]", f"is not split into {ranks}", limit="dimension 0 a multiple", target=target
                )

    def work(self, target: Target) -> Work:
        ranks = len(self.replica_groups[0])
        return self.collective_work(self.srcs, ranks=ranks, sent=(ranks - 1) / ranks)

    def run(self, machine: Machine) -> None:
        given = self.exchange(machine, lambda: [machine.raw(src).copy() for src in self.srcs])
        self.check_equal(machine, given)
        order = group_of(self.replica_groups, machine.place.rank, self.mnemonic)
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

    srcs: tuple[AccessPattern, ...] = Src(spaces=_MEMORIES, quadrant=False, many=True)
    dsts: tuple[AccessPattern, ...] = Dst(spaces=_MEMORIES, quadrant=False, many=True)
    replica_groups: Groups = Imm()
    channel_ids: tuple[int, ...] = Imm((0,))
    priority: int | None = Imm(None)
    takes_packed = True

    def constrain(self, target: Target) -> None:
        check_priority(self, self.priority, target)
        check_groups(self, self.replica_groups, target)
        check_channels(self, self.srcs, self.dsts, self.channel_ids, target)

    def work(self, target: Target) -> Work:
        return self.collective_work(self.srcs, ranks=2, sent=1)

    def run(self, machine: Machine) -> None:
        given = self.exchange(machine, lambda: [machine.raw(src).copy() for src in self.srcs])
        self.check_equal(machine, given)
        before = predecessor(self.replica_groups, machine.place.rank, self.mnemonic)
        for number, dst in enumerate(self.dsts):
            machine.store_raw(dst, given[before][number])


@instruction(
    opcode=134,
    mnemonic="collective_permute_implicit_reduce",
    engines=(Engine.dma,),
    source="NKI 0.6 nki.collectives.collective_permute_implicit_reduce",
)
class CollectivePermuteImplicitReduce(Collective):
    """On each channel, dst = op(src0, src1) of the predecessor in the ring."""

    srcs0: tuple[AccessPattern, ...] = Src(spaces=_MEMORIES, quadrant=False, many=True)
    srcs1: tuple[AccessPattern, ...] = Src(spaces=_MEMORIES, quadrant=False, many=True)
    dsts: tuple[AccessPattern, ...] = Dst(spaces=_MEMORIES, quadrant=False, many=True)
    replica_groups: Groups = Imm()
    op: AluOp = Imm()
    channel_ids: tuple[int, ...] = Imm((0,))
    priority: int | None = Imm(None)

    def constrain(self, target: Target) -> None:
        check_priority(self, self.priority, target)
        check_groups(self, self.replica_groups, target)
        self.check_op(self.op, target)
        check_channels(self, self.srcs0, self.dsts, self.channel_ids, target)
        check_channels(self, self.srcs1, self.dsts, self.channel_ids, target)

    def work(self, target: Target) -> Work:
        return self.collective_work(self.srcs0, ranks=2, sent=1)

    def run(self, machine: Machine) -> None:
        def give() -> list[Array]:
            pairs = zip(self.values(machine, self.srcs0), self.values(machine, self.srcs1), strict=True)
            return [reduced(self.op, pair) for pair in pairs]

        given = self.exchange(machine, give)
        self.check_equal(machine, given)
        before = predecessor(self.replica_groups, machine.place.rank, self.mnemonic)
        for number, dst in enumerate(self.dsts):
            self.put(machine, dst, given[before][number])


def predecessor(groups: Groups, rank: int, instruction: str) -> int:
    """The rank before ``rank`` in its ring."""
    group = group_of(groups, rank, instruction)
    return group[group.index(rank) - 1]


def part_of(values: Array, order: Sequence[int], rank: int, axis: int) -> Array:
    """The part of ``values`` that belongs to ``rank``, cut along ``axis`` into as many as there are ranks."""
    return np.split(values, len(order), axis=axis)[list(order).index(rank)]


def check_dim(ins: Instruction, dim: int, last: int, target: Target) -> None:
    """``collective_dim`` is 0, or up to ``last``."""
    if not 0 <= dim <= last:
        limit = "0" if last == 0 else "0 or 1"
        raise ins.refuse(None, f"collective_dim={dim}", limit=f"{limit} for these tensors", target=target)


def check_single(ins: Instruction, tensors: Sequence[AccessPattern], target: Target) -> None:
    """One tensor per call."""
    if len(tensors) != 1:
        raise ins.refuse(None, f"{len(tensors)} tensors", limit="exactly one tensor", target=target)


def check_channels(
    ins: Collective,
    srcs: Sequence[AccessPattern],
    dsts: Sequence[AccessPattern],
    channels: Sequence[int],
    target: Target,
) -> None:
    """Consecutive channels from 0, one source and one destination each."""
    if tuple(channels) != tuple(range(len(srcs))) or len(srcs) != len(dsts) or len(srcs) > _CHANNELS:
        raise ins.refuse(
            None,
            f"{len(srcs)} sources and {len(dsts)} destinations on channels {tuple(channels)}",
            limit=f"channels 0, 1, ... up to {_CHANNELS} of them, one source and one destination each",
            target=target,
        )
    for src, dst in zip(srcs, dsts, strict=True):
        if src.space is not dst.space or src.dtype != dst.dtype or src.nbytes != dst.nbytes:
            raise ins.refuse(
                "dsts[0]",
                f"and a source of shape {src.shape} {src.dtype} in {src.space.name}",
                limit="memory, dtype and size of the source",
                target=target,
            )
