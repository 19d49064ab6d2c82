"""Races between the cores of a rank: a read of HBM bytes that another core wrote, with nothing in between that orders
the two.

Bytes count as ordered once both cores have come to a barrier, an exchange or a collective after the write.  On the
chip such a read gives the old value or the new one; here, where cores take turns, always the same, so it is a fault
rather than a matter of luck.  Exact to the byte.  Not seen: reads of what the other core writes later, two writes, and
rows picked by a vector of run-time indices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from isa.faults import RaceFault
from isa.instruction import Array
from isa.operands import AccessPattern, DynamicKind, Space
from isa.place import Place
from memory_model.shadow import UNWRITTEN, Coverage
from trn_sim._executor import Executor

__all__ = ["PairExecutor", "Watch"]


class Watch:
    """What each core of one rank has written to HBM since it last met the others."""

    def __init__(self, cores: int) -> None:
        self._written: list[dict[int, Coverage]] = [{} for _ in range(cores)]

    def met(self) -> None:
        """All cores have met."""
        for tables in self._written:
            tables.clear()

    def write(self, core: int, operand: AccessPattern) -> None:
        """Core ``core`` writes bytes, which are then nobody else's."""
        for other, tables in enumerate(self._written):
            table = tables.get(operand.buffer)
            if other == core:
                if table is None:
                    storage = operand.storage
                    table = tables[operand.buffer] = Coverage(0, 1, 0, storage.nbytes, granule=storage.dtype.itemsize)
                table.add(operand)
            elif table is not None and table.state != UNWRITTEN:
                table.remove(operand)

    def read(self, core: int, operand: AccessPattern) -> None:
        """Core ``core`` reads bytes.

        Raises:
            RaceFault: another core wrote some of them, and the two have not met since.
        """
        for other, tables in enumerate(self._written):
            table = None if other == core else tables.get(operand.buffer)
            if table is None or table.state == UNWRITTEN:
                continue
            untouched = table.missing(operand)
            if untouched is not None and untouched.all():
                continue
            count = operand.elements if untouched is None else int(np.count_nonzero(~untouched))
            raise RaceFault(
                f"core {core} reads {count} elements of HBM tensor {operand.storage.label} that core {other} wrote, "
                "and the cores have not met since",
                limit="what one core writes, another one reads after a barrier or an exchange of the two",
                advice="call nisa.core_barrier(tensor, cores=(0, 1)) on both cores between the write and the read",
            )


class PairExecutor(Executor):
    """An executor that tells the watch of its rank about every access to HBM."""

    watch: Watch

    def _plain(self, operand: AccessPattern) -> AccessPattern | None:
        if operand.space is not Space.HBM or operand.storage is None:
            return None
        if operand.dynamic is None:
            return operand
        return self.resolve(operand) if operand.dynamic.kind is DynamicKind.SCALAR else None

    def _reads(self, operand: AccessPattern) -> None:
        plain = self._plain(operand)
        if plain is not None:
            self.watch.read(self.place.core, plain)

    def _writes(self, operand: AccessPattern) -> None:
        plain = self._plain(operand)
        if plain is not None:
            self.watch.write(self.place.core, plain)

    def load(self, operand: AccessPattern) -> npt.NDArray[np.float32]:
        self._reads(operand)
        return super().load(operand)

    def raw(self, operand: AccessPattern) -> Array:
        self._reads(operand)
        return super().raw(operand)

    def view(self, operand: AccessPattern, *, write: bool = False) -> Array:
        (self._writes if write else self._reads)(operand)
        return super().view(operand, write=write)

    def store(self, operand: AccessPattern, values: Array) -> None:
        super().store(operand, values)
        self._writes(operand)

    def store_raw(self, operand: AccessPattern, bits: Array) -> None:
        super().store_raw(operand, bits)
        self._writes(operand)

    def meet(self, what: str, agents: tuple[int, ...], give: Callable[[], Any], *, lane: str = "") -> dict[int, Any]:
        ranks = [Place.of(agent, self.place.cores, self.place.ranks).rank for agent in agents]
        if ranks.count(self.place.rank) < self.place.cores:
            return super().meet(what, agents, give, lane=lane)

        def give_after() -> Any:
            self.watch.met()
            return give()

        return super().meet(what, agents, give_after, lane=lane)
