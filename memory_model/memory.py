"""Memory of one NeuronCore: SBUF and PSUM as bytes, HBM as numbered buffers, and numpy views of access patterns.

A view never copies.  SBUF and PSUM are one byte array each, partition after partition; an HBM tensor is a byte array
of its own, or the caller's array itself, so that writes land in it in place.  Host memory is taken by the page when it
is touched: an idle gigabyte costs nothing.

Low-precision floats in float32 (``precise=False``, NKI's ``NKI_PRECISE_FP=0``): every chip byte has four host bytes, so
a bfloat16 at chip address ``a`` is a float32 at host address ``4a``.  Addresses, sizes, capacity and work are
unchanged.  Bits of a low-precision float do not exist then, so reading such a tensor under another dtype is refused.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from isa.dtypes import DType, decode, encode, float32, to_float
from isa.faults import ConstraintFault, OutOfBoundsFault, UnimplementedFault, UninitializedReadFault
from isa.operands import AccessPattern, Space
from isa.target import Target
from memory_model.allocate import AddressAllocator, Allocator, BankAllocator
from memory_model.gather import Rows, resolve
from memory_model.shadow import FULL, Coverage
from memory_model.storage import Storage

__all__ = ["Memory", "Rows", "Storage"]

Array = npt.NDArray[Any]

# Without padding, one column of 128 partitions falls into few cache sets, because the pitch is a multiple of 32 KiB.
# Measured, in-place add on (128, 1) float32 columns in turn: 2.2 to 3.4 us at a pitch of 192, 224 or 256 KiB, 0.96 us
# with 64 bytes or more added; (128, 512) tiles do not care.
ROW_PADDING = 128
UNINITIALIZED = ("error", "poison", "ignore")


class _Bound:
    """An access pattern bound to host memory; kept in ``AccessPattern._view``.

    ``flat`` is the (partitions, elements) view, or None where strides do not allow one.  ``direct``: the view holds the
    float32 values themselves.  ``soft``: a low-precision float held as float32.
    """

    __slots__ = ("direct", "flat", "memory", "shape", "soft", "view")

    def __init__(self, memory: Memory, view: Array, shape: tuple[int, int], direct: bool, soft: bool) -> None:
        self.memory = memory
        self.view = view
        self.shape = shape
        self.direct = direct
        self.soft = soft
        self.flat: Array | None
        if view.shape == shape:
            self.flat = view
        else:
            flat = view.view()
            try:
                flat.shape = shape  # refuses instead of copying
            except AttributeError:
                self.flat = None
            else:
                self.flat = flat


class Memory:
    """SBUF, PSUM and HBM as one core sees them.

    Args:
        target: generation; gives sizes.
        precise: False keeps low-precision floats as float32 (see the module docstring).
        beside: memory of another core, whose HBM this one shares.
        uninitialized: ``error`` faults on reads of bytes that nothing has written; ``poison`` fills new allocations
            with NaN (integers: all bits set) instead; ``ignore`` does neither.  HBM outputs are tracked in each case.
        slack: bytes behind every SBUF tile, in each partition, that belong to it although its shape does not name them.
    """

    def __init__(
        self,
        target: Target,
        *,
        precise: bool = True,
        uninitialized: str = "error",
        beside: Memory | None = None,
        slack: int = 0,
    ) -> None:
        if uninitialized not in UNINITIALIZED:
            raise ValueError(f"uninitialized must be one of {', '.join(UNINITIALIZED)}, not {uninitialized!r}")
        self.target = target
        self.precise = precise
        self.uninitialized = uninitialized
        self._slack = slack
        self._stretch = 1 if precise else 4
        self.allocators: dict[Space, Allocator] = {
            Space.SBUF: AddressAllocator(Space.SBUF, target.sbuf_bytes, target, target.sbuf_overflow),
            Space.PSUM: BankAllocator(Space.PSUM, target.psum_bytes, target, target.psum_overflow),
            Space.HBM: beside.allocators[Space.HBM]
            if beside
            else AddressAllocator(Space.HBM, target.hbm_bytes, target),
        }
        self._capacity = {space: allocator.capacity for space, allocator in self.allocators.items()}
        self._pitch = {space: self._capacity[space] * self._stretch + ROW_PADDING for space in (Space.SBUF, Space.PSUM)}
        self._bytes = {space: np.zeros(target.partitions * pitch, np.uint8) for space, pitch in self._pitch.items()}
        # maps shared by storages at the user's own addresses, made with the first of them
        self._shared: dict[tuple[Space, str], npt.NDArray[np.bool_]] = {}
        self._whole: dict[Space, Storage] = {}
        self._buffers: weakref.WeakValueDictionary[int, Storage] = (
            beside._buffers if beside else weakref.WeakValueDictionary()
        )
        self._numbers: Iterator[int] = beside._numbers if beside else itertools.count()

    # --- allocation -------------------------------------------------------------------------------

    def allocate(
        self,
        space: Space,
        shape: tuple[int, ...],
        dtype: DType,
        *,
        name: str = "",
        address: tuple[int, int] | None = None,
        source: tuple[str, int] | None = None,
    ) -> Storage:
        """A new on-chip allocation of ``shape`` = (partitions, free sizes...).

        Args:
            address: (start partition, byte offset) chosen by the user; None places it automatically.
            source: (file, line), for messages.

        Raises:
            CapacityFault: memory is full, or ``address`` overlaps a live automatic allocation.
            ConstraintFault: no such shape, or a PSUM ``address`` inside a bank.
            OutOfBoundsFault: ``address`` outside the memory.
        """
        label = f"'{name}' {shape} {dtype}" if name else f"{shape} {dtype}"
        target = self.target
        if not space.on_chip:
            raise ValueError("HBM tensors come from allocate_hbm() or bind()")
        if len(shape) < 2 or min(shape) < 1 or shape[0] > target.partitions:
            raise ConstraintFault(
                f"{space.name} tensor {label}: no such tile",
                limit=f"shape (partitions, free sizes...), 1 to {target.partitions} partitions, no empty dimension",
                target=str(target),
                advice="put the dimension that goes over partitions first and split it",
            )
        nbytes = math.prod(shape[1:]) * dtype.itemsize
        allocator = self.allocators[space]
        if address is None and space is Space.SBUF:
            nbytes += self._slack
        if address is None:
            start, offset = 0, allocator.take(nbytes, label)
        else:
            start, offset = address
            allocator.place(start, shape[0], offset, nbytes, label)
        storage = Storage(
            space, name, shape, dtype, offset, nbytes, start=start, manual=address is not None, source=source
        )
        if address is None:
            storage.written = Coverage(start, shape[0], offset, nbytes, granule=dtype.itemsize)
            for (of, _), table in self._shared.items():
                if of is space and offset < self._capacity[space]:
                    table[:, offset : offset + nbytes] = False  # the bytes were others' until now
        else:
            storage.written = Coverage(start, shape[0], offset, nbytes, shared=self._shared_map(space, "written"))
        if space is Space.PSUM:
            storage.accumulated = self._accumulation(storage)
        if offset >= self._capacity[space]:  # imagined, behind the memory: bytes of its own
            storage.data = np.zeros(shape[0] * self._own_pitch(storage), np.uint8)
        allocator.adopt(storage)
        if self.uninitialized != "error":
            storage.written.fill()
            if self.uninitialized == "poison":
                self._poison(storage)
        return storage

    def allocate_hbm(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        *,
        name: str = "",
        kind: str = "internal",
        source: tuple[str, int] | None = None,
    ) -> Storage:
        """A new HBM tensor of zeros that count as unwritten.  ``kind``: input, output or internal.

        Raises:
            CapacityFault: HBM is full.
        """
        storage = self._hbm(shape, dtype, name, kind, source)
        storage.data = np.zeros(storage.nbytes * self._hbm_stretch(dtype), np.uint8)
        if self.uninitialized == "poison":
            self._poison(storage)
        return storage

    def bind(self, array: Array, dtype: DType, *, name: str = "", kind: str = "input") -> Storage:
        """The caller's array as an HBM tensor, written from the start.

        Contiguous arrays are used in place; others, and low-precision floats with ``precise=False``, are copied and
        brought back by :meth:`export`.

        Args:
            array: elements of ``dtype``, as values or as storage bits, ``dtype.itemsize`` bytes each.
        """
        if array.dtype.itemsize != dtype.itemsize:
            raise ValueError(f"an array of {array.dtype} cannot hold {dtype}: {array.dtype.itemsize} bytes an element")
        storage = self._hbm(array.shape, dtype, name, kind, None)
        storage.written.fill()
        in_place = array.flags.c_contiguous and self._hbm_stretch(dtype) == 1
        bits = np.ascontiguousarray(array).reshape(-1).view(dtype.storage)
        if not in_place:
            storage.origin = array
            bits = decode(bits, dtype) if self._soft(dtype) else bits.copy()
        storage.data = bits.view(np.uint8)
        return storage

    def export(self, storage: Storage) -> Array:
        """The tensor's bits, ``storage.shape`` in its storage dtype; also brings a bound array up to date where it
        could not be used in place."""
        bits = self._raw(self._bind(storage.pattern()), storage.dtype).reshape(storage.shape)
        if storage.origin is not None:
            storage.origin[...] = bits.view(storage.origin.dtype)
        return bits

    def buffer(self, number: int) -> Storage:
        """The live HBM tensor with that buffer number.

        Raises:
            OutOfBoundsFault: there is none.
        """
        storage = self._buffers.get(number)
        if storage is None:
            raise OutOfBoundsFault(f"there is no HBM buffer {number}", target=str(self.target))
        return storage

    def _hbm(
        self, shape: tuple[int, ...], dtype: DType, name: str, kind: str, source: tuple[str, int] | None
    ) -> Storage:
        nbytes = math.prod(shape) * dtype.itemsize
        allocator = self.allocators[Space.HBM]
        address = allocator.take(nbytes, f"'{name}' {shape} {dtype}" if name else f"{shape} {dtype}")
        storage = Storage(
            Space.HBM,
            name,
            shape,
            dtype,
            0,
            nbytes,
            buffer=next(self._numbers),
            address=address,
            kind=kind,
            source=source,
        )
        storage.written = Coverage(0, 1, 0, nbytes, granule=dtype.itemsize)
        allocator.adopt(storage)
        self._buffers[storage.buffer] = storage
        return storage

    def _shared_map(self, space: Space, what: str) -> npt.NDArray[np.bool_]:
        table = self._shared.get((space, what))
        if table is None:
            shape = (self.target.partitions, self._capacity[space])
            table = self._shared[space, what] = np.zeros(shape, np.bool_)
        return table

    @staticmethod
    def _accumulation(storage: Storage) -> Coverage:
        """Accumulation is a matter of the tensor, not of its address: what another tensor left there is overwritten."""
        return Coverage(storage.start, storage.partitions, storage.offset, storage.nbytes, granule=2)

    def leave_undefined(self, ap: AccessPattern) -> None:
        """Let what nothing has written of ``ap`` count as written, with NaN (integers: all bits set) in it: an
        instruction with a mask leaves the rest of its result undefined, and reading that is legal."""
        storage: Storage = ap.storage
        absent = storage.written.missing(ap)
        if absent is None:
            return
        view = self._bind(ap).view
        view[absent.reshape(view.shape)] = self._undefined(ap)
        storage.written.add(ap)

    def _undefined(self, ap: AccessPattern) -> Any:
        dtype = ap.dtype
        if self._bind(ap).direct:
            return np.float32(np.nan)
        if dtype.is_float:
            return encode(np.full(1, np.nan, np.float32), dtype)[0]
        return np.full(1, 0xFF, np.uint8).repeat(dtype.itemsize).view(dtype.storage)[0]

    def _poison(self, storage: Storage) -> None:
        whole = storage.pattern()
        self._bind(whole).view[...] = self._undefined(whole)

    # --- views ------------------------------------------------------------------------------------

    def view(self, ap: AccessPattern) -> Array:
        """Storage view in ``ap.shape``, without a copy and without a look at the shadow state.

        Storage dtype of ``ap.dtype``; float32 for low-precision floats with ``precise=False``.

        Raises:
            OutOfBoundsFault: bytes outside the memory, or outside the tensor the pattern was taken from.
        """
        return self._bind(ap).view

    def _soft(self, dtype: DType) -> bool:
        """True where the host holds ``dtype`` as float32 although it is narrower."""
        return not self.precise and dtype.is_float and dtype.itemsize < 4

    def _hbm_stretch(self, dtype: DType) -> int:
        """Host bytes per chip byte of an HBM tensor: only low-precision floats need more than one."""
        return 4 // dtype.itemsize if self._soft(dtype) else 1

    def _bind(self, ap: AccessPattern) -> _Bound:
        bound: _Bound | None = ap._view
        if bound is not None and bound.memory is self:
            return bound
        storage: Storage | None = ap.storage
        if storage is None:
            storage = self._owner(ap)
        self._check_bounds(ap, storage)
        dtype = ap.dtype
        soft = self._soft(dtype)
        if dtype != storage.dtype and (soft or self._soft(storage.dtype)) and not self._is_whole(storage):
            raise UnimplementedFault(
                f"{storage.label} in {ap.space.name} is accessed as {dtype}, with low-precision floats kept as float32",
                advice="bits of low-precision floats exist only with NKI_PRECISE_FP=1",
            )
        itemsize = dtype.itemsize
        buffer: Any
        if ap.space is Space.HBM:
            stretch = self._hbm_stretch(storage.dtype)
            buffer = storage.data
            first = ap.offset * stretch
            strides = [stride * itemsize * stretch for stride, _ in ap.pairs]
        else:
            stretch = self._stretch
            pitch = self._pitch[ap.space]
            buffer = self._bytes[ap.space]
            first = ap.start * pitch + ap.offset * stretch
            if storage.data is not None:
                pitch = self._own_pitch(storage)
                buffer = storage.data
                first = (ap.start - storage.start) * pitch + (ap.offset - storage.offset) * stretch
            strides = [ap.step * pitch, *(stride * itemsize * stretch for stride, _ in ap.pairs)]
        host = np.float32 if soft else dtype.storage
        view: Array = np.ndarray(ap.shape, host, buffer, first, strides)
        bound = _Bound(self, view, (ap.partitions, ap.elements), soft or dtype == float32, soft)
        ap._view = bound
        return bound

    def _own_pitch(self, storage: Storage) -> int:
        """Host bytes from one partition to the next of a tile behind the memory."""
        return storage.nbytes * self._stretch + ROW_PADDING

    def _is_whole(self, storage: Storage) -> bool:
        return self._whole.get(storage.space) is storage

    def _owner(self, ap: AccessPattern) -> Storage:
        """The allocation of a pattern that carries none: the HBM buffer, or the live tile that holds its bytes, or
        else the whole memory as one tensor at address 0."""
        if ap.space is Space.HBM:
            return self.buffer(ap.buffer)
        if not ap.space.on_chip:
            raise ValueError(f"{ap} is not in memory: registers belong to the machine")
        low, high = ap.extent
        for storage in self.allocators[ap.space].live():
            if (
                storage.offset <= low
                and high <= storage.offset + storage.nbytes
                and storage.start <= ap.start
                and ap.start + (ap.partitions - 1) * ap.step < storage.start + storage.partitions
            ):
                return storage
        whole = self._whole.get(ap.space)
        if whole is None:
            from isa.dtypes import uint8

            shape = (self.target.partitions, self._capacity[ap.space])
            whole = self._whole[ap.space] = Storage(ap.space, ap.space.name, shape, uint8, 0, shape[1], manual=True)
            whole.written = Coverage(
                0, shape[0], 0, shape[1], shared=self._shared_map(ap.space, "written"), monotone=False
            )
            if ap.space is Space.PSUM:
                whole.accumulated = self._accumulation(whole)
        return whole

    def _check_bounds(self, ap: AccessPattern, storage: Storage) -> None:
        start, end = ap.extent
        if start < storage.offset or end > storage.offset + storage.nbytes:
            first, capacity = storage.offset, storage.nbytes
            if ap.space is Space.HBM:
                where = f"bytes {start} to {end - 1} of HBM tensor {storage.label} of {capacity} bytes"
            else:
                where = (
                    f"bytes {start} to {end - 1} of a partition, outside {ap.space.name} tensor {storage.label} at "
                    f"bytes {first} to {first + capacity - 1} (capacity {self._capacity[ap.space]})"
                )
            raise OutOfBoundsFault(
                f"{ap} touches {where}",
                limit=f"{capacity} bytes",
                target=str(self.target),
                advice=f"allocated at {storage.place}" if storage.place else None,
            )
        last = ap.start + (ap.partitions - 1) * ap.step
        if ap.space.on_chip and not (storage.start <= ap.start and last < storage.start + storage.partitions):
            raise OutOfBoundsFault(
                f"{ap} touches partitions {ap.start} to {last}, outside {ap.space.name} tensor {storage.label} at "
                f"partitions {storage.start} to {storage.start + storage.partitions - 1}",
                limit=f"{storage.partitions} partitions",
                target=str(self.target),
            )
        if ap.offset % ap.dtype.itemsize:
            raise ConstraintFault(
                f"{ap} is at byte {ap.offset}, which is not a multiple of the size of {ap.dtype}",
                limit=f"{ap.dtype.itemsize}-byte alignment",
                target=str(self.target),
            )

    # --- reading ----------------------------------------------------------------------------------

    def load(self, ap: AccessPattern) -> npt.NDArray[np.float32]:
        """The operand as float32, (partitions, elements); (1, elements) in HBM.  A view where dtype and strides allow.

        Raises:
            OutOfBoundsFault: see :meth:`view`.
            UninitializedReadFault: some byte was never written.
        """
        storage: Storage | None = ap.storage
        if storage is None:
            storage = self._owner(ap)
        if storage.written.state != FULL:
            self._require(ap, storage)
        bound: _Bound | None = ap._view
        if bound is None or bound.memory is not self:
            bound = self._bind(ap)
        flat = bound.flat
        if flat is None:
            flat = bound.view.reshape(bound.shape)
        return flat if bound.direct else to_float(flat, ap.dtype)

    def raw(self, ap: AccessPattern) -> Array:
        """As :meth:`load`, in the storage dtype (integers as they are, other dtypes as bits); low-precision floats
        stay float32 where ``precise=False`` holds them so, which keeps moves between equal dtypes exact."""
        self.check(ap)
        bound = self._bind(ap)
        flat = bound.flat
        return bound.view.reshape(bound.shape) if flat is None else flat

    @staticmethod
    def _raw(bound: _Bound, dtype: DType) -> Array:
        flat = bound.flat
        if flat is None:
            flat = bound.view.reshape(bound.shape)
        return encode(flat, dtype) if bound.soft else flat

    def check(self, ap: AccessPattern) -> None:
        """Raise UninitializedReadFault unless every byte of ``ap`` was written."""
        storage: Storage | None = ap.storage
        if storage is None:
            storage = self._owner(ap)
        if storage.written.state != FULL:
            self._require(ap, storage)

    def _require(self, ap: AccessPattern, storage: Storage) -> None:
        if self.uninitialized != "error":
            return
        self._check_bounds(ap, storage)  # the map covers the storage alone
        missing = storage.written.missing(ap)
        if missing is not None:
            self._report_missing(ap.shape, missing, storage)

    def _report_missing(self, shape: tuple[int, ...], missing: Array, storage: Storage) -> NoReturn:
        index = tuple(int(i) for i in np.unravel_index(int(missing.argmax()), missing.shape))
        count = int(np.count_nonzero(missing))
        space = storage.space.name
        allocated = f", allocated at {storage.place}" if storage.place else ""
        raise UninitializedReadFault(
            f"element {index} of {shape} was never written, and {count - 1} more of {missing.size}; they belong to "
            f"{space} tensor {storage.label}{allocated}",
            target=str(self.target),
            advice="write the whole tile first (memset, copy), or read only the part that was written",
        )

    # --- writing ----------------------------------------------------------------------------------

    def store(self, ap: AccessPattern, values: Array) -> None:
        """Round float32 (or convert integer) values once to the operand's dtype and write them.

        Args:
            values: any shape with the operand's number of elements, partition by partition.

        Raises:
            OutOfBoundsFault: see :meth:`view`.
        """
        bound: _Bound | None = ap._view
        if bound is None or bound.memory is not self:
            bound = self._bind(ap)
        if not bound.direct:
            values = encode(values, ap.dtype)
        elif bound.soft:
            values = values.astype(np.float32, copy=False)
        self._write(ap, bound, values)

    def store_raw(self, ap: AccessPattern, bits: Array) -> None:
        """Write what :meth:`raw` gave, or storage bits, unchanged; any shape with the right number of elements."""
        bound = self._bind(ap)
        if bound.soft:
            bits = bits if bits.dtype == np.float32 else decode(bits, ap.dtype)
        elif bits.dtype != ap.dtype.storage:
            raise TypeError(f"{ap} holds {ap.dtype.storage}, not {bits.dtype}")
        self._write(ap, bound, bits)

    def _write(self, ap: AccessPattern, bound: _Bound, values: Array) -> None:
        flat = bound.flat
        try:
            if flat is not None:
                flat[...] = values if values.shape == bound.shape else values.reshape(bound.shape)
            else:
                view = bound.view
                view[...] = values if values.shape == view.shape else values.reshape(view.shape)
        except ValueError:
            if not bound.view.flags.writeable:
                raise self._read_only(ap) from None
            raise
        self.mark(ap)

    def _read_only(self, ap: AccessPattern) -> ConstraintFault:
        storage: Storage = ap.storage or self._owner(ap)
        return ConstraintFault(
            f"{ap} writes into HBM tensor {storage.label}, which is bound to a read-only array",
            advice="pass a writeable array, or write to an output tensor",
        )

    def mark(self, ap: AccessPattern) -> None:
        """Record that every byte of ``ap`` was written, by something other than the Tensor Engine."""
        storage: Storage | None = ap.storage
        if storage is None:
            storage = self._owner(ap)
        if storage.written.state != FULL:
            storage.written.add(ap)
        accumulated = storage.accumulated
        if accumulated is not None and accumulated.state:
            accumulated.remove(ap)

    # --- run-time addresses -----------------------------------------------------------------------

    def resolve(self, ap: AccessPattern, index: npt.NDArray[np.int64]) -> AccessPattern | Rows:
        """The bytes that a pattern with a run-time part means, given the index values.

        One index: a plain pattern.  One index per row of the outermost pair: :class:`Rows`, for :meth:`load_rows` and
        its sisters.

        Raises:
            OutOfBoundsFault: an index outside 0 to ``dynamic.count - 1``, or bytes outside the tensor.
        """
        storage: Storage | None = ap.storage
        if storage is None:
            storage = self._owner(ap)
        return resolve(ap, index, storage, self.target)

    def load_rows(self, rows: Rows) -> npt.NDArray[np.float32]:
        """Gathered rows as float32, (1, rows * elements per row); gathered columns (partitions, columns)."""
        picked = self._pick(rows)
        return picked if self._bind(rows.base).direct else to_float(picked, rows.base.dtype)

    def raw_rows(self, rows: Rows) -> Array:
        """Gathered rows in the dtype of :meth:`raw`, shaped as by :meth:`load_rows`."""
        return self._pick(rows)

    def _pick(self, rows: Rows) -> Array:
        storage: Storage = rows.base.storage
        view = self._bind(rows.base).view  # bounds first: the map covers the storage alone
        if storage.written.state != FULL and self.uninitialized == "error":
            absent = storage.written.missing(rows.base)
            if absent is not None:
                picked = absent.reshape(rows.base.shape).take(rows.index, rows.axis)
                if picked.any():
                    self._report_missing(picked.shape, picked, storage)
        return view.take(rows.index, rows.axis).reshape(rows.base.partitions, -1)

    def store_rows(self, rows: Rows, values: Array) -> None:
        """Scatter float32 values, rounded once; of equal indices the last row stays."""
        bound = self._bind(rows.base)
        self._put(rows, bound, values if bound.direct else encode(values, rows.base.dtype))

    def store_raw_rows(self, rows: Rows, bits: Array) -> None:
        """Scatter storage bits; of equal indices the last row stays."""
        bound = self._bind(rows.base)
        hard = bound.soft and bits.dtype != np.float32
        self._put(rows, bound, decode(bits, rows.base.dtype) if hard else bits)

    def _put(self, rows: Rows, bound: _Bound, values: Array) -> None:
        if not bound.view.flags.writeable:
            raise self._read_only(rows.base)
        if rows.axis == 0:
            bound.view[rows.index] = values.reshape((len(rows.index), *bound.view.shape[1:]))
        else:
            bound.view[:, rows.index] = values.reshape((rows.base.partitions, len(rows.index)))
        storage: Storage = rows.base.storage
        if storage.accumulated is not None and storage.accumulated.state:
            for row in np.unique(rows.index):
                storage.accumulated.remove(rows.row(int(row)))
        if storage.written.state != FULL:
            for row in np.unique(rows.index):
                storage.written.add(rows.row(int(row)))

    # --- reports ----------------------------------------------------------------------------------

    @staticmethod
    def unwritten_elements(storage: Storage) -> int:
        """Elements of a tensor of which some byte was never written: 0 for an output that is complete."""
        return -(-storage.written.uncovered() // storage.dtype.itemsize)

    # --- accumulation in PSUM ---------------------------------------------------------------------

    def psum_fresh(self, ap: AccessPattern) -> str | npt.NDArray[np.bool_]:
        """Which elements the Tensor Engine has not written since their last reset: ``all``, ``none``, or booleans of
        shape (partitions, elements).  An accumulating matmul overwrites the fresh ones and adds to the others.

        A reset is an allocation, or a write by anything but the Tensor Engine (NKI documentation of ``accumulate``).
        """
        storage: Storage | None = ap.storage
        if storage is None:
            storage = self._owner(ap)
        accumulated = storage.accumulated
        if accumulated is None:
            raise ValueError(f"{ap} is not in PSUM")
        if not accumulated.state:
            return "all"
        self._check_bounds(ap, storage)
        fresh = accumulated.missing(ap)
        if fresh is None:
            return "none"
        return "all" if fresh.all() else fresh.reshape(ap.partitions, ap.elements)

    def psum_mark(self, ap: AccessPattern) -> None:
        """Record a write by the Tensor Engine (and that the bytes are written)."""
        storage: Storage | None = ap.storage
        if storage is None:
            storage = self._owner(ap)
        if storage.accumulated is None:
            raise ValueError(f"{ap} is not in PSUM")
        storage.accumulated.add(ap)
        if storage.written.state != FULL:
            storage.written.add(ap)

    def psum_reset(self, ap: AccessPattern) -> None:
        """Forget writes by the Tensor Engine, without a write."""
        storage: Storage = ap.storage or self._owner(ap)
        if storage.accumulated is not None:
            storage.accumulated.remove(ap)
