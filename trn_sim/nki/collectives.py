"""``nki.collectives``: what the ranks of a launch exchange with each other.

Launch a kernel on several ranks with :func:`trn_sim.run_ranks`; a kernel launched otherwise is rank 0 of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from isa import collective, collective_variable
from isa.collective import Groups
from isa.faults import ConstraintFault
from isa.instruction import Instruction
from trn_sim.nki._support import located
from trn_sim.nki.isa._convert import tensor_operands
from trn_sim.nki.isa._generate import NkiInstruction, function
from trn_sim.nki.register import VirtualRegister

__all__ = [
    "ReplicaGroup",
    "all_gather",
    "all_gather_v",
    "all_reduce",
    "all_to_all",
    "all_to_all_v",
    "collective_permute",
    "collective_permute_implicit",
    "collective_permute_implicit_current_processing_rank_id",
    "collective_permute_implicit_reduce",
    "rank_id",
    "reduce_scatter",
]


class ReplicaGroup:
    """Groups of ranks that communicate; no rank is in two of them.

    Attributes:
        replica_groups: the groups, each a list of ranks in the order of the ring.
    """

    def __init__(self, replica_groups: Iterable[Iterable[Any]]) -> None:
        self.replica_groups = [[int(rank) for rank in group] for group in replica_groups]
        flat = [rank for group in self.replica_groups for rank in group]
        if len(flat) != len(set(flat)):
            raise located(ConstraintFault(f"ReplicaGroup({self.replica_groups})", limit="each rank in one group"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReplicaGroup) and self.replica_groups == other.replica_groups

    def __hash__(self) -> int:
        return hash(str(self.replica_groups))

    def __repr__(self) -> str:
        return f"ReplicaGroup({self.replica_groups})"


def _groups(group: Any, instruction: str, operand: str) -> Groups:
    if not isinstance(group, ReplicaGroup):
        raise located(
            ConstraintFault(
                f"{operand}={group!r}",
                instruction=instruction,
                advice="pass nki.collectives.ReplicaGroup([[0, 1, ...]])",
            )
        )
    return tuple(tuple(one) for one in group.replica_groups)


def _channels(tensors: Any, instruction: str, operand: str) -> tuple[Any, ...]:
    if any(not isinstance(own, (list, tuple)) or len(own) != 1 for own in tensors):
        raise located(
            ConstraintFault(
                "takes one list per channel",
                instruction=instruction,
                operand=operand,
                limit="exactly one tensor in each",
            )
        )
    return tensor_operands([own[0] for own in tensors], instruction, operand)


_CONVERTERS = {
    "replica_group": _groups,
    "srcs_by_channel": _channels,
    "srcs0_by_channel": _channels,
    "srcs1_by_channel": _channels,
    "dsts_by_channel": _channels,
}


def _function(cls: type[Instruction]) -> Callable[..., NkiInstruction]:
    return function(cls, converters=_CONVERTERS, module=__name__)


all_gather = _function(collective.AllGather)
all_gather_v = _function(collective_variable.AllGatherV)
all_reduce = _function(collective.AllReduce)
all_to_all = _function(collective.AllToAll)
all_to_all_v = _function(collective_variable.AllToAllV)
collective_permute = _function(collective.CollectivePermute)
collective_permute_implicit = _function(collective.CollectivePermuteImplicit)
collective_permute_implicit_reduce = _function(collective.CollectivePermuteImplicitReduce)
reduce_scatter = _function(collective.ReduceScatter)

_current_rank = _function(collective_variable.CurrentRank)
_rank_id = _function(collective_variable.RankId)


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: int, replica_group: ReplicaGroup, channel_id: int = 0, name: str | None = None
) -> VirtualRegister:
    """A register with the rank whose data this one holds after ``iteration_id`` steps around the ring."""
    register = VirtualRegister()
    _current_rank(register, iteration_id, replica_group, channel_id, name)
    return register


def rank_id(name: str | None = None) -> VirtualRegister:
    """A register with the number of this rank."""
    register = VirtualRegister()
    _rank_id(register, name)
    return register
