"""DMA engines that add on the way: sums of tensors, and rows updated in place.

Semantics and limits: NKI documentation (0.6) of ``nki.isa.dma_compute``; descriptors in :mod:`isa._descriptors`.
Only addition without scales exists.  The order of the summands, where it matters, is that of the sources.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from isa._descriptors import (
    DMA_SPACES,
    as_floats,
    assign_rows,
    check_index,
    check_row_index,
    descriptors,
    is_number,
    is_scalar,
    is_vector,
    move_flags,
    rows_of,
    scatter_floats,
    total,
    trigger,
)
from isa.alu import AluOp
from isa.engine import Engine
from isa.enums import DgeMode, OobMode
from isa.faults import RaceFault
from isa.instruction import Dst, Imm, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern, Space
from isa.target import Target
from isa.work import Work, WorkKind

__all__ = ["DmaCompute"]


def _same_place(a: AccessPattern, b: AccessPattern) -> bool:
    """The two patterns name the same elements, run-time rows included."""
    if a.words != b.words:
        return False
    if a.dynamic is None or b.dynamic is None:
        return a.dynamic is b.dynamic
    return a.dynamic.index.words == b.dynamic.index.words


@instruction(opcode=98, mnemonic="dma_compute", engines=(Engine.dma,), source="NKI 0.6 nki.isa.dma_compute")
class DmaCompute(Instruction):
    """dst = srcs[0] + srcs[1] + ..., added in float32 in that order and rounded once.

    With a vector offset it updates in place.  Scatter: dst in HBM has the offset, one source is dst itself, the other
    is data in SBUF.  Gather: one source in HBM has the offset, the other is dst itself, in SBUF.  The rows must be
    distinct: two sums into one row would race.
    """

    takes_packed: ClassVar[bool] = True

    dst: AccessPattern = Dst(spaces=DMA_SPACES, quadrant=False)
    srcs: tuple[AccessPattern, ...] = Src(spaces=DMA_SPACES, quadrant=False, many=True)
    reduce_op: AluOp = Imm()
    scales: tuple[float, ...] | None = Imm(None)
    unique_indices: bool = Imm(True)
    oob_mode: OobMode = Imm(OobMode.error)

    @property
    def _in_place(self) -> bool:
        return is_vector(self.dst) or any(is_vector(src) for src in self.srcs)

    def _mode(self) -> DgeMode:
        return DgeMode.swdge if self._in_place else DgeMode.none

    def queue(self, target: Target) -> int:
        return int(trigger(self._mode()))

    def constrain(self, target: Target) -> None:
        if len(self.srcs) > 16:
            raise self.refuse(None, f"{len(self.srcs)} sources", limit="at most 16 sources", target=target)
        if self.reduce_op.name != "add":
            raise self.refuse(
                None, f"reduce_op {self.reduce_op} is not supported", limit="reduce_op add", target=target
            )
        if self.scales is not None and tuple(self.scales) != (1.0,) * len(self.srcs):
            raise self.refuse(
                None,
                f"scales {self.scales}",
                limit=f"None, or {len(self.srcs)} times 1.0",
                target=target,
                advice="scale with tensor_scalar before",
            )
        if not self.unique_indices:
            raise self.refuse(None, "unique_indices is False", limit="unique_indices=True", target=target)
        named = [("dst", self.dst), *((f"srcs[{i}]", src) for i, src in enumerate(self.srcs))]
        for name, operand in named:
            if total(operand) != total(self.dst):
                raise self.refuse(
                    name,
                    f"has {total(operand)} elements where 'dst' has {total(self.dst)}",
                    limit="equal numbers of elements",
                    target=target,
                )
            if not is_number(operand):
                raise self.refuse(
                    name,
                    f"holds no numbers ({operand.dtype})",
                    limit="no arithmetic on packed dtypes and scales",
                    target=target,
                )
            if is_scalar(operand):
                raise self.refuse(
                    name,
                    "has a scalar run-time address",
                    target=target,
                    limit="fixed addresses, or vector_offset for rows",
                )
            check_index(self, name, operand, target)
            check_row_index(self, name, operand, target)
        if self._in_place and len(self.srcs) != 2:
            raise self.refuse(
                None,
                f"{len(self.srcs)} sources with a vector offset",
                limit="exactly 2 sources to update in place",
                target=target,
            )
        if self.oob_mode is OobMode.skip and not self._in_place:
            raise self.refuse(
                None, "oob_mode.skip without a vector offset", limit="oob_mode.skip with a vector offset", target=target
            )

    def constrain_address(self, target: Target) -> None:
        if self._in_place:
            self._update(target)

    def _update(self, target: Target) -> AccessPattern:
        """The source that is added to dst in place."""
        for i, src in enumerate(self.srcs):
            other = self.srcs[1 - i]
            if not _same_place(src, self.dst):
                continue
            if is_vector(self.dst) and (is_vector(other) or other.space is not Space.SBUF):
                raise self.refuse(
                    f"srcs[{1 - i}]",
                    "cannot be added to rows of dst",
                    target=target,
                    limit="data in SBUF with a fixed address",
                )
            if not is_vector(self.dst) and self.dst.space is not Space.SBUF:
                raise self.refuse("dst", "gathers in place", limit="dst in SBUF", target=target)
            return other
        raise self.refuse(
            "dst",
            "is not among the sources, with a vector offset",
            target=target,
            limit="one of the two sources is dst itself (same rows, same indices)",
            advice="pass the same .ap() view as dst and as source",
        )

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.DMA_COMPUTE,
            elements=self.dst.elements,
            rows=self.dst.partitions,
            nbytes=self.dst.nbytes,
            descriptors=descriptors(self.dst, *self.srcs),
            flags=move_flags(self._mode(), self.dst, *self.srcs),
            flops=(len(self.srcs) - 1) * total(self.dst),
            inputs=len(self.srcs),
        )

    def run(self, machine: Machine) -> None:
        if self._in_place:
            self._run_in_place(machine)
            return
        with np.errstate(all="ignore"):
            result = machine.load(self.srcs[0]).ravel()
            for src in self.srcs[1:]:
                result = result + machine.load(src).ravel()
        machine.store(self.dst, result.reshape(self.dst.partitions, self.dst.elements))

    def _run_in_place(self, machine: Machine) -> None:
        dst, data = self.dst, self._update(machine.target)
        indexed, name = (dst, "dst") if is_vector(dst) else (data, f"srcs[{self.srcs.index(data)}]")
        rows, valid = rows_of(self, name, indexed, machine, self.oob_mode)
        wanted = rows if valid is None else rows[valid]
        self._check_unique(name, wanted)
        indexed_values = as_floats(machine.gather(indexed, wanted), indexed).reshape(len(wanted), -1)
        values = machine.load(data if indexed is dst else dst).reshape(len(rows), -1)
        with np.errstate(all="ignore"):
            result = indexed_values + (values if valid is None else values[valid])
        if indexed is dst:
            scatter_floats(machine, dst, wanted, result)
        elif valid is None:
            machine.store(dst, result.reshape(dst.partitions, dst.elements))
        elif valid.any():
            assign_rows(machine, dst, valid, result)

    def _check_unique(self, name: str, rows: npt.NDArray[np.int64]) -> None:
        if not is_vector(self.dst):
            return  # reading a row twice is harmless
        ordered = np.sort(rows)
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        if repeated.size:
            raise RaceFault(
                f"row {int(repeated[0])} is updated by more than one index",
                instruction=self.mnemonic,
                operand=name,
                limit="unique_indices=True promises distinct rows",
                advice="combine repeated rows first, or send padding out of bounds with oob_mode.skip",
            )
