"""Microscaling (MX) formats of NeuronCore-v4: quantization on the Vector Engine, products on the Tensor Engine.

An MX tensor is two tiles: data of a packed dtype, four numbers to an element, and scales of one byte, powers of two.
Eight partitions by one packed element, 32 numbers, share a scale.  The scales of the data in partitions 32 q to
32 q + 31 lie in four partitions of their own quadrant, at the same columns as the data: with the tile of scales taken
from partition s of its quadrant on, the scale of data partition 32 q + 8 r + i is in partition 32 q + s + r, and s is
0, 4, 8 or 12.  Neither instruction touches another byte of the tile, so up to four sets of scales share one.

Semantics and limits: NKI documentation (0.6) of each instruction, the deep dive on MX products, NeuronCore-v4's
architecture guide.  Where they are silent:

- Infinity and NaN in a group count with the exponent their bits have, 128; they stay what they are in the data.
- Numbers are scaled back to float32 before they are multiplied, so what exceeds float32 there is infinite.
- Scales smaller than 2^-127 and larger than 2^127 do not exist; quantization stops at them.
- Small tiles: up to 32 partitions of data have their scales in four partitions; a larger tile is accepted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from isa import dtypes
from isa._tile import check_pairs, check_untiled, tile
from isa.engine import Engine
from isa.instruction import Dst, Imm, Instruction, Machine, Src, instruction
from isa.operands import AccessPattern, Space
from isa.target import Target
from isa.work import Work, WorkFlag, WorkKind

__all__ = ["MatmulMx", "QuantizeMx"]

SBUF = (Space.SBUF,)
QUADRANT = 32
"""Partitions of a quadrant."""

GROUP = 8
"""Partitions that share a scale; in each of them, the four numbers of a packed element do."""

PER_QUADRANT = QUADRANT // GROUP
SLOTS = (0, 4, 8, 12)
"""Partitions of a quadrant at which a set of scales may begin."""

_PACKED = frozenset({"float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4"})
_QUANTIZED = frozenset({"float8_e5m2_x4", "float8_e4m3fn_x4"})
_SCALES = frozenset({"float8_e8m0fnu", "uint8"})
_BIAS = dtypes.float8_e8m0fnu.bias
_NOT_FINITE = 128
"""Unbiased exponent in the bits of infinity and NaN."""


# --- where scales are -----------------------------------------------------------------------------


def _check_scale(ins: Instruction, name: str, data_name: str, columns: int, target: Target) -> None:
    """The tile of scales belongs to ``columns`` packed elements in each partition of the data operand."""
    scale: AccessPattern = getattr(ins, name)
    data: AccessPattern = getattr(ins, data_name)
    if scale.elements != columns:
        raise ins.refuse(
            name,
            f"has {scale.elements} elements per partition where '{data_name}' {data.shape} needs {columns}",
            limit="one scale for each packed element of a partition",
            target=target,
        )
    if scale.step != 1:
        raise ins.refuse(name, f"skips partitions (step {scale.step})", limit="neighbouring partitions", target=target)
    if scale.start % QUADRANT not in SLOTS:
        raise ins.refuse(
            name,
            f"starts at partition {scale.start}",
            limit="partition 0, 4, 8 or 12 of a quadrant",
            target=target,
        )
    if scale.start // QUADRANT != data.start // QUADRANT:
        raise ins.refuse(
            name,
            f"starts at partition {scale.start} where '{data_name}' starts at {data.start}",
            limit="scales lie in the quadrant of their data",
            target=target,
            advice="take the tile of scales from the partitions of the data on",
        )
    needed = data.partitions - QUADRANT + PER_QUADRANT
    if scale.partitions < needed:
        raise ins.refuse(
            name,
            f"has {scale.partitions} partitions",
            limit=f"at least {needed} for {data.partitions} partitions of '{data_name}': four in each quadrant",
            target=target,
            advice="make the tile of scales as many partitions as the data, and spread packed scales over quadrants",
        )


def _check_partitions(ins: Instruction, name: str, target: Target) -> None:
    operand: AccessPattern = getattr(ins, name)
    if operand.partitions % QUADRANT:
        raise ins.refuse(
            name,
            f"has {operand.partitions} partitions",
            limit="a multiple of 32 partitions",
            target=target,
            advice="pad the contraction dimension with zeros",
        )


def _quadrants(scale: AccessPattern, partitions: int) -> list[AccessPattern]:
    """The parts of a tile of scales that belong to ``partitions`` partitions of data, quadrant by quadrant."""
    return [
        AccessPattern(
            scale.space,
            scale.dtype,
            scale.offset,
            scale.pairs,
            start=scale.start + first,
            partitions=PER_QUADRANT,
            storage=scale.storage,
            dynamic=scale.dynamic,
        )
        for first in range(0, partitions, QUADRANT)
    ]


def _load_scales(machine: Machine, scale: AccessPattern, partitions: int) -> npt.NDArray[np.float32]:
    """(partitions of data, columns): 2^(byte - 127), NaN for the byte 255."""
    codes = np.concatenate([machine.raw(part) for part in _quadrants(scale, partitions)])
    factors = dtypes.decode(np.ascontiguousarray(codes).view(np.uint8), dtypes.float8_e8m0fnu)
    return np.asarray(np.repeat(factors, GROUP, axis=0))


# --- products -------------------------------------------------------------------------------------


@instruction(
    opcode=3,
    mnemonic="nc_matmul_mx",
    engines=(Engine.tensor,),
    generations=(4,),
    source="NKI 0.6 nki.isa.nc_matmul_mx; NeuronCore-v4 architecture guide",
)
class MatmulMx(Instruction):
    """dst = stationary^T @ moving of scaled numbers, or added to dst: (M, N) from packed (K, M) and (K, N).

    The contraction runs over the partitions and the four numbers of each packed element, so over 4 K.  Data dtypes may
    differ.  ``accumulate``: as for ``nc_matmul``.  ``tile_size`` (rows, 128) and ``tile_position`` (start row, 0)
    select rows of the PE array and change no values.
    """

    dst: AccessPattern = Dst(indirect="stationary", spaces=(Space.PSUM,), dtypes=frozenset({"float32", "bfloat16"}))
    stationary: AccessPattern = Src(indirect="stationary", spaces=SBUF, dtypes=_PACKED)
    moving: AccessPattern = Src(indirect="moving", spaces=SBUF, dtypes=_PACKED)
    stationary_scale: AccessPattern = Src(indirect="stationary", spaces=SBUF, dtypes=_SCALES, quadrant=False)
    moving_scale: AccessPattern = Src(indirect="moving", spaces=SBUF, dtypes=_SCALES, quadrant=False)
    tile_position: tuple[int, int] | tuple[()] | None = Imm(default=None)
    tile_size: tuple[int, int] | tuple[()] | None = Imm(default=None)
    accumulate: bool | None = Imm(default=None)

    def _tile(self) -> tuple[int, int, int, int]:
        return tile(self.tile_size, self.tile_position)

    def constrain(self, target: Target) -> None:
        self._check_tile(target)
        check_untiled(self, self.tile_position, target)
        _check_partitions(self, "stationary", target)
        if self.moving.partitions != self.stationary.partitions:
            raise self.refuse(
                "moving",
                f"has {self.moving.partitions} partitions where 'stationary' "
                f"{self.stationary.shape} has {self.stationary.partitions}",
                limit="the contraction dimension is the partition dimension of both",
                target=target,
            )
        rows = min(self._tile()[0], target.matmul_rows)
        if self.stationary.partitions > rows:
            raise self.refuse(
                "stationary",
                f"has {self.stationary.partitions} contraction rows",
                limit=f"at most {rows} partitions",
                target=target,
                advice="split the contraction and accumulate in PSUM",
            )
        m, n = self.stationary.elements, self.moving.elements
        if m % 2 or m > target.matmul_stationary_columns:
            raise self.refuse(
                "stationary",
                f"has {m} columns",
                limit=f"an even number, at most {target.matmul_stationary_columns}",
                target=target,
            )
        narrow = self.dst.dtype.itemsize == 2
        most = target.matmul_moving_columns_bf16 if narrow else target.matmul_moving_columns
        if n > most:
            raise self.refuse(
                "moving",
                f"has {n} columns",
                limit=f"at most {most} columns into {self.dst.dtype}",
                target=target,
                advice="split the moving tensor along its free dimension",
            )
        if (self.dst.partitions, self.dst.elements) != (m, n):
            raise self.refuse(
                "dst",
                f"is not the ({m}, {n}) of stationary^T @ moving",
                limit="stationary columns as partitions, moving columns as elements per partition",
                target=target,
            )
        _check_scale(self, "stationary_scale", "stationary", m, target)
        _check_scale(self, "moving_scale", "moving", n, target)

    def constrain_address(self, target: Target) -> None:
        for name in ("stationary", "moving"):
            data: AccessPattern = getattr(self, name)
            scale: AccessPattern = getattr(self, f"{name}_scale")
            if (data.indirect or scale.indirect) and _offsets(data) != _offsets(scale):
                raise self.refuse(
                    f"{name}_scale",
                    f"is indexed otherwise than '{name}'",
                    limit="data and scales are one tensor: both indirect with the same index, or neither",
                    target=target,
                )

    def _check_tile(self, target: Target) -> None:
        if not check_pairs(self, self.tile_size, self.tile_position, target):
            return
        rows, columns, row, column = self._tile()
        if columns != 128 or column != 0:
            raise self.refuse(
                None,
                f"column tiles of {columns} at {column}",
                limit="row tiles only: a column size of 128 and a start column of 0",
                target=target,
            )
        if rows not in target.row_tiles or row % rows or not 0 <= row <= 128 - rows:
            raise self.refuse(
                None,
                f"row tiles of {rows} at {row}",
                limit=f"row sizes {', '.join(map(str, target.row_tiles))}, a start row that is a multiple of it",
                target=target,
            )

    def work(self, target: Target) -> Work:
        k, m, n = self.stationary.partitions, self.stationary.elements, self.moving.elements
        return Work(
            kind=WorkKind.MATMUL,
            elements=n,
            rows=k,
            columns=m,
            flags=self.pattern_flags(),
            flops=2 * k * m * n * self.moving.dtype.packed,
            row_tile=self._tile(),
        )

    def run(self, machine: Machine) -> None:
        machine.add_product(
            self.dst,
            _scaled(machine, self.stationary, self.stationary_scale),
            _scaled(machine, self.moving, self.moving_scale),
            accumulate=self.accumulate,
        )


def _offsets(operand: AccessPattern) -> tuple[int, ...] | None:
    """Which tile of offsets an operand is indexed by."""
    return operand.dynamic.index.words if operand.indirect and operand.dynamic is not None else None


def _scaled(machine: Machine, data: AccessPattern, scale: AccessPattern) -> npt.NDArray[np.float32]:
    """(4 K, columns): the numbers of packed (K, columns), times their scales."""
    partitions, columns = data.partitions, data.elements
    numbers = dtypes.unpack_x4(machine.raw(data), data.dtype).reshape(partitions, columns, 4)
    with np.errstate(over="ignore", invalid="ignore"):
        values = numbers * _load_scales(machine, scale, partitions)[:, :, None]
    return np.ascontiguousarray(values.transpose(0, 2, 1).reshape(4 * partitions, columns))


# --- quantization ---------------------------------------------------------------------------------


@instruction(
    opcode=56,
    mnemonic="quantize_mx",
    engines=(Engine.vector,),
    generations=(4,),
    source="NKI 0.6 nki.isa.quantize_mx; NeuronCore-v4 architecture guide",
)
class QuantizeMx(Instruction):
    """dst and dst_scale = src as an MX tensor: eight partitions by four neighbouring elements become one group.

    A group whose largest magnitude is a has the scale 2^(floor(log2 a) - (e - 1)), with e the largest exponent of
    dst's format: 8 for e4m3fn, 15 for e5m2.  That is twice the scale of the OCP specification's example, so rounding
    never saturates.  A group of zeros has 2^-127.  Of dst_scale only the four partitions of each quadrant are written
    that hold scales.
    """

    dst: AccessPattern = Dst(spaces=SBUF, dtypes=_QUANTIZED)
    src: AccessPattern = Src(spaces=SBUF, dtypes=frozenset({"float16", "bfloat16"}))
    dst_scale: AccessPattern = Dst(spaces=SBUF, dtypes=_SCALES, quadrant=False)

    def constrain(self, target: Target) -> None:
        _check_partitions(self, "src", target)
        if self.src.elements % 4:
            raise self.refuse(
                "src", f"has {self.src.elements} elements per partition", limit="a multiple of 4", target=target
            )
        wanted = (self.src.partitions, self.src.elements // 4)
        if (self.dst.partitions, self.dst.elements) != wanted:
            raise self.refuse(
                "dst",
                f"is not the {wanted} of src {self.src.shape}",
                limit="partitions as src, a packed element for each four elements of src",
                target=target,
            )
        _check_scale(self, "dst_scale", "src", wanted[1], target)

    def work(self, target: Target) -> Work:
        flags = WorkFlag(self.pattern_flags())
        return Work(
            kind=WorkKind.QUANTIZE_MX,
            elements=self.src.elements,
            rows=self.src.partitions,
            columns=self.dst.elements,
            flags=int(flags),
        )

    def run(self, machine: Machine) -> None:
        partitions, columns = self.dst.partitions, self.dst.elements
        groups = machine.load(self.src).reshape(partitions // GROUP, GROUP, columns, 4)
        element = self.dst.dtype.element
        assert element is not None
        sizes = np.abs(groups)
        pairs = np.maximum(sizes[..., :2], sizes[..., 2:])  # reducing an axis of four would be ten times slower
        largest = np.maximum(pairs[..., 0], pairs[..., 1]).max(axis=1)
        finite = np.isfinite(largest)
        exponent = np.where(finite, np.frexp(np.where(finite, largest, 0))[1] - 1, _NOT_FINITE)
        exponent = np.clip(exponent - (_largest_exponent(element) - 1), -_BIAS, _BIAS)
        exponent[largest == 0] = -_BIAS
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            inverse = np.ldexp(np.float32(1), -exponent)  # a power of two, so the product is exact
            numbers = groups * inverse[:, None, :, None]
        bits = dtypes.pack_x4(numbers.reshape(partitions, 4 * columns), self.dst.dtype)
        machine.store_raw(self.dst, bits)
        codes = (exponent + _BIAS).astype(np.uint8)
        for number, part in enumerate(_quadrants(self.dst_scale, partitions)):
            machine.store_raw(part, codes[PER_QUADRANT * number : PER_QUADRANT * (number + 1)])


def _largest_exponent(element: dtypes.DType) -> int:
    """Unbiased exponent of the largest finite number."""
    return int(np.frexp(element.max)[1]) - 1
