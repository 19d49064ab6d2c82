"""What DMA instructions share: descriptors and their generation, run-time rows, rules on both.

A DMA transfer is a list of descriptors, each of which moves one run of consecutive bytes.  Walking both operands in
element order, a new descriptor starts wherever the source, the destination or both break off: at the end of a run
of consecutive elements, of a partition, or of a row with a run-time address.  With runs of s and d elements and n
elements in all this gives n/s + n/d - n/lcm(s, d) descriptors; where one run divides the other, n/min(s, d).
Examples: a [128, 512] bfloat16 tile from row-major HBM takes 128 descriptors of 1024 bytes; four columns of a wide
bfloat16 matrix to [128, 4] take 128 of 8 bytes.

Sources: NKI DMA overview, DMA bandwidth guide and DGE reference (one descriptor per partition row, also seen in
profiles).  No largest descriptor is published: runs are cut at 32 KiB, the largest single transfer the overview
shows, so that long copies can spread over the DMA engines.
"""

from __future__ import annotations

from math import lcm

import numpy as np
import numpy.typing as npt

from isa import dtypes
from isa.engine import Engine
from isa.enums import DgeMode, OobMode
from isa.faults import OutOfBoundsFault
from isa.instruction import Array, Instruction, Machine
from isa.operands import AccessPattern, Dynamic, DynamicKind, Space
from isa.target import Target
from isa.work import Work, WorkFlag, WorkKind

__all__ = [
    "DMA_SPACES",
    "LARGEST_DESCRIPTOR",
    "as_floats",
    "assign_rows",
    "check_index",
    "check_priority",
    "check_row_index",
    "descriptors",
    "has_run_time_address",
    "is_number",
    "is_scalar",
    "is_vector",
    "move_flags",
    "resolve_dge",
    "rows_of",
    "scalar_in_bounds",
    "scatter_floats",
    "total",
    "trigger",
]

DMA_SPACES = (Space.HBM, Space.SBUF)
LARGEST_DESCRIPTOR = 32 * 1024
INDEX_DTYPES = ("int32", "uint32")

Rows = npt.NDArray[np.int64]


def total(operand: AccessPattern) -> int:
    """Elements over all partitions."""
    return operand.partitions * operand.elements


def is_number(operand: AccessPattern) -> bool:
    """Elements are numbers, not packed quadruples or exponents of the MX formats, which float32 cannot stand for."""
    return operand.dtype.kind in "biuf"


def is_vector(operand: AccessPattern) -> bool:
    """Each row of the outermost pair has its own run-time address (gather, scatter)."""
    return operand.dynamic is not None and operand.dynamic.kind is DynamicKind.VECTOR


def is_scalar(operand: AccessPattern) -> bool:
    """The whole pattern moves with one run-time index."""
    return operand.dynamic is not None and operand.dynamic.kind is DynamicKind.SCALAR


def has_run_time_address(*operands: AccessPattern) -> bool:
    """Some operand's address is known at run time only."""
    return any(operand.dynamic is not None for operand in operands)


# --- descriptors ----------------------------------------------------------------------------------


def _run(operand: AccessPattern) -> int:
    """Elements in a run of consecutive bytes, within a partition and within a row with a run-time address."""
    run = 1
    for stride, count in reversed(operand.pairs[1:] if is_vector(operand) else operand.pairs):
        if count == 1:
            continue
        if stride != run:
            break
        run *= count
    return run


def descriptors(dst: AccessPattern, *srcs: AccessPattern) -> int:
    """Number of descriptors that move ``srcs`` to ``dst``; several sources count one by one."""
    elements, out = total(dst), _run(dst)
    count = 0
    for src in srcs:
        inner = _run(src)
        pieces = elements // out + elements // inner - elements // lcm(out, inner)
        limit = max(LARGEST_DESCRIPTOR // dst.dtype.itemsize, 1)
        longest = min(out, inner)
        count += pieces * (-(-longest // limit))
    return count


# --- descriptor generation ------------------------------------------------------------------------


def resolve_dge(asked: DgeMode, dst: AccessPattern, src: AccessPattern, target: Target) -> DgeMode:
    """Who makes the descriptors where the program leaves it open.

    GpSimd for gather and scatter, because nothing else can; otherwise the hardware block where there is one and no
    conversion is asked for; otherwise the host, or GpSimd where the address is known at run time only.  AWS's compiler
    decides by unpublished rules.
    """
    if asked is not DgeMode.unknown:
        return asked
    if is_vector(dst) or is_vector(src):
        return DgeMode.swdge
    if target.generation >= 3 and dst.dtype == src.dtype:
        return DgeMode.hwdge
    return DgeMode.swdge if has_run_time_address(dst, src) else DgeMode.none


def trigger(mode: DgeMode, engine: Engine = Engine.unknown) -> Engine:
    """The engine that starts the transfer: GpSimd for software descriptors, else the one asked for, else Sync."""
    if mode is DgeMode.swdge:
        return Engine.gpsimd
    return engine if engine is not Engine.unknown else Engine.sync


def move_work(mode: DgeMode, dst: AccessPattern, src: AccessPattern) -> Work:
    """Work of moving ``src`` to ``dst``."""
    return Work(
        kind=WorkKind.DMA,
        elements=dst.elements,
        rows=dst.partitions,
        nbytes=dst.nbytes,
        descriptors=descriptors(dst, src),
        flags=move_flags(mode, dst, src),
    )


def move_flags(mode: DgeMode, dst: AccessPattern, *srcs: AccessPattern) -> int:
    """The flags of :class:`WorkFlag` of a transfer."""
    flags = WorkFlag.NONE
    if any(src.space is Space.HBM for src in srcs):
        flags |= WorkFlag.HBM_READ
    if any(src.space is not Space.HBM for src in srcs):
        flags |= WorkFlag.SRC_SBUF
    if dst.space is Space.HBM:
        flags |= WorkFlag.HBM_WRITE
    if mode is DgeMode.hwdge:
        flags |= WorkFlag.HARDWARE_DGE
    elif mode is DgeMode.swdge:
        flags |= WorkFlag.SOFTWARE_DGE
    if any(src.dtype != dst.dtype for src in srcs):
        flags |= WorkFlag.CAST
    if any(is_vector(src) for src in srcs):
        flags |= WorkFlag.GATHER
    if is_vector(dst):
        flags |= WorkFlag.SCATTER
    if has_run_time_address(dst, *srcs):
        flags |= WorkFlag.DYNAMIC
    return int(flags)


# --- rules ----------------------------------------------------------------------------------------


def check_priority(ins: Instruction, priority: int | None, target: Target) -> None:
    """Quality of service exists from NeuronCore-v4."""
    if priority is None:
        return
    if target.generation < 4:
        raise ins.refuse(
            None,
            f"priority is {priority}",
            limit="priority on NeuronCore-v4 and later",
            target=target,
            advice="leave priority out",
        )
    if not 0 <= priority <= 3:
        raise ins.refuse(None, f"priority is {priority}", limit="priority 0 (first) to 3", target=target)


def check_index(ins: Instruction, name: str, operand: AccessPattern, target: Target) -> None:
    """Rules of a run-time address: one integer for the whole pattern, or one per row of an HBM tensor."""
    dynamic = operand.dynamic
    if dynamic is None:
        return
    index = dynamic.index
    if index.space not in (Space.SBUF, Space.REGISTER) or index.dtype not in INDEX_DTYPES:
        raise ins.refuse(
            name,
            f"has its run-time offset in {index.space.name}, dtype {index.dtype}",
            limit="offsets in SBUF or a register, int32 or uint32",
            target=target,
        )
    if is_scalar(operand):
        if index.space is not Space.REGISTER and total(index) != 1:
            raise ins.refuse(
                name,
                f"has a scalar offset of shape {index.shape}",
                limit="shape (1, 1)",
                target=target,
                advice="one offset per row is vector_offset",
            )
        return
    if index.space is Space.REGISTER:
        raise ins.refuse(
            name,
            "has one run-time offset per row in a register",
            limit="vector_offset in SBUF",
            target=target,
            advice="one offset for the whole tile is scalar_offset",
        )
    if operand.space is not Space.HBM:
        raise ins.refuse(
            name,
            "has one run-time offset per row",
            limit="gather and scatter index HBM tensors",
            target=target,
            advice="inside SBUF use local_gather or nc_n_gather",
        )


def check_row_index(ins: Instruction, name: str, operand: AccessPattern, target: Target) -> None:
    """For dma_copy and dma_compute: a column with as many indices as the operand has rows."""
    if not is_vector(operand) or operand.dynamic is None:
        return
    index, rows = operand.dynamic.index, operand.pairs[0][1]
    if index.elements != 1 or index.partitions != rows:
        raise ins.refuse(
            name,
            f"has {rows} rows where its vector offset has shape {index.shape}",
            target=target,
            limit=f"a vector offset of shape ({rows}, 1)",
        )


# --- run-time rows --------------------------------------------------------------------------------


def _out_of_bounds(ins: Instruction, name: str, value: int, where: str, dynamic: Dynamic) -> OutOfBoundsFault:
    count = dynamic.count
    fault = OutOfBoundsFault(
        f"run-time index {value}{where} is out of bounds",
        instruction=ins.mnemonic,
        operand=name,
        limit=f"indices 0 to {count - 1}" if count > 0 else "no legal index",
        advice="correct the index, or pass oob_mode.skip to leave such rows alone",
    )
    fault.element = value * dynamic.stride, count * dynamic.stride
    return fault


def scalar_in_bounds(ins: Instruction, name: str, operand: AccessPattern, machine: Machine, oob_mode: OobMode) -> bool:
    """False where the transfer is to be skipped because its scalar run-time index is out of bounds.

    Raises:
        OutOfBoundsFault: it is, and ``oob_mode`` is error.
    """
    dynamic = operand.dynamic
    if dynamic is None or dynamic.kind is not DynamicKind.SCALAR:
        return True
    value = int(machine.index(dynamic.index)[0])
    if 0 <= value < dynamic.count:
        return True
    if oob_mode is OobMode.error:
        raise _out_of_bounds(ins, name, value, "", dynamic)
    return False


def rows_of(
    ins: Instruction,
    name: str,
    operand: AccessPattern,
    machine: Machine,
    oob_mode: OobMode,
    *,
    by_column: bool = False,
) -> tuple[Rows, npt.NDArray[np.bool_] | None]:
    """The row numbers of an operand with one run-time offset per row, and which are in bounds (None: all).

    Args:
        by_column: walk the index tile column by column, as dma_transpose does; otherwise partition by partition.

    Raises:
        OutOfBoundsFault: an index is out of bounds and ``oob_mode`` is error.
    """
    dynamic = operand.dynamic
    assert dynamic is not None
    rows = machine.index(dynamic.index)
    if by_column:
        rows = rows.reshape(dynamic.index.partitions, -1).T.ravel()
    rows = rows[: operand.pairs[0][1]]
    valid = (rows >= 0) & (rows < dynamic.count)
    if valid.all():
        return rows, None
    if oob_mode is OobMode.error:
        place = int(np.argmin(valid))
        raise _out_of_bounds(ins, name, int(rows[place]), f" at position {place}", dynamic)
    return rows, valid


def as_floats(bits: Array, operand: AccessPattern) -> npt.NDArray[np.float32]:
    """Float32 values of gathered bits; a machine may hold narrow floats as float32 already (NKI_PRECISE_FP=0)."""
    return bits if bits.dtype == np.float32 else dtypes.to_float(bits, operand.dtype)


def scatter_floats(machine: Machine, operand: AccessPattern, rows: Rows, values: npt.NDArray[np.float32]) -> None:
    """Round float32 values once and write them to rows of an operand with one run-time offset per row."""
    held = machine.gather(operand, rows[:0]).dtype
    if held != np.float32:
        machine.scatter(operand, rows, dtypes.encode(np.ascontiguousarray(values), operand.dtype))
    else:
        machine.scatter(operand, rows, values)


def assign_rows(machine: Machine, operand: AccessPattern, valid: npt.NDArray[np.bool_], values: Array) -> None:
    """Write to the valid rows of a plain operand, whose elements are ``len(valid)`` rows; others keep theirs.

    Args:
        values: (valid rows, row): bits as :meth:`Machine.gather` gives, or float32 values to round.
    """
    view = machine.view(operand, write=True)
    if values.dtype != view.dtype:
        values = dtypes.encode(np.ascontiguousarray(values), operand.dtype)
    if view.shape[0] == len(valid):
        view[valid] = values.reshape(-1, *view.shape[1:])
        return
    whole = view.reshape(len(valid), -1).copy()
    whole[valid] = values.reshape(-1, whole.shape[1])
    view[...] = whole.reshape(view.shape)
