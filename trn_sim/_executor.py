"""Executes instructions on the memories of one core: the fast implementation of :class:`isa.instruction.Machine`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from isa.engine import Engine
from isa.faults import ConstraintFault, InternalFault
from isa.instruction import Array, Scalar
from isa.operands import AccessPattern, DynamicKind, Space
from isa.random import Generator
from isa.target import Target
from memory_model.gather import Rows
from memory_model.memory import Memory
from trn_sim._accumulate import Accumulator

__all__ = ["Executor"]


class Executor:
    """State that instructions see: memories, registers, accumulators, generators, pending matmuls."""

    def __init__(self, target: Target, memory: Memory) -> None:
        self.target = target
        self.memory = memory
        self.pending = Accumulator(memory)
        self.registers: list[int] = []
        self._accumulators: dict[Engine, npt.NDArray[np.float32]] = {}
        self._generators: dict[Engine, Generator] = {}

    # --- addresses --------------------------------------------------------------------------------

    def _settle(self, operand: AccessPattern) -> AccessPattern:
        """Resolve a run-time address and bring pending matmuls into PSUM where the operand meets them."""
        if operand.dynamic is not None:
            operand = self.resolve(operand)
        if operand.space is Space.PSUM and self.pending:
            self.pending.flush(operand)
        return operand

    def resolve(self, operand: AccessPattern) -> AccessPattern:
        """The plain pattern behind a SCALAR run-time address, bounds checked."""
        dynamic = operand.dynamic
        if dynamic is None:
            return operand
        if dynamic.kind is not DynamicKind.SCALAR:
            raise ConstraintFault(
                "an operand with a vector of run-time offsets is accepted by DMA instructions only",
                advice="gather the rows into SBUF with dma_copy first",
            )
        settled = self.memory.resolve(operand, self.index(dynamic.index))
        assert isinstance(settled, AccessPattern)
        return settled

    def index(self, operand: AccessPattern) -> npt.NDArray[np.int64]:
        if operand.space is Space.REGISTER:
            return np.array([self.registers[operand.start]], dtype=np.int64)
        return self.raw(operand).astype(np.int64).ravel()

    # --- operands ---------------------------------------------------------------------------------

    def load(self, operand: AccessPattern) -> npt.NDArray[np.float32]:
        return self.memory.load(self._settle(operand))

    def raw(self, operand: AccessPattern) -> Array:
        return self.memory.raw(self._settle(operand))

    def view(self, operand: AccessPattern, *, write: bool = False) -> Array:
        operand = self._settle(operand)
        view = self.memory.view(operand)
        if not write:
            self.memory.check(operand)
            return view
        if not view.flags.writeable:
            raise ConstraintFault(
                f"{operand} is an argument bound to a read-only array",
                advice="pass a writeable array, or write to an output tensor",
            )
        self.memory.mark(operand)
        return view

    def store(self, operand: AccessPattern, values: Array) -> None:
        self.memory.store(self._settle(operand), values)

    def store_raw(self, operand: AccessPattern, bits: Array) -> None:
        self.memory.store_raw(self._settle(operand), bits)

    def gather(self, operand: AccessPattern, rows: npt.NDArray[np.int64]) -> Array:
        picked = self.memory.raw_rows(self._rows(operand, rows))
        return picked.reshape(len(rows), *(count for _, count in operand.pairs[1:]))

    def scatter(self, operand: AccessPattern, rows: npt.NDArray[np.int64], bits: Array) -> None:
        self.memory.store_raw_rows(self._rows(operand, rows), bits)

    def _rows(self, operand: AccessPattern, rows: npt.NDArray[np.int64]) -> Rows:
        """The rows of a gathered or scattered operand; there may be fewer than the pattern has (skipped indices)."""
        pairs = ((operand.pairs[0][0], len(rows)), *operand.pairs[1:])
        picked = self.memory.resolve(
            AccessPattern(
                operand.space,
                operand.dtype,
                operand.offset,
                pairs,
                buffer=operand.buffer,
                storage=operand.storage,
                dynamic=operand.dynamic,
            ),
            rows,
        )
        assert isinstance(picked, Rows)
        return picked

    def scalar(self, value: Scalar) -> Any:
        if value.__class__ is AccessPattern:
            return self.load(value)
        return np.float32(value)  # type: ignore[arg-type]

    # --- engine state -----------------------------------------------------------------------------

    def accumulator(self, engine: Engine) -> npt.NDArray[np.float32]:
        state = self._accumulators.get(engine)
        if state is None:
            state = self._accumulators[engine] = np.zeros(self.target.partitions, np.float32)
        return state

    def random_state(self, engine: Engine) -> Generator:
        state = self._generators.get(engine)
        if state is None:
            state = self._generators[engine] = Generator.of(engine, int(engine))
        return state

    def read_register(self, operand: AccessPattern) -> int:
        return self.registers[operand.start]

    def write_register(self, operand: AccessPattern, value: int) -> None:
        self.registers[operand.start] = (int(value) + 2**31) % 2**32 - 2**31

    # --- Tensor Engine ----------------------------------------------------------------------------

    def matmul(
        self,
        dst: AccessPattern,
        stationary: AccessPattern,
        moving: AccessPattern,
        *,
        accumulate: bool | None,
        double_row: bool = False,
    ) -> None:
        left, right = self._decoded(stationary), self._decoded(moving)
        if double_row:  # the contraction runs over (partition, first free dimension of two)
            left = left.reshape(2 * stationary.partitions, -1)
            right = right.reshape(2 * moving.partitions, -1)
        if left.shape[0] != right.shape[0]:
            raise InternalFault(f"matmul operands disagree: {left.shape} and {right.shape}")
        self.pending.add(self.resolve(dst), left, right, accumulate)

    def _decoded(self, operand: AccessPattern) -> npt.NDArray[np.float32]:
        """float32 values that no later write to memory can change."""
        values = self.load(operand)
        decoded = self.memory.precise and operand.dtype.itemsize < 4
        return values if decoded else values.copy()
