"""``nki.collectives``: what the ranks of a launch exchange with each other.

Launch a kernel on several ranks with :func:`trn_sim.run_ranks`; a kernel launched otherwise is rank 0 of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from isa import ranks, ranks_variable
from isa.faults import ConstraintFault
from isa.instruction import Instruction
from isa.ranks import Groups
from trn_sim.machine import current_core
from trn_sim.nki._support import located
from trn_sim.nki.isa._convert import tensor_operand, tensor_operands
from trn_sim.nki.isa._generate import NkiInstruction
from trn_sim.nki.operator import alu_of
from trn_sim.nki.register import VirtualRegister
from trn_sim.nki.tensor import NkiTensor

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

Tensors = NkiTensor | Sequence[NkiTensor]
Channels = Sequence[Sequence[NkiTensor]]


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


def _groups(group: Any, function: str) -> Groups:
    if not isinstance(group, ReplicaGroup):
        raise located(
            ConstraintFault(
                f"replica_group={group!r}",
                instruction=function,
                advice="pass nki.collectives.ReplicaGroup([[0, 1, ...]])",
            )
        )
    return tuple(tuple(one) for one in group.replica_groups)


def _channels(tensors: Channels, function: str, operand: str) -> tuple[Any, ...]:
    if any(not isinstance(own, (list, tuple)) or len(own) != 1 for own in tensors):
        raise located(
            ConstraintFault(
                "takes one list per channel", instruction=function, operand=operand, limit="exactly one tensor in each"
            )
        )
    return tensor_operands([own[0] for own in tensors], function, operand)


def _issue(instruction: Instruction, name: str | None) -> NkiInstruction:
    core = current_core()
    return NkiInstruction(core, core.issue(instruction, name=name))


def all_reduce(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Every dst = ``op`` (``nl.add``, ``nl.minimum``, ``nl.maximum``) over the src of all ranks of the group.

    Args:
        srcs, dsts: tensors of equal shapes, all in HBM or one each in SBUF.
        replica_group: who takes part.
        priority: 0 to 3, on NeuronCore-v4; without effect.
    """
    me = "all_reduce"
    sources, targets = tensor_operands(srcs, me, "srcs"), tensor_operands(dsts, me, "dsts")
    return _issue(ranks.AllReduce(sources, targets, _groups(replica_group, me), alu_of(op, me, "op"), priority), name)


def all_gather(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Every dst = the src of all ranks one behind the other along ``collective_dim`` (in HBM 0, in SBUF 0 or 1)."""
    me = "all_gather"
    sources, targets = tensor_operands(srcs, me, "srcs"), tensor_operands(dsts, me, "dsts")
    return _issue(ranks.AllGather(sources, targets, _groups(replica_group, me), collective_dim, priority), name)


def reduce_scatter(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    collective_dim: int,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """dst of the i-th rank = ``op`` over the i-th part, along dimension 0, of the src of all ranks."""
    me = "reduce_scatter"
    sources, targets = tensor_operands(srcs, me, "srcs"), tensor_operands(dsts, me, "dsts")
    groups, operator = _groups(replica_group, me), alu_of(op, me, "op")
    return _issue(ranks.ReduceScatter(sources, targets, groups, collective_dim, operator, priority), name)


def all_to_all(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Part j of the i-th rank's dst = part i of the j-th rank's src, along dimension 0, in HBM."""
    me = "all_to_all"
    sources, targets = tensor_operands(srcs, me, "srcs"), tensor_operands(dsts, me, "dsts")
    return _issue(ranks.AllToAll(sources, targets, _groups(replica_group, me), collective_dim, priority), name)


def all_gather_v(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """A chunk of each rank's src, of its own size, into that rank's slot of every dst (:mod:`isa.ranks_variable`)."""
    me = "all_gather_v"
    return _issue(
        ranks_variable.AllGatherV(
            tensor_operands(srcs, me, "srcs"),
            tensor_operands(dsts, me, "dsts"),
            _groups(replica_group, me),
            tensor_operand(metadata_tensor, me, "metadata_tensor"),
            recv_counts_known,
            has_rdispls,
            priority,
        ),
        name,
    )


def all_to_all_v(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """A chunk for each rank, of its own size, into the sender's slot there; see :mod:`isa.ranks_variable`."""
    me = "all_to_all_v"
    return _issue(
        ranks_variable.AllToAllV(
            tensor_operands(srcs, me, "srcs"),
            tensor_operands(dsts, me, "dsts"),
            _groups(replica_group, me),
            tensor_operand(metadata_tensor, me, "metadata_tensor"),
            recv_counts_known,
            has_rdispls,
            priority,
        ),
        name,
    )


def collective_permute(
    srcs: Tensors,
    dsts: Tensors,
    source_target_pairs: Iterable[tuple[int, int]],
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """dst of each target = src of its source, in HBM."""
    me = "collective_permute"
    sources, targets = tensor_operands(srcs, me, "srcs"), tensor_operands(dsts, me, "dsts")
    pairs: Any = tuple(tuple(int(rank) for rank in pair) for pair in source_target_pairs)
    return _issue(ranks.CollectivePermute(sources, targets, pairs, priority), name)


def collective_permute_implicit(
    srcs_by_channel: Channels,
    dsts_by_channel: Channels,
    replica_group: ReplicaGroup,
    channel_ids: Sequence[int] = [0],
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """On each channel, dst = src of the predecessor in the ring."""
    me = "collective_permute_implicit"
    return _issue(
        ranks.CollectivePermuteImplicit(
            _channels(srcs_by_channel, me, "srcs_by_channel"),
            _channels(dsts_by_channel, me, "dsts_by_channel"),
            _groups(replica_group, me),
            tuple(channel_ids),
            priority,
        ),
        name,
    )


def collective_permute_implicit_reduce(
    srcs0_by_channel: Channels,
    srcs1_by_channel: Channels,
    dsts_by_channel: Channels,
    replica_group: ReplicaGroup,
    op: Any,
    channel_ids: Sequence[int] = [0],
    priority: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """On each channel, dst = ``op(src0, src1)`` of the predecessor in the ring."""
    me = "collective_permute_implicit_reduce"
    return _issue(
        ranks.CollectivePermuteImplicitReduce(
            _channels(srcs0_by_channel, me, "srcs0_by_channel"),
            _channels(srcs1_by_channel, me, "srcs1_by_channel"),
            _channels(dsts_by_channel, me, "dsts_by_channel"),
            _groups(replica_group, me),
            alu_of(op, me, "op"),
            tuple(channel_ids),
            priority,
        ),
        name,
    )


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: int, replica_group: ReplicaGroup, channel_id: int = 0, name: str | None = None
) -> VirtualRegister:
    """A register with the rank whose data this one holds after ``iteration_id`` steps around the ring."""
    register = VirtualRegister()
    groups = _groups(replica_group, "collective_permute_implicit_current_processing_rank_id")
    _issue(ranks_variable.CurrentRank(register.operand(), int(iteration_id), groups, channel_id), name)
    return register


def rank_id(name: str | None = None) -> VirtualRegister:
    """A register with the number of this rank."""
    register = VirtualRegister()
    _issue(ranks_variable.RankId(register.operand()), name)
    return register
