"""Arrays of the host as tensors of a kernel, and back in the same kind.

numpy arrays are taken in place where they are contiguous.  PyTorch is never imported here: its tensors are recognised
only where the caller has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from isa import dtypes
from isa.dtypes import DType
from isa.faults import ConstraintFault, KernelFault, UninitializedReadFault
from trn_sim.machine import Core
from trn_sim.nki._support import located
from trn_sim.nki.objects import NKIObject
from trn_sim.nki.regions import MemoryRegion
from trn_sim.nki.tensor import NkiTensor, dtype_of

__all__ = ["Arguments", "is_host_array", "walk"]

Array = npt.NDArray[Any]


def _torch() -> Any:
    return sys.modules.get("torch")


def _is_torch(value: Any) -> bool:
    torch = _torch()
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def is_host_array(value: Any) -> bool:
    """A numpy array or a PyTorch tensor."""
    return isinstance(value, np.ndarray) or _is_torch(value)


def walk(value: Any, convert: Callable[[Any, str], Any], name: str) -> Any:
    """``value`` with ``convert`` applied to each leaf of its tuples, lists, dictionaries and NKI objects."""
    if isinstance(value, NkiTensor):
        return convert(value, name)
    if isinstance(value, tuple):
        items = [walk(item, convert, f"{name}[{i}]") for i, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [walk(item, convert, f"{name}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: walk(item, convert, f"{name}[{key!r}]") for key, item in value.items()}
    if isinstance(value, NKIObject) and hasattr(value, "__dict__"):
        changed = {key: walk(item, convert, f"{name}.{key}") for key, item in vars(value).items()}
        if all(changed[key] is item for key, item in vars(value).items()):
            return value
        twin = copy(value)
        vars(twin).update(changed)
        return twin
    return convert(value, name)


class Arguments:
    """The host arrays of one call: which tensor stands for which, and what happens to them afterwards."""

    returned: ClassVar[tuple[MemoryRegion, ...]] = (MemoryRegion.shared_hbm,)
    """Where tensors live that a kernel may return."""
    complete: ClassVar[bool] = True
    """True where a result that was not written all over is a fault."""

    def __init__(self, core: Core, tensor: type[NkiTensor] = NkiTensor) -> None:
        """
        Args:
            core: whose memory they are in.
            tensor: class of the tensors that the kernel gets.
        """
        self._core = core
        self._tensor = tensor
        self._tensors: dict[int, tuple[Any, NkiTensor, Array]] = {}
        self.torch = False

    def take(self, value: Any, name: str) -> Any:
        """The tensor for a host array (one tensor for one array, however often it is passed); others unchanged."""
        if not is_host_array(value):
            if isinstance(value, NkiTensor):
                raise located(
                    KernelFault(
                        f"argument '{name}' is a tensor of another kernel that has ended",
                        advice="return it there, and pass the array",
                    )
                )
            return value
        known = self._tensors.get(id(value))
        if known is not None:
            return known[1]
        array, kind = self._numpy(value, name)
        if array.ndim == 0:
            array = array.reshape(1)
        storage = self._core.hbm(array.shape, kind, name=name, kind="input", array=array)
        tensor = self._tensor(array.shape, kind, storage, MemoryRegion.private_hbm, name)
        self._tensors[id(value)] = (value, tensor, array)
        return tensor

    def _numpy(self, value: Any, name: str) -> tuple[Array, DType]:
        if isinstance(value, np.ndarray):
            return value, self._dtype(value.dtype, name)
        self.torch = True
        if value.device.type != "cpu":
            raise located(
                ConstraintFault(
                    f"argument '{name}' is a PyTorch tensor on device '{value.device}'",
                    limit="tensors on the CPU",
                    advice="pass tensor.cpu()",
                )
            )
        kind = self._dtype(str(value.dtype).removeprefix("torch."), name)
        value = value.detach()
        if kind.kind == "f" and kind.numpy.type.__module__ != "numpy":  # numpy has no such type of its own
            value = value.view(getattr(_torch(), f"uint{8 * kind.itemsize}"))
        return value.numpy(), kind

    @staticmethod
    def _dtype(value: Any, name: str) -> DType:
        try:
            return dtype_of(value)
        except ConstraintFault as fault:
            fault.operand = name
            raise

    def finish(self) -> None:
        """Bring arrays that could not be used in place up to date."""
        for _, tensor, array in self._tensors.values():
            storage = tensor.storage
            origin = storage.origin
            if origin is None:
                continue
            if origin.flags.writeable:
                self._core.memory.export(storage)
                continue
            storage.origin = None  # keep the look-up below from writing
            if not np.array_equal(
                self._core.memory.export(storage).view(np.uint8), np.ascontiguousarray(array).view(np.uint8)
            ):
                raise located(
                    ConstraintFault(
                        f"the kernel writes into argument '{tensor.name}', a read-only array",
                        advice="pass a writeable array, or write to an output tensor",
                    )
                )

    def give(self, value: Any, name: str) -> Any:
        """A result in the caller's kind: arrays for tensors, the very argument where it is returned, others
        unchanged.

        Raises:
            ConstraintFault: a tensor that is not in shared HBM.
            UninitializedReadFault: parts of it were never written.
        """
        if not isinstance(value, NkiTensor):
            return value
        for original, tensor, _ in self._tensors.values():
            if value.storage is tensor.storage:
                if value is tensor or self._same_view(value, tensor):
                    return original
                return self._wrap(self._values(value), value.dtype)
        label = f"{name} {value.shape} {value.dtype}" + (f" '{value.name}'" if value.name else "")
        if value.buffer not in self.returned:
            raise located(
                ConstraintFault(
                    f"{label} is in {value.buffer.value}",
                    limit="kernels return tensors in shared_hbm, or their arguments",
                    advice="allocate it with nl.ndarray(..., buffer=nl.shared_hbm), and copy it there (nisa.dma_copy)",
                )
            )
        core = self._core
        missing = core.memory.unwritten_elements(value.storage)
        if missing and self.complete and core.options.values and core.options.uninitialized == "error":
            total = int(np.prod(value.storage.shape, dtype=np.int64))
            what = "was never written" if missing == total else f"has {missing} of {total} elements never written"
            raise located(
                UninitializedReadFault(
                    f"{label} {what}; on the chip it would hold what was there before",
                    advice="write all of it with nisa.dma_copy, or allocate only what is written"
                    + (f"; allocated at {value.storage.place}" if value.storage.place else ""),
                )
            )
        return self._wrap(self._values(value), value.dtype)

    @staticmethod
    def _same_view(value: NkiTensor, tensor: NkiTensor) -> bool:
        return (value.shape, value.strides, value.offset, value.dtype) == (
            tensor.shape, tensor.strides, tensor.offset, tensor.dtype)  # fmt: skip

    def _values(self, value: NkiTensor) -> Array:
        if value.is_indirect():
            raise located(
                ConstraintFault(
                    "a kernel returns a view with a run-time address",
                    limit="whole tensors, or views with a fixed address",
                )
            )
        whole = self._core.read_back(value.storage)
        if self._same_view(value, NkiTensor(whole.shape, value.storage.dtype, value.storage, value.buffer)):
            return whole
        bits = dtypes.to_numpy(whole.reshape(-1).view(value.dtype.storage), value.dtype)
        item = value.dtype.itemsize
        return np.lib.stride_tricks.as_strided(bits[value.offset :], value.shape, [s * item for s in value.strides])

    def _wrap(self, array: Array, kind: DType) -> Any:
        if not self.torch:
            return array
        torch = _torch()
        array = np.ascontiguousarray(array)
        if kind.numpy.type.__module__ == "numpy":
            return torch.from_numpy(array)
        wanted = getattr(torch, str(kind), None)
        bits = torch.from_numpy(array.view(f"u{kind.itemsize}"))
        return bits if wanted is None else bits.view(wanted)
