"""Tensor Engine: matrix products into PSUM, and transposes through the PE array.

Products and sums are float32; the order of summation is not specified by the hardware and is the machine's here.
Semantics and limits: NKI documentation (0.6) of each instruction, architecture guides of NeuronCore-v2 to -v4.  Where
they are silent or disagree:

- A result in one PSUM bank: the documentation gives a bank as the reason for the limit of 512 columns before v4; that
  the columns may not straddle two banks follows from it.
- Column tiles (``tile_size[1]`` below 128): accepted as the text describes them, although the parameter list of the
  same page wants 128 and start column 0.
- Transpose mode writes, never adds; with another moving tensor than the identity its result is not documented.
- One-byte data land in 16-bit elements in transpose mode.  A destination of two-byte elements gets them with a zero
  upper byte; a one-byte destination gets the bytes where its access pattern says.
- Before v4, adding to a PSUM value that no matmul has written is undefined; the machine judges that, not the
  instruction.

Left out: structured sparsity, stochastic rounding of bfloat16 results.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from isa import dtypes
from isa._tile import check_pairs, check_untiled, tile
from isa.engine import Engine
from isa.enums import MatmulPerfMode
from isa.faults import UnverifiedFault
from isa.instruction import Dst, Imm, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern, Space
from isa.target import Target
from isa.work import Work, WorkFlag, WorkKind

__all__ = ["Matmul", "TensorTranspose"]

SBUF = (Space.SBUF,)
PSUM = (Space.PSUM,)
_INPUTS = frozenset({"float8_e4m3", "float8_e5m2", "bfloat16", "float16", "tfloat32", "float32"})
_WIDE = frozenset({"tfloat32", "float32"})
_FP8 = frozenset({"float8_e4m3", "float8_e5m2"})
_OCP = "float8_e4m3fn"  # from v4 on
BIT_EXACT_TRANSPOSE = 3
"""First generation whose PE array moves bits in transpose mode."""


def _inputs(target: Target) -> frozenset[str]:
    return _INPUTS | {_OCP} if target.generation >= 4 else _INPUTS


@cache
def _identity(size: int) -> npt.NDArray[np.float32]:
    return np.eye(size, dtype=np.float32)


def _check_bank(ins: Instruction, dst: AccessPattern, target: Target) -> None:
    """Before v4 a result stays within one PSUM bank."""
    if target.generation >= 4:
        return
    bank = target.psum_bank_bytes
    low, high = dst.extent
    if low // bank != (high - 1) // bank and dst.dynamic is None:
        raise ins.refuse(
            "dst",
            f"covers bytes {low} to {high} of each partition and crosses a PSUM bank",
            limit=f"one bank of {bank} bytes",
            advice="start the tile on a bank boundary or split the free dimension",
            target=target,
        )


def _check_transposed_dtype(ins: Instruction, dst: AccessPattern, data: AccessPattern, target: Target) -> None:
    """The result of a bit-exact transpose has the dtype of the data; one-byte data may land in two-byte elements."""
    if dst.dtype == data.dtype or (data.dtype.itemsize == 1 and dst.dtype.itemsize == 2):
        return
    raise ins.refuse(
        "dst",
        f"dtype {dst.dtype} is not that of the transposed data, {data.dtype}",
        limit="a transpose moves bits: equal dtypes, or a 2-byte dtype for 1-byte data",
        advice=f"make the PSUM tile {data.dtype} and convert when copying it to SBUF",
        target=target,
    )


def _move_bits(machine: Machine, dst: AccessPattern, data: AccessPattern) -> None:
    """dst = data transposed, bit by bit; one-byte data are widened with zeros where dst has two-byte elements."""
    bits = machine.raw(data).T
    if dst.dtype == data.dtype:
        machine.store_raw(dst, bits)
        return
    if bits.dtype.itemsize != 1:  # low-precision tensors are held as float32 (NKI_PRECISE_FP=0)
        bits = dtypes.encode(np.ascontiguousarray(bits), data.dtype)
    wide = bits.view(np.uint8).astype(np.uint16).view(dst.dtype.storage)
    machine.store(dst, dtypes.decode(wide, dst.dtype))


def _wide_flag(*operands: AccessPattern) -> WorkFlag:
    wide = any(operand.dtype.itemsize == 4 and operand.dtype != "tfloat32" for operand in operands)
    return WorkFlag.FP32 if wide else WorkFlag.NONE


@instruction(
    opcode=1,
    mnemonic="nc_matmul",
    engines=(Engine.tensor,),
    source="NKI 0.6 nki.isa.nc_matmul; architecture guides",
)
class Matmul(Instruction):
    """dst = stationary^T @ moving, or added to dst; (M, N) from (K, M) and (K, N), free dimensions flattened.

    ``accumulate``: False overwrites, True adds, None overwrites where no matmul has written since the PSUM location
    was last reset, and adds elsewhere.  ``is_transpose`` moves the bits of stationary^T from v3 on (``moving`` is the
    identity); on v2 it is a plain product, and NaN and infinity spread over their row.  ``perf_mode`` double_row
    contracts over partitions and the first free dimension, which is 2, of fp8 tensors.  ``tile_size`` (rows, columns)
    and ``tile_position`` select a part of the PE array and change no values; nor do the one-zero hints.
    """

    dst: AccessPattern = Dst(indirect="stationary", spaces=PSUM)
    stationary: AccessPattern = Src(indirect="stationary", spaces=SBUF, dtypes=_inputs)
    moving: AccessPattern = Src(indirect="moving", spaces=SBUF, dtypes=_inputs)
    is_stationary_onezero: bool = Imm(default=False)
    is_moving_onezero: bool = Imm(default=False)
    is_transpose: bool = Imm(default=False)
    accumulate: bool | None = Imm(default=None)
    tile_position: tuple[int, int] | tuple[()] = Imm(default=())
    tile_size: tuple[int, int] | tuple[()] = Imm(default=())
    perf_mode: MatmulPerfMode = Imm(default=MatmulPerfMode.none)

    @property
    def _double_row(self) -> bool:
        return self.perf_mode is MatmulPerfMode.double_row

    @property
    def _columns(self) -> tuple[int, int]:
        """M and N."""
        fold = 2 if self._double_row else 1
        return self.stationary.elements // fold, self.moving.elements // fold

    def _tile(self) -> tuple[int, int, int, int]:
        return tile(self.tile_size, self.tile_position)

    def _moves_bits(self, target: Target) -> bool:
        return self.is_transpose and target.generation >= BIT_EXACT_TRANSPOSE

    def constrain(self, target: Target) -> None:
        self._check_tile(target)
        self._check_inputs(target)
        if self._double_row:
            self._check_double_row(target)
        self._check_sizes(target)
        self._check_indirect(target)
        if self._moves_bits(target):
            self._check_transpose(target)
        else:
            allowed = ("bfloat16", "float32") if target.generation >= 4 else ("float32",)
            if self.dst.dtype not in allowed:
                raise self.refuse(
                    "dst",
                    f"dtype {self.dst.dtype} is not accepted",
                    limit="dtypes: " + ", ".join(allowed),
                    target=target,
                    advice="accumulate in float32 and convert when copying the result to SBUF",
                )

    def _check_tile(self, target: Target) -> None:
        if not check_pairs(self, self.tile_size, self.tile_position, target):
            return
        for what, size, start, sizes in zip(
            ("row", "column"), self.tile_size, self.tile_position, (target.row_tiles, target.column_tiles), strict=True
        ):
            if size not in sizes:
                raise self.refuse(
                    None,
                    f"tile_size has a {what} size of {size}",
                    target=target,
                    limit=f"{what} sizes " + ", ".join(str(one) for one in sizes),
                )
            if start % size or not 0 <= start <= 128 - size:
                raise self.refuse(
                    None,
                    f"tile_position has a start {what} of {start} for a {what} size of {size}",
                    limit=f"multiples of {size} up to {128 - size}",
                    target=target,
                )

    def _check_inputs(self, target: Target) -> None:
        ours, theirs = self.stationary.dtype, self.moving.dtype
        if (ours in _WIDE) != (theirs in _WIDE):
            narrow = "moving" if ours in _WIDE else "stationary"
            raise self.refuse(
                narrow,
                f"dtype {getattr(self, narrow).dtype} meets a 4-byte dtype on the other side",
                limit="float32 and tfloat32 only with each other",
                target=target,
                advice="convert one of the inputs",
            )
        if {"float8_e4m3", _OCP} == {str(ours), str(theirs)}:
            raise self.refuse(
                "moving",
                f"dtype {theirs} meets {ours}",
                limit="float8_e4m3 and float8_e4m3fn not in one matmul",
                target=target,
            )

    def _check_double_row(self, target: Target) -> None:
        if target.generation < 3:
            raise self.refuse(
                None,
                "perf_mode double_row does not exist on this generation",
                limit="NeuronCore-v3 and newer",
                target=target,
            )
        if self.is_transpose:
            raise self.refuse(None, "perf_mode double_row with is_transpose", limit="one of the two", target=target)
        if self._tile()[1] != target.matmul_stationary_columns:
            raise self.refuse(
                None,
                f"perf_mode double_row with column tiles of {self._tile()[1]}",
                limit="no column tiling with double_row",
                target=target,
            )
        allowed = _FP8 | {_OCP} if target.generation >= 4 else _FP8
        for name in ("stationary", "moving"):
            operand: AccessPattern = getattr(self, name)
            if operand.dtype not in allowed:
                raise self.refuse(
                    name,
                    f"dtype {operand.dtype} is not accepted with perf_mode double_row",
                    limit="dtypes: " + ", ".join(sorted(allowed)),
                    target=target,
                )
            if len(operand.pairs) < 2 or operand.pairs[0][1] != 2:
                raise self.refuse(
                    name,
                    "has no leading free dimension of 2",
                    target=target,
                    limit="double_row takes (K, 2, columns): contraction over partitions and the pair",
                )

    def _check_sizes(self, target: Target) -> None:
        rows, columns, _, _ = self._tile()
        m, n = self._columns
        if self.stationary.partitions != self.moving.partitions:
            raise self.refuse(
                "moving",
                f"has {self.moving.partitions} partitions where 'stationary' "
                f"{self.stationary.shape} has {self.stationary.partitions}",
                target=target,
                limit="the contraction dimension is the partition dimension of both",
            )
        rows = min(rows, target.matmul_rows)
        if self.stationary.partitions > rows:
            raise self.refuse(
                "stationary",
                f"has {self.stationary.partitions} contraction rows",
                limit=f"at most {rows} partitions",
                target=target,
                advice="split the contraction and accumulate in PSUM",
            )
        columns = min(columns, target.matmul_stationary_columns)
        if m > columns:
            raise self.refuse("stationary", f"has {m} columns", limit=f"at most {columns} columns", target=target)
        narrow = self.dst.dtype.itemsize == 2
        most = target.matmul_moving_columns_bf16 if narrow else target.matmul_moving_columns
        if n > most:
            raise self.refuse(
                "moving",
                f"has {n} columns",
                limit=f"at most {most} columns into {self.dst.dtype}",
                advice="split the moving tensor along its free dimension",
                target=target,
            )
        if (self.dst.partitions, self.dst.elements) != (m, n):
            raise self.refuse(
                "dst",
                f"is not the ({m}, {n}) of stationary^T @ moving",
                limit="stationary columns as partitions, moving columns as elements per partition",
                target=target,
            )

    def _check_indirect(self, target: Target) -> None:
        for name in ("stationary", "moving"):
            operand: AccessPattern = getattr(self, name)
            if operand.indirect and operand.dtype in _WIDE:
                raise self.refuse(
                    name,
                    f"is indirect with dtype {operand.dtype}",
                    limit="float16, bfloat16 and 8-bit floats",
                    target=target,
                )
        if self.is_transpose and self.moving.indirect:
            raise self.refuse("moving", "is indirect with is_transpose", limit="a plain identity", target=target)
        check_untiled(self, self.tile_position, target)

    def _check_transpose(self, target: Target) -> None:
        if self.accumulate:
            raise UnverifiedFault(
                "accumulate=True with is_transpose: transpose mode moves bits and is not documented to add",
                instruction=self.mnemonic,
                operand="dst",
                target=str(target),
                advice="leave accumulate out",
            )
        if self.moving.elements != self.moving.partitions:
            raise self.refuse("moving", "is not square", limit="is_transpose takes an identity matrix", target=target)
        _check_transposed_dtype(self, self.dst, self.stationary, target)

    def constrain_address(self, target: Target) -> None:
        _check_bank(self, self.dst, target)

    def work(self, target: Target) -> Work:
        flags = WorkFlag(self.pattern_flags()) | _wide_flag(self.stationary, self.moving)
        if self.is_transpose:
            flags |= WorkFlag.TRANSPOSE
        if (self.is_stationary_onezero and self.stationary.dtype == "float32") or (
            self.is_moving_onezero and self.moving.dtype == "float32"
        ):
            flags |= WorkFlag.ONE_ZERO
        if self._double_row:
            flags |= WorkFlag.DOUBLE_ROW
        k, (m, n) = self.stationary.partitions, self._columns
        return Work(
            kind=WorkKind.MATMUL,
            elements=n,
            rows=k,
            columns=m,
            flags=int(flags),
            flops=2 * k * m * n * (2 if self._double_row else 1),
            row_tile=self._tile(),
        )

    def run(self, machine: Machine) -> None:
        if not self._moves_bits(machine.target):
            machine.matmul(
                self.dst, self.stationary, self.moving, accumulate=self.accumulate, double_row=self._double_row
            )
            return
        if not np.array_equal(machine.load(self.moving), _identity(self.moving.partitions)):
            raise UnverifiedFault(
                "is_transpose with a moving tensor that is not the identity matrix",
                instruction=self.mnemonic,
                operand="moving",
                target=str(machine.target),
                advice="pass the identity, or use a plain matmul to permute",
            )
        _move_bits(machine, self.dst, self.stationary)


@instruction(
    opcode=2,
    mnemonic="nc_transpose",
    engines=(Engine.tensor,),
    source="NKI 0.6 nki.isa.nc_transpose; architecture guides",
)
class TensorTranspose(Instruction):
    """dst[f, p] = data[p, f] by the Tensor Engine, up to 128 x 128; the free dimensions of data are flattened.

    From v3 on bits are moved.  On v2 data pass through float32 and a product with the identity: NaN and infinity
    turn the rest of their row of dst into NaN; a float32 dst is accepted for any data there, as kernels for v2 use it.
    """

    takes_packed: ClassVar[bool] = True

    dst: AccessPattern = Dst(spaces=PSUM)
    data: AccessPattern = Src(spaces=SBUF)
    engine: Engine = Imm(default=Engine.unknown)

    def constrain(self, target: Target) -> None:
        if self.engine not in (Engine.unknown, Engine.tensor):
            raise self.refuse(None, f"engine is {self.engine.name}", limit="engine tensor or unknown", target=target)
        if self.data.elements > target.matmul_stationary_columns:
            raise self.refuse(
                "data",
                f"has {self.data.elements} elements per partition",
                limit=f"at most {target.matmul_rows} x {target.matmul_stationary_columns}",
                target=target,
                advice="transpose it in blocks",
            )
        if (self.dst.partitions, self.dst.elements) != (self.data.elements, self.data.partitions):
            raise self.refuse(
                "dst",
                f"is not the ({self.data.elements}, {self.data.partitions}) of the transpose",
                limit="elements per partition of 'data' as partitions, its partitions as elements",
                target=target,
            )
        if target.generation < BIT_EXACT_TRANSPOSE and self.dst.dtype == "float32":
            return
        _check_transposed_dtype(self, self.dst, self.data, target)

    def constrain_address(self, target: Target) -> None:
        _check_bank(self, self.dst, target)

    def work(self, target: Target) -> Work:
        k, m = self.data.partitions, self.data.elements
        flags = WorkFlag(self.pattern_flags()) | WorkFlag.TRANSPOSE | _wide_flag(self.data)
        return Work(kind=WorkKind.PE_TRANSPOSE, elements=k, rows=k, columns=m, flags=int(flags), flops=2 * k * k * m)

    def run(self, machine: Machine) -> None:
        if machine.target.generation >= BIT_EXACT_TRANSPOSE:
            _move_bits(machine, self.dst, self.data)
            return
        values = machine.load(self.data)
        turned = values.T
        if not np.isfinite(values).all():
            with np.errstate(invalid="ignore"):
                turned = turned @ _identity(self.data.partitions)
        machine.store(self.dst, np.ascontiguousarray(turned))
