"""Place: where a core stands among those that run a kernel together.

A launch has ranks, which communicate by collectives; each rank is one core, or a pair of cores that share an HBM
(LNC2).  Every core has a number among all of the launch, its agent: rank by rank, core by core.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["ALONE", "Place"]


@dataclass(slots=True, frozen=True, kw_only=True)
class Place:
    """One core's place.

    Attributes:
        core, cores: its number within its rank, and how many the rank has; ``nl.program_id`` and ``nl.num_programs``.
        rank, ranks: its rank, and how many there are.
    """

    core: int = 0
    cores: int = 1
    rank: int = 0
    ranks: int = 1

    @classmethod
    def of(cls, agent: int, cores: int, ranks: int) -> Place:
        """The place of the core with number ``agent``."""
        return cls(core=agent % cores, cores=cores, rank=agent // cores, ranks=ranks)

    @property
    def agent(self) -> int:
        """Its number among all cores of the launch."""
        return self.rank * self.cores + self.core

    def beside(self, cores: Iterable[int]) -> tuple[int, ...]:
        """Agents of cores of the same rank."""
        return tuple(self.rank * self.cores + core for core in sorted(cores))

    def across(self, ranks: Iterable[int], *, all_cores: bool) -> tuple[int, ...]:
        """Agents of other ranks: of all their cores, or of the cores with the number of this one."""
        chosen = range(self.cores) if all_cores else (self.core,)
        return tuple(rank * self.cores + core for rank in sorted(ranks) for core in chosen)

    def title(self) -> str:
        """What messages call it: ``core 1``, ``rank 3``, ``rank 3 core 1``."""
        if self.ranks == 1:
            return f"core {self.core}"
        return f"rank {self.rank}" + (f" core {self.core}" if self.cores > 1 else "")


ALONE = Place()
"""The place of a core that runs a kernel by itself."""
