"""Scans on the Vector Engine: recurrences along the free dimension, the state in float32."""

from __future__ import annotations

import numpy as np

from isa.alu import AluOp
from isa.engine import Engine
from isa.instruction import Dst, Imm, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern, Space
from isa.target import Target
from isa.work import Work, WorkKind

__all__ = ["TensorTensorScan"]

SCAN_OPS = ("add", "subtract", "multiply", "maximum", "minimum")


@instruction(
    opcode=41,
    mnemonic="tensor_tensor_scan",
    engines=(Engine.vector,),
    source="NKI 0.6 nki.isa.tensor_tensor_scan",
)
class TensorTensorScan(Instruction):
    """dst[i] = state = (data0[i] op0 state) op1 data1[i] along the free dimension of each partition.

    The state starts at ``initial`` (a number or a (P, 1) tile), stays float32 and is not rounded to dst's dtype;
    reverse0 and reverse1 swap the sides of their operator.
    """

    dst: AccessPattern = Dst()
    data0: AccessPattern = Src(match="dst")
    data1: AccessPattern = Src(match="dst")
    initial: AccessPattern | float = Src(match="dst", scalar=True, vector=True)
    op0: AluOp = Imm()
    op1: AluOp = Imm()
    reverse0: bool = Imm(False)
    reverse1: bool = Imm(False)

    def constrain(self, target: Target) -> None:
        for op in (self.op0, self.op1):
            if op.name not in SCAN_OPS:
                raise self.refuse(
                    None, f"operator {op} cannot scan", limit="operators: " + ", ".join(SCAN_OPS), target=target
                )
        if self.data0.space is Space.PSUM and self.data1.space is Space.PSUM:
            raise self.refuse("data1", "both inputs are in PSUM", limit="at most one input in PSUM", target=target)

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.SCAN, elements=self.dst.elements, rows=self.dst.partitions, flags=self.pattern_flags()
        )

    def run(self, machine: Machine) -> None:
        from isa._scan import scan

        data0, data1 = machine.load(self.data0), machine.load(self.data1)
        state = np.empty(self.dst.partitions, np.float32)
        state[:] = np.asarray(machine.scalar(self.initial), np.float32).reshape(-1)
        out = np.empty(data0.shape, np.float32)
        scan(data0, data1, state, self.op0.code, self.op1.code, self.reverse0, self.reverse1, out)
        machine.store(self.dst, out)
