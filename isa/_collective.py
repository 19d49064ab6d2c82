"""What collectives share: groups of ranks, the meeting, checks, and their work."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from isa.alu import AluOp
from isa.engine import Engine
from isa.faults import ConstraintFault
from isa.instruction import Array, Instruction, Machine
from isa.operands import AccessPattern, Space
from isa.place import Place
from isa.target import Target
from isa.work import Work, WorkFlag, WorkKind

__all__ = [
    "Collective",
    "Groups",
    "check_channels",
    "check_dim",
    "check_groups",
    "check_single",
    "group_of",
    "part_of",
    "reduced",
]

Groups = tuple[tuple[int, ...], ...]
"""Ranks that communicate; no rank is in two groups."""

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
    replica_group: Groups

    def queue(self, target: Target) -> int:
        return int(Engine.dma)

    @property
    def ranks(self) -> int:
        """Ranks of a group."""
        return len(self.replica_group[0])

    def group(self, machine: Machine) -> tuple[int, ...]:
        """The group of this rank, in the order of the ring."""
        return group_of(self.replica_group, machine.place.rank, self.mnemonic)

    def predecessor(self, machine: Machine) -> int:
        """The rank before this one in its ring."""
        group = self.group(machine)
        return group[group.index(machine.place.rank) - 1]

    @classmethod
    def meeting(cls, constants: Mapping[str, str], work: Work, place: Place) -> tuple[str, tuple[int, ...]] | None:
        groups = ast.literal_eval(constants["replica_group"])
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

    def exchange_equal(self, machine: Machine, give: Callable[[], list[Array]]) -> dict[int, list[Array]]:
        """As :meth:`exchange`; all ranks bring as much."""
        given: dict[int, list[Array]] = self.exchange(machine, give)
        sizes = {rank: [array.shape for array in arrays] for rank, arrays in given.items()}
        if len({str(size) for size in sizes.values()}) > 1:
            raise self.refuse(
                None, f"ranks bring different shapes: {sizes}", limit="equal shapes on all ranks", target=machine.target
            )
        return given

    def exchange_bits(self, machine: Machine, tensors: Sequence[AccessPattern]) -> dict[int, list[Array]]:
        """The bits of ``tensors`` of all ranks."""
        return self.exchange_equal(machine, lambda: [machine.raw(tensor).copy() for tensor in tensors])

    def exchange_values(self, machine: Machine, tensors: Sequence[AccessPattern]) -> dict[int, list[Array]]:
        """The numbers of ``tensors`` of all ranks."""
        return self.exchange_equal(machine, lambda: self.values(machine, tensors))


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
                f"{ins.operands[-1][0]}[0]",
                f"and a source of shape {src.shape} {src.dtype} in {src.space.name}",
                limit="memory, dtype and size of the source",
                target=target,
            )
