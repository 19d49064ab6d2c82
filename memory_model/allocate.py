"""Allocators: addresses, capacity and lifetimes of SBUF, PSUM and HBM.

An address that was given back is reused as late as possible (fresh space first, then the range freed longest ago), the
way a rotating allocator places tiles on the chip: a reuse costs a write-after-read wait, and that wait should appear as
seldom and as late in the model as it does there.

Tiles take their bytes in all 128 partitions, whatever partitions they use: the compiler's automatic placement is not
documented in more detail.  Addresses that the user chose are not managed: they may overlap each other, and only a clash
with a live automatic allocation is an error.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator

from isa.faults import CapacityFault, ConstraintFault, OutOfBoundsFault
from isa.operands import Space
from isa.target import Target
from memory_model.storage import Storage

__all__ = ["ALIGNMENT", "AddressAllocator", "Allocator", "BankAllocator", "live_map", "size_text"]

ALIGNMENT = 64  # bytes; a guess at the compiler's, and the block size of the hazard tables
MAP_LINES = 20

Range = tuple[int, int]


def size_text(nbytes: int) -> str:
    """A size for people: ``2048`` -> ``2 KiB``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.4g} {unit}"
    return f"{nbytes} B"


def live_map(storages: Iterable[Storage]) -> str:
    """The map of what is live: one line per allocation, largest first, at most 20 lines, then the total."""
    ordered = sorted(storages, key=lambda s: (-s.nbytes, s.address, s.name))
    lines = []
    for s in ordered[:MAP_LINES]:
        name = s.name or "(unnamed)"
        manual = " manual" if s.manual else ""
        lines.append(
            f"  {s.address:#08x}-{s.address + s.nbytes:#08x} {size_text(s.nbytes):>9}  {name} {s.shape} "
            f"{s.dtype}{manual}" + (f"  {s.place}" if s.place else "")
        )
    rest = ordered[MAP_LINES:]
    if rest:
        lines.append(f"  ... and {len(rest)} more, {size_text(sum(s.nbytes for s in rest))}")
    held = sum(b - a for a, b in _union((s.address, s.address + s.nbytes) for s in ordered))
    lines.append(f"  total {size_text(held)} in {len(ordered)} allocations")
    return "\n".join(lines)


def _union(ranges: Iterable[Range]) -> list[Range]:
    """Sorted ranges with overlapping and touching ones joined."""
    joined: list[Range] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def take_first(pool: list[Range], size: int, blocked: list[Range]) -> int | None:
    """Take ``size`` bytes from the first range of ``pool`` that has them outside ``blocked``; what is left of the
    range keeps its place in the order."""
    for i, (start, end) in enumerate(pool):
        if end - start < size:
            continue
        address = start
        for low, high in blocked:
            if low >= address + size:
                break
            if high > address:
                address = -(-high // ALIGNMENT) * ALIGNMENT
        if address + size > end:
            continue
        pool[i : i + 1] = [(a, b) for a, b in ((start, address), (address + size, end)) if b > a]
        return address
    return None


class Allocator:
    """What the allocators share: the live storages, the user's own addresses, and the message when memory is full."""

    unit = "per partition"

    def __init__(self, space: Space, capacity: int, target: Target) -> None:
        self.space = space
        self.capacity = capacity
        self.reach = capacity  # one past the highest address it may give
        self.target = target
        self.used = 0
        self.peak = 0
        # weak: a storage's lifetime belongs to the tensors that use it
        self._automatic: dict[int, weakref.ref[Storage]] = {}
        self._manual: dict[int, weakref.ref[Storage]] = {}
        self._blocked: list[Range] | None = []

    # --- automatic addresses ----------------------------------------------------------------------

    def take(self, nbytes: int, label: str) -> int:
        """An address for ``nbytes`` (per partition).  ``label`` names the tensor in the message.

        Raises:
            CapacityFault: with the map of what is live.
        """
        offset = self._find(nbytes)
        if offset is None:
            gc.collect()  # storages kept alive only by reference cycles give their addresses back
            offset = self._find(nbytes)
        if offset is None:
            raise self._full(nbytes, label)
        return offset

    def adopt(self, storage: Storage) -> None:
        """Register a storage made at an address from :meth:`take` or :meth:`place`; its end of life frees it."""
        if storage.manual:
            self._manual[id(storage)] = weakref.ref(storage)
            self._blocked = None
        else:
            self._automatic[storage.address] = weakref.ref(storage)
            self.used += storage.nbytes
            if self.used > self.peak:
                self.peak = self.used
        storage._release = self.free

    def free(self, storage: Storage) -> None:
        """Give a storage's addresses back (called when it is collected)."""
        storage._release = None
        if storage.manual:
            del self._manual[id(storage)]
            self._blocked = None
        else:
            del self._automatic[storage.address]
            self.used -= storage.nbytes
            self._give_back(storage.address, storage.nbytes)

    def _find(self, nbytes: int) -> int | None:
        raise NotImplementedError

    def _give_back(self, address: int, nbytes: int) -> None:
        raise NotImplementedError

    def _free_ranges(self) -> list[Range]:
        """Free ranges, for the message."""
        raise NotImplementedError

    # --- the user's own addresses -----------------------------------------------------------------

    def place(self, start: int, partitions: int, offset: int, nbytes: int, label: str) -> None:
        """Check an address that the user chose: partitions ``start`` and up, ``nbytes`` from ``offset`` in each.

        Raises:
            OutOfBoundsFault: outside the memory.
            CapacityFault: some of the bytes belong to a live automatic allocation.
        """
        if start < 0 or start + partitions > self.target.partitions or offset < 0 or offset + nbytes > self.capacity:
            raise OutOfBoundsFault(
                f"{self.space.name} tensor {label} at address (partition {start}, byte {offset}) covers partitions "
                f"{start} to {start + partitions - 1}, bytes {offset} to {offset + nbytes - 1}",
                limit=f"{self.target.partitions} partitions of {self.capacity} bytes",
                target=str(self.target),
            )
        for other in self.automatic():
            if other.offset < offset + nbytes and offset < other.offset + other.nbytes:
                raise CapacityFault(
                    f"{self.space.name} tensor {label} at bytes {offset} to {offset + nbytes - 1} overlaps the live "
                    f"automatic allocation {other.label} at bytes {other.offset} to {other.offset + other.nbytes - 1}"
                    + (f", made at {other.place}" if other.place else ""),
                    target=str(self.target),
                    advice="give both an address, or neither: automatic placement cannot know of later addresses",
                )

    # --- reading ----------------------------------------------------------------------------------

    def automatic(self) -> Iterator[Storage]:
        """Live storages with automatic addresses, oldest first."""
        for ref in list(self._automatic.values()):
            storage = ref()
            if storage is not None:
                yield storage

    def live(self) -> Iterator[Storage]:
        """All live storages: automatic, then manual, oldest first."""
        yield from self.automatic()
        for ref in list(self._manual.values()):
            storage = ref()
            if storage is not None:
                yield storage

    def _manual_ranges(self) -> list[Range]:
        """Sorted byte ranges under the user's own addresses, joined."""
        if self._blocked is None:
            stores = (ref() for ref in self._manual.values())
            self._blocked = _union((s.offset, s.offset + s.nbytes) for s in stores if s is not None)
        return self._blocked

    def _full(self, nbytes: int, label: str) -> CapacityFault:
        free = self._free_ranges()
        total = sum(end - start for start, end in free)
        largest = max((end - start for start, end in free), default=0)
        space = self.space.name
        each = f" {self.unit}" if self.unit else ""
        return CapacityFault(
            f"{space} is full: tensor {label} needs {size_text(nbytes)}{each}; {size_text(total)} are free, the "
            f"largest range {size_text(largest)}.  Live in {space}{each}:\n{live_map(self.live())}",
            limit=f"{size_text(self.capacity)}{each}",
            target=str(self.target),
            advice="use smaller tiles, or let tiles die earlier (a tile lives as long as a Python name refers to it)",
        )


class AddressAllocator(Allocator):
    """SBUF and HBM: byte ranges at 64-byte alignment, the range freed longest ago first."""

    def __init__(self, space: Space, capacity: int, target: Target, overflow: int = 0) -> None:
        """
        Args:
            overflow: bytes behind the memory that are given out when nothing else fits.
        """
        super().__init__(space, capacity, target)
        self.unit = "per partition" if space.on_chip else ""
        self.reach = capacity + overflow
        self._overflow: list[Range] = [(capacity, self.reach)] if overflow else []
        self._fresh: list[Range] = [(0, capacity)]
        self._freed: list[Range] = []  # oldest first

    def _find(self, nbytes: int) -> int | None:
        size = max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT
        blocked = self._manual_ranges()
        for pool in (self._fresh, self._freed):
            address = take_first(pool, size, blocked)
            if address is not None:
                return address
        self._merge()
        address = take_first(self._freed, size, blocked)
        if address is None and self._overflow:
            self._overflow[:] = _union(self._overflow)
            address = take_first(self._overflow, size, [])
        return address

    def _merge(self) -> None:
        """Join neighbouring free ranges; a joined range is as old as its youngest part."""
        parts = sorted((start, end, age) for age, (start, end) in enumerate(self._fresh + self._freed))
        joined: list[tuple[int, int, int]] = []
        for start, end, age in parts:
            if joined and joined[-1][1] == start:
                first, _, older = joined[-1]
                joined[-1] = (first, end, max(age, older))
            else:
                joined.append((start, end, age))
        joined.sort(key=lambda part: part[2])
        self._fresh.clear()
        self._freed[:] = [(start, end) for start, end, _ in joined]

    def _give_back(self, address: int, nbytes: int) -> None:
        size = (-(-nbytes // 64) or 1) * 64  # the literal is ALIGNMENT: see Storage.__del__
        (self._freed if address < self.capacity else self._overflow).append((address, address + size))

    def _free_ranges(self) -> list[Range]:
        free = []
        for start, end in _union(self._fresh + self._freed):
            at = start
            for low, high in self._manual_ranges():
                if low < end and high > at:
                    if low > at:
                        free.append((at, low))
                    at = max(at, high)
            if end > at:
                free.append((at, end))
        return free


class BankAllocator(Allocator):
    """PSUM: a tile of up to one bank never crosses a bank; a larger one takes whole neighbouring banks.

    A bank with nothing in it is preferred, the one empty for longest first; only when there is none is a tile packed
    behind others in a bank.
    """

    def __init__(self, space: Space, capacity: int, target: Target, overflow: int = 0) -> None:
        """
        Args:
            overflow: bytes behind the memory, of which a tile takes whole banks.  Where there are any, automatic tiles
                live there alone, so that a kernel's own addresses never meet them, unless ``inside`` is set.
        """
        super().__init__(space, capacity, target)
        self.bank_bytes = target.psum_bank_bytes
        self.reach = capacity + overflow
        self.inside = not overflow
        self._overflow: list[Range] = [(capacity, self.reach)] if overflow else []
        banks = capacity // self.bank_bytes
        self._banks: list[list[Range]] = [[] for _ in range(banks)]
        self._emptied = list(range(banks))  # when each bank became empty
        self._clock = banks

    def place(self, start: int, partitions: int, offset: int, nbytes: int, label: str) -> None:
        """As :meth:`Allocator.place`; PSUM tensors also start on a bank (ConstraintFault)."""
        super().place(start, partitions, offset, nbytes, label)
        if offset % self.bank_bytes:
            raise ConstraintFault(
                f"PSUM tensor {label} starts at byte {offset}, inside bank {offset // self.bank_bytes}",
                limit=f"PSUM tensors start on a bank: multiples of {self.bank_bytes} bytes",
                target=str(self.target),
            )

    def _find(self, nbytes: int) -> int | None:
        address = self._find_inside(nbytes) if self.inside else None
        if address is None and self._overflow:
            banks = max(-(-nbytes // self.bank_bytes), 1)
            address = take_first(self._overflow, banks * self.bank_bytes, [])
            if address is None:
                self._overflow[:] = _union(self._overflow)
                address = take_first(self._overflow, banks * self.bank_bytes, [])
        return address

    def _find_inside(self, nbytes: int) -> int | None:
        size = self.bank_bytes
        taken = [self._taken(bank) for bank in range(len(self._banks))]
        count = max(-(-nbytes // size), 1)
        runs = [
            (max(self._emptied[first : first + count]), first)
            for first in range(len(taken) - count + 1)
            if not any(taken[first : first + count])
        ]
        if runs:
            first = min(runs)[1]
            end = first * size + nbytes
            for bank in range(first, first + count):
                self._banks[bank].append((bank * size, min(end, (bank + 1) * size)))
            return first * size
        if count > 1:
            return None
        for bank in sorted(range(len(taken)), key=lambda b: self._emptied[b]):
            at = bank * size
            for low, high in [*taken[bank], ((bank + 1) * size,) * 2]:
                if low - at >= nbytes:
                    self._banks[bank].append((at, at + nbytes))
                    return at
                at = max(at, -(-high // ALIGNMENT) * ALIGNMENT)
        return None

    def _taken(self, bank: int) -> list[Range]:
        """Ranges in use in a bank, the user's own included."""
        low, high = bank * self.bank_bytes, (bank + 1) * self.bank_bytes
        manual = [(max(a, low), min(b, high)) for a, b in self._manual_ranges() if a < high and b > low]
        return sorted(self._banks[bank] + manual)

    def _give_back(self, address: int, nbytes: int) -> None:
        size = self.bank_bytes
        if address >= self.capacity:
            self._overflow.append((address, address + max(-(-nbytes // size), 1) * size))
            return
        for bank in range(address // size, (address + nbytes - 1) // size + 1):
            self._banks[bank] = [r for r in self._banks[bank] if not address <= r[0] < address + nbytes]
            if not self._banks[bank]:
                self._emptied[bank] = self._clock
                self._clock += 1

    def _free_ranges(self) -> list[Range]:
        size = self.bank_bytes
        free: list[Range] = []
        for bank in range(len(self._banks)):
            at, taken = bank * size, self._taken(bank)
            if not taken and free and free[-1][1] == at and free[-1][0] % size == 0:
                free[-1] = (free[-1][0], at + size)  # empty banks side by side are one range for a large tile
                continue
            for low, high in [*taken, ((bank + 1) * size,) * 2]:
                if low > at:
                    free.append((at, low))
                at = max(at, high)
        return free

    def _full(self, nbytes: int, label: str) -> CapacityFault:
        fault = super()._full(nbytes, label)
        banks = []
        for bank in range(len(self._banks)):
            held = sum(b - a for a, b in self._taken(bank))
            banks.append(f"  bank {bank}: {size_text(held)} of {size_text(self.bank_bytes)} in use")
        fault.message += "\n" + "\n".join(banks)
        fault.args = (fault.message,)
        fault.advice = (
            f"a tile of up to {size_text(self.bank_bytes)} per partition stays in one bank and a larger one "
            "takes whole neighbouring banks; copy results to SBUF and drop PSUM tiles sooner"
        )
        return fault
