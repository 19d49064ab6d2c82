"""Number formats of the chip, and the one rounding between float32 and each of them.

Memories hold *storage*: plain numpy integers or floats with the bits of the format.  Engines compute in float32;
:func:`decode` widens storage to it, exactly, and :func:`encode` rounds back, once, to nearest even.

Sources: the data type table and the cast rules of the NKI documentation (0.6); the OCP 8-bit and microscaling (MX)
format specifications for the eight-bit codes.  Where those leave room, we chose, and tests hold us to it:

* Beyond the largest finite value, a float becomes infinity, or NaN in ``float8_e4m3fn``, which has no infinity.
* A NaN becomes the format's quiet NaN with the sign of the source; its payload is not kept.
* Subnormal numbers are kept, in and out.
* Float to integer rounds to nearest even and saturates; NaN becomes 0.  Float to bool is 1 where not zero.
* Integers become other dtypes through float32, so that large ones lose bits, as in the engines' arithmetic units.
* ``float8_e8m0fnu`` rounds to the nearer power of two, halves up; what is not positive becomes NaN.

:func:`_encode_reference` is the readable definition of the float formats.  Small arrays use numpy's casts, which cost
the least to call, and large ones the compiled twins in ``isa._bits``; tests compare the three bit by bit.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

__all__ = [
    "ALL",
    "DType",
    "bfloat16",
    "bool_",
    "decode",
    "dtype",
    "encode",
    "encode_int",
    "float4_e2m1fn_x4",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fn_x4",
    "float8_e5m2",
    "float8_e5m2_x4",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "from_code",
    "from_numpy",
    "int8",
    "int16",
    "int32",
    "labelled",
    "pack_x4",
    "round_to",
    "tfloat32",
    "to_float",
    "to_numpy",
    "uint8",
    "uint16",
    "uint32",
    "unpack_x4",
]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]

COMPILED_FROM = 2048
"""Elements from which the compiled kernels are used: below, loading and calling them costs more than they save."""

_FLOAT32 = np.dtype(np.float32)


class DType(str):
    """A number format of the chip.  Take one from this module or from :func:`dtype`; do not make your own.

    It *is* the string of its name, so that ``==``, dict keys and ``np.zeros(shape, dtype=bfloat16)`` work, and it
    equals the numpy dtypes and scalar types of the same format (``float32 == np.float32``, either way round).  Its hash
    is the name's: a dict does not find it under a numpy dtype.

    numpy reads a dtype's name before it looks at anything else, and does not know ``tfloat32`` and the packed formats:
    ``np.zeros(shape, dtype=tfloat32)`` raises TypeError.  Say ``dtype=tfloat32.numpy``.

    Attributes:
        code: number in stored programs; never renumbered.
        kind: ``f`` float, ``i`` signed, ``u`` unsigned, ``b`` bool, ``s`` scale (an exponent alone), ``x`` packed.
        numpy: numpy dtype that users see; float32 for tfloat32, an unsigned integer for packed formats.
        storage: numpy dtype of the bits in memory.
        itemsize: bytes of one element.
        exponent_bits, mantissa_bits: of float and scale formats, else 0.
        has_infinity: False for ``fn`` formats, which spend those codes on finite numbers.
        element: format of one of the four numbers of a packed element, else None.
    """

    code: int
    kind: str
    numpy: np.dtype[Any]
    storage: np.dtype[Any]
    itemsize: int
    exponent_bits: int
    mantissa_bits: int
    has_infinity: bool
    element: DType | None

    def __new__(
        cls,
        name: str,
        code: int,
        kind: str,
        numpy: npt.DTypeLike,
        exponent_bits: int = 0,
        mantissa_bits: int = 0,
        *,
        has_infinity: bool = True,
        element: DType | None = None,
    ) -> DType:
        self = super().__new__(cls, name)
        self.code = code
        self.kind = kind
        self.numpy = np.dtype(numpy)
        self.itemsize = self.numpy.itemsize
        as_bits = kind == "b" or self.numpy.isbuiltin != 1  # formats that numpy alone does not know
        self.storage = np.dtype(f"u{self.itemsize}") if as_bits else self.numpy
        self.exponent_bits = exponent_bits
        self.mantissa_bits = mantissa_bits
        self.has_infinity = has_infinity
        self.element = element
        return self

    @property
    def is_float(self) -> bool:
        """True for the formats engines compute with; scales and packed formats are not."""
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers; bool is not one."""
        return self.kind in "iu"

    @property
    def itemsize_bits(self) -> int:
        """Bits of one element in memory."""
        return self.itemsize * 8

    @property
    def packed(self) -> int:
        """Numbers in one element: 4 in packed formats, else 1."""
        return 4 if self.element is not None else 1

    @property
    def bias(self) -> int:
        """Exponent bias of a float or scale format."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def max(self) -> float:
        """Largest finite number (of a packed format: in it)."""
        if self.element is not None:
            return self.element.max
        if self.kind == "b":
            return 1.0
        if self.is_integer:
            return float(np.iinfo(self.storage).max)
        exponent, mantissa = divmod(_largest_code(self), 1 << self.mantissa_bits)
        return float(2.0 ** (exponent - self.bias) * (1 + mantissa / (1 << self.mantissa_bits)))

    @property
    def min(self) -> float:
        """Lowest finite number (of a packed format: in it)."""
        if self.element is not None:
            return self.element.min
        if self.kind == "s":
            return float(2.0**-self.bias)
        return -self.max if self.is_float else float(np.iinfo(self.storage).min)

    @property
    def tiny(self) -> float:
        """Smallest positive number without loss of precision; 1 for integers."""
        if self.element is not None:
            return self.element.tiny
        if self.kind == "s":
            return self.min
        return float(2.0 ** (1 - self.bias)) if self.is_float else 1.0

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, str):
            return str.__eq__(self, other)
        return isinstance(other, np.dtype | type) and _from_numpy_dtype(other) is self

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype, (str(self),)  # one object per format, also after copy and pickle


bool_ = DType("bool", 0, "b", np.bool_)
int8 = DType("int8", 1, "i", np.int8)
int16 = DType("int16", 2, "i", np.int16)
int32 = DType("int32", 3, "i", np.int32)
uint8 = DType("uint8", 4, "u", np.uint8)
uint16 = DType("uint16", 5, "u", np.uint16)
uint32 = DType("uint32", 6, "u", np.uint32)
float16 = DType("float16", 7, "f", np.float16, 5, 10)
bfloat16 = DType("bfloat16", 8, "f", ml_dtypes.bfloat16, 8, 7)
float32 = DType("float32", 9, "f", np.float32, 8, 23)
tfloat32 = DType("tfloat32", 10, "f", np.float32, 8, 10)  # in the upper bits of a float32
float8_e4m3 = DType("float8_e4m3", 11, "f", ml_dtypes.float8_e4m3, 4, 3)  # to 240, as IEEE 754 would have it
float8_e4m3fn = DType("float8_e4m3fn", 12, "f", ml_dtypes.float8_e4m3fn, 4, 3, has_infinity=False)  # to 448 (OCP)
float8_e5m2 = DType("float8_e5m2", 13, "f", ml_dtypes.float8_e5m2, 5, 2)
float8_e3m4 = DType("float8_e3m4", 14, "f", ml_dtypes.float8_e3m4, 3, 4)
float8_e8m0fnu = DType("float8_e8m0fnu", 15, "s", ml_dtypes.float8_e8m0fnu, 8, 0, has_infinity=False)
float8_e5m2_x4 = DType("float8_e5m2_x4", 16, "x", np.uint32, element=float8_e5m2)
float8_e4m3fn_x4 = DType("float8_e4m3fn_x4", 17, "x", np.uint32, element=float8_e4m3fn)
# Exists only packed, therefore without a code; the only format without NaN.
_float4_e2m1fn = DType("float4_e2m1fn", -1, "f", ml_dtypes.float4_e2m1fn, 2, 1, has_infinity=False)
float4_e2m1fn_x4 = DType("float4_e2m1fn_x4", 18, "x", np.uint16, element=_float4_e2m1fn)

ALL: tuple[DType, ...] = (
    bool_, int8, int16, int32, uint8, uint16, uint32, float16, bfloat16, float32, tfloat32,
    float8_e4m3, float8_e4m3fn, float8_e5m2, float8_e3m4, float8_e8m0fnu,
    float8_e5m2_x4, float8_e4m3fn_x4, float4_e2m1fn_x4,
)  # fmt: skip
"""Every format, in the order of the codes."""

_BY_NAME = {str(dt): dt for dt in ALL} | {"bool_": bool_}
_BY_NUMPY = {dt.numpy: dt for dt in ALL if dt.numpy.name == str(dt)}


# --- names ------------------------------------------------------------------------------------------


@cache
def _from_numpy_dtype(x: np.dtype[Any] | type) -> DType | None:
    try:
        return _BY_NUMPY.get(np.dtype(x))
    except TypeError:
        return None


def dtype(x: object) -> DType:
    """The format that ``x`` names.

    Args:
        x: a :class:`DType`, a name (``"bfloat16"``), a numpy dtype or scalar type, or a PyTorch dtype.

    Raises:
        TypeError: the chip has no such format.
    """
    if isinstance(x, DType):
        return x
    if isinstance(x, np.dtype) and x.names is not None and len(x.names) == 1:
        x = x.names[0]  # as made by labelled()
    from_numpy_side = isinstance(x, np.dtype | type)
    found = _from_numpy_dtype(x) if from_numpy_side else _BY_NAME.get(str(x).removeprefix("torch."))
    if found is None:
        raise TypeError(
            f"{x!r} is not a data type of the chip; use one of {', '.join(ALL)}, as a name or as the numpy or PyTorch "
            "dtype of that name (64-bit numbers: convert to float32 or int32 first)"
        )
    return found


def labelled(dt: DType) -> np.dtype[Any]:
    """A numpy dtype for arrays of a packed format: one field with the format's name, by which :func:`dtype` knows it
    again.  Views as ``dt.storage`` show the bits."""
    return np.dtype([(str(dt), dt.storage)])


def from_code(code: int) -> DType:
    """The format with number ``code`` in a stored program.

    Raises:
        ValueError: no format has it.
    """
    if not 0 <= code < len(ALL):
        raise ValueError(f"no data type has code {code}; codes are 0 to {len(ALL) - 1}")
    return ALL[code]


# --- storage to float32 -----------------------------------------------------------------------------


@cache
def _table(dt: DType) -> Floats:
    """Value of every code of a format of at most 16 bits."""
    codes = np.arange(1 << dt.itemsize_bits, dtype=f"u{dt.itemsize}")
    with np.errstate(all="ignore"):
        table = codes.view(dt.numpy).astype(np.float32)
    table.flags.writeable = False
    return table


def decode(bits: Array, dt: DType) -> Array:
    """Values of storage.

    Args:
        bits: any shape and strides, dtype ``dt.storage``.
        dt: format of ``bits``; not packed.

    Returns:
        Floats and scales: a new C-contiguous float32 array.  Formats stored as float32, integers and bool: ``bits``.

    Raises:
        TypeError: ``dt`` is packed.
    """
    if dt.storage is _FLOAT32 or dt.is_integer or dt.kind == "b":
        return bits
    if dt is bfloat16:  # a widening shift: numpy's loop is as fast as memory, at any strides
        return bits.view(dt.numpy).astype(np.float32, order="C")
    _refuse_packed(dt, "unpack_x4")
    codes = bits.view(np.uint16) if dt is float16 else bits
    if codes.size < COMPILED_FROM:
        return _table(dt).take(codes)
    from isa import _bits

    out = np.empty(codes.shape, np.float32)
    _bits.look_up(np.ascontiguousarray(codes).reshape(-1), _table(dt), out.reshape(-1))
    return out


def to_float(bits: Array, dt: DType) -> Floats:
    """As :func:`decode`, with integers and bool converted to float32 too, rounding those beyond 2**24.

    Raises:
        TypeError: ``dt`` is packed.
    """
    values = decode(bits, dt)
    return values if values.dtype is _FLOAT32 else values.astype(np.float32, order="C")


# --- float32 to storage -----------------------------------------------------------------------------


def _largest_code(dt: DType) -> int:
    """Code of the largest finite number."""
    exponent_and_mantissa = dt.exponent_bits + dt.mantissa_bits
    if dt.has_infinity:
        return (1 << exponent_and_mantissa) - (1 << dt.mantissa_bits) - 1
    return (1 << exponent_and_mantissa) - (1 if dt is _float4_e2m1fn else 2)


def _overflow_code(dt: DType) -> int:
    """Code of what lies beyond the largest finite number: infinity; else NaN; else that largest number."""
    return _largest_code(dt) + (0 if dt is _float4_e2m1fn else 1)


def _nan_code(dt: DType) -> int:
    """Code of the quiet NaN, without sign: infinity's with the first bit of the mantissa set; or all ones."""
    return _overflow_code(dt) | (1 << dt.mantissa_bits >> 1 if dt.has_infinity else 0)


def _encode_reference(values: Floats, dt: DType) -> Array:
    """Round float32 to a float format by its definition, in float64, which is exact here.

    A number is a whole count of units in the last place of its binade.  Counted from the binade's start, that count
    continues the exponent field: rounding up into the next binade is an ordinary carry.
    """
    with np.errstate(invalid="ignore"):  # signalling NaNs
        magnitude = np.abs(values).astype(np.float64)
    finite = np.isfinite(magnitude)
    magnitude[~finite] = 0
    binade = np.maximum(np.frexp(magnitude)[1] - 1, 1 - dt.bias)  # 2**binade <= magnitude, or subnormal
    binade[magnitude == 0] = 1 - dt.bias
    units = np.rint(np.ldexp(magnitude, dt.mantissa_bits - binade)).astype(np.int64)  # np.rint: to nearest even
    code = (binade + dt.bias - 1 << dt.mantissa_bits) + units
    code[~finite | (code > _largest_code(dt))] = _overflow_code(dt)
    code[np.isnan(values)] = _nan_code(dt)
    code |= np.signbit(values).astype(np.int64) << (dt.exponent_bits + dt.mantissa_bits)
    if dt is tfloat32:  # lies in the upper bits
        code <<= float32.mantissa_bits - dt.mantissa_bits
    bits: Array = code.astype(f"u{dt.itemsize}")
    return bits.view(dt.storage)


def _has_nan(values: Floats) -> bool:
    """Squares cannot cancel, so their sum is NaN exactly if a value is.  The cheapest test of a small array."""
    total = np.vdot(values, values)
    return bool(total != total)


def _encode_cast(values: Floats, dt: DType) -> Array:
    """Round with the casts of numpy and ml_dtypes, except where those do not do what this module promises."""
    if dt.kind == "b":
        return np.asarray(np.not_equal(values, 0)).view(np.uint8)
    if dt is tfloat32:
        return _encode_reference(values, dt)
    with np.errstate(all="ignore"):
        if dt.is_integer:
            lowest, highest = _limits(dt)
            wide = np.rint(values).astype(np.float64)
            np.maximum(wide, lowest, out=wide)
            np.minimum(wide, highest, out=wide)
            if _has_nan(values):
                wide[np.isnan(wide)] = 0
            storage: Array = wide.astype(dt.storage)
            return storage
        bits: Array = values.astype(dt.numpy).view(dt.storage)
        if dt is float16 and _has_nan(values):  # numpy keeps what fits of the payload
            nan = np.isnan(values)
            bits[nan] = np.copysign(np.float16(np.nan), values[nan]).astype(np.float16)
        return bits


def _encode_compiled(values: Floats, dt: DType) -> Array:
    """Round with the compiled kernels."""
    from isa import _bits

    flat = np.ascontiguousarray(values).reshape(-1)
    out = np.empty(flat.shape, dt.storage)
    if dt is bfloat16:
        _bits.round_to_bfloat16(flat.view(np.uint32), out)
    elif dt is tfloat32:
        _bits.round_to_tfloat32(flat.view(np.uint32), out.view(np.uint32))
    elif dt.is_integer:
        _bits.round_to_integer(flat, out, dt.min, dt.max)
    else:
        codes = (_largest_code(dt), _overflow_code(dt), _nan_code(dt))
        unsigned = out.view(np.uint16) if dt is float16 else out
        _bits.round_to_narrow(flat.view(np.uint32), unsigned, dt.exponent_bits, dt.mantissa_bits, *codes)
    return out.reshape(values.shape)


@cache
def _limits(dt: DType) -> tuple[Array, Array]:
    """Lowest and highest number, as the arrays that numpy takes up faster than Python's floats."""
    return np.array(dt.min), np.array(dt.max)


def encode(values: Array, dt: DType) -> Array:
    """Storage of values, rounded once; see the module for overflow, NaN and integers.

    Args:
        values: any shape.  float32, or anything that converts to it, which then happens first; integers whose dtype is
            already ``dt.storage`` keep every bit.
        dt: format to round to; not packed.

    Returns:
        dtype ``dt.storage``, the shape of ``values``.  It *is* ``values`` where there is nothing to do.

    Raises:
        TypeError: ``dt`` is packed.
    """
    if values.dtype is not _FLOAT32:
        if dt.is_integer and values.dtype == dt.storage:
            return values
        with np.errstate(all="ignore"):
            values = values.astype(np.float32)
    if dt is float32:
        return values
    _refuse_packed(dt, "pack_x4")
    if values.ndim == 0:
        return encode(values.reshape(1), dt).reshape(())
    if values.size < COMPILED_FROM or dt.kind in "bs":
        return _encode_cast(values, dt)
    return _encode_compiled(values, dt)


def encode_int(values: Array, dt: DType) -> Array:
    """Storage of exact integers, modulo 2**bits, as GpSimd's 32-bit arithmetic wraps.

    Args:
        values: integers of any width, any shape.
        dt: an integer format.

    Raises:
        TypeError: ``values`` or ``dt`` are not integers.
    """
    if not dt.is_integer or values.dtype.kind not in "iu":
        raise TypeError(f"encode_int takes integers to an integer data type, not {values.dtype} to {dt}; use encode")
    return values.astype(dt.storage)


def round_to(values: Floats, dt: DType) -> Floats:
    """The float32 numbers that ``values`` become when stored as ``dt`` and loaded again.

    Raises:
        TypeError: ``dt`` is packed.
    """
    return to_float(encode(values, dt), dt)


# --- numpy ------------------------------------------------------------------------------------------


def from_numpy(array: Array) -> tuple[Array, DType]:
    """An array of a user as (storage view, format).  No copy.

    Raises:
        TypeError: the chip has no such format.
    """
    dt = dtype(array.dtype)
    return array.view(dt.storage), dt


def to_numpy(bits: Array, dt: DType) -> Array:
    """Storage as users see it: a view with dtype ``dt.numpy``.  No copy."""
    return bits.view(dt.numpy)


# --- packed formats ---------------------------------------------------------------------------------


def _refuse_packed(dt: DType, function: str) -> None:
    if dt.element is not None:
        raise TypeError(f"{dt} holds four numbers in an element; use {function}")


def _element_of(dt: DType) -> DType:
    if dt.element is None:
        packed = ", ".join(other for other in ALL if other.element is not None)
        raise TypeError(f"{dt} is not packed; packed data types are {packed}")
    return dt.element


def unpack_x4(bits: Array, dt: DType) -> Floats:
    """The numbers of packed storage; the first is in the lowest bits.

    Args:
        bits: (..., n), dtype ``dt.storage``.
        dt: a packed format.

    Returns:
        (..., 4 n), float32.

    Raises:
        TypeError: ``dt`` is not packed.
    """
    element = _element_of(dt)
    codes = np.ascontiguousarray(bits).view(np.uint8)
    if element is _float4_e2m1fn:
        codes = np.stack((codes & 0xF, codes >> 4), axis=-1).reshape(*bits.shape[:-1], -1)
    return decode(codes, element)


def pack_x4(values: Floats, dt: DType) -> Array:
    """Round numbers and pack each four neighbours of the last axis; the first goes into the lowest bits.

    Args:
        values: (..., 4 n), float32.
        dt: a packed format.

    Returns:
        (..., n), dtype ``dt.storage``.

    Raises:
        TypeError: ``dt`` is not packed.
        ValueError: the last axis is no multiple of 4, or NaN meets float4_e2m1fn_x4, which cannot hold it (what
            exceeds 6, infinity too, becomes 6 there).
    """
    element = _element_of(dt)
    if values.ndim == 0 or values.shape[-1] % 4:
        raise ValueError(f"values of shape {values.shape} cannot be packed as {dt}: the last axis is no multiple of 4")
    if element is not _float4_e2m1fn:
        return np.ascontiguousarray(encode(values, element)).view(dt.storage)
    if np.isnan(values).any():
        raise ValueError(f"values of shape {values.shape} contain NaN, which {dt} cannot hold")
    codes = _encode_reference(values, element)
    return np.ascontiguousarray(codes[..., ::2] | codes[..., 1::2] << 4).view(dt.storage)
