"""``nki.collectives``: names only.  Kernels that can do without them import and run; a call is a clear fault.

One core runs a kernel, so there is nobody to communicate with yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from isa.faults import ConstraintFault, UnimplementedFault
from trn_sim.nki._support import located

_FUNCTIONS = (
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
)

__all__ = ["ReplicaGroup", *_FUNCTIONS]


@dataclass(frozen=True)
class ReplicaGroup:
    """Groups of ranks that communicate; no rank is in two of them."""

    replica_groups: Any

    def __post_init__(self) -> None:
        ranks = [rank for group in self.replica_groups for rank in group]
        if len(ranks) != len(set(ranks)):
            raise located(ConstraintFault(f"ReplicaGroup({self.replica_groups})", limit="each rank in one group"))


def _unbuilt(name: str) -> Any:
    def function(*_: Any, **__: Any) -> NoReturn:
        raise located(
            UnimplementedFault(
                f"nki.collectives.{name} exists in NKI, but not in trn-sim yet",
                instruction=name,
                advice="run the kernel's single-core path",
            )
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name}: not built yet."
    return function


for _name in _FUNCTIONS:
    globals()[_name] = _unbuilt(_name)
