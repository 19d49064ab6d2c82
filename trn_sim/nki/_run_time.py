"""Run-time addresses of views: which indices are legal, and what a view with one may not do."""

from __future__ import annotations

from typing import Any

from isa.operands import Dynamic, DynamicKind
from trn_sim.nki._strided import Strided
from trn_sim.nki.register import VirtualRegister

__all__ = ["RunTime"]


class RunTime(Strided):
    """The run-time part of an address, for the view methods."""

    __slots__ = ()

    def _index_count(self, dim: int) -> int:
        """Legal run-time indices of a dimension: its size; or, on a part of a storage, all that stay inside of it."""
        storage = self.storage
        old = self.dtype.itemsize
        whole = storage.partitions * storage.nbytes // old
        stride = self.strides[dim]
        if self.size == whole or stride == 0:
            return self.shape[dim]
        if self._row:
            inside = self.offset % self._row
            return -(-(self._row - inside) // stride)
        return -(-(whole - self.offset) // stride)

    def _index(self, index: Any, dim: int, stride: int, count: int) -> Dynamic:
        self._not_twice()
        if self._row and dim == 0:
            raise self._refuse(
                "has a run-time index over partitions",
                limit="run-time indices move along the free dimensions of an on-chip tensor",
                advice="select partitions with constants, or copy through HBM",
            )
        if not isinstance(index, (Strided, VirtualRegister)):
            raise self._refuse(
                f"got {index!r} as run-time index",
                limit="a register or a (1, 1) tile in SBUF",
                advice="a Python integer goes into offset=",
            )
        return Dynamic(DynamicKind.SCALAR, index.operand(), stride, count)

    def _rows(self, index: Any, stride: int, count: int) -> Dynamic:
        self._not_twice()
        if self._row:
            raise self._refuse(
                "has one run-time index per row",
                limit="gather and scatter index HBM tensors",
                advice="inside SBUF use nisa.local_gather or nisa.nc_n_gather",
            )
        if not isinstance(index, Strided):
            raise self._refuse(f"got {index!r} as vector of indices", limit="a (P, 1) tile in SBUF")
        return Dynamic(DynamicKind.VECTOR, index.operand(), stride, count)

    def _not_twice(self) -> None:
        if self._dynamic is not None:
            raise self._refuse(
                "has a run-time address already",
                limit="one run-time index per access",
                advice="test with .is_indirect(), and copy the first selection into a tile",
            )

    def _guard_rows(self, sizes: list[int], steps: list[int]) -> None:
        if self._is_vector and (sizes[:1] != [self.shape[0]] or steps[0] != self.strides[0]):
            raise self._refuse(
                "has one run-time index per row, so dimension 0 cannot be sliced",
                advice="slice the vector of indices instead",
            )

    def _keep_first(self, action: str, advice: str | None = None) -> None:
        if self._row:
            raise self._refuse(
                f"cannot {action}", limit="dimension 0 is the partition, which a view cannot change", advice=advice
            )
        if self._is_vector:
            raise self._refuse(f"cannot {action}", limit="dimension 0 carries one run-time index per row")
