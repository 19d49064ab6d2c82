"""PSUM: what an accumulating matmul overwrites and what it adds to."""

from __future__ import annotations

import pytest

from isa import dtypes
from isa.operands import Space
from isa.target import TRN2
from memory_model.memory import Memory
from tests.memory_model.support import part

SBUF, PSUM, HBM = Space.SBUF, Space.PSUM, Space.HBM


@pytest.fixture
def memory() -> Memory:
    return Memory(TRN2)


class TestAccumulation:
    """Which elements an accumulating matmul overwrites: those that no matmul wrote since their last reset."""

    @pytest.fixture
    def tile(self, memory):
        return memory.allocate(PSUM, (2, 4), dtypes.float32)

    def test_a_new_tile_is_fresh(self, memory, tile):
        assert memory.psum_fresh(tile.pattern()) == "all"

    def test_a_tile_that_a_matmul_wrote_is_not(self, memory, tile):
        memory.psum_mark(tile.pattern())
        assert memory.psum_fresh(tile.pattern()) == "none"

    def test_a_matmul_writes_bytes(self, memory, tile):
        memory.psum_mark(tile.pattern())
        assert memory.load(tile.pattern()).shape == (2, 4)

    def test_part_of_a_tile(self, memory, tile):
        memory.psum_mark(part(tile, 4, ((2, 2),)))
        assert memory.psum_fresh(tile.pattern()).tolist() == [[True, False, True, False]] * 2

    def test_fresh_part_of_a_written_tile(self, memory, tile):
        memory.psum_mark(part(tile, 4, ((2, 2),)))
        assert memory.psum_fresh(part(tile, 0, ((2, 2),))) == "all"
        assert memory.psum_fresh(part(tile, 4, ((2, 2),))) == "none"

    @pytest.mark.parametrize("reset", [Memory.mark, Memory.psum_reset], ids=["write", "reset"])
    def test_a_write_by_others_makes_fresh(self, memory, tile, reset):
        memory.psum_mark(tile.pattern())
        reset(memory, part(tile, 0, ((1, 3),), start=1, partitions=1))
        assert memory.psum_fresh(tile.pattern()).tolist() == [[False] * 4, [True, True, True, False]]

    def test_a_reset_without_a_write_does_not_write(self, memory, tile):
        memory.psum_reset(tile.pattern())
        assert tile.written.uncovered() == 2 * 16

    def test_an_odd_number_of_bytes(self, memory):
        storage = memory.allocate(PSUM, (2, 5), dtypes.uint8)
        memory.psum_mark(part(storage, 4))
        assert memory.psum_fresh(storage.pattern()).tolist() == [[True] * 4 + [False]] * 2

    def test_reused_bytes_are_fresh(self, memory):
        first = memory.allocate(PSUM, (2, 4096), dtypes.float32)
        memory.psum_mark(first.pattern())
        offset = first.offset
        del first
        second = memory.allocate(PSUM, (2, 4096), dtypes.float32)
        assert second.offset == offset
        assert memory.psum_fresh(second.pattern()) == "all"

    def test_an_alias_has_its_own(self, memory):
        a, b = (memory.allocate(PSUM, (2, 4), dtypes.float32, address=(0, 2048)) for _ in range(2))
        memory.psum_mark(a.pattern())
        assert memory.psum_fresh(a.pattern()) == "none"
        assert memory.psum_fresh(b.pattern()) == "all"

    @pytest.mark.parametrize("call", [Memory.psum_fresh, Memory.psum_mark], ids=["fresh", "mark"])
    def test_in_psum_only(self, memory, call):
        with pytest.raises(ValueError, match="is not in PSUM"):
            call(memory, memory.allocate(SBUF, (2, 4), dtypes.float32).pattern())
