"""Tensors: a storage in one memory and a strided view of it.

Element (i0, i1, ...) of a view is element ``offset + sum(stride * i)`` of its storage.  In SBUF and PSUM the storage
counts as (partitions, elements per partition): one partition is ``elements per partition`` further.  Views share the
storage; making one costs nothing on the chip.

Indices and slices beyond the bounds are faults; AWS's texts do not say what they are (numpy would clip).
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from isa.faults import Fault, KernelFault
from trn_sim.machine import current_core
from trn_sim.nki._strided import dtype_of
from trn_sim.nki._support import located, note
from trn_sim.nki._views import Views
from trn_sim.nki.register import VirtualRegister

__all__ = ["DynamicSlice", "NkiTensor", "dtype_of"]


class DynamicSlice:
    """``start : start + size``; ``start`` may be a register.  Made by ``nl.ds``."""

    __slots__ = ("size", "start")

    def __init__(self, start: Any, size: int) -> None:
        self.start = start
        self.size = size

    def __repr__(self) -> str:
        return f"nl.ds({self.start}, {self.size})"


class NkiTensor(Views):
    """A tensor; see the module docstring.  ``nl.ndarray`` makes them.

    Attributes:
        shape, strides: sizes and element strides by dimension; dimension 0 of an on-chip tensor is the partition.
        offset: element of the storage at index (0, 0, ...).
        dtype: an ``nl`` dtype.
        buffer: a :class:`MemoryRegion`.
        name: the user's name, or "".
    """

    __slots__ = ()

    # --- indexing ---------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> NkiTensor:
        """A view by integers, slices with positive step, ``...``, ``nl.ds`` and registers.

        On-chip an integer keeps dimension 0 at size 1 and drops free dimensions, but one free dimension always stays.
        In HBM integers drop their dimension; one always stays.

        Raises:
            OutOfBoundsFault: an index or slice beyond the bounds.
            ConstraintFault: an index of another kind.
        """
        if key.__class__ is not tuple:
            if key is Ellipsis:
                return self
            key = (key,)
        shape = self.shape
        strides = self.strides
        offset = self.offset
        on_chip = self._row
        sizes: list[int] = []
        steps: list[int] = []
        dynamic: tuple[int, VirtualRegister, int] | None = None
        dim = 0
        left = len(shape) - len(key)  # dimensions that an ellipsis stands for
        if left < 0 and len(shape) < sum(k is not Ellipsis for k in key):
            raise self._refuse(f"has {len(shape)} dimensions and got {len(key)} indices: {key}")
        for k in key:
            cls = k.__class__
            if cls is slice:
                size = shape[dim]
                stride = strides[dim]
                start, stop, step = k.start, k.stop, k.step
                if start is None:
                    start = 0
                elif start.__class__ is not int:
                    start = self._integer(start, dim)
                if stop is None:
                    stop = size
                elif stop.__class__ is not int:
                    stop = self._integer(stop, dim)
                if start < 0:
                    start += size
                if stop < 0:
                    stop += size
                if not 0 <= start <= stop <= size:
                    raise self._out_of_bounds(k, dim)
                if step is None or step == 1:
                    sizes.append(stop - start)
                    steps.append(stride)
                else:
                    if step.__class__ is not int:
                        step = self._integer(step, dim)
                    if step < 1:
                        raise self._refuse(
                            f"is sliced with step {step} in dimension {dim}", limit="steps of 1 and more"
                        )
                    sizes.append((stop - start + step - 1) // step)
                    steps.append(stride * step)
                offset += start * stride
                dim += 1
            elif cls is int:
                size = shape[dim]
                if not -size <= k < size:
                    raise self._out_of_bounds(k, dim)
                offset += (k + size if k < 0 else k) * strides[dim]
                if on_chip and dim == 0:
                    sizes.append(1)
                    steps.append(strides[0])
                dim += 1
            elif k is Ellipsis:
                stop = dim + left + 1
                sizes += shape[dim:stop]
                steps += strides[dim:stop]
                dim = stop
                left = -1
            elif cls is DynamicSlice:
                size = shape[dim]
                if k.start.__class__ is VirtualRegister:
                    if not 1 <= k.size <= size:
                        raise self._out_of_bounds(k, dim)
                    dynamic = self._once(dynamic, k.start, dim, size - k.size + 1)
                else:
                    start = self._integer(k.start, dim)
                    if not 0 <= start <= start + k.size <= size:
                        raise self._out_of_bounds(k, dim)
                    offset += start * strides[dim]
                sizes.append(k.size)
                steps.append(strides[dim])
                dim += 1
            elif cls is VirtualRegister:
                dynamic = self._once(dynamic, k, dim, shape[dim])
                dim += 1
            else:
                return self[tuple(self._integer(item, i) if item is k else item for i, item in enumerate(key))]
        if dim < len(shape):
            sizes += shape[dim:]
            steps += strides[dim:]
        if on_chip:
            if len(sizes) < 2:
                sizes.append(1)
                steps.append(strides[-1])
        elif not sizes:
            sizes.append(1)
            steps.append(1)
        if self._dynamic is not None:
            self._guard_rows(sizes, steps)
        view = self._view(tuple(sizes), tuple(steps), offset)
        if dynamic is not None:
            at, register, count = dynamic
            view._dynamic = self._index(register, at, strides[at], count)
        return view

    def __setitem__(self, key: Any, value: Any) -> None:
        """Copy ``value``, a tensor of as many elements or a number, into the view ``self[key]``."""
        from trn_sim.nki.language.tensors import assign

        assign(self[key], value)

    def _once(
        self, before: tuple[int, VirtualRegister, int] | None, register: VirtualRegister, dim: int, count: int
    ) -> tuple[int, VirtualRegister, int]:
        if before is not None:
            raise self._refuse(
                f"has two run-time indices, in dimensions {before[0]} and {dim}", limit="one run-time index per access"
            )
        return dim, register, count

    # --- values, for people -----------------------------------------------------------------------

    def numpy(self) -> npt.NDArray[Any]:
        """A copy of the present values, for printing and debugging; changes nothing in the program or its time.

        Raises:
            KernelFault: no kernel is running, or the rows depend on a vector of run-time indices.
        """
        if self._is_vector:
            raise self._refuse("has one run-time index per row; copy it with nisa.dma_copy to look at it")
        if self._is_indirect_columns:
            raise self._refuse("is indirect; copy it with nisa.tensor_copy to look at it")
        return np.asarray(current_core().peek(self.operand()).reshape(self.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        values = self.numpy()
        return values if dtype is None else values.astype(dtype)

    __array_ufunc__ = None  # numpy leaves operators to the tensor, which explains

    def __repr__(self) -> str:
        name = f" '{self.name}'" if self.name else ""
        text = f"<NkiTensor{name} {self.shape} {self.dtype} {self.buffer.value}"
        try:
            missing = None if self._dynamic is not None else self.storage.written.missing(self.operand())
            if missing is not None and missing.all():
                return text + ", unwritten>"
            if missing is not None:
                text += f", {int(np.count_nonzero(missing))} elements unwritten"
            values = np.array2string(self.numpy(), threshold=16, edgeitems=2, precision=4, separator=" ")
        except (Fault, AttributeError, ValueError):  # outside of a kernel: a repr never fails
            return text + ">"
        return f"{text}>\n{values}"

    def __bool__(self) -> bool:
        """True: there is a tensor.  Kernels of AWS test optional arguments so; values are not known to Python."""
        note(
            "the truth value of a tensor is True whatever it holds: values exist on the chip only; test for None by "
            "'is not None'; load a value into a register for 'while'; select values with nl.where"
        )
        return True

    def __getattr__(self, name: str) -> NoReturn:
        advice = _OLD_MEMBERS.get(name)
        raise AttributeError(
            f"NkiTensor has no attribute '{name}'" + (f": {advice} (it existed in neuronxcc.nki)" if advice else "")
        )


_OLD_MEMBERS = {
    "astype": "convert with nl.copy(tensor, dtype=...) or nisa.tensor_copy into a tile of the other dtype",
    "broadcast_to": "use .broadcast(dim, size) or nl.broadcast_to",
    "expand_dims": "use .expand_dim(dim)",
    "assert_shape": "compare .shape",
    "itemsize": "use the size of .dtype",
}

_OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "pow": "power",
    "mod": "mod",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "matmul": "matmul",
    "neg": "negative",
    "invert": "invert",
    "abs": "abs",
    "floordiv": "divide",
}


def _explain(symbol: str, function: str) -> Any:
    def refuse(self: NkiTensor, *_: Any) -> NoReturn:
        raise located(
            KernelFault(
                f"Python operator __{symbol}__ on {self._label}",
                limit="operators on tiles belong to the old namespace neuronxcc.nki",
                advice=f"use nl.{function}(...), or the instruction behind it in nki.isa with a dst tile",
            )
        )

    return refuse


for _symbol, _function in _OPERATORS.items():
    _prefixes = ("",) if _symbol in ("lt", "le", "gt", "ge", "neg", "invert", "abs") else ("", "r", "i")
    for _prefix in _prefixes:
        setattr(NkiTensor, f"__{_prefix}{_symbol}__", _explain(_prefix + _symbol, _function))
