"""Addresses, capacity and lifetimes: hand-made cases, and random ones against a model of what is live."""

from __future__ import annotations

import gc
import re
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from isa import dtypes
from isa.faults import CapacityFault, ConstraintFault, OutOfBoundsFault
from isa.operands import Space
from isa.target import TARGETS, TRN1, TRN2, TRN3
from memory_model.allocate import ALIGNMENT, AddressAllocator, BankAllocator, size_text
from memory_model.memory import Memory
from memory_model.storage import Storage

SBUF, PSUM, HBM = Space.SBUF, Space.PSUM, Space.HBM
KIB = 1024
BANK = TRN2.psum_bank_bytes
ON_CHIP = pytest.mark.parametrize("space", [SBUF, PSUM], ids=lambda s: s.name)
GENERATIONS = pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)


@pytest.fixture
def memory() -> Memory:
    return Memory(TRN2)


def tile(memory: Memory, nbytes: int, space: Space = SBUF, *, partitions: int = 128, **details) -> Storage:
    """``nbytes`` in each partition."""
    return memory.allocate(space, (partitions, nbytes), dtypes.uint8, **details)


# --- capacity -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "kib"), [(TRN1, 192), (TRN2, 224), (TRN3, 256)], ids=[t.name for t in (TRN1, TRN2, TRN3)]
)
class TestSbufCapacity:
    def test_all_of_it(self, target, kib):
        memory = Memory(target)
        assert tile(memory, kib * KIB).offset == 0
        assert memory.allocators[SBUF].peak == kib * KIB

    def test_one_byte_more(self, target, kib):
        with pytest.raises(CapacityFault) as caught:
            tile(Memory(target), kib * KIB + 1)
        assert caught.value.limit == f"{kib} KiB per partition"
        assert caught.value.target == str(target)

    def test_one_tile_more(self, target, kib):
        memory = Memory(target)
        kept = [tile(memory, KIB) for _ in range(kib)]
        with pytest.raises(CapacityFault, match=r"SBUF is full: tensor \(1, 1\) uint8 needs 1 B per partition; 0 B"):
            tile(memory, 1, partitions=1)
        assert len({storage.offset for storage in kept}) == kib


@GENERATIONS
class TestPsumCapacity:
    def test_all_of_it(self, target):
        memory = Memory(target)
        assert tile(memory, 16 * KIB, PSUM).offset == 0
        assert memory.allocators[PSUM].peak == 16 * KIB

    def test_one_byte_more(self, target):
        with pytest.raises(CapacityFault) as caught:
            tile(Memory(target), 16 * KIB + 1, PSUM)
        assert caught.value.limit == "16 KiB per partition"
        assert caught.value.target == str(target)

    def test_one_bank_more(self, target):
        memory = Memory(target)
        kept = [tile(memory, 2 * KIB, PSUM) for _ in range(8)]
        with pytest.raises(CapacityFault, match="PSUM is full"):
            tile(memory, 1, PSUM)
        assert sorted(storage.offset for storage in kept) == [2 * KIB * bank for bank in range(8)]


@pytest.mark.parametrize(("target", "gib"), [(TRN1, 32), (TRN2, 96), (TRN3, 144)])
def test_hbm_capacity(target, gib):
    allocator = AddressAllocator(HBM, target.hbm_bytes, target)
    assert allocator.take(gib << 30, "all of it") == 0
    with pytest.raises(CapacityFault, match=r"HBM is full: tensor more needs 1 B; 0 B are free") as caught:
        allocator.take(1, "more")
    assert caught.value.limit == f"{gib} GiB"
    assert caught.value.target == str(target)


class TestMessage:
    """A full memory says what fills it."""

    def fault(self, memory: Memory, nbytes: int, space: Space = SBUF, **details) -> CapacityFault:
        with pytest.raises(CapacityFault) as caught:
            tile(memory, nbytes, space, **details)
        return caught.value

    def test_map(self, memory):
        kept = [
            memory.allocate(SBUF, (128, 32, KIB), dtypes.float32, name="weights", source=("kernel.py", 7)),
            memory.allocate(SBUF, (64, 40 * KIB), dtypes.bfloat16),
            memory.allocate(SBUF, (32, KIB), dtypes.uint8, name="fixed", address=(0, 220 * KIB)),
        ]
        fault = self.fault(memory, 13 * KIB, name="late")
        assert fault.message.splitlines() == [
            "SBUF is full: tensor 'late' (128, 13312) uint8 needs 13 KiB per partition; 15 KiB are free, the largest "
            "range 12 KiB.  Live in SBUF per partition:",
            "  0x000000-0x020000   128 KiB  weights (128, 32, 1024) float32  kernel.py:7",
            "  0x020000-0x034000    80 KiB  (unnamed) (64, 40960) bfloat16",
            "  0x037000-0x037400     1 KiB  fixed (32, 1024) uint8 manual",
            "  total 209 KiB in 3 allocations",
        ]
        assert "use smaller tiles" in fault.advice
        assert len(kept) == 3

    def test_no_fault_where_the_largest_range_is_enough(self, memory):
        kept = [tile(memory, 208 * KIB), tile(memory, KIB, address=(0, 220 * KIB))]
        assert tile(memory, 12 * KIB).offset == 208 * KIB
        assert len(kept) == 2

    def test_map_is_cut_at_20_lines(self, memory):
        kept = [tile(memory, 2 * KIB, name=f"t{i}") for i in range(112)]
        lines = self.fault(memory, 1).message.splitlines()
        assert len(lines) == 1 + 20 + 2
        assert lines[-2] == "  ... and 92 more, 184 KiB"
        assert lines[-1] == "  total 224 KiB in 112 allocations"
        assert len(kept) == 112

    def test_total_counts_shared_bytes_once(self, memory):
        kept = [tile(memory, 100 * KIB, address=(0, 0)), tile(memory, 100 * KIB, address=(0, 50 * KIB))]
        lines = self.fault(memory, 100 * KIB).message.splitlines()
        assert "74 KiB are free" in lines[0]
        assert lines[-1] == "  total 150 KiB in 2 allocations"
        assert len(kept) == 2

    def test_psum_also_lists_banks(self, memory):
        kept = [tile(memory, BANK, PSUM) for _ in range(7)]
        kept.append(tile(memory, 512, PSUM))
        fault = self.fault(memory, BANK, PSUM)
        expected = [f"  bank {bank}: 2 KiB of 2 KiB in use" for bank in range(7)]
        assert fault.message.splitlines()[-8:] == [*expected, "  bank 7: 512 B of 2 KiB in use"]
        assert str(fault).startswith(fault.message)
        assert "stays in one bank" in fault.advice
        assert len(kept) == 8

    @pytest.mark.parametrize(
        ("nbytes", "text"),
        [(0, "0 B"), (1023, "1023 B"), (2048, "2 KiB"), (1536, "1.5 KiB"), (3 << 20, "3 MiB"), (96 << 30, "96 GiB")],
    )
    def test_sizes(self, nbytes, text):
        assert size_text(nbytes) == text


# --- lifetimes ----------------------------------------------------------------------------------------


class TestLifetimes:
    @ON_CHIP
    def test_bytes_come_back_with_the_last_reference(self, memory, space):
        allocator = memory.allocators[space]
        first = tile(memory, KIB, space)
        second = first
        del first
        assert allocator.used == KIB
        del second
        assert allocator.used == 0
        assert list(allocator.live()) == []

    @ON_CHIP
    def test_an_access_pattern_keeps_its_tile(self, memory, space):
        ap = tile(memory, KIB, space).pattern()
        assert memory.allocators[space].used == KIB
        del ap
        assert memory.allocators[space].used == 0

    def test_peak_stays(self, memory):
        kept = [tile(memory, 4 * KIB), tile(memory, KIB)]
        kept.clear()
        kept.append(tile(memory, KIB))
        assert memory.allocators[SBUF].peak == 5 * KIB

    def test_fresh_space_first(self, memory):
        for step in range(4):
            assert tile(memory, KIB).offset == step * KIB

    def test_then_the_range_freed_longest_ago(self, memory):
        size = TRN2.sbuf_bytes // 4
        quarters = [tile(memory, size) for _ in range(4)]
        for number in (2, 0, 3):
            quarters[number] = None
        reused = [tile(memory, size) for _ in range(3)]
        assert [storage.offset // size for storage in reused] == [2, 0, 3]

    def test_a_loop_rotates_through_all_of_memory(self, memory):
        size = TRN2.sbuf_bytes // 8
        assert [tile(memory, size).offset // size for _ in range(20)] == [i % 8 for i in range(20)]

    def test_the_rest_of_a_range_keeps_its_place_in_the_order(self, memory):
        size = TRN2.sbuf_bytes // 4
        quarters = [tile(memory, size) for _ in range(4)]
        quarters[1] = None
        quarters[3] = None
        halves = [tile(memory, size // 2) for _ in range(4)]
        assert [storage.offset for storage in halves] == [size, size + size // 2, 3 * size, 3 * size + size // 2]

    def test_a_range_too_small_is_passed_over(self, memory):
        size = TRN2.sbuf_bytes // 8
        small, large, rest = tile(memory, size), tile(memory, 4 * size), tile(memory, 3 * size)
        del small
        del large
        assert tile(memory, 2 * size).offset == size
        del rest

    def test_neighbouring_ranges_are_joined_when_needed(self, memory):
        size = TRN2.sbuf_bytes // 4
        quarters = [tile(memory, size) for _ in range(4)]
        quarters[2] = None
        quarters[1] = None
        assert tile(memory, 2 * size).offset == size

    def test_a_joined_range_is_as_old_as_its_youngest_part(self, memory):
        size = TRN2.sbuf_bytes // 7
        tiles = [tile(memory, size) for _ in range(7)]
        for number in (0, 3, 4, 1):
            tiles[number] = None
        assert tile(memory, 2 * size).offset == 3 * size

    def test_ranges_that_do_not_touch_are_not(self, memory):
        size = TRN2.sbuf_bytes // 4
        quarters = [tile(memory, size) for _ in range(4)]
        quarters[2] = None
        quarters[0] = None
        with pytest.raises(CapacityFault, match=r"112 KiB are free, the largest range 56 KiB"):
            tile(memory, 2 * size)

    def test_tiles_kept_by_a_reference_cycle_give_way(self, memory):
        gc.disable()
        try:
            cycle = [tile(memory, TRN2.sbuf_bytes)]
            cycle.append(cycle)
            watch = weakref.ref(cycle[0])
            del cycle
            assert watch() is not None
            assert tile(memory, TRN2.sbuf_bytes).offset == 0
        finally:
            gc.enable()

    def test_live_storages_oldest_first(self, memory):
        fixed = tile(memory, 64, address=(0, 100 * KIB), name="fixed")
        first, second = tile(memory, 64, name="first"), tile(memory, 64, name="second")
        assert list(memory.allocators[SBUF].live()) == [first, second, fixed]

    def test_the_memory_may_go_before_its_tiles(self):
        memory = Memory(TRN2)
        kept = tile(memory, 64)
        allocator = memory.allocators[SBUF]
        del memory
        assert allocator.used == 64
        del kept
        assert allocator.used == 0


@pytest.mark.parametrize("nbytes", [1, 63, 64, 65, 1000])
def test_addresses_are_aligned(memory, nbytes):
    first, second = tile(memory, nbytes), tile(memory, nbytes)
    assert first.offset % ALIGNMENT == 0
    assert second.offset == -(-nbytes // ALIGNMENT) * ALIGNMENT


def test_a_tile_takes_its_bytes_in_all_partitions(memory):
    first, second = tile(memory, KIB, partitions=1), tile(memory, KIB, partitions=1)
    assert first.offset != second.offset


def test_hbm_addresses(memory):
    tensors = [memory.allocate_hbm((100,), dtypes.uint8) for _ in range(3)]
    assert [tensor.address for tensor in tensors] == [0, 128, 256]
    assert [tensor.offset for tensor in tensors] == [0, 0, 0]


def test_hbm_addresses_come_back(memory):
    for _ in range(3):
        memory.allocate_hbm((100,), dtypes.uint8)
    assert memory.allocators[HBM].used == 0
    assert memory.allocators[HBM].peak == 100


# --- PSUM banks ---------------------------------------------------------------------------------------


class TestBanks:
    def test_each_tile_gets_an_empty_bank(self, memory):
        kept = [tile(memory, 64, PSUM) for _ in range(8)]
        assert [storage.offset for storage in kept] == [BANK * bank for bank in range(8)]

    def test_then_tiles_are_packed(self, memory):
        kept = [tile(memory, 1000, PSUM) for _ in range(10)]
        assert [storage.offset for storage in kept[8:]] == [1024, BANK + 1024]

    def test_a_packed_tile_does_not_cross_a_bank(self, memory):
        kept = [tile(memory, 1500, PSUM) for _ in range(8)]
        with pytest.raises(CapacityFault, match=r"PSUM is full: tensor \(128, 549\) uint8"):
            tile(memory, 549, PSUM)
        assert tile(memory, 512, PSUM).offset == 1536
        assert len(kept) == 8

    def test_a_gap_between_tiles_of_a_bank_is_used(self, memory):
        kept = [tile(memory, BANK, PSUM) for _ in range(7)]
        parts = [tile(memory, 512, PSUM) for _ in range(4)]
        assert [storage.offset - 7 * BANK for storage in parts] == [0, 512, 1024, 1536]
        del parts[1]
        assert tile(memory, 512, PSUM).offset == 7 * BANK + 512
        assert len(kept) == 7

    def test_the_bank_empty_for_longest_first(self, memory):
        banks = [tile(memory, BANK, PSUM) for _ in range(8)]
        for number in (5, 1, 6):
            banks[number] = None
        reused = [tile(memory, BANK, PSUM) for _ in range(3)]
        assert [storage.offset // BANK for storage in reused] == [5, 1, 6]

    def test_a_bank_is_empty_when_its_last_tile_goes(self, memory):
        full = [tile(memory, BANK, PSUM) for _ in range(7)]
        pair = [tile(memory, BANK // 2, PSUM) for _ in range(2)]
        pair.pop(0)
        with pytest.raises(CapacityFault):
            tile(memory, BANK, PSUM)
        pair.clear()
        assert tile(memory, BANK, PSUM).offset == 7 * BANK
        assert len(full) == 7

    def test_a_large_tile_takes_whole_neighbouring_banks(self, memory):
        large = tile(memory, BANK + 1, PSUM)
        assert large.offset == 0
        assert tile(memory, 64, PSUM).offset == 2 * BANK

    def test_a_large_tile_needs_neighbours(self, memory):
        banks = [tile(memory, BANK, PSUM) for _ in range(8)]
        banks[1] = None
        banks[3] = None
        with pytest.raises(CapacityFault, match=r"4 KiB are free, the largest range 2 KiB"):
            tile(memory, 2 * BANK, PSUM)
        banks[2] = None
        assert tile(memory, 3 * BANK, PSUM).offset == BANK

    def test_behind_a_large_tile_its_last_bank_is_packed(self, memory):
        large = tile(memory, 7 * BANK + 1000, PSUM)
        assert tile(memory, 64, PSUM).offset == 7 * BANK + 1024
        assert large.offset == 0

    def test_parts_of_neighbouring_banks_are_not(self, memory):
        banks = [tile(memory, BANK // 2, PSUM, address=(0, BANK * bank)) for bank in range(7)]
        last = tile(memory, BANK, PSUM)
        with pytest.raises(CapacityFault, match=r"7 KiB are free, the largest range 1 KiB"):
            tile(memory, BANK, PSUM)
        assert last.offset == 7 * BANK
        assert len(banks) == 7

    def test_free_ranges_next_to_each_other_are_one(self, memory):
        """Two empty banks side by side are 4 KiB for a large tile, and the message has to say so."""
        banks = [tile(memory, BANK, PSUM) for _ in range(8)]
        banks[1] = banks[2] = None
        with pytest.raises(CapacityFault, match=r"4 KiB are free, the largest range 4 KiB"):
            tile(memory, 2 * BANK + 1, PSUM)


# --- the user's own addresses -------------------------------------------------------------------------


class TestOwnAddresses:
    @ON_CHIP
    def test_are_kept(self, memory, space):
        storage = tile(memory, 64, space, partitions=32, address=(96, 2 * BANK))
        assert (storage.start, storage.offset) == (96, 2 * BANK)
        assert storage.manual

    @ON_CHIP
    def test_may_overlap_each_other(self, memory, space):
        a, b = (tile(memory, KIB, space, address=(0, BANK)) for _ in range(2))
        assert list(memory.allocators[space].live()) == [a, b]

    @ON_CHIP
    def test_clash_with_a_live_automatic_tile(self, memory, space):
        kept = tile(memory, KIB, space, name="auto", source=("kernel.py", 5))
        text = "tensor 'own' (128, 64) uint8 at bytes 0 to 63 overlaps the live automatic allocation 'auto'"
        with pytest.raises(CapacityFault, match=re.escape(text)) as caught:
            tile(memory, 64, space, name="own", address=(0, 0))
        assert "at bytes 0 to 1023, made at kernel.py:5" in caught.value.message
        assert caught.value.target == "trn2, NeuronCore-v3"
        assert caught.value.advice.startswith("give both an address")
        assert kept.offset == 0

    def test_clash_in_other_partitions_too(self, memory):
        kept = tile(memory, KIB, partitions=32)
        with pytest.raises(CapacityFault, match="overlaps the live automatic allocation"):
            tile(memory, 64, partitions=32, address=(64, 0))
        assert kept.partitions == 32

    @ON_CHIP
    def test_beside_a_live_automatic_tile(self, memory, space):
        kept = tile(memory, BANK, space)
        assert tile(memory, 64, space, address=(0, BANK)).offset == kept.nbytes

    @ON_CHIP
    def test_where_an_automatic_tile_was(self, memory, space):
        del_me = tile(memory, KIB, space)
        offset = del_me.offset
        del del_me
        assert tile(memory, KIB, space, address=(0, offset)).offset == offset

    @ON_CHIP
    def test_automatic_tiles_keep_away(self, memory, space):
        own = tile(memory, BANK, space, address=(0, 0))
        assert tile(memory, 64, space).offset >= own.nbytes

    def test_automatic_tiles_keep_away_from_the_middle_of_fresh_space(self, memory):
        own = tile(memory, 100, address=(0, 64))
        kept = [tile(memory, 64) for _ in range(2)]
        assert [storage.offset for storage in kept] == [0, 192]
        assert own.offset == 64

    def test_bytes_in_front_are_not_lost(self, memory):
        own = tile(memory, 64, address=(0, 64 * KIB))
        assert tile(memory, 128 * KIB).offset == 64 * KIB + 64
        assert tile(memory, 64 * KIB).offset == 0
        assert own.manual

    @ON_CHIP
    def test_bytes_come_back(self, memory, space):
        capacity = memory.allocators[space].capacity
        own = tile(memory, 64, space, address=(0, 0))
        with pytest.raises(CapacityFault):
            tile(memory, capacity, space)
        del own
        assert tile(memory, capacity, space).offset == 0

    def test_do_not_count_as_used(self, memory):
        own = tile(memory, KIB, address=(0, 0))
        assert memory.allocators[SBUF].used == 0
        assert own.nbytes == KIB

    @pytest.mark.parametrize(
        "address",
        [(1, 0), (-1, 0), (0, -64), (0, TRN2.sbuf_bytes - 63)],
        ids=["partitions", "partition", "byte", "end"],
    )
    def test_outside_the_memory(self, memory, address):
        with pytest.raises(OutOfBoundsFault, match=re.escape(f"(partition {address[0]}, byte {address[1]})")) as caught:
            tile(memory, 64, name="own", address=address)
        assert "SBUF tensor 'own' (128, 64) uint8" in caught.value.message
        assert caught.value.limit == "128 partitions of 229376 bytes"
        assert caught.value.target == "trn2, NeuronCore-v3"

    @GENERATIONS
    def test_the_last_bytes_of_the_memory(self, target):
        storage = tile(Memory(target), 64, partitions=1, address=(127, target.sbuf_bytes - 64))
        assert storage.offset + storage.nbytes == target.sbuf_bytes

    def test_inside_a_bank(self, memory):
        with pytest.raises(ConstraintFault, match=r"'own' .* starts at byte 2112, inside bank 1") as caught:
            tile(memory, 64, PSUM, name="own", address=(0, BANK + 64))
        assert caught.value.limit == "PSUM tensors start on a bank: multiples of 2048 bytes"
        assert caught.value.target == "trn2, NeuronCore-v3"

    def test_on_a_bank(self, memory):
        assert tile(memory, 64, PSUM, address=(0, 7 * BANK)).offset == 7 * BANK

    def test_a_refused_address_takes_nothing(self, memory):
        with pytest.raises(ConstraintFault):
            tile(memory, 64, PSUM, address=(0, BANK + 64))
        assert list(memory.allocators[PSUM].live()) == []


# --- random lifetimes ---------------------------------------------------------------------------------


class Lifetimes(RuleBasedStateMachine):
    """Allocate and drop at random, with and without addresses; what is live never shares a byte by accident."""

    space = SBUF
    tiles = Bundle("tiles")

    def __init__(self) -> None:
        super().__init__()
        gc.freeze()  # a full memory collects garbage; there is none, and looking for it takes all the time
        self.allocator = self.make()
        self.live: dict[int, Storage] = {}
        self.count = 0

    def make(self) -> AddressAllocator | BankAllocator:
        return AddressAllocator(SBUF, 4096, TRN2)

    def adopt(self, offset: int, nbytes: int, manual: bool) -> int:
        self.count += 1
        storage = Storage(self.space, f"t{self.count}", (128, nbytes), dtypes.uint8, offset, nbytes, manual=manual)
        self.allocator.adopt(storage)
        self.live[self.count] = storage
        return self.count

    def spots(self, manual: bool) -> list[tuple[int, int]]:
        return [(s.offset, s.offset + s.nbytes) for s in self.live.values() if s.manual is manual]

    def fits(self, nbytes: int) -> bool:
        """By brute force: some aligned address has ``nbytes`` free bytes."""
        taken = sorted(self.spots(False) + self.spots(True))
        steps = range(0, self.allocator.capacity - nbytes + 1, ALIGNMENT)
        return any(all(b <= a or e >= a + nbytes for e, b in taken) for a in steps)

    @rule(target=tiles, nbytes=st.one_of(st.integers(1, 700), st.sampled_from((1024, 2048, 4096))))
    def automatic(self, nbytes):
        try:
            offset = self.allocator.take(nbytes, "t")
        except CapacityFault:
            assert not self.fits(nbytes)
            return 0
        assert offset % ALIGNMENT == 0
        assert all(end <= offset or start >= offset + nbytes for start, end in self.spots(False) + self.spots(True))
        return self.adopt(offset, nbytes, False)

    @rule(target=tiles, block=st.integers(0, 63), nbytes=st.integers(1, 300))
    def chosen(self, block, nbytes):
        offset = block * ALIGNMENT
        clash = any(start < offset + nbytes and offset < end for start, end in self.spots(False))
        try:
            self.allocator.place(0, 128, offset, nbytes, "t")
        except CapacityFault:
            assert clash
            return 0
        except OutOfBoundsFault:
            assert offset + nbytes > self.allocator.capacity
            return 0
        assert not clash
        return self.adopt(offset, nbytes, True)

    @rule(number=consumes(tiles))
    def drop(self, number):
        self.live.pop(number, None)

    @invariant()
    def used_is_what_is_live(self):
        assert self.allocator.used == sum(end - start for start, end in self.spots(False))

    @invariant()
    def live_is_what_is_live(self):
        assert {s.name for s in self.allocator.live()} == {s.name for s in self.live.values()}

    def teardown(self):
        gc.unfreeze()
        self.live.clear()
        assert self.allocator.used == 0
        assert self.allocator.take(self.allocator.capacity, "all of it") == 0


class BankLifetimes(Lifetimes):
    """The same in PSUM, with the rules of its banks."""

    space = PSUM

    def make(self) -> BankAllocator:
        return BankAllocator(PSUM, TRN2.psum_bytes, TRN2)

    def fits(self, nbytes: int) -> bool:
        taken = sorted(self.spots(False) + self.spots(True))

        def free(first: int, end: int) -> bool:
            return all(b <= first or a >= end for a, b in taken)

        if nbytes > BANK:
            banks = -(-nbytes // BANK)
            return any(free(b * BANK, (b + banks) * BANK) for b in range(8 - banks + 1))
        starts = range(0, self.allocator.capacity, ALIGNMENT)
        return any(at % BANK + nbytes <= BANK and free(at, at + nbytes) for at in starts)

    @rule(target=Lifetimes.tiles, banks=st.integers(1, 8), more=st.integers(-3, 0))
    def large(self, banks, more):
        return self.automatic(banks * BANK + more)

    @rule(target=Lifetimes.tiles, bank=st.integers(0, 8), nbytes=st.integers(1, 3000))
    def chosen(self, bank, nbytes):
        offset = bank * BANK
        clash = any(start < offset + nbytes and offset < end for start, end in self.spots(False))
        try:
            self.allocator.place(0, 128, offset, nbytes, "t")
        except CapacityFault:
            assert clash
            return 0
        except OutOfBoundsFault:
            assert offset + nbytes > self.allocator.capacity
            return 0
        assert not clash
        return self.adopt(offset, nbytes, True)

    @invariant()
    def small_tiles_stay_in_a_bank(self):
        small = [(start, end) for start, end in self.spots(False) if end - start <= BANK]
        assert all(start // BANK == (end - 1) // BANK for start, end in small)

    @invariant()
    def large_tiles_start_on_a_bank(self):
        assert all(start % BANK == 0 for start, end in self.spots(False) if end - start > BANK)


TestRandomLifetimes = Lifetimes.TestCase
TestRandomLifetimes.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRandomBankLifetimes = BankLifetimes.TestCase
TestRandomBankLifetimes.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(sizes=st.lists(st.integers(1, 9000), max_size=40), kept=st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_same_requests_same_addresses(sizes, kept):
    def run() -> list[int]:
        allocator = AddressAllocator(SBUF, 64 * KIB, TRN2)
        live, offsets = [], []
        for nbytes in sizes:
            storage = Storage(SBUF, "", (128, nbytes), dtypes.uint8, allocator.take(nbytes, "t"), nbytes)
            allocator.adopt(storage)
            live = [*live, storage][-kept:]
            offsets.append(storage.offset)
        return offsets

    assert run() == run()
