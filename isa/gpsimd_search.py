"""GpSimd Engine: instructions that search: positions of non-zeros, bounds of segments, the K largest values.

Semantics and limits: NKI documentation (0.6) of each instruction, and for ``topk`` the public kernel of nki-library
that uses it, because the text leaves open where results go.  That kernel reads result j of a group of 16 partitions
from partition j mod 16, column j div 16 (the "snake" layout of the input), and relies on the set of results only,
because the chip's order differs from the documented one; here results ascend, as documented.
"""

from __future__ import annotations

import numpy as np

from isa._affine import check_int32
from isa.engine import Engine
from isa.gpsimd import GROUP
from isa.instruction import Array, Dst, Imm, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern, Space
from isa.target import Target
from isa.work import Work, WorkKind

__all__ = ["NonzeroWithCount", "SequenceBounds", "TopK"]

SBUF = (Space.SBUF,)
FLOAT_OR_INT = frozenset({"float32", "int32"})


def _part(
    tile: AccessPattern, *, start: int = 0, partitions: int, step: int = 1, first: int = 0, columns: int | None = None
) -> AccessPattern:
    """Some partitions of a tile; of a (P, N) tile also some columns, ``columns`` of them from ``first``."""
    offset, pairs = tile.offset, tile.pairs
    if columns is not None:
        stride = pairs[0][0]
        offset, pairs = offset + first * stride * tile.dtype.itemsize, ((stride, columns),)
    return AccessPattern(
        tile.space,
        tile.dtype,
        offset,
        pairs,
        start=tile.start + start,
        partitions=partitions,
        step=step,
        storage=tile.storage,
    )


def _refuse_partitions(ins: Instruction, name: str, other: str, target: Target) -> None:
    here, there = getattr(ins, name), getattr(ins, other)
    if here.partitions != there.partitions:
        raise ins.refuse(
            name,
            f"has {here.partitions} partitions where '{other}' has {there.partitions}",
            limit="equal numbers of partitions",
            target=target,
        )


@instruction(
    opcode=71,
    mnemonic="nonzero_with_count",
    engines=(Engine.gpsimd,),
    generations=(3, 4),
    source="NKI 0.6 nki.isa.nonzero_with_count",
)
class NonzeroWithCount(Instruction):
    """In partitions 0, 16, 32, ... of the tiles: positions of non-zero elements plus ``index_offset``, then
    ``padding_val`` up to the length of src, then the number of non-zeros.  Other partitions of dst are left alone."""

    dst: AccessPattern = Dst(spaces=SBUF, dtypes=frozenset({"int32"}))
    src: AccessPattern = Src(spaces=SBUF, dtypes=FLOAT_OR_INT)
    index_offset: int = Imm(0, keyed=False)
    padding_val: int = Imm(-1, keyed=False)

    def constrain(self, target: Target) -> None:
        _refuse_partitions(self, "dst", "src", target)
        if self.dst.elements != self.src.elements + 1:
            raise self.refuse(
                "dst",
                f"has {self.dst.elements} elements per partition where 'src' has {self.src.elements}",
                limit="one element more than src",
                target=target,
            )

    def constrain_address(self, target: Target) -> None:
        check_int32(self, "index_offset", self.index_offset, target)
        check_int32(self, "padding_val", self.padding_val, target)

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.GPSIMD_OTHER,
            elements=self.src.elements,
            rows=-(-self.src.partitions // GROUP),
            columns=self.dst.elements,
            flags=self.pattern_flags(),
        )

    def run(self, machine: Machine) -> None:
        rows = -(-self.src.partitions // GROUP)
        values = machine.raw(_part(self.src, partitions=rows, step=GROUP))
        out = np.full((rows, self.dst.elements), self.padding_val, np.int32)
        for row in range(rows):
            found = np.flatnonzero(values[row])
            out[row, : len(found)] = (found + self.index_offset).astype(np.int32)  # wraps
            out[row, -1] = len(found)
        machine.store_raw(_part(self.dst, partitions=rows, step=GROUP), out)


@instruction(opcode=72, mnemonic="sequence_bounds", engines=(Engine.gpsimd,), source="NKI 0.6 nki.isa.sequence_bounds")
class SequenceBounds(Instruction):
    """dst[0, 0, i] and dst[0, 1, i]: first position of the run of equal ids around i, and the position after its end.

    Positions with id 0 are padding: start n, end -1, for n ids.
    """

    dst: AccessPattern = Dst(spaces=SBUF, dtypes=FLOAT_OR_INT)
    segment_ids: AccessPattern = Src(spaces=SBUF, dtypes=FLOAT_OR_INT)

    def constrain(self, target: Target) -> None:
        if self.segment_ids.partitions != 1:
            raise self.refuse(
                "segment_ids", f"has {self.segment_ids.partitions} partitions", limit="one partition", target=target
            )
        _refuse_partitions(self, "dst", "segment_ids", target)
        if self.dst.elements != 2 * self.segment_ids.elements:
            raise self.refuse(
                "dst",
                f"has {self.dst.elements} elements where 'segment_ids' has {self.segment_ids.elements}",
                limit="shape (1, 2, n) for n ids",
                target=target,
            )

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.GPSIMD_OTHER,
            elements=self.segment_ids.elements,
            rows=1,
            columns=self.dst.elements,
            flags=self.pattern_flags(),
        )

    def run(self, machine: Machine) -> None:
        ids = machine.raw(self.segment_ids)[0]
        n = len(ids)
        breaks = np.flatnonzero(ids[1:] != ids[:-1]) + 1
        starts, ends = np.r_[0, breaks], np.r_[breaks, n]
        lengths = ends - starts
        padding = ids == 0
        bounds = np.stack(
            [
                np.where(padding, n, np.repeat(starts, lengths)),
                np.where(padding, -1, np.repeat(ends, lengths)),
            ]
        ).reshape(1, -1)
        machine.store(self.dst, bounds.astype(np.float32 if self.dst.dtype.is_float else np.int32))


@instruction(opcode=73, mnemonic="topk", engines=(Engine.gpsimd,), source="NKI 0.6 nki.isa.topk", status="guessed")
class TopK(Instruction):
    """The K largest of n values in each group of 16 partitions, ascending, with their positions.

    Value i of a group lies in partition i mod 16, column i div 16 of ``src``; result j goes to the same place of
    ``val_dst`` and ``idx_dst``, so that only their first ceil(K / 16) columns are written.  K is the number of columns
    of ``val_dst``.  Of equal values the earlier positions win; NaN loses.
    """

    val_dst: AccessPattern = Dst(spaces=SBUF, dtypes=frozenset({"bfloat16"}))
    idx_dst: AccessPattern = Dst(spaces=SBUF, dtypes=frozenset({"uint32"}), match="val_dst")
    src: AccessPattern = Src(spaces=SBUF, dtypes=frozenset({"bfloat16"}))
    n: int = Imm()

    def constrain(self, target: Target) -> None:
        count = self.val_dst.elements
        _refuse_partitions(self, "src", "val_dst", target)
        for name in ("val_dst", "idx_dst", "src"):
            if len(getattr(self, name).pairs) != 1:
                raise self.refuse(name, "has more than one free dimension", limit="shape (P, columns)", target=target)
        if self.src.partitions % GROUP:
            raise self.refuse(
                "src", f"uses {self.src.partitions} partitions", limit=f"multiples of {GROUP} partitions", target=target
            )
        if not 8 <= self.n < 65536:
            raise self.refuse(None, f"n is {self.n}", limit="8 to 65535 values", target=target)
        if not (count < 32768 and count <= self.n):
            raise self.refuse(
                "val_dst", f"asks for {count} of {self.n} values", limit="K below 32768 and at most n", target=target
            )
        if self.src.elements * GROUP < self.n:
            raise self.refuse(
                "src",
                f"holds {self.src.elements * GROUP} values a group where n is {self.n}",
                limit="at least ceil(n / 16) columns",
                target=target,
            )

    def work(self, target: Target) -> Work:
        return Work(
            kind=WorkKind.GPSIMD_OTHER,
            elements=self.n,
            rows=self.src.partitions,
            columns=self.val_dst.elements,
            flags=self.pattern_flags(),
        )

    def run(self, machine: Machine) -> None:
        groups, count = self.src.partitions // GROUP, self.val_dst.elements
        used = _part(self.src, partitions=self.src.partitions, columns=-(-self.n // GROUP))
        snake = machine.load(used).reshape(groups, GROUP, -1).transpose(0, 2, 1).reshape(groups, -1)[:, : self.n]
        order = np.argsort(-snake, axis=1, kind="stable")[:, :count][:, ::-1]
        self._place(machine, self.val_dst, np.take_along_axis(snake, order, axis=1))
        self._place(machine, self.idx_dst, order.astype(np.uint32))

    @staticmethod
    def _place(machine: Machine, dst: AccessPattern, results: Array) -> None:
        """Write results (groups, K) to the snakes of dst, and nothing else."""
        groups, count = results.shape
        full, rest = divmod(count, GROUP)
        if full:
            whole = results[:, : full * GROUP].reshape(groups, full, GROUP).transpose(0, 2, 1)
            part = _part(dst, partitions=groups * GROUP, columns=full)
            machine.store(part, np.ascontiguousarray(whole).reshape(groups * GROUP, full))
        for group in range(groups if rest else 0):
            part = _part(dst, start=group * GROUP, partitions=rest, first=full, columns=1)
            machine.store(part, results[group, full * GROUP :, None])
