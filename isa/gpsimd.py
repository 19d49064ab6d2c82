"""GpSimd Engine: index patterns, gathers inside SBUF, reduction over partitions.

Eight processors serve 16 partitions each; none of them reaches PSUM.  Semantics and limits: NKI documentation (0.6)
of each instruction.  Two points where that documentation is silent or speaks against itself:

- ``local_gather``: the indices are element offsets, not multiplied by ``num_elem_per_idx``; AWS's published example
  does the multiplication before it calls the instruction.  NKI 0.6 ignores ``num_elem_per_idx`` unless it fits the
  result (a listed known issue); here a result of another size is refused.
- Indices out of range are undefined on the chip and are a fault here.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from isa import dtypes
from isa._affine import Pattern, affine, check_affine, check_int32, column, ramp
from isa.alu import ALU_OPS, AluOp
from isa.engine import Engine
from isa.faults import OutOfBoundsFault
from isa.instruction import Dst, Imm, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern, Space
from isa.target import Target
from isa.work import Work, WorkKind

__all__ = ["AffineSelect", "Iota", "LocalGather", "NGather", "PartitionReduce"]

SBUF = (Space.SBUF,)
GROUP = 16
"""Partitions that one GpSimd processor serves."""

_WANTED = {
    "equal": (False, True, False),
    "not_equal": (True, False, True),
    "greater": (False, False, True),
    "greater_equal": (False, True, True),
    "less": (True, False, False),
    "less_equal": (True, True, False),
}
"""affine_select: whether values below, at and above zero select the tile."""

_PARTITION_REDUCERS = ("add", "average", "maximum", "bitwise_or", "bitwise_and")


def _offset(machine: Machine, offset: int | AccessPattern) -> int:
    return machine.read_register(offset) if isinstance(offset, AccessPattern) else int(offset)


def _check_indices(ins: Instruction, operand: str, indices: npt.NDArray[np.integer], limit: int) -> None:
    """Fault on the first index that is ``limit`` or more; indices are unsigned, (partitions, elements)."""
    if indices.size and int(indices.max()) >= limit:
        partition, element = (int(i) for i in np.argwhere(indices >= limit)[0])
        raise OutOfBoundsFault(
            f"index {int(indices[partition, element])} at partition {partition}, element {element} is out of range",
            instruction=ins.mnemonic,
            operand=operand,
            limit=f"indices 0 to {limit - 1}",
            advice="the chip's result is undefined; clamp the indices or gather with dma_copy and oob_mode.skip",
        )


@instruction(opcode=64, mnemonic="iota", engines=(Engine.gpsimd,), source="NKI 0.6 nki.isa.iota")
class Iota(Instruction):
    """dst[p, i] = offset + p * channel_multiplier + pattern value i, in wrapping int32, converted to dst's dtype.

    ``pattern`` holds one to four [step, count] pairs, outermost first; partition 0 is the first one of dst.
    ``offset`` may be a register.
    """

    dst: AccessPattern = Dst(spaces=SBUF)
    pattern: Pattern = Imm()
    offset: int | AccessPattern = Src(scalar=True, spaces=(Space.REGISTER,), default=0)
    channel_multiplier: int = Imm(default=0)

    def constrain(self, target: Target) -> None:
        check_affine(self, self.pattern, self.channel_multiplier, self.dst.elements, target)

    def constrain_address(self, target: Target) -> None:
        check_int32(self, "offset", self.offset, target)

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.IOTA, elements=self.dst.elements, rows=self.dst.partitions, flags=self.pattern_flags()
        )

    def run(self, machine: Machine) -> None:
        offset = _offset(machine, self.offset)
        machine.store(self.dst, affine(self.dst, self.pattern, offset, self.channel_multiplier))


@instruction(opcode=65, mnemonic="affine_select", engines=(Engine.gpsimd,), source="NKI 0.6 nki.isa.affine_select")
class AffineSelect(Instruction):
    """dst = on_true_tile where cmp_op(affine value, 0) holds, else on_false_value.

    The affine value is that of ``iota``.  Selected elements keep their bits when dtypes agree and go through float32
    otherwise; the constant is float32 and rounds to dst's dtype.
    """

    dst: AccessPattern = Dst(spaces=SBUF)
    pattern: Pattern = Imm()
    channel_multiplier: int = Imm()
    on_true_tile: AccessPattern = Src(spaces=SBUF, match="dst")
    on_false_value: float = Imm(keyed=False)
    cmp_op: AluOp = Imm(ALU_OPS["equal"])
    offset: int | AccessPattern = Src(scalar=True, spaces=(Space.REGISTER,), default=0)

    def constrain(self, target: Target) -> None:
        check_affine(self, self.pattern, self.channel_multiplier, self.dst.elements, target)
        if self.cmp_op.name not in _WANTED:
            raise self.refuse(None, f"cmp_op {self.cmp_op} does not compare", limit=", ".join(_WANTED), target=target)

    def constrain_address(self, target: Target) -> None:
        check_int32(self, "offset", self.offset, target)

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.AFFINE_SELECT,
            elements=self.dst.elements,
            rows=self.dst.partitions,
            flags=self.pattern_flags(),
        )

    def run(self, machine: Machine) -> None:
        from isa._select import select

        dst, source = self.dst, self.on_true_tile
        same = source.dtype == dst.dtype
        values = machine.raw(source) if same else machine.load(source)
        constant = np.full(1, self.on_false_value, np.float32)
        if values.dtype != np.float32:  # bits; a machine may hold narrow floats as float32 (NKI_PRECISE_FP=0)
            constant = dtypes.encode(constant, dst.dtype)
        out = np.empty(values.shape, values.dtype)
        start = column(dst, _offset(machine, self.offset), self.channel_multiplier)
        bits = f"u{out.itemsize}"
        wanted = _WANTED[self.cmp_op.name]
        select(start, ramp(self.pattern), *wanted, values.view(bits), constant.view(bits), out.view(bits))
        if same:
            machine.store_raw(dst, out)
        else:
            machine.store(dst, out)


@instruction(opcode=66, mnemonic="local_gather", engines=(Engine.gpsimd,), source="NKI 0.6 nki.isa.local_gather")
class LocalGather(Instruction):
    """Each group of 16 partitions gathers with one list of indices: those of its 16 partitions of ``index``, taken
    column by column.

    For index i of the list, ``num_elem_per_idx`` elements starting at element i of each partition of ``src_buffer``
    (free dimensions flattened) go to dst, one after the other.  ``num_valid_indices`` shortens the lists.
    """

    takes_packed: ClassVar[bool] = True

    dst: AccessPattern = Dst(spaces=SBUF)
    src_buffer: AccessPattern = Src(spaces=SBUF)
    index: AccessPattern = Src(spaces=SBUF, dtypes=frozenset({"uint16"}))
    num_elem_per_idx: int = Imm(1)
    num_valid_indices: int | None = Imm(None)

    @property
    def _valid(self) -> int:
        return GROUP * self.index.elements if self.num_valid_indices is None else self.num_valid_indices

    def constrain(self, target: Target) -> None:
        partitions = self.src_buffer.partitions
        if partitions % GROUP:
            raise self.refuse(
                "src_buffer", f"uses {partitions} partitions", limit=f"multiples of {GROUP} partitions", target=target
            )
        for name in ("index", "dst"):
            if getattr(self, name).partitions != partitions:
                raise self.refuse(
                    name,
                    f"does not have the {partitions} partitions of 'src_buffer'",
                    limit="equal numbers of partitions",
                    target=target,
                )
        if self.dst.dtype != self.src_buffer.dtype:
            raise self.refuse(
                "dst",
                f"has another dtype than 'src_buffer', {self.src_buffer.dtype}",
                limit="no conversion in local_gather",
                target=target,
                advice="convert with tensor_copy afterwards",
            )
        if self.num_elem_per_idx not in (1, 2, 4, 8, 16, 32):
            raise self.refuse(
                None, f"num_elem_per_idx is {self.num_elem_per_idx}", limit="1, 2, 4, 8, 16 or 32", target=target
            )
        if not 1 <= self._valid <= GROUP * self.index.elements:
            raise self.refuse(
                "index",
                f"num_valid_indices is {self._valid}",
                target=target,
                limit=f"1 to {GROUP * self.index.elements}, the indices of one group",
            )
        if self._valid > 4096:
            raise self.refuse(
                "index",
                f"gives {self._valid} indices to each group of {GROUP} partitions",
                limit="at most 4096 indices per group",
                target=target,
                advice="gather in several instructions",
            )
        if self._valid * self.num_elem_per_idx != self.dst.elements:
            raise self.refuse(
                "dst",
                f"takes {self.dst.elements} elements per partition where {self._valid} indices of "
                f"{self.num_elem_per_idx} elements give {self._valid * self.num_elem_per_idx}",
                limit="num_valid_indices * num_elem_per_idx equals elements per partition of dst",
                target=target,
                advice="pass both numbers explicitly: NKI 0.6 ignores num_elem_per_idx otherwise",
            )

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.LOCAL_GATHER,
            elements=self._valid,
            rows=self.dst.partitions,
            columns=self.dst.elements,
            nbytes=self.dst.nbytes,  # the cost depends on the size of an element
            flags=self.pattern_flags(),
            inputs=self.num_elem_per_idx,
        )

    def run(self, machine: Machine) -> None:
        groups = self.index.partitions // GROUP
        index = machine.raw(self.index)
        lists = index.reshape(groups, GROUP, -1).transpose(0, 2, 1).reshape(groups, -1)[:, : self._valid]
        source = machine.raw(self.src_buffer)
        run = np.arange(self.num_elem_per_idx)
        if int(lists.max()) + self.num_elem_per_idx > source.shape[1]:
            group, place = (int(i) for i in np.argwhere(lists > source.shape[1] - self.num_elem_per_idx)[0])
            raise OutOfBoundsFault(
                f"index {int(lists[group, place])} (partition {group * GROUP + place % GROUP}, element "
                f"{place // GROUP}) reads {self.num_elem_per_idx} elements past the end of a partition",
                instruction=self.mnemonic,
                operand="index",
                limit=f"src_buffer has {source.shape[1]} elements per partition",
                advice="indices are element offsets; the chip's result is undefined out of range",
            )
        places = (lists[:, :, None].astype(np.int64) + run).reshape(groups, 1, -1)
        gathered = np.take_along_axis(source.reshape(groups, GROUP, -1), places, axis=2)
        machine.store_raw(self.dst, gathered)


@instruction(opcode=67, mnemonic="nc_n_gather", engines=(Engine.gpsimd,), source="NKI 0.6 nki.isa.nc_n_gather")
class NGather(Instruction):
    """dst[p, i] = data[p, indices[p, i]], free dimensions of data flattened; bits are kept."""

    takes_packed: ClassVar[bool] = True

    dst: AccessPattern = Dst(spaces=SBUF)
    data: AccessPattern = Src(spaces=SBUF)
    indices: AccessPattern = Src(spaces=SBUF, match="dst", dtypes=frozenset({"uint32"}))

    def constrain(self, target: Target) -> None:
        if self.data.partitions != self.dst.partitions:
            raise self.refuse(
                "data",
                f"has {self.data.partitions} partitions where 'dst' has {self.dst.partitions}",
                limit="equal numbers of partitions",
                target=target,
            )
        if self.data.dtype != self.dst.dtype:
            raise self.refuse(
                "dst",
                f"has another dtype than 'data', {self.data.dtype}",
                limit="no conversion in nc_n_gather",
                target=target,
                advice="convert with tensor_copy afterwards",
            )

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.N_GATHER,
            elements=self.dst.elements,
            rows=self.dst.partitions,
            columns=self.dst.elements,
            flags=self.pattern_flags(),
        )

    def run(self, machine: Machine) -> None:
        indices = machine.raw(self.indices)
        _check_indices(self, "indices", indices, self.data.elements)
        gathered = np.take_along_axis(machine.raw(self.data), indices.astype(np.int64), axis=1)
        machine.store_raw(self.dst, gathered)


@instruction(
    opcode=68,
    mnemonic="tensor_partition_reduce",
    engines=(Engine.gpsimd,),
    source="NKI 0.6 nki.isa.tensor_partition_reduce",
)
class PartitionReduce(Instruction):
    """dst[0, i] = op over all partitions p of data[p, i]; float32, partition by partition; bitwise on integers."""

    dst: AccessPattern = Dst(spaces=SBUF)
    op: AluOp = Imm()
    data: AccessPattern = Src(spaces=SBUF)

    def constrain(self, target: Target) -> None:
        if self.op.name not in _PARTITION_REDUCERS:
            raise self.refuse(
                None,
                f"operator {self.op} does not reduce over partitions",
                limit=", ".join(_PARTITION_REDUCERS),
                target=target,
            )
        if self.dst.partitions != 1:
            raise self.refuse("dst", f"has {self.dst.partitions} partitions", limit="one partition", target=target)
        if self.dst.elements != self.data.elements:
            raise self.refuse(
                "dst",
                f"has {self.dst.elements} elements where 'data' has {self.data.elements} per partition",
                limit="equal numbers of elements per partition",
                target=target,
            )
        if self.op.bitwise:
            if self.data.dtype.kind not in "iu":
                raise self.refuse(
                    "data",
                    f"bitwise operator {self.op} needs integers",
                    limit="integer dtypes for bitwise operators",
                    target=target,
                )
            if self.dst.dtype != self.data.dtype:
                raise self.refuse(
                    "dst",
                    f"has another dtype than 'data', {self.data.dtype}",
                    limit="equal dtypes for bitwise operators",
                    target=target,
                )

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.PARTITION_REDUCE,
            elements=self.data.elements,
            rows=self.data.partitions,
            columns=self.dst.elements,
            flags=self.pattern_flags(),
            flops=0 if self.op.bitwise else (self.data.partitions - 1) * self.data.elements,
        )

    def run(self, machine: Machine) -> None:
        if self.op.bitwise:
            machine.store_raw(self.dst, self.op.reduce(machine.raw(self.data), 0))
            return
        with np.errstate(all="ignore"):
            result = self.op.reduce(machine.load(self.data), 0)
            if self.op.name == "average":
                result = result / np.float32(self.data.partitions)
        machine.store(self.dst, result[None, :])
