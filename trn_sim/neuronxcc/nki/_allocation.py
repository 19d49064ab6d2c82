"""Direct allocation of the older namespace: addresses of tiles as functions of their block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

from isa.dtypes import DType
from isa.faults import ConstraintFault, OutOfBoundsFault
from memory_model.storage import Storage
from trn_sim._source import Site, site
from trn_sim.machine import Core, current_core
from trn_sim.neuronxcc.nki._tile import Tile
from trn_sim.nki._support import located, note
from trn_sim.nki.regions import MemoryRegion

__all__ = ["Allocation", "Placed", "Region"]

Ints = tuple[int, ...]
Address = tuple[int, int]
"""Start partition, byte in the partition."""


class Placed(Tile):
    """Blocks of tiles, each at the address that an allocation gives it; blocks may share one."""

    __slots__ = ("_address", "_made", "_site")

    _site: Site | None
    _address: Callable[[Ints], Address]
    _made: dict[Ints, Storage]

    def _block(self, keys: list[Any]) -> Tile:  # type: ignore[override]
        count = self._blocks
        if len(keys) < count or not all(hasattr(k, "__index__") for k in keys[:count]):
            raise self._refuse(
                f"is indexed by {keys}", limit=f"an integer for each of the {count} block dimensions at once"
            )
        block = []
        for dim in range(count):
            number, size = self._integer(keys.pop(0), dim), self.shape[dim]
            if not -size <= number < size:
                raise self._out_of_bounds(number, dim)
            block.append(number + size if number < 0 else number)
        return self.at(tuple(block))

    def at(self, block: Ints) -> Tile:
        """The tile of one block."""
        sizes = self.shape[self._blocks :]
        storage = self._made.get(block)
        if storage is None:
            storage = self._allocate(block, sizes)
            self._made[block] = storage  # one for each block: what another block accumulated is not added to
        return Tile(sizes, self.dtype, storage, self.buffer, self.name)

    def _allocate(self, block: Ints, sizes: Ints) -> Storage:
        core = current_core()
        first = _first_addresses.setdefault(core, {})
        place = self._site
        key = None if place is None else (place.f_code, place.f_lasti, block)
        address = self._address(block)
        try:
            storage = core.allocate(self.buffer.space, sizes, self.dtype, name=self.name, address=address)
        except OutOfBoundsFault:
            if key not in first:
                raise
            note(
                "an address that grows from iteration to iteration leaves the memory; AWS's tracer runs the body of a "
                "loop once, so the tile stays where it was in the first",
                once=True,
            )
            address = first[key]
            storage = core.allocate(self.buffer.space, sizes, self.dtype, name=self.name, address=address)
        first.setdefault(key, address)
        return storage


_first_addresses: WeakKeyDictionary[Core, dict[Any, Address]] = WeakKeyDictionary()
"""By core: the first address of a block that each place in the kernel's source has allocated."""


class Allocation:
    """Where tiles go: ``buffer=`` of ``nl.ndarray``."""

    def __init__(self, region: MemoryRegion, place: Callable[..., Sequence[int]] | None) -> None:
        """
        Args:
            region: SBUF or PSUM.
            place: ``place(idx=, pdim_size=, fdim_size=)``: block, partitions, bytes per partition to (start partition,
                byte), in PSUM to (bank, start partition, byte); None lets the allocator choose.
        """
        self.region = region
        self._place = place

    def tile(self, blocks: Ints, sizes: Ints, dtype: DType, name: str) -> Tile:
        """The tiles of ``sizes`` for all ``blocks``."""
        if self._place is None:
            from trn_sim.neuronxcc.nki.language.tensors import ndarray, par_dim

            return ndarray((*blocks, par_dim(sizes[0]), *sizes[1:]), dtype, buffer=self.region, name=name)
        placed = Placed(sizes, dtype, None, self.region, name)
        placed.shape, placed.strides, placed._blocks = (*blocks, *sizes), (0,) * (len(blocks) + len(sizes)), len(blocks)
        placed._made = {}
        placed._site = site(2)
        width = prod(sizes[1:]) * dtype.itemsize
        placed._address = lambda block: self._address(block, sizes[0], width)
        return placed if blocks else placed.at(())

    def _address(self, block: Ints, partitions: int, width: int) -> Address:
        place: Any = self._place
        try:
            chosen = place(idx=block, pdim_size=partitions, fdim_size=width)
        except TypeError:  # other names
            chosen = place(block, partitions, width)
        given = tuple(int(value) for value in chosen)
        wanted = 3 if self.region is MemoryRegion.psum else 2
        if len(given) != wanted:
            raise located(
                ConstraintFault(
                    f"the allocation of block {block} is {given}",
                    limit="(bank, start partition, byte) in PSUM, (start partition, byte) in SBUF",
                )
            )
        if wanted == 2:
            return given[0], given[1]
        bank, start, byte = given
        return start, bank * current_core().target.psum_bank_bytes + byte


def _modulo(block: Ints, counts: Sequence[int], scale: int, base: int) -> int:
    """Position of a block among ``counts`` slots per dimension (row-major; none: one slot), times ``scale``."""
    position = 0
    counts = tuple(counts) or (1,) * len(block)
    if not block:
        return base
    if len(counts) != len(block):
        raise located(ConstraintFault(f"{len(counts)} tile counts {tuple(counts)} for {len(block)} block dimensions"))
    for index, count in zip(block, counts, strict=True):
        position = position * count + index % count
    return base + position * scale


class Region:
    """``nki.compiler.sbuf`` and ``nki.compiler.psum``."""

    def __init__(self, region: MemoryRegion) -> None:
        self.region = region

    def auto_alloc(self) -> Allocation:
        """The allocator chooses."""
        return Allocation(self.region, None)

    def alloc(self, func: Callable[..., Sequence[int]]) -> Allocation:
        """``func(idx, pdim_size, fdim_size)`` chooses: block, partitions, bytes per partition to an address."""
        return Allocation(self.region, func)

    def mod_alloc(
        self,
        *,
        base_addr: int = 0,
        base_bank: int = 0,
        base_partition: int = 0,
        num_bank_tiles: Sequence[int] = (),
        num_par_tiles: Sequence[int] = (),
        num_free_tiles: Sequence[int] = (),
    ) -> Allocation:
        """Block i in slot i modulo the number of slots, in each block dimension.

        Args:
            base_addr: first byte in the partition (in PSUM: in the bank).
            base_bank, num_bank_tiles: PSUM: the first bank, and slots over banks.
            base_partition, num_par_tiles: the first partition, and slots over partitions.
            num_free_tiles: slots over bytes.
        """

        def place(idx: Ints, pdim_size: int, fdim_size: int) -> tuple[int, ...]:
            start = _modulo(idx, num_par_tiles, pdim_size, base_partition)
            byte = _modulo(idx, num_free_tiles, fdim_size, base_addr)
            if self.region is MemoryRegion.sbuf:
                return start, byte
            return _modulo(idx, num_bank_tiles, 1, base_bank), start, byte

        return Allocation(self.region, place)

    def __repr__(self) -> str:
        return f"nki.compiler.{self.region.value}"
