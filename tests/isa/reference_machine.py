"""A machine that executes instructions in the plainest way: the oracle of ``trn_sim.machine`` and the bench for isa.

No deferral, no fast paths, no shadow state, no time: memories are byte arrays, every operand is copied in and out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from isa import dtypes
from isa.dtypes import DType
from isa.engine import Engine
from isa.faults import ConstraintFault
from isa.instruction import Instruction, Scalar
from isa.operands import AccessPattern, Dynamic, DynamicKind, Space
from isa.place import ALONE
from isa.random import Generator
from isa.target import TRN2, Target


class ReferenceMachine:
    """Implements :class:`isa.instruction.Machine`."""

    def __init__(self, target: Target = TRN2) -> None:
        self.target = target
        self.place = ALONE
        self.rows = {
            Space.SBUF: np.zeros((128, target.sbuf_bytes), np.uint8),
            Space.PSUM: np.zeros((128, target.psum_bytes), np.uint8),
        }
        self.buffers: list[np.ndarray] = []
        self.registers = np.zeros(64, np.int64)
        self.accumulators = {Engine.scalar: np.zeros(128, np.float32), Engine.vector: np.zeros(128, np.float32)}
        self.generators = {engine: Generator.of(engine, int(engine)) for engine in Engine}
        self.written_by_matmul = np.zeros((128, target.psum_bytes), bool)
        self._next = {Space.SBUF: 0, Space.PSUM: 0}

    # --- for tests: make operands and look at them ------------------------------------------------

    def tile(self, values: Any, dtype: Any = None, *, space: Space = Space.SBUF, start: int = 0) -> AccessPattern:
        """Put an array (partitions, free...) into a memory and return its access pattern."""
        array = np.asarray(values)
        dt = dtypes.dtype(dtype if dtype is not None else array.dtype)
        operand = self.empty(array.shape, dt, space=space, start=start)
        bits = (
            array
            if array.dtype == dt.storage and not dt.is_float
            else dtypes.encode(np.ascontiguousarray(array, np.float32) if dt.is_float else array, dt)
        )
        self.store_raw(operand, bits)
        return operand

    def empty(self, shape: tuple[int, ...], dtype: Any, *, space: Space = Space.SBUF, start: int = 0) -> AccessPattern:
        """Reserve a dense tile of zeros."""
        dt = dtypes.dtype(dtype)
        pairs, stride = [], 1
        for count in reversed(shape[1:] if space.on_chip else shape):
            pairs.insert(0, (stride, count))
            stride *= count
        if space is Space.HBM:
            self.buffers.append(np.zeros(stride * dt.itemsize, np.uint8))
            return AccessPattern(space, dt, 0, tuple(pairs), buffer=len(self.buffers) - 1)
        size = -(-stride * dt.itemsize // 64) * 64
        if space is Space.PSUM:
            size = -(-size // 2048) * 2048
        offset = self._next[space]
        self._next[space] += size
        return AccessPattern(space, dt, offset, tuple(pairs), start=start, partitions=shape[0])

    def register(self, number: int, value: int = 0) -> AccessPattern:
        """A register operand holding ``value``."""
        self.registers[number] = value
        return AccessPattern(Space.REGISTER, dtypes.dtype("int32"), 0, ((1, 1),), buffer=number)

    def values(self, operand: AccessPattern) -> np.ndarray:
        """The operand's values in its own shape: float32 for floats, native integers otherwise."""
        return dtypes.decode(self.view(operand), operand.dtype).reshape(operand.shape)

    def execute(self, ins: Instruction) -> None:
        """Check and run one instruction."""
        ins.check(self.target)
        ins.constrain_address(self.target)
        ins.work(self.target)
        ins.run(self)

    # --- isa.instruction.Machine ------------------------------------------------------------------

    def resolve(self, operand: AccessPattern) -> AccessPattern:
        dynamic = operand.dynamic
        if dynamic is None:
            return operand
        assert dynamic.kind is DynamicKind.SCALAR
        index = int(self.index(dynamic.index)[0])
        return AccessPattern(
            operand.space,
            operand.dtype,
            operand.offset + index * dynamic.stride * operand.dtype.itemsize,
            operand.pairs,
            start=operand.start,
            partitions=operand.partitions,
            step=operand.step,
            buffer=operand.buffer,
            storage=operand.storage,
        )

    def columns(self, operand: AccessPattern) -> tuple[AccessPattern, np.ndarray]:
        """An indirect operand as the plain tile behind it and the columns to take, by the definition."""
        dynamic = operand.dynamic
        assert dynamic is not None
        index, group = self.view(dynamic.index).reshape(dynamic.index.partitions, -1), dynamic.group
        offsets = np.array([int(index[i % group, i // group]) for i in range(operand.elements)])
        plain = AccessPattern(
            operand.space,
            operand.dtype,
            operand.offset,
            ((1, dynamic.count),),
            start=operand.start,
            partitions=operand.partitions,
        )
        return plain, offsets

    def view(self, operand: AccessPattern, *, write: bool = False) -> np.ndarray:
        if operand.indirect:
            plain, offsets = self.columns(operand)
            assert not write
            return self.view(plain)[:, offsets]
        operand = self.resolve(operand)
        if write and operand.space is Space.PSUM:
            self._reset(operand)
        return self._view(operand, operand.dtype)

    def _view(self, operand: AccessPattern, dtype: DType) -> np.ndarray:
        size = dtype.itemsize
        strides = tuple(stride * size for stride, _ in operand.pairs)
        if operand.space is Space.HBM:
            return np.ndarray(operand.shape, dtype.storage, self.buffers[operand.buffer], operand.offset, strides)
        memory = self.rows[operand.space]
        row = memory.shape[1]
        return np.ndarray(
            operand.shape, dtype.storage, memory, operand.start * row + operand.offset, (operand.step * row, *strides)
        )

    def load(self, operand: AccessPattern) -> np.ndarray:
        return dtypes.to_float(self.view(operand), operand.dtype).reshape(operand.partitions, -1).copy()

    def raw(self, operand: AccessPattern) -> np.ndarray:
        return self.view(operand).reshape(operand.partitions, -1).copy()

    def store(self, operand: AccessPattern, values: np.ndarray) -> None:
        values = np.ascontiguousarray(np.broadcast_to(values, (operand.partitions, operand.elements)))
        if values.dtype.kind == "f":
            values = values.astype(np.float32)
        self.store_raw(operand, dtypes.encode(values, operand.dtype))

    def store_raw(self, operand: AccessPattern, bits: np.ndarray) -> None:
        if operand.indirect:
            plain, offsets = self.columns(operand)
            bits = np.broadcast_to(bits, (operand.partitions, operand.elements))
            for i, offset in enumerate(offsets):
                self.view(plain)[:, offset] = bits[:, i]
                self._marks(plain)[:, offset] = False
            return
        view = self.view(operand, write=True)
        view[...] = np.asarray(bits).astype(operand.dtype.storage, copy=False).reshape(view.shape)

    def gather(self, operand: AccessPattern, rows: np.ndarray) -> np.ndarray:
        return self._table(operand)[rows]

    def scatter(self, operand: AccessPattern, rows: np.ndarray, bits: np.ndarray) -> None:
        table = self._table(operand)
        table[rows] = bits.reshape(len(rows), *table.shape[1:])

    def _table(self, operand: AccessPattern) -> np.ndarray:
        dynamic = operand.dynamic
        assert isinstance(dynamic, Dynamic)
        pairs = ((dynamic.stride, dynamic.count), *operand.pairs[1:])
        plain = AccessPattern(
            operand.space,
            operand.dtype,
            operand.offset,
            pairs,
            start=operand.start,
            partitions=operand.partitions,
            buffer=operand.buffer,
        )
        return self._view(plain, operand.dtype)

    def scalar(self, value: Scalar) -> Any:
        if isinstance(value, AccessPattern):
            return self.load(value)[:, :1]
        return np.float32(value)

    def index(self, operand: AccessPattern) -> np.ndarray:
        if operand.space is Space.REGISTER:
            return np.array([self.read_register(operand)])
        return self.view(operand).astype(np.int64).reshape(-1)

    def accumulator(self, engine: Engine) -> np.ndarray:
        return self.accumulators[engine]

    def _reset(self, operand: AccessPattern) -> None:
        self._marks(operand)[...] = False

    def _marks(self, operand: AccessPattern) -> np.ndarray:
        size = operand.dtype.itemsize
        strides = tuple(stride * size for stride, _ in operand.pairs)
        row = self.target.psum_bytes
        return np.ndarray(
            operand.shape, bool, self.written_by_matmul, operand.start * row + operand.offset, (row, *strides)
        )

    def matmul(
        self,
        dst: AccessPattern,
        stationary: AccessPattern,
        moving: AccessPattern,
        *,
        accumulate: bool | None,
        double_row: bool = False,
    ) -> None:
        k = stationary.partitions
        left, right = self.load(stationary), self.load(moving)
        if double_row:  # contraction over (partition, first free dimension of two)
            left = left.reshape(k, 2, -1).reshape(2 * k, -1)
            right = right.reshape(k, 2, -1).reshape(2 * k, -1)
        self.add_product(dst, left, right, accumulate=accumulate)

    def meet(self, what: str, agents: tuple[int, ...], give: Callable[[], Any], *, lane: str = "") -> dict[int, Any]:
        if agents != (self.place.agent,):
            raise ConstraintFault(f"{what}: this machine is alone", limit="one core")
        return {agents[0]: give()}

    def add_product(self, dst: AccessPattern, left: np.ndarray, right: np.ndarray, *, accumulate: bool | None) -> None:
        product = (left.T @ right).reshape(dst.shape)
        if dst.indirect:
            plain, offsets = self.columns(dst)
            for i, offset in enumerate(offsets):
                one = AccessPattern(
                    plain.space,
                    plain.dtype,
                    plain.offset + int(offset) * plain.dtype.itemsize,
                    ((1, 1),),
                    start=plain.start,
                    partitions=plain.partitions,
                )
                self.add_product(one, left, right[:, i : i + 1], accumulate=accumulate)
            return
        view, marks = self._view(dst, dst.dtype), self._marks(dst)
        old = dtypes.to_float(view, dst.dtype)
        keep = marks if accumulate is None else np.full(dst.shape, accumulate)
        total = np.where(keep, old + product, product).astype(np.float32)
        view[...] = dtypes.encode(np.ascontiguousarray(total), dst.dtype)
        marks[...] = True

    def read_register(self, operand: AccessPattern) -> int:
        return int(self.registers[operand.buffer])

    def write_register(self, operand: AccessPattern, value: int) -> None:
        self.registers[operand.buffer] = (int(value) + 2**31) % 2**32 - 2**31

    def random_state(self, engine: Engine) -> Any:
        return self.generators[engine]
