"""Views, loads and stores against plain numpy; bounds and their messages."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa import dtypes
from isa.faults import ConstraintFault, OutOfBoundsFault
from isa.operands import AccessPattern, Space
from isa.target import TARGETS, TRN2
from memory_model.memory import Memory
from tests.memory_model.support import Footprint, inside, loose, make, part

SBUF, PSUM, HBM = Space.SBUF, Space.PSUM, Space.HBM
SPACES = pytest.mark.parametrize("space", [SBUF, PSUM, HBM], ids=lambda s: s.name)
ROWS, NBYTES = 6, 96
"""Partitions and bytes per partition of the tiles of random tests."""

_MEMORY = Memory(TRN2)
"""For tests that do not look at what is free: making one clears 30 MB."""


@pytest.fixture
def memory() -> Memory:
    return Memory(TRN2)


def byte_tile(memory: Memory, space: Space, seed: int):
    """An allocation of random bytes and a copy of them, (partitions, bytes)."""
    content = np.random.default_rng(seed).integers(0, 256, (ROWS if space.on_chip else 1, NBYTES), np.uint8)
    shape = content.shape if space.on_chip else (NBYTES,)
    storage = make(memory, space, shape, dtypes.uint8)
    memory.store_raw(storage.pattern(), content)
    return storage, content


def expected(ap: AccessPattern, content: np.ndarray) -> np.ndarray:
    """The operand gathered byte by byte from a table of the storage's bytes."""
    spot = Footprint(ap)
    storage = ap.storage
    picked = np.ascontiguousarray(content[spot.rows - storage.start, spot.columns - storage.offset])
    return picked.view(ap.dtype.storage).reshape(ap.shape)


# --- views --------------------------------------------------------------------------------------------


@SPACES
@settings(max_examples=100, deadline=None)
@given(data=st.data(), seed=st.integers(0, 99))
def test_random_views_against_numpy(space, data, seed):
    storage, content = byte_tile(_MEMORY, space, seed)
    ap = part(storage, **data.draw(inside(NBYTES, storage.partitions)))
    view = _MEMORY.view(ap)
    assert view.dtype == ap.dtype.storage
    assert view.tobytes() == expected(ap, content).tobytes()  # NaN is not equal to NaN
    assert np.shares_memory(view, _MEMORY.view(storage.pattern()))


@SPACES
@settings(max_examples=100, deadline=None)
@given(data=st.data(), seed=st.integers(0, 99))
def test_random_loads_against_numpy(space, data, seed):
    storage, content = byte_tile(_MEMORY, space, seed)
    ap = part(storage, **data.draw(inside(NBYTES, storage.partitions)))
    flat = expected(ap, content).reshape(ap.partitions, ap.elements)
    np.testing.assert_array_equal(_MEMORY.load(ap), dtypes.decode(flat, ap.dtype).astype(np.float32))
    assert _MEMORY.raw(ap).tobytes() == flat.tobytes()


@SPACES
@settings(max_examples=100, deadline=None)
@given(data=st.data(), seed=st.integers(0, 99))
def test_random_stores_against_numpy(space, data, seed):
    """The operand's bytes hold the rounded values afterwards, and all other bytes what they held."""
    storage, content = byte_tile(_MEMORY, space, seed)
    ap = part(storage, **data.draw(inside(NBYTES, storage.partitions)))
    values = np.random.default_rng(seed).normal(0, 50, (ap.partitions, ap.elements)).astype(np.float32)
    _MEMORY.store(ap, values)
    spot = Footprint(ap)
    bits = np.ascontiguousarray(dtypes.encode(values, ap.dtype)).reshape(-1, 1).view(np.uint8)
    if len(spot.bytes()) == ap.nbytes:  # no byte twice, so that the order of stores does not show
        content[spot.rows - storage.start, spot.columns - storage.offset] = bits
    else:
        touched = np.zeros(content.shape, bool)
        touched[spot.rows - storage.start, spot.columns - storage.offset] = True
        content[touched] = _MEMORY.view(storage.pattern()).reshape(content.shape)[touched]
    np.testing.assert_array_equal(_MEMORY.view(storage.pattern()).reshape(content.shape), content)


@SPACES
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_bits_of_every_dtype_come_back(space, dtype):
    shape = (3, 5)
    storage = make(_MEMORY, space, shape, dtype)
    bits = np.random.default_rng(1).integers(0, 256, (3, 5 * dtype.itemsize), np.uint8).view(dtype.storage)
    _MEMORY.store_raw(storage.pattern(), bits)
    assert _MEMORY.raw(storage.pattern()).tobytes() == bits.tobytes()


class TestViews:
    """Shapes and sharing, by hand."""

    def ramp(self, memory, dtype=dtypes.float32):
        storage = memory.allocate(SBUF, (4, 6), dtype)
        memory.store(storage.pattern(), np.arange(24, dtype=np.float32).reshape(4, 6))
        return storage

    def test_transposed_free_dimensions(self, memory):
        view = memory.view(part(self.ramp(memory), 0, ((1, 3), (3, 2))))
        assert view[1].tolist() == [[6, 9], [7, 10], [8, 11]]

    def test_window_of_partitions(self, memory):
        view = memory.view(part(self.ramp(memory), 4, ((2, 2),), start=1, partitions=2))
        assert view.tolist() == [[7, 9], [13, 15]]

    def test_every_third_partition(self, memory):
        view = memory.view(part(self.ramp(memory), 0, partitions=2, step=3))
        assert view.tolist() == [[0], [18]]

    def test_backwards(self, memory):
        view = memory.view(part(self.ramp(memory), 20, ((-1, 6),), partitions=1))
        assert view.tolist() == [[5, 4, 3, 2, 1, 0]]

    def test_broadcast(self, memory):
        view = memory.view(part(self.ramp(memory), 8, ((0, 3), (1, 2)), partitions=1))
        assert view.tolist() == [[[2, 3]] * 3]

    def test_reinterpreted(self, memory):
        view = memory.view(part(self.ramp(memory), 2, ((2, 6),), dtype=dtypes.bfloat16, partitions=1))
        assert dtypes.decode(view, dtypes.bfloat16).tolist() == [[0, 1, 2, 3, 4, 5]]

    def test_single_elements(self, memory):
        assert memory.view(part(self.ramp(memory), 4, (), partitions=4)).tolist() == [1, 7, 13, 19]

    def test_no_elements(self, memory):
        assert memory.load(part(self.ramp(memory), 4, ((1, 0),))).shape == (4, 0)

    def test_writes_into_a_view_land_in_memory(self, memory):
        storage = self.ramp(memory)
        memory.view(part(storage, 0, ((2, 3),)))[...] = -1
        assert memory.load(storage.pattern())[3].tolist() == [-1, 19, -1, 21, -1, 23]

    def test_a_dense_float32_load_is_a_view(self, memory):
        ap = self.ramp(memory).pattern()
        assert np.shares_memory(memory.load(ap), memory.view(ap))

    def test_a_strided_float32_load_is_a_view(self, memory):
        ap = part(self.ramp(memory), 4, ((2, 3),))
        assert np.shares_memory(memory.load(ap), memory.view(ap))

    def test_joined_dimensions_load_as_a_view(self, memory):
        ap = part(self.ramp(memory), 0, ((3, 2), (1, 3)))
        assert np.shares_memory(memory.load(ap), memory.view(ap))

    def test_a_raw_load_is_a_view(self, memory):
        ap = self.ramp(memory, dtypes.bfloat16).pattern()
        assert np.shares_memory(memory.raw(ap), memory.view(ap))

    def test_a_transposed_load_is_a_copy_in_order(self, memory):
        ap = part(self.ramp(memory), 0, ((1, 3), (3, 2)), partitions=1)
        assert memory.load(ap).tolist() == [[0, 3, 1, 4, 2, 5]]
        assert not np.shares_memory(memory.load(ap), memory.view(ap))

    def test_a_view_is_made_once(self, memory):
        ap = self.ramp(memory).pattern()
        assert memory.view(ap) is memory.view(ap)

    def test_another_memory_has_its_own(self, memory):
        """A pattern that one memory has bound is bound anew by another."""
        ap = loose(SBUF, 0, ((1, 4),), partitions=2)
        memory.store(ap, np.ones((2, 4), np.float32))
        other = Memory(TRN2)
        assert other.view(ap).tolist() == [[0] * 4] * 2
        assert memory.view(ap).tolist() == [[1] * 4] * 2

    @pytest.mark.parametrize("target", TARGETS.values(), ids=str)
    def test_last_bytes_of_the_memories(self, target):
        memory = Memory(target)
        for space, size in ((SBUF, target.sbuf_bytes), (PSUM, target.psum_bytes)):
            corner = loose(space, size - 4, start=127)
            memory.store(corner, np.full((1, 1), 7, np.float32))
            assert memory.load(corner).tolist() == [[7]]


class TestStores:
    def test_rounds_once_to_nearest_even(self, memory):
        storage = memory.allocate(SBUF, (1, 4), dtypes.bfloat16)
        memory.store(storage.pattern(), np.array([[1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-7, -0.0]], np.float32))
        assert memory.raw(storage.pattern()).tolist() == [[0x3F80, 0x3F82, 0x3F81, 0x8000]]

    def test_integers_saturate(self, memory):
        storage = memory.allocate(SBUF, (1, 4), dtypes.int8)
        memory.store(storage.pattern(), np.array([[300, -300, 2.5, np.nan]], np.float32))
        assert memory.raw(storage.pattern()).tolist() == [[127, -128, 2, 0]]

    def test_takes_any_shape_of_as_many_elements(self, memory):
        storage = memory.allocate(SBUF, (2, 2, 3), dtypes.float32)
        memory.store(storage.pattern(), np.arange(12, dtype=np.float32))
        assert memory.view(storage.pattern())[1].tolist() == [[6, 7, 8], [9, 10, 11]]

    def test_refuses_another_number_of_elements(self, memory):
        storage = memory.allocate(SBUF, (2, 2), dtypes.float32)
        with pytest.raises(ValueError, match="reshape"):
            memory.store(storage.pattern(), np.arange(5, dtype=np.float32))

    def test_raw_bits_need_the_storage_dtype(self, memory):
        storage = memory.allocate(SBUF, (2, 2), dtypes.bfloat16)
        with pytest.raises(TypeError, match="holds uint16, not float32"):
            memory.store_raw(storage.pattern(), np.zeros((2, 2), np.float32))

    def test_through_strides_that_do_not_join(self, memory):
        storage = memory.allocate(SBUF, (1, 6), dtypes.float32)
        memory.store(part(storage, 0, ((1, 3), (3, 2))), np.arange(6, dtype=np.float32).reshape(1, 6))
        assert memory.load(storage.pattern()).tolist() == [[0, 2, 4, 1, 3, 5]]


# --- bounds -------------------------------------------------------------------------------------------


class TestBounds:
    """Each message names the operand, what it touches, the limit and the generation."""

    @pytest.fixture
    def storage(self, memory):
        memory.allocate(SBUF, (8, 32), dtypes.uint8, address=(0, 0))
        return memory.allocate(SBUF, (8, 6), dtypes.float32, name="tile", address=(32, 64), source=("kernel.py", 3))

    def refused(self, memory, ap, text, limit):
        with pytest.raises(OutOfBoundsFault, match=re.escape(text)) as caught:
            memory.view(ap)
        assert str(ap) in caught.value.message
        assert caught.value.limit == limit
        assert caught.value.target == "trn2, NeuronCore-v3"
        return caught.value

    def test_bytes_behind_the_tile(self, memory, storage):
        ap = part(storage, 4, ((1, 6),))
        fault = self.refused(memory, ap, "outside SBUF tensor 'tile' (8, 6) float32 at bytes 64 to 87", "24 bytes")
        assert "touches bytes 68 to 91 of a partition" in fault.message
        assert "(capacity 229376)" in fault.message
        assert fault.advice == "allocated at kernel.py:3"

    def test_all_bytes_of_the_tile(self, memory, storage):
        assert memory.view(part(storage, 0, ((1, 6),))).shape == (8, 6)

    def test_bytes_in_front_of_the_tile(self, memory, storage):
        self.refused(memory, part(storage, 4, ((-1, 3),)), "touches bytes 60 to 71", "24 bytes")

    def test_back_to_the_first_byte(self, memory, storage):
        assert memory.view(part(storage, 8, ((-1, 3),))).shape == (8, 3)

    def test_partitions_behind_the_tile(self, memory, storage):
        ap = part(storage, 0, ((1, 6),), start=1, partitions=8)
        self.refused(memory, ap, "touches partitions 33 to 40, outside SBUF tensor 'tile'", "8 partitions")

    def test_partitions_in_front_of_the_tile(self, memory, storage):
        ap = part(storage, 0, ((1, 6),), start=-1, partitions=2)
        self.refused(memory, ap, "at partitions 32 to 39", "8 partitions")

    def test_a_step_behind_the_tile(self, memory, storage):
        self.refused(memory, part(storage, 0, partitions=3, step=4), "touches partitions 32 to 40", "8 partitions")

    def test_a_step_to_the_last_partition(self, memory, storage):
        assert memory.view(part(storage, 0, start=1, partitions=3, step=3)).shape == (3, 1)

    @pytest.mark.parametrize("access", [Memory.load, Memory.raw, Memory.check])
    def test_reads_are_checked_too(self, memory, storage, access):
        with pytest.raises(OutOfBoundsFault, match="outside SBUF tensor 'tile'"):
            access(memory, part(storage, 4, ((1, 6),)))

    def test_reads_of_a_written_tile_are_checked_too(self, memory, storage):
        memory.store(storage.pattern(), np.zeros((8, 6), np.float32))
        with pytest.raises(OutOfBoundsFault, match="outside SBUF tensor 'tile'"):
            memory.load(part(storage, 4, ((1, 6),)))

    @pytest.mark.parametrize("access", [Memory.store, Memory.store_raw])
    def test_stores_are_checked_too(self, memory, storage, access):
        with pytest.raises(OutOfBoundsFault, match="outside SBUF tensor 'tile'"):
            access(memory, part(storage, 4, ((1, 6),)), np.zeros((8, 6), np.float32))
        assert storage.written.uncovered() == 8 * 24

    def test_bytes_of_hbm(self, memory):
        storage = memory.allocate_hbm((4, 6), dtypes.float32, name="out")
        ap = part(storage, 4, ((1, 24),))
        self.refused(memory, ap, "bytes 4 to 99 of HBM tensor 'out' (4, 6) float32 of 96 bytes", "96 bytes")

    def test_bytes_in_front_of_hbm(self, memory):
        storage = memory.allocate_hbm((4, 6), dtypes.float32)
        self.refused(memory, part(storage, 0, ((-1, 2),)), "bytes -4 to 3", "96 bytes")

    def test_all_bytes_of_hbm(self, memory):
        storage = memory.allocate_hbm((4, 6), dtypes.float32)
        assert memory.view(part(storage, 0, ((1, 24),))).shape == (24,)

    @pytest.mark.parametrize("target", TARGETS.values(), ids=str)
    def test_bytes_behind_the_memory(self, target):
        memory = Memory(target)
        with pytest.raises(OutOfBoundsFault, match=f"capacity {target.sbuf_bytes}") as caught:
            memory.view(loose(SBUF, target.sbuf_bytes))
        assert caught.value.target == str(target)

    def test_partitions_behind_the_memory(self, memory):
        self.refused(memory, loose(PSUM, 0, start=127, partitions=2), "touches partitions 127 to 128", "128 partitions")

    def test_an_offset_between_elements(self, memory):
        storage = memory.allocate(SBUF, (2, 4), dtypes.float32)
        with pytest.raises(ConstraintFault, match="not a multiple of the size of float32") as caught:
            memory.view(part(storage, 2, ((1, 2),)))
        assert caught.value.limit == "4-byte alignment"
        assert caught.value.target == "trn2, NeuronCore-v3"

    def test_an_offset_between_wider_elements(self, memory):
        storage = memory.allocate(SBUF, (2, 4), dtypes.float32)
        assert memory.view(part(storage, 2, ((1, 2),), dtype=dtypes.bfloat16)).shape == (2, 2)

    def test_no_such_hbm_buffer(self, memory):
        with pytest.raises(OutOfBoundsFault, match="there is no HBM buffer 7") as caught:
            memory.view(loose(HBM, 0, buffer=7))
        assert caught.value.target == "trn2, NeuronCore-v3"

    def test_an_hbm_buffer_that_was_dropped(self, memory):
        storage = memory.allocate_hbm((4,), dtypes.float32)
        number = storage.buffer
        assert memory.buffer(number) is storage
        del storage
        with pytest.raises(OutOfBoundsFault, match=f"there is no HBM buffer {number}"):
            memory.buffer(number)

    def test_a_register_is_not_in_memory(self, memory):
        with pytest.raises(ValueError, match="registers belong to the machine"):
            memory.view(loose(Space.REGISTER, 0, dtype=dtypes.int32))


class TestPatternsWithoutAStorage:
    def test_belong_to_the_tile_that_holds_their_bytes(self, memory):
        storage = memory.allocate(SBUF, (4, 8), dtypes.float32)
        inner = loose(SBUF, storage.offset + 4, ((1, 2),), partitions=4)
        memory.store(inner, np.ones((4, 2), np.float32))
        assert memory.load(part(storage, 4, ((1, 2),))).tolist() == [[1, 1]] * 4

    def test_downwards_too(self, memory):
        first, second = (memory.allocate(SBUF, (4, 16), dtypes.float32) for _ in range(2))
        back = loose(SBUF, second.offset + 12, ((-1, 4),), partitions=4)
        memory.store(back, np.tile(np.arange(4, dtype=np.float32), (4, 1)))
        assert memory.load(part(second, 0, ((1, 4),)))[0].tolist() == [3, 2, 1, 0]
        assert first.written.uncovered() == 4 * 64

    def test_downwards_over_two_tiles(self, memory):
        """Belongs to neither tile, so to the memory as a whole, as upwards."""
        first = memory.allocate(SBUF, (4, 16), dtypes.float32)
        second = memory.allocate(SBUF, (4, 16), dtypes.float32)
        assert second.offset == first.offset + 64
        assert memory.view(loose(SBUF, 64, ((-1, 4),), partitions=4)).shape == (4, 4)
        assert memory.view(loose(SBUF, 52, ((1, 4),), partitions=4)).shape == (4, 4)

    def test_belong_to_the_hbm_buffer_of_their_number(self, memory):
        storage = memory.allocate_hbm((8,), dtypes.float32)
        memory.store(loose(HBM, 8, ((1, 2),), buffer=storage.buffer), np.array([5, 6], np.float32))
        assert memory.view(storage.pattern()).tolist() == [0, 0, 5, 6, 0, 0, 0, 0]


class TestAllocate:
    @pytest.mark.parametrize("shape", [(129, 4), (0, 4), (4, 0), (4,), ()], ids=str)
    def test_no_such_tile(self, memory, shape):
        with pytest.raises(ConstraintFault, match="no such tile") as caught:
            memory.allocate(SBUF, shape, dtypes.float32, name="t")
        assert f"SBUF tensor 't' {shape} float32" in caught.value.message
        assert "1 to 128 partitions" in caught.value.limit
        assert caught.value.target == "trn2, NeuronCore-v3"

    @pytest.mark.parametrize("shape", [(128, 4), (1, 1), (4, 2, 3, 5)], ids=str)
    def test_such_a_tile(self, memory, shape):
        assert memory.allocate(SBUF, shape, dtypes.float32).pattern().shape == shape

    def test_hbm_has_its_own_call(self, memory):
        with pytest.raises(ValueError, match="allocate_hbm"):
            memory.allocate(HBM, (4, 4), dtypes.float32)
