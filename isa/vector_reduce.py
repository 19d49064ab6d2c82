"""Reductions on the Vector Engine over free dimensions.

Sums run in float32; bitwise operators on integer bits.  Semantics and limits: NKI documentation (0.6).
"""

from __future__ import annotations

import numpy as np

from isa.alu import AluOp
from isa.engine import Engine
from isa.instruction import Dst, Imm, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern
from isa.target import Target
from isa.work import Work, WorkFlag, WorkKind

__all__ = ["TensorReduce"]

REDUCERS = (
    "add",
    "subtract",
    "multiply",
    "maximum",
    "minimum",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
)


@instruction(
    opcode=40,
    mnemonic="tensor_reduce",
    engines=(Engine.vector,),
    source="NKI 0.6 nki.isa.tensor_reduce",
)
class TensorReduce(Instruction):
    """dst = data reduced over the last free dimensions, times -1 with negate.

    ``axis`` is one dimension of data or a tuple of them, and must be the trailing run of free dimensions.  ``keepdims``
    changes only the shape that dst is written in.
    """

    dst: AccessPattern = Dst(indirect="data")
    op: AluOp = Imm()
    data: AccessPattern = Src(indirect="data")
    axis: int | tuple[int, ...] = Imm()
    negate: bool = Imm(False)
    keepdims: bool = Imm(False)

    @property
    def _axes(self) -> tuple[int, ...]:
        rank = len(self.data.pairs) + 1
        axes = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        return tuple(sorted(axis + rank if axis < 0 else axis for axis in axes))

    def constrain(self, target: Target) -> None:
        rank = len(self.data.pairs) + 1
        axes = self._axes
        if not axes or axes != tuple(range(rank - len(axes), rank)) or axes[0] < 1:
            raise self.refuse(
                "data",
                f"cannot be reduced over axis {self.axis}",
                target=target,
                limit="the trailing free dimensions, never dimension 0",
                advice="permute the view so that the reduced dimensions come last",
            )
        if self.op.name not in REDUCERS:
            raise self.refuse(
                None, f"operator {self.op} cannot reduce", limit="operators: " + ", ".join(REDUCERS), target=target
            )
        if self.op.bitwise:
            for name in ("data", "dst"):
                if getattr(self, name).dtype.kind not in "iu":
                    raise self.refuse(
                        name,
                        f"bitwise operator {self.op} needs integers",
                        target=target,
                        limit="integer dtypes for bitwise operators",
                    )
        kept = self.data.elements // self._reduced
        if self.dst.partitions != self.data.partitions or self.dst.elements != kept:
            raise self.refuse(
                "dst",
                f"does not hold data {self.data.shape} reduced over {self.axis}",
                target=target,
                limit=f"{self.data.partitions} partitions of {kept} elements",
            )

    @property
    def _reduced(self) -> int:
        count = 1
        for _, size in self.data.pairs[self._axes[0] - 1 :]:
            count *= size
        return count

    def work(self, target: Target) -> Work:
        flags = self.pattern_flags()
        if self.op.name in ("add", "maximum"):
            flags |= WorkFlag.FAST_OPS
        return Work(
            kind=WorkKind.REDUCE,
            elements=self.data.elements,
            rows=self.data.partitions,
            columns=self.dst.elements,
            flags=flags,
        )

    def run(self, machine: Machine) -> None:
        shape = (self.data.partitions, -1, self._reduced)
        if self.op.bitwise:
            machine.store_raw(self.dst, self.op.reduce(machine.raw(self.data).reshape(shape), 2))
            return
        with np.errstate(all="ignore"):
            values = self.op.reduce(machine.load(self.data).reshape(shape), 2)
            machine.store(self.dst, -values if self.negate else values)
