"""Executes instructions on the memories of one core: the fast implementation of :class:`isa.instruction.Machine`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from isa.engine import Engine
from isa.faults import ConstraintFault, InternalFault, UnverifiedFault
from isa.indirect import column_offsets
from isa.instruction import Array, Scalar
from isa.operands import AccessPattern, DynamicKind, Space
from isa.place import ALONE, Place
from isa.random import Generator
from isa.target import Target
from memory_model.gather import Rows
from memory_model.memory import Memory
from trn_sim._accumulate import Accumulator
from trn_sim.team import Team

__all__ = ["Executor"]


class Executor:
    """State that instructions see: memories, registers, accumulators, generators, pending matmuls."""

    def __init__(self, target: Target, memory: Memory, place: Place = ALONE, team: Team | None = None) -> None:
        self.target = target
        self.place = place
        self.team = team
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
        if dynamic.kind is DynamicKind.COLUMN:
            raise InternalFault(f"{operand} is indirect, and an instruction took it for a strided view")
        if dynamic.kind is not DynamicKind.SCALAR:
            raise ConstraintFault(
                "an operand with a vector of run-time offsets is accepted by DMA instructions only",
                advice="gather the rows into SBUF with dma_copy first",
            )
        settled = self.memory.resolve(operand, self.index(dynamic.index))
        assert isinstance(settled, AccessPattern)
        return settled

    def _columns(self, operand: AccessPattern) -> Rows:
        """The columns that an indirect operand means, with pending matmuls brought into PSUM."""
        assert operand.dynamic is not None
        picked = self.memory.resolve(operand, column_offsets(operand, self.raw(operand.dynamic.index)))
        assert isinstance(picked, Rows)
        self._settle(picked.base)
        return picked

    def index(self, operand: AccessPattern) -> npt.NDArray[np.int64]:
        if operand.space is Space.REGISTER:
            return np.array([self.registers[operand.buffer]], dtype=np.int64)
        return self.raw(operand).astype(np.int64).ravel()

    # --- operands ---------------------------------------------------------------------------------

    def load(self, operand: AccessPattern) -> npt.NDArray[np.float32]:
        if operand.dynamic is not None and operand.indirect:
            return self.memory.load_rows(self._columns(operand))
        return self.memory.load(self._settle(operand))

    def raw(self, operand: AccessPattern) -> Array:
        if operand.dynamic is not None and operand.indirect:
            return self.memory.raw_rows(self._columns(operand))
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
        if operand.dynamic is not None and operand.indirect:
            self.memory.store_rows(self._columns(operand), values)
            return
        self.memory.store(self._settle(operand), values)

    def store_raw(self, operand: AccessPattern, bits: Array) -> None:
        if operand.dynamic is not None and operand.indirect:
            self.memory.store_raw_rows(self._columns(operand), bits)
            return
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
        return self.registers[operand.buffer]

    def write_register(self, operand: AccessPattern, value: int) -> None:
        self.registers[operand.buffer] = (int(value) + 2**31) % 2**32 - 2**31

    # --- other cores ------------------------------------------------------------------------------

    def meet(self, what: str, agents: tuple[int, ...], give: Callable[[], Any], *, lane: str = "") -> dict[int, Any]:
        if agents == (self.place.agent,):
            return {agents[0]: give()}
        if self.team is None or max(agents) >= self.team.size:
            size = 1 if self.team is None else self.team.size
            raise ConstraintFault(
                f"cores {agents} meet, and the kernel runs on {size}",
                limit="cores that the kernel was launched on",
                advice="launch it as kernel[2](...), or on as many ranks (trn_sim.run_ranks), or ask "
                "nl.num_programs() first",
            )
        self.pending.flush()
        return self.team.meet(self.place.agent, what, agents, give, lane=lane)

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
        self.add_product(dst, left, right, accumulate=accumulate)

    def add_product(
        self,
        dst: AccessPattern,
        left: npt.NDArray[np.float32],
        right: npt.NDArray[np.float32],
        *,
        accumulate: bool | None,
    ) -> None:
        if dst.indirect:
            self._scatter_product(dst, left.T @ right, accumulate)
        else:
            self.pending.add(self.resolve(dst), left, right, accumulate)

    def _scatter_product(self, dst: AccessPattern, product: npt.NDArray[np.float32], accumulate: bool | None) -> None:
        """A product into columns of PSUM picked by offsets; executed at once."""
        columns = self._columns(dst)
        if len(np.unique(columns.index)) != len(columns.index):
            raise UnverifiedFault(
                "a matmul scatters two columns to one place",
                operand="dst",
                advice="no text says whether they add up or the last one stays; use each offset once",
            )
        if accumulate is None:
            fresh = self.memory.psum_fresh(columns.base)
            keep: Any = fresh == "none" if isinstance(fresh, str) else ~fresh.take(columns.index, 1)
        else:
            keep = accumulate
        if keep is not False:
            where = np.broadcast_to(keep, product.shape)
            held = columns if accumulate else Rows(columns.base, columns.index[where.any(0)], axis=1)
            old = np.zeros(product.shape, np.float32)
            old[:, where.any(0)] = self.memory.load_rows(held)
            product = np.where(where, old + product, product)
        self.memory.store_rows(columns, product)
        for number in columns.index:
            self.memory.psum_mark(columns.row(int(number)))

    def _decoded(self, operand: AccessPattern) -> npt.NDArray[np.float32]:
        """float32 values that no later write to memory can change."""
        values = self.load(operand)
        decoded = self.memory.precise and operand.dtype.itemsize < 4
        return values if decoded else values.copy()
