"""DMA engines: copies between HBM and SBUF, gathers and scatters of rows, transposes.  Sums: :mod:`isa.dma_compute`.

Bits move unchanged between equal dtypes; different dtypes go through float32, integers too.  Semantics and limits: NKI
documentation (0.6) of each instruction and its DGE reference; descriptors in :mod:`isa._descriptors`.  Where those
texts disagree:

- ``dge_mode.none`` is refused for run-time addresses: descriptors made before the start cannot know them (two texts
  say so, one table says any mode).
- Direct ``dma_transpose`` takes ``unknown``, ``hwdge`` (its own text) and ``none`` (the DGE reference, and kernels of
  AWS), and its hardware limits are those of 0.6.  Dtypes of one byte are accepted; no text names them.
- Gather and scatter by ``dma_copy`` are accepted on NeuronCore-v2 (no text on the instruction excludes it).

``priority`` orders queues on NeuronCore-v4 and is without effect here.
"""

from __future__ import annotations

from typing import ClassVar

from isa._descriptors import (
    DMA_SPACES,
    as_floats,
    assign_rows,
    check_index,
    check_priority,
    check_row_index,
    has_run_time_address,
    is_number,
    is_vector,
    move_flags,
    move_work,
    resolve_dge,
    rows_of,
    scalar_in_bounds,
    scatter_floats,
    total,
    trigger,
)
from isa.engine import Engine
from isa.enums import DgeMode, OobMode
from isa.instruction import Dst, Imm, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern, Space
from isa.target import Target
from isa.work import Work, WorkKind

__all__ = ["DmaCopy", "DmaTranspose"]

_PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
"""dma_transpose: axes by rank; the only ones there are."""


@instruction(opcode=96, mnemonic="dma_copy", engines=(Engine.dma,), source="NKI 0.6 nki.isa.dma_copy")
class DmaCopy(Instruction):
    """dst = src, element by element in row-major order; shapes may differ where the number of elements agrees.

    An operand in HBM with a vector offset is gathered from or scattered to row by row, later rows over earlier ones.
    An index out of bounds is a fault with ``oob_mode.error``; with ``oob_mode.skip`` its row of dst keeps its bits.
    """

    takes_packed: ClassVar[bool] = True

    dst: AccessPattern = Dst(spaces=DMA_SPACES, quadrant=False)
    src: AccessPattern = Src(spaces=DMA_SPACES, quadrant=False)
    priority: int | None = Imm(None)
    oob_mode: OobMode = Imm(OobMode.error)
    dge_mode: DgeMode = Imm(DgeMode.unknown)
    engine: Engine = Imm(Engine.unknown)

    def _mode(self, target: Target) -> DgeMode:
        return resolve_dge(self.dge_mode, self.dst, self.src, target)

    def queue(self, target: Target) -> int:
        return int(trigger(self._mode(target), self.engine))

    def constrain(self, target: Target) -> None:
        if total(self.dst) != total(self.src):
            raise self.refuse(
                "dst",
                f"takes {total(self.dst)} elements where 'src' {self.src.shape} has {total(self.src)}",
                limit="equal numbers of elements",
                target=target,
            )
        if self.dst.dtype != self.src.dtype and not (is_number(self.dst) and is_number(self.src)):
            raise self.refuse(
                "dst",
                f"would be converted from {self.src.dtype}",
                target=target,
                limit="no conversion of packed dtypes and scales",
                advice="copy with equal dtypes and use quantize_mx",
            )
        for name in ("dst", "src"):
            check_index(self, name, getattr(self, name), target)
            check_row_index(self, name, getattr(self, name), target)
        check_priority(self, self.priority, target)
        self._check_dge(target)

    def _check_dge(self, target: Target) -> None:
        mode = self._mode(target)
        if self.engine is not Engine.unknown:
            if self.dge_mode is not DgeMode.hwdge:
                raise self.refuse(
                    None,
                    f"engine={self.engine.name} with dge_mode={self.dge_mode.name}",
                    target=target,
                    limit="engine chooses the trigger of dge_mode.hwdge only",
                    advice="pass dge_mode=dge_mode.hwdge, or leave engine out",
                )
            if self.engine not in (Engine.sync, Engine.scalar):
                raise self.refuse(
                    None,
                    f"engine {self.engine.name} cannot trigger hardware descriptor generation",
                    limit="engine sync or scalar",
                    target=target,
                )
        if mode is DgeMode.hwdge:
            if target.generation < 3:
                raise self.refuse(
                    None,
                    "hardware descriptor generation does not exist on this generation",
                    limit="dge_mode.hwdge on NeuronCore-v3 and later",
                    target=target,
                    advice="leave dge_mode out",
                )
            if self.dst.dtype != self.src.dtype:
                raise self.refuse(
                    "dst",
                    f"would be converted from {self.src.dtype} with dge_mode.hwdge",
                    limit="equal dtypes with dge_mode.hwdge",
                    target=target,
                    advice="use another dge_mode, or convert with tensor_copy",
                )
        if mode is not DgeMode.swdge:
            for name in ("dst", "src"):
                operand = getattr(self, name)
                if is_vector(operand):
                    raise self.refuse(
                        name,
                        f"has one run-time offset per row with dge_mode.{mode.name}",
                        limit="gather and scatter with dge_mode.swdge or unknown",
                        target=target,
                    )
                if mode is DgeMode.none and operand.dynamic is not None:
                    raise self.refuse(
                        name,
                        "has a run-time address with dge_mode.none",
                        limit="descriptors made before the start need fixed addresses",
                        target=target,
                        advice="use dge_mode.unknown",
                    )

    def work(self, target: Target) -> Work:
        return move_work(self._mode(target), self.dst, self.src)

    def run(self, machine: Machine) -> None:
        dst, src = self.dst, self.src
        if dst.dynamic is not None or src.dynamic is not None:
            for name, operand in (("dst", dst), ("src", src)):
                if not scalar_in_bounds(self, name, operand, machine, self.oob_mode):
                    return
            if is_vector(dst) or is_vector(src):
                self._move_rows(machine)
                return
        if dst.dtype == src.dtype:
            source = machine.view(src)
            out = machine.view(dst, write=True)
            out[...] = source if source.shape == out.shape else source.reshape(out.shape)
        else:
            machine.store(dst, machine.load(src).reshape(dst.partitions, dst.elements))

    def _move_rows(self, machine: Machine) -> None:
        """Gather, scatter, or both."""
        dst, src = self.dst, self.src
        places = valid = None
        if is_vector(dst):
            places, valid = rows_of(self, "dst", dst, machine, self.oob_mode)
        if is_vector(src):
            rows, readable = rows_of(self, "src", src, machine, self.oob_mode)
            if readable is not None:
                valid = readable if valid is None else valid & readable
            bits = machine.gather(src, rows if valid is None else rows[valid])
        else:
            assert places is not None
            bits = machine.view(src).reshape(len(places), -1)
            if valid is not None:
                bits = bits[valid]
        cast = dst.dtype != src.dtype
        values = as_floats(bits, src) if cast else bits
        if places is not None:
            wanted = places if valid is None else places[valid]
            if cast:
                scatter_floats(machine, dst, wanted, values)
            else:
                machine.scatter(dst, wanted, bits)
        elif valid is not None:
            if valid.any():
                assign_rows(machine, dst, valid, values)
        elif cast:
            machine.store(dst, values.reshape(dst.partitions, dst.elements))
        else:
            machine.store_raw(dst, bits)


@instruction(opcode=97, mnemonic="dma_transpose", engines=(Engine.dma,), source="NKI 0.6 nki.isa.dma_transpose")
class DmaTranspose(Instruction):
    """dst = src with its axes permuted: (1, 0), (2, 1, 0) or (3, 1, 2, 0) by rank; bits move unchanged.

    With a vector offset on src (an index tile of 16 to 128 partitions) rows are gathered first: the index tile is
    walked column by column and row r of src goes to position r of dst's last axis.  Positions with a skipped index
    keep their bits.
    """

    takes_packed: ClassVar[bool] = True

    dst: AccessPattern = Dst(spaces=(Space.SBUF,), quadrant=False)
    src: AccessPattern = Src(spaces=DMA_SPACES, quadrant=False)
    axes: tuple[int, ...] | None = Imm(None)
    priority: int | None = Imm(None)
    dge_mode: DgeMode = Imm(DgeMode.unknown)
    oob_mode: OobMode = Imm(OobMode.error)

    def _mode(self, target: Target) -> DgeMode:
        mode = resolve_dge(self.dge_mode, self.dst, self.src, target)
        if mode is DgeMode.hwdge and self.dge_mode is DgeMode.unknown and self._hardware_limit() is not None:
            return DgeMode.swdge if has_run_time_address(self.src, self.dst) else DgeMode.none
        return mode

    def queue(self, target: Target) -> int:
        return int(trigger(self._mode(target)))

    def _hardware_limit(self) -> str | None:
        """The limit of the hardware block's transpose that src breaks, if any."""
        shape = self.src.shape
        if self.src.dtype.itemsize != 2:
            return "dtypes of two bytes"
        if shape[-1] > 128:
            return "last axis of at most 128"
        if len(shape) == 2:
            return None if shape[0] == 16 else "first axis of 16 (rank 2)"
        if shape[0] not in (1, 2, 4, 8, 16) or shape[0] * shape[-2] % 16:
            return "first axis of 1, 2, 4, 8 or 16 and first times last but one a multiple of 16 (rank 3 and 4)"
        return None

    def constrain(self, target: Target) -> None:
        rank = len(self.src.shape)
        if rank not in _PERMUTATIONS:
            raise self.refuse("src", f"has {rank} axes", limit="rank 2, 3 or 4", target=target)
        axes = _PERMUTATIONS[rank]
        if self.axes is not None and tuple(self.axes) != axes:
            raise self.refuse(None, f"axes {self.axes} for rank {rank}", limit=f"axes {axes}", target=target)
        permuted = tuple(self.src.shape[axis] for axis in axes)
        if self.dst.shape != permuted:
            raise self.refuse(
                "dst",
                f"does not have the permuted shape of 'src', {permuted}",
                limit="equal shapes, rank included",
                target=target,
            )
        if self.dst.dtype != self.src.dtype:
            raise self.refuse(
                "dst",
                f"has another dtype than 'src', {self.src.dtype}",
                limit="no conversion in dma_transpose",
                target=target,
            )
        if is_vector(self.dst):
            raise self.refuse(
                "dst", "has one run-time offset per row", limit="dma_transpose gathers, only", target=target
            )
        for name in ("dst", "src"):
            check_index(self, name, getattr(self, name), target)
        if self.oob_mode is OobMode.skip and not has_run_time_address(self.src, self.dst):
            raise self.refuse(
                None,
                "oob_mode.skip without a run-time address",
                limit="oob_mode.skip with an indirect src",
                target=target,
            )
        check_priority(self, self.priority, target)
        if is_vector(self.src):
            self._check_gather(target)
        elif self.dge_mode is DgeMode.swdge or (self.dge_mode is DgeMode.none and self.src.dynamic is not None):
            raise self.refuse(
                None,
                f"dge_mode.{self.dge_mode.name} for a direct transpose",
                limit="dge_mode.unknown or hwdge; none where no address depends on run-time values",
                target=target,
            )
        elif self.dge_mode is DgeMode.hwdge:
            if target.generation < 3:
                raise self.refuse(
                    None,
                    "hardware descriptor generation does not exist on this generation",
                    limit="dge_mode.hwdge on NeuronCore-v3 and later",
                    target=target,
                    advice="leave dge_mode out",
                )
            limit = self._hardware_limit()
            if limit is not None:
                raise self.refuse(
                    "src",
                    "cannot be transposed with dge_mode.hwdge",
                    limit=limit,
                    target=target,
                    advice="leave dge_mode out",
                )

    def _check_gather(self, target: Target) -> None:
        src, index = self.src, self.src.dynamic.index  # type: ignore[union-attr]
        shape = src.shape
        if target.generation < 3:
            raise self.refuse(
                "src",
                "has one run-time offset per row",
                target=target,
                limit="indirect dma_transpose on NeuronCore-v3 and later",
            )
        if self.dge_mode not in (DgeMode.unknown, DgeMode.swdge):
            raise self.refuse(
                None,
                f"dge_mode.{self.dge_mode.name} for an indirect transpose",
                limit="dge_mode.unknown or swdge",
                target=target,
            )
        columns = index.elements
        for broken, message, limit in (
            (len(shape) == 4 and 1 not in shape[1:3], "has two long middle axes", "one of the middle axes of 4 is 1"),
            (shape[-1] > 128, f"has a last axis of {shape[-1]}", "last axis of at most 128"),
            (src.dtype.itemsize != 2, f"has dtype {src.dtype}", "dtypes of two bytes"),
            (shape[0] % 16 != 0, f"has {shape[0]} rows", "a multiple of 16 rows"),
            (index.dtype != "uint32", f"has indices of dtype {index.dtype}", "uint32 indices"),
            (
                index.partitions % 16 != 0,
                f"has indices on {index.partitions} partitions",
                "16 to 128 index partitions, a multiple of 16",
            ),
            (
                columns > 1 and index.partitions != 128,
                f"has indices of shape {index.shape}",
                "128 index partitions where there is more than one column",
            ),
            (total(index) < shape[0], f"has {shape[0]} rows and {total(index)} indices", "at least one index per row"),
        ):
            if broken:
                raise self.refuse("src", f"{message} in an indirect transpose", limit=limit, target=target)

    def work(self, target: Target) -> Work:
        # One descriptor per innermost row of the source: the unit that the engines turn.
        return Work(
            kind=WorkKind.DMA_TRANSPOSE,
            elements=self.dst.elements,
            rows=self.dst.partitions,
            nbytes=self.dst.nbytes,
            descriptors=total(self.src) // self.src.shape[-1],
            flags=move_flags(self._mode(target), self.dst, self.src),
        )

    def run(self, machine: Machine) -> None:
        dst, src = self.dst, self.src
        for name, operand in (("dst", dst), ("src", src)):
            if not scalar_in_bounds(self, name, operand, machine, self.oob_mode):
                return
        axes = _PERMUTATIONS[len(src.shape)]
        if not is_vector(src):
            source = machine.view(src).transpose(axes)
            machine.view(dst, write=True)[...] = source
            return
        rows, valid = rows_of(self, "src", src, machine, self.oob_mode, by_column=True)
        gathered = machine.gather(src, rows if valid is None else rows[valid]).transpose(axes)
        if valid is None:
            machine.view(dst, write=True)[...] = gathered
        elif valid.any():
            machine.view(dst, write=True)[..., valid] = gathered
