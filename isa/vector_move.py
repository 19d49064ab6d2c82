"""Moves on the Vector Engine (and its neighbours): copies, fills, shuffles, small transposes.

Copies between equal dtypes keep bits; other copies go through float32 and are rounded once.  Semantics and limits: NKI
documentation (0.6).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from isa import dtypes
from isa.engine import Engine
from isa.instruction import Dst, Imm, Instruction, Machine, Src, SrcDst, instruction
from isa.operands import AccessPattern, Space
from isa.target import Target
from isa.work import Work, WorkFlag, WorkKind

__all__ = ["Memset", "StreamShuffle", "TensorCopy", "TensorCopyPredicated", "VectorTranspose"]

KEEP = 255
"""Entry of a shuffle mask that leaves a partition as it is."""

QUADRANT = 32
_PREDICATES = frozenset({"uint8", "uint16", "uint32"})


@instruction(
    opcode=34,
    mnemonic="tensor_copy",
    engines=(Engine.vector, Engine.scalar, Engine.gpsimd),
    source="NKI 0.6 nki.isa.tensor_copy",
)
class TensorCopy(Instruction):
    """dst = src.  Equal dtypes keep every bit; others are rounded once, through float32.

    The engine is Vector unless one is asked for.
    """

    takes_packed: ClassVar[bool] = True
    indirect_engines: ClassVar[tuple[Engine, ...]] = (Engine.vector, Engine.scalar)

    dst: AccessPattern = Dst(indirect="src")
    src: AccessPattern = Src(indirect="src", match="dst")
    engine: Engine = Imm(Engine.unknown)

    def select_engine(self, target: Target) -> Engine:
        return Engine.vector if self.engine is Engine.unknown else self.engine

    def constrain(self, target: Target) -> None:
        if self.dst.dtype != self.src.dtype:
            for name in ("dst", "src"):
                if getattr(self, name).dtype.element is not None:
                    raise self.refuse_packed(name, target)
        engine = self.select_engine(target)
        if engine not in self.engines:
            raise self.refuse(
                None, f"the {engine.title} Engine cannot copy", target=target, limit="engine: vector, scalar or gpsimd"
            )
        if engine is Engine.scalar and target.generation < 3:
            raise self.refuse(
                None,
                "the Scalar Engine has no tensor_copy on this generation",
                target=target,
                limit="scalar from NeuronCore-v3",
                advice="use activation with op=nl.copy",
            )
        if engine is Engine.gpsimd:
            for name in ("dst", "src"):
                if getattr(self, name).space is Space.PSUM:
                    raise self.refuse(name, "the GpSimd Engine cannot access PSUM", limit="memory: SBUF", target=target)

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.COPY, elements=self.dst.elements, rows=self.dst.partitions, flags=self.pattern_flags()
        )

    def run(self, machine: Machine) -> None:
        if self.dst.dtype == self.src.dtype:
            machine.store_raw(self.dst, machine.raw(self.src))
        else:
            machine.store(self.dst, machine.load(self.src))


@instruction(
    opcode=35,
    mnemonic="tensor_copy_predicated",
    engines=(Engine.vector,),
    source="NKI 0.6 nki.isa.tensor_copy_predicated",
)
class TensorCopyPredicated(Instruction):
    """dst = src where predicate is not zero (is zero with reverse_pred); other elements of dst keep their value.

    src is a tile of dst's dtype or a number.
    """

    takes_packed: ClassVar[bool] = True

    dst: AccessPattern = SrcDst(indirect="predicate")
    src: AccessPattern | float = Src(match="dst", scalar=True)
    predicate: AccessPattern = Src(indirect="predicate", match="dst", dtypes=_PREDICATES)
    reverse_pred: bool = Imm(False)

    def constrain(self, target: Target) -> None:
        if not isinstance(self.src, AccessPattern):
            if self.dst.dtype.element is not None:
                raise self.refuse_packed("dst", target)
        else:
            if self.src.dtype != self.dst.dtype:
                raise self.refuse(
                    "src", f"dtype differs from dst's {self.dst.dtype}", limit="equal dtypes", target=target
                )
            if self.src.space is Space.PSUM and self.predicate.space is Space.PSUM:
                raise self.refuse(
                    "predicate",
                    "src and predicate are both in PSUM",
                    target=target,
                    limit="at most one of src and predicate in PSUM",
                )

    def work(self, target: Target) -> Work:
        flags = WorkFlag(self.pattern_flags())
        if isinstance(self.src, AccessPattern):
            spaces = {self.src.space, self.predicate.space}
            flags |= WorkFlag.TWO_TENSORS
            flags &= ~(WorkFlag.SRC_PSUM | WorkFlag.SRC_SBUF | WorkFlag.VECTOR_OPERAND)
            flags |= WorkFlag.SRC_PSUM if Space.PSUM in spaces else WorkFlag.NONE
            flags |= WorkFlag.SRC_SBUF if Space.SBUF in spaces else WorkFlag.NONE
        return Work(
            kind=WorkKind.COPY_PREDICATED, elements=self.dst.elements, rows=self.dst.partitions, flags=int(flags)
        )

    def run(self, machine: Machine) -> None:
        chosen = machine.raw(self.predicate) != 0
        if self.reverse_pred:
            chosen = ~chosen
        if isinstance(self.src, AccessPattern):
            values = machine.raw(self.src)
        else:
            number = np.full((1, 1), self.src, np.float32 if self.dst.dtype.is_float else np.float64)
            values = dtypes.encode(number, self.dst.dtype)
        machine.store_raw(self.dst, np.where(chosen, values, machine.raw(self.dst)))


@instruction(
    opcode=36,
    mnemonic="memset",
    engines=(Engine.vector, Engine.gpsimd),
    source="NKI 0.6 nki.isa.memset",
)
class Memset(Instruction):
    """Every element of dst = value.  Integer dtypes take integers; packed x4 dtypes take only 0."""

    takes_packed: ClassVar[bool] = True

    dst: AccessPattern = Dst()
    value: float | int = Imm()
    engine: Engine = Imm(Engine.unknown)

    def select_engine(self, target: Target) -> Engine:
        return Engine.vector if self.engine is Engine.unknown else self.engine

    def constrain(self, target: Target) -> None:
        if self.select_engine(target) not in self.engines:
            raise self.refuse(
                None,
                f"the {self.engine.title} Engine cannot fill memory",
                target=target,
                limit="engine: vector or gpsimd",
            )
        if self.select_engine(target) is Engine.gpsimd and self.dst.space is Space.PSUM:
            raise self.refuse("dst", "the GpSimd Engine cannot access PSUM", limit="memory: SBUF", target=target)
        if self.dst.dtype.is_integer and not float(self.value).is_integer():
            raise self.refuse(
                "dst",
                f"takes an integer, not {self.value!r}",
                target=target,
                limit="an integer value for an integer dtype",
                advice="pass an int",
            )
        if self.dst.dtype.kind == "x" and self.value != 0:
            raise self.refuse(
                "dst",
                f"a packed dtype cannot be filled with {self.value!r}",
                target=target,
                limit="0 for packed x4 dtypes",
            )

    def work(self, target: Target) -> Work:
        flags = self.pattern_flags() | (WorkFlag.ZERO if self.value == 0 else 0)
        return Work(kind=WorkKind.MEMSET, elements=self.dst.elements, rows=self.dst.partitions, flags=flags)

    def run(self, machine: Machine) -> None:
        dtype = self.dst.dtype
        if dtype.kind == "x":
            bits = np.zeros(1, dtype.storage)
        elif dtype.is_integer:
            bits = dtypes.encode_int(np.array([int(self.value)]), dtype)
        else:
            bits = dtypes.encode(np.full(1, self.value, np.float32), dtype)
        machine.store_raw(self.dst, np.broadcast_to(bits, (self.dst.partitions, self.dst.elements)))


@instruction(
    opcode=37,
    mnemonic="nc_stream_shuffle",
    engines=(Engine.vector,),
    source="NKI 0.6 nki.isa.nc_stream_shuffle",
)
class StreamShuffle(Instruction):
    """In each quadrant of 32 partitions, dst[i] = src[shuffle_mask[i]]; a mask entry of 255 keeps dst[i].

    dst may be src.  They may differ in partitions, as long as src has those that the mask names: zeros spread the first
    partition of each quadrant.
    """

    takes_packed: ClassVar[bool] = True

    dst: AccessPattern = SrcDst()
    src: AccessPattern = Src()
    shuffle_mask: tuple[int, ...] = Imm()

    def constrain(self, target: Target) -> None:
        if self.src.dtype != self.dst.dtype:
            raise self.refuse("src", f"dtype differs from dst's {self.dst.dtype}", limit="equal dtypes", target=target)
        if self.src.elements != self.dst.elements:
            raise self.refuse(
                "src",
                f"has {self.src.elements} elements per partition where 'dst' {self.dst.shape} has {self.dst.elements}",
                limit="equal numbers of elements per partition",
                target=target,
            )
        if len(self.shuffle_mask) != QUADRANT:
            raise self.refuse(
                None, f"shuffle_mask has {len(self.shuffle_mask)} entries", limit="32 entries", target=target
            )
        wrong = [entry for entry in self.shuffle_mask if not 0 <= entry < QUADRANT and entry != KEEP]
        if wrong:
            raise self.refuse(None, f"shuffle_mask holds {wrong[0]}", limit="0 to 31, or 255 to keep", target=target)

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.SHUFFLE, elements=self.dst.elements, rows=self.dst.partitions, flags=self.pattern_flags()
        )

    def run(self, machine: Machine) -> None:
        partitions = self.dst.partitions
        rows = np.arange(partitions)
        mask = np.array(self.shuffle_mask)[rows % QUADRANT]
        moved = mask != KEEP
        origin = np.where(moved, rows - rows % QUADRANT + mask, rows)
        held = self.src.partitions
        outside = moved & (origin >= held)
        if outside.any():
            raise self.refuse(
                "src",
                f"shuffle_mask names partition {int(origin[outside][0])}",
                limit=f"partitions 0 to {held - 1}",
                target=machine.target,
            )
        values = machine.raw(self.src)[np.minimum(origin, held - 1)]  # what is kept names no partition of src
        if moved.all():
            machine.store_raw(self.dst, values)
        else:
            machine.store_raw(self.dst, np.where(moved[:, None], values, machine.raw(self.dst)))


@instruction(
    opcode=60,
    mnemonic="nc_transpose",
    engines=(Engine.vector,),
    source="NKI 0.6 nki.isa.nc_transpose, Vector Engine",
)
class VectorTranspose(Instruction):
    """dst[f, p] = data[p, f] for up to 32 x 32 elements, free dimensions flattened; bits are kept."""

    takes_packed: ClassVar[bool] = True

    dst: AccessPattern = Dst()
    data: AccessPattern = Src()
    engine: Engine = Imm(Engine.vector)

    def constrain(self, target: Target) -> None:
        edge = target.vector_transpose_edge
        if self.data.partitions > edge or self.data.elements > edge:
            raise self.refuse(
                "data",
                "is too large for the Vector Engine",
                target=target,
                limit=f"up to {edge} x {edge} elements",
                advice="use engine=nki.isa.engine.tensor",
            )
        if (self.dst.partitions, self.dst.elements) != (self.data.elements, self.data.partitions):
            raise self.refuse(
                "dst",
                f"does not hold the transpose of data {self.data.shape}",
                target=target,
                limit=f"({self.data.elements}, {self.data.partitions})",
            )
        if self.dst.dtype != self.data.dtype:
            raise self.refuse(
                "dst", f"dtype differs from data's {self.data.dtype}", limit="equal dtypes", target=target
            )

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.VECTOR_TRANSPOSE,
            elements=self.data.elements,
            rows=self.data.partitions,
            flags=self.pattern_flags(),
        )

    def run(self, machine: Machine) -> None:
        machine.store_raw(self.dst, np.ascontiguousarray(machine.raw(self.data).T))
