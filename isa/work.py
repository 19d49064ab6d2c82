"""Work: what an instruction asks of the machine, in quantities that hold for every generation.

``perf_model`` turns these into time with the rates of one generation.  Nothing here is a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

__all__ = ["Work", "WorkFlag", "WorkKind"]


class WorkKind(IntEnum):
    """Cost classes; the documented cost formulas are per class.  The values are part of the stored format."""

    CONTROL = 0  # registers, branches, semaphores: no data path
    MATMUL = 1
    PE_TRANSPOSE = 2
    VECTOR_TRANSPOSE = 3
    ACTIVATION = 4
    COPY = 5
    COPY_PREDICATED = 6
    TENSOR_TENSOR = 7
    TENSOR_SCALAR = 8
    SCALAR_TENSOR_TENSOR = 9
    REDUCE = 10
    SCAN = 11
    BN_STATS = 12
    BN_AGGR = 13
    RECIPROCAL = 14
    SELECT = 15
    SHUFFLE = 16
    MEMSET = 17
    MAX8 = 18
    FIND_INDEX8 = 19
    MATCH_REPLACE8 = 20
    EXPONENTIAL = 21
    RANDOM = 22
    IOTA = 23
    AFFINE_SELECT = 24
    LOCAL_GATHER = 25
    N_GATHER = 26
    PARTITION_REDUCE = 27
    RSQRT = 28
    DMA = 29
    DMA_TRANSPOSE = 30
    DMA_COMPUTE = 31
    GPSIMD_OTHER = 32
    QUANTIZE_MX = 33
    COLLECTIVE = 34


class WorkFlag(IntFlag):
    """Properties of the operands that select a throughput mode."""

    NONE = 0
    SRC_PSUM = 1 << 0  # at least one tensor input is in PSUM
    SRC_SBUF = 1 << 1  # at least one tensor input is in SBUF
    DST_PSUM = 1 << 2
    TWO_TENSORS = 1 << 3  # two tensor inputs
    ALL_16BIT = 1 << 4  # every tensor operand, result included, is bfloat16 or float16
    CONTIGUOUS = 1 << 5  # every tensor operand is contiguous in its innermost dimension
    WIDE_STRIDE = 1 << 6  # some innermost stride is above 16 bytes
    VECTOR_OPERAND = 1 << 7  # a per-partition (P, 1) scalar operand
    ALL_32BIT = 1 << 8  # every tensor operand is 4 bytes wide
    FAST_OPS = 1 << 9  # the operator pair has a documented fast mode with 16-bit data
    ZERO = 1 << 10  # memset of zero
    REDUCED = 1 << 11  # the accumulator is written out after the instruction
    DYNAMIC = 1 << 12  # an address depends on a register or tile
    # Tensor Engine
    FP32 = 1 << 13  # 4-byte inputs other than tfloat32: several passes
    TRANSPOSE = 1 << 14
    ONE_ZERO = 1 << 15  # an operand is promised to hold only ones and zeros
    DOUBLE_ROW = 1 << 16
    # DMA
    HBM_READ = 1 << 17
    HBM_WRITE = 1 << 18
    HARDWARE_DGE = 1 << 19
    SOFTWARE_DGE = 1 << 20
    CAST = 1 << 21
    GATHER = 1 << 22
    SCATTER = 1 << 23
    ALL_8OR16BIT = 1 << 24  # as ALL_16BIT, 8-bit floats included


@dataclass(slots=True, frozen=True, kw_only=True)
class Work:
    """Neutral quantities of one instruction.

    Attributes:
        kind: cost class.
        elements: elements per partition that pass the engine (N of the documented formulas); for the Tensor Engine
            the moving free size.
        rows: partitions in use; for the Tensor Engine the contraction rows.
        columns: Tensor Engine: stationary columns (M); reductions and gathers: elements per partition written.
        flags: see :class:`WorkFlag`.
        nbytes: DMA: bytes moved (destination side).
        descriptors: DMA: number of descriptors, each a run of consecutive bytes on both sides.
        flops: multiply-adds counted as two; a transpose on the Tensor Engine counts as the product that does it, and
            bears ``WorkFlag.TRANSPOSE``, by which MFU leaves it out and HFU does not. 0 for moves.
        table: Scalar Engine: function table the instruction needs (0 = none).
        inputs: number of DMA sources, of values carried per index in gathers, or of ranks of a collective; of which
            ``columns`` are the bytes that a rank brings, ``nbytes`` those it sends, ``rows`` the phases.
        row_tile: Tensor Engine: (row size, column size, start row, start column) of the tile of the PE array used.
    """

    kind: WorkKind
    elements: int = 0
    rows: int = 0
    columns: int = 0
    flags: int = 0
    nbytes: int = 0
    descriptors: int = 0
    flops: int = 0
    table: int = 0
    inputs: int = 1
    row_tile: tuple[int, int, int, int] = (128, 128, 0, 0)
