"""The eight largest values of a partition, their places, and their replacement: the steps of a top-k.

Semantics and limits: NKI documentation (0.6).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from isa import dtypes
from isa.engine import Engine
from isa.instruction import Array, Dst, Imm, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern
from isa.target import Target
from isa.work import Work, WorkKind

__all__ = ["FindIndex8", "MatchReplace8", "Max8"]

WIDTH = 8
LEAST, MOST = 8, 16384
_INDEX = frozenset({"uint16", "uint32"})


class _Search(Instruction):
    """Limits that the three share."""

    __slots__ = ()

    def _check_searched(self, name: str, target: Target) -> None:
        searched = getattr(self, name)
        if not LEAST <= searched.elements <= MOST:
            raise self.refuse(
                name,
                f"has {searched.elements} elements per partition",
                target=target,
                limit=f"{LEAST} to {MOST} elements per partition",
            )

    def _check_eight(self, names: tuple[str, ...], searched: AccessPattern, target: Target) -> None:
        for name in names:
            operand = getattr(self, name)
            if operand is not None and (operand.partitions, operand.elements) != (searched.partitions, WIDTH):
                raise self.refuse(
                    name,
                    "does not have eight elements per partition",
                    target=target,
                    limit=f"({searched.partitions}, 8)",
                )


def _order_of(values: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """For each slot, how many earlier slots of its row hold the same value."""
    same = values[:, :, None] == values[:, None, :]
    return np.asarray(np.tril(same, -1).sum(axis=2))


def _places(data: npt.NDArray[np.float32], values: npt.NDArray[np.float32], nth: npt.NDArray[np.int64]) -> Array:
    """Index in each row of data of occurrence ``nth`` (from 0) of each value; -1 where there is none."""
    places = np.full(values.shape, -1, np.int64)
    for slot in range(values.shape[1]):
        hits = data == values[:, slot, None]
        reached = hits & (np.cumsum(hits, axis=1) == nth[:, slot, None] + 1)
        places[:, slot] = np.where(reached.any(axis=1), reached.argmax(axis=1), -1)
    return places


@instruction(opcode=49, mnemonic="max8", engines=(Engine.vector,), source="NKI 0.6 nki.isa.max8")
class Max8(_Search):
    """dst (P, 8) = the eight largest elements of each partition of src, descending, duplicates kept."""

    dst: AccessPattern = Dst()
    src: AccessPattern = Src()

    def constrain(self, target: Target) -> None:
        self._check_searched("src", target)
        self._check_eight(("dst",), self.src, target)

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.MAX8,
            elements=self.src.elements,
            rows=self.src.partitions,
            columns=WIDTH,
            flags=self.pattern_flags(),
        )

    def run(self, machine: Machine) -> None:
        top = np.partition(machine.load(self.src), -WIDTH, axis=1)[:, -WIDTH:]
        machine.store(self.dst, -np.sort(-top, axis=1))


@instruction(opcode=50, mnemonic="nc_find_index8", engines=(Engine.vector,), source="NKI 0.6 nki.isa.nc_find_index8")
class FindIndex8(_Search):
    """dst (P, 8) = index in data of the first occurrence of each of the eight vals.

    Repeated vals take successive occurrences in ascending order of their slots; a missing value gives all ones.
    """

    dst: AccessPattern = Dst(dtypes=_INDEX)
    data: AccessPattern = Src()
    vals: AccessPattern = Src()

    def constrain(self, target: Target) -> None:
        self._check_searched("data", target)
        self._check_eight(("vals", "dst"), self.data, target)

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.FIND_INDEX8,
            elements=self.data.elements,
            rows=self.data.partitions,
            columns=WIDTH,
            flags=self.pattern_flags(),
        )

    def run(self, machine: Machine) -> None:
        vals = machine.load(self.vals)
        places = _places(machine.load(self.data), vals, _order_of(vals))
        machine.store_raw(self.dst, dtypes.encode_int(places, self.dst.dtype))


@instruction(
    opcode=51,
    mnemonic="nc_match_replace8",
    engines=(Engine.vector,),
    source="NKI 0.6 nki.isa.nc_match_replace8",
)
class MatchReplace8(_Search):
    """dst = data with the first occurrence of each of the eight vals replaced by imm; dst_idx their indices.

    vals are processed from slot 7 to 0, so that repeated vals take occurrences in descending order of their slots; a
    missing value gives index all ones.
    """

    dst: AccessPattern = Dst()
    data: AccessPattern = Src(match="dst")
    vals: AccessPattern = Src()
    imm: float = Imm(keyed=False)
    dst_idx: AccessPattern | None = Dst(optional=True, dtypes=_INDEX)

    def constrain(self, target: Target) -> None:
        self._check_searched("data", target)
        self._check_eight(("vals", "dst_idx"), self.data, target)

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.MATCH_REPLACE8,
            elements=self.data.elements,
            rows=self.data.partitions,
            columns=WIDTH,
            flags=self.pattern_flags(),
        )

    def run(self, machine: Machine) -> None:
        data, vals = machine.load(self.data), machine.load(self.vals)
        later = _order_of(vals[:, ::-1])[:, ::-1]  # equal vals in higher slots come first
        places = _places(data, vals, later)
        rows, slots = np.nonzero(places >= 0)
        same = self.dst.dtype == self.data.dtype
        out = (machine.raw(self.data) if same else data).copy()
        number = np.full(1, self.imm, np.float32)
        out[rows, places[rows, slots]] = dtypes.encode(number, self.dst.dtype)[0] if same else number[0]
        if same:
            machine.store_raw(self.dst, out)
        else:
            machine.store(self.dst, out)
        if self.dst_idx is not None:
            machine.store_raw(self.dst_idx, dtypes.encode_int(places, self.dst_idx.dtype))
