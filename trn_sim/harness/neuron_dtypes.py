"""``neuron_dtypes``: number formats on the host, as far as kernels' test suites use AWS's package of that name.

Formats numpy has (through ml_dtypes) are its scalar types.  The packed formats, four numbers in an element, cannot be
numpy dtypes without compiled code; an array of them is a :class:`PackedArray`, whose ``dtype`` answers with the packed
format while its memory is unsigned integers.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from ml_dtypes import (
    bfloat16,
    float8_e3m4,
    float8_e4m3,
    float8_e4m3fn,
    float8_e5m2,
    float8_e8m0fnu,
)

from isa import dtypes
from isa.dtypes import DType, float4_e2m1fn_x4, float8_e4m3fn_x4, float8_e5m2_x4

__all__ = [
    "PackedArray",
    "bfloat16",
    "finfo",
    "float4_e2m1fn_x4",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fn_x4",
    "float8_e5m2",
    "float8_e5m2_x4",
    "float8_e8m0fnu",
    "is_float_type",
    "register",
    "sizeinbytes",
    "static_cast",
]

Array = npt.NDArray[Any]
_PACKED = tuple(dt for dt in dtypes.ALL if dt.element is not None)


class PackedArray(np.ndarray[Any, Any]):
    """An array of a packed format; made by :func:`static_cast`.

    Attributes:
        packed: the format; ``dtype`` gives it too.  The memory is ``packed.storage``, which ``view(np.uint32)`` (of
            float4_e2m1fn_x4: ``np.uint16``) shows.
    """

    packed: DType | None = None

    def __array_finalize__(self, source: Any) -> None:
        self.packed = getattr(source, "packed", None)

    @property
    def dtype(self) -> Any:
        """The packed format."""
        return np.ndarray.dtype.__get__(self) if self.packed is None else self.packed

    def view(self, dtype: Any = None, type: Any = None) -> Any:  # noqa: A002 (numpy's name)
        """As in numpy; a view of another dtype is a plain array, or a packed one if that dtype is."""
        if dtype is None or (isinstance(dtype, DType) and dtype is self.packed):
            return super().view() if type is None else super().view(type)
        return self._bits().view(dtypes.dtype(dtype).storage if isinstance(dtype, DType) else dtype)

    def _bits(self) -> Array:
        return np.ndarray.view(self, np.ndarray)

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        """A copy of the same format; :func:`static_cast` gives the numbers.

        Raises:
            TypeError: another dtype: an element is four numbers.
        """
        if dtype == self.packed:
            return self.copy()
        raise TypeError(f"{self.packed} holds four numbers in an element; neuron_dtypes.static_cast unpacks them")


def _packed(dtype: Any) -> DType | None:
    if isinstance(dtype, np.dtype):
        try:
            found = dtypes.dtype(dtype)  # the name of its field says what it holds
        except TypeError:
            return None
        return found if found.element is not None else None
    return next((dt for dt in _PACKED if dt == str(dtype)), None)


def static_cast(array: Any, dtype: Any) -> Array:
    """An array in another dtype, rounded to nearest even.

    Args:
        array: numpy array, PyTorch tensor on the CPU, or nested numbers.
        dtype: a numpy dtype or scalar type, an ``nl`` dtype, or a name.  A packed one puts each four neighbours of the
            last axis into one element; from a packed array, the last axis becomes four times as long.

    Raises:
        TypeError: a packed format meets another packed format.
        ValueError: the last axis is no multiple of four, or what :func:`isa.dtypes.pack_x4` refuses.
    """
    wanted = _packed(dtype)
    source = getattr(array, "packed", None) or _packed(getattr(array, "dtype", ""))
    if source is not None:
        if wanted is source:
            return array.copy()
        if wanted is not None:
            raise TypeError(f"{source} to {wanted}: cast to float32 first")
        return static_cast(dtypes.unpack_x4(np.asarray(array).view(np.ndarray).view(source.storage), source), dtype)
    values = np.asarray(array)
    if wanted is None:
        return values.astype(_numpy(dtype))
    bits = dtypes.pack_x4(np.ascontiguousarray(values, dtype=np.float32), wanted)
    result = bits.view(PackedArray)
    result.packed = wanted
    return result


def _numpy(dtype: Any) -> np.dtype[Any]:
    try:
        return dtypes.dtype(dtype).numpy
    except TypeError:
        return np.dtype(dtype)  # 64-bit numbers exist on the host


def finfo(dtype: Any) -> Any:
    """``ml_dtypes.finfo`` of a float dtype, as numpy's of that name."""
    return ml_dtypes.finfo(_numpy(dtype))


def is_float_type(dtype: Any) -> bool:
    """True for floats of every width; the packed formats hold floats too."""
    if _packed(dtype) is not None:
        return True
    kind = _numpy(dtype)
    return bool(np.issubdtype(kind, np.floating)) or kind in _OUTSIDE_NUMPY


_OUTSIDE_NUMPY = tuple(dt.numpy for dt in dtypes.ALL if dt.kind in "fs" and dt.numpy.type.__module__ != "numpy")


def sizeinbytes(dtype: Any) -> int:
    """Bytes of one element."""
    return (_packed(dtype) or _numpy(dtype)).itemsize


def register() -> None:
    """Let numpy find the packed formats by name, as structures of one field of that name:
    ``np.zeros(n, nl.float4_e2m1fn_x4)`` takes packed numbers, and becomes a packed tensor in a kernel."""
    for dt in _PACKED:
        np.sctypeDict[str(dt)] = dtypes.labelled(dt)  # type: ignore[assignment]
