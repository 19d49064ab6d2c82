"""Hazards: which earlier instructions each instruction has to wait for, from the bytes they touch.

Edges are what the compiler's semaphores would express: read after write, write after read, write after write on the
same bytes of the same memory, and the edges that the kernel states itself (``depends_on``).

Exactness:

- SBUF and PSUM: 4-byte granules in each quadrant of 32 partitions.  Two accesses to different partitions of one
  quadrant, or to different bytes of one granule, count as overlapping.
- HBM: 64-byte granules (more for programs that write over 256 MiB), of buffers that the program writes.
- Registers: exact.
- An address with a run-time part covers all bytes its legal indices can reach, clipped to its buffer or partition.

Edges left out because others imply them: WAR and WAW between instructions of one in-order engine (every engine but the
DMA queues); WAR to a reader that a later reader on the same in-order engine follows; WAW where somebody has read the
bytes since (the reader waits for the writer).  RAW edges within an engine are kept: results leave a pipeline later than
the next instruction enters it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from isa.dtypes import ALL
from isa.engine import Engine
from isa.faults import InternalFault
from isa.operands import Space
from isa.program import Program

__all__ = ["EdgeKind", "Edges", "edges"]

HBM_GRANULE_SHIFT = 6
HBM_GRANULES = 1 << 22

Int32 = npt.NDArray[np.int32]


class EdgeKind(IntEnum):
    """Why an instruction waits.  Where several reasons name the same producer, the smallest is kept."""

    RAW = 0
    WAR = 1
    WAW = 2
    EXPLICIT = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edges:
    """Producers of each instruction, in compressed rows: those of instruction ``i`` are at ``start[i]`` to
    ``start[i + 1]`` of ``producer`` and ``kind``, each producer once."""

    start: Int32
    producer: Int32
    kind: npt.NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.producer)

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.start.nbytes + self.producer.nbytes + self.kind.nbytes

    def of(self, index: int) -> list[tuple[int, EdgeKind]]:
        """(producer, kind) of instruction ``index``, in order of producer."""
        part = slice(int(self.start[index]), int(self.start[index + 1]))
        pairs = zip(self.producer[part].tolist(), self.kind[part].tolist(), strict=True)
        return sorted((producer, EdgeKind(kind)) for producer, kind in pairs)


def edges(program: Program) -> Edges:
    """All dependencies of a recorded program, in one pass over its words.

    Time grows with the number of 64-byte blocks touched, not with elements: about a microsecond for three tiles of
    128 x 512 bfloat16.  The first call in a fresh installation compiles for some seconds (cached on disk).

    Raises:
        InternalFault: an explicit edge does not point to an earlier instruction.
    """
    from memory_model import _hazards  # numba: not at import time

    rows, words = program.rows(), program.words()
    templates = np.array(
        [(t.operands, t.reads, t.writes, int(t.engine)) for t in program.templates], dtype=np.int64
    ).reshape(-1, 4)
    explicit = np.array(program.edges, dtype=np.int32).reshape(-1, 2)
    if len(explicit) and not (
        (explicit[:, 1] < explicit[:, 0]).all()
        and (explicit[:, 1] >= 0).all()
        and (explicit[:, 0] < len(program)).all()
    ):
        raise InternalFault("an explicit edge does not point to an earlier instruction of the program")
    explicit = explicit[np.argsort(explicit[:, 0], kind="stable")]

    itemsizes = np.zeros(64, dtype=np.int64)
    for dtype in ALL:
        itemsizes[dtype.code] = dtype.itemsize
    written, static, reach, registers, chip = _hazards.survey(rows, words, templates, itemsizes)
    size = reach
    for number, buffer in enumerate(program.buffers[: len(size)]):
        size[number] = max(buffer.nbytes, static[number])
    tracked = written != 0
    shift = HBM_GRANULE_SHIFT
    while int(_granules(size[tracked], shift).sum()) > HBM_GRANULES:
        shift += 1
    target = program.target
    sbuf = min(target.sbuf_reach, max(target.sbuf_bytes, int(chip[Space.SBUF])))
    psum = min(target.psum_reach, max(target.psum_bytes, int(chip[Space.PSUM])))
    base, granules = _layout(sbuf, psum, registers, size, tracked, shift)
    in_order = np.ones(max(Engine) + 1, dtype=np.int8)
    in_order[[Engine.unknown, Engine.dma]] = 0
    start, producer, kind = _hazards.scan(
        rows,
        words,
        templates,
        itemsizes,
        in_order,
        explicit,
        base,
        size,
        shift,
        sbuf,
        psum,
        granules,
    )
    return Edges(start=start, producer=producer, kind=kind)


def _granules(size: npt.NDArray[np.int64], shift: int) -> npt.NDArray[np.int64]:
    """Granules of HBM buffers of these sizes, the last one begun included."""
    return (size + (1 << shift) - 1) >> shift


def _layout(
    sbuf_bytes: int,
    psum_bytes: int,
    registers: int,
    size: npt.NDArray[np.int64],
    tracked: npt.NDArray[np.bool_],
    shift: int,
) -> tuple[npt.NDArray[np.int64], int]:
    """First granule of each region: SBUF, PSUM, registers, then each HBM buffer (-1: not tracked); and the total.
    Regions start on a block of 16 granules."""
    base = np.full(3 + len(size), -1, dtype=np.int64)
    at = 0
    counts = [4 * (sbuf_bytes >> 2), 4 * (psum_bytes >> 2), registers]
    counts += np.where(tracked, _granules(size, shift), -1).tolist()
    for region, count in enumerate(counts):
        if count >= 0:
            base[region] = at
            at += -(-count // 16) * 16
    return base, at
