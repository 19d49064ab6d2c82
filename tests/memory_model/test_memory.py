"""Views, loads and stores against plain numpy; bounds and their messages; HBM in place; run-time addresses."""

from __future__ import annotations

import gc
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa import dtypes
from isa.faults import ConstraintFault, OutOfBoundsFault, UnimplementedFault
from isa.operands import AccessPattern, Dynamic, DynamicKind, Space
from isa.target import TARGETS, TRN2
from memory_model.gather import Rows
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


# --- HBM ----------------------------------------------------------------------------------------------


class TestBind:
    def test_a_contiguous_array_is_used_in_place(self, memory):
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        storage = memory.bind(array, dtypes.float32)
        assert np.shares_memory(memory.view(storage.pattern()), array)
        memory.store(part(storage, 4, ((3, 2),)), np.array([[7, 8]], np.float32))
        assert array.tolist() == [[0, 7, 2], [3, 8, 5]]

    def test_a_strided_array_is_copied_and_brought_back(self, memory):
        whole = np.zeros((4, 6), np.float32)
        array = whole[::2, ::2]
        storage = memory.bind(array, dtypes.float32)
        memory.store(storage.pattern(), np.arange(6, dtype=np.float32))
        assert not whole.any()
        assert memory.export(storage).tolist() == [[0, 1, 2], [3, 4, 5]]
        assert whole[::2, ::2].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert not whole[1::2].any()

    def test_values_of_a_format_that_numpy_does_not_know(self, memory):
        array = np.array([1, 2.5, -3], dtypes.bfloat16.numpy)
        storage = memory.bind(array, dtypes.bfloat16)
        assert memory.load(storage.pattern()).tolist() == [[1, 2.5, -3]]
        assert np.shares_memory(memory.view(storage.pattern()), array)

    def test_bits_of_it(self, memory):
        storage = memory.bind(np.array([0x3F80, 0xC000], np.uint16), dtypes.bfloat16)
        assert memory.load(storage.pattern()).tolist() == [[1, -2]]

    def test_an_array_of_another_width(self, memory):
        with pytest.raises(ValueError, match="array of float64 cannot hold float32: 8 bytes an element"):
            memory.bind(np.zeros(3), dtypes.float32)

    @pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0), (2, 3, 4, 5)])
    def test_any_shape(self, memory, shape):
        array = np.ones(shape, np.float32)
        storage = memory.bind(array, dtypes.float32)
        assert memory.export(storage).shape == shape
        assert memory.load(storage.pattern()).shape == (1, array.size)

    def test_a_read_only_array_is_not_written(self, memory):
        array = np.zeros((2, 3), np.float32)
        array.flags.writeable = False
        storage = memory.bind(array, dtypes.float32, name="x")
        with pytest.raises(ConstraintFault, match=r"'x' .2, 3. float32, which is bound to a read-only array"):
            memory.store(storage.pattern(), np.ones((2, 3), np.float32))
        assert not array.any()

    def test_a_read_only_array_is_not_scattered_into(self, memory):
        array = np.zeros((4, 3), np.float32)
        array.flags.writeable = False
        storage = memory.bind(array, dtypes.float32, name="x")
        rows = memory.resolve(row_pattern(storage, 1, 3), np.array([2]))
        with pytest.raises(ConstraintFault, match="read-only"):
            memory.store_rows(rows, np.ones((1, 3), np.float32))
        assert not array.any()

    def test_a_read_only_array_is_read(self, memory):
        array = np.ones((2, 3), np.float32)
        array.flags.writeable = False
        assert memory.load(memory.bind(array, dtypes.float32).pattern()).tolist() == [[1] * 6]

    def test_export_of_a_tensor_of_ours(self, memory):
        storage = memory.allocate_hbm((2, 3), dtypes.int16)
        memory.store(storage.pattern(), np.arange(6, dtype=np.float32))
        exported = memory.export(storage)
        assert exported.dtype == np.int16
        assert exported.tolist() == [[0, 1, 2], [3, 4, 5]]

    def test_buffer_numbers_are_never_used_again(self, memory):
        first = memory.allocate_hbm((4,), dtypes.float32).buffer
        gc.collect()
        assert memory.allocate_hbm((4,), dtypes.float32).buffer == first + 1


class TestBeside:
    """Two cores: their on-chip memories are their own, HBM is one."""

    @pytest.fixture
    def other(self, memory):
        return Memory(TRN2, beside=memory)

    def test_hbm_buffers_have_one_numbering(self, memory, other):
        tensors = [m.allocate_hbm((4,), dtypes.float32) for m in (memory, other, memory)]
        assert [t.buffer - tensors[0].buffer for t in tensors] == [0, 1, 2]
        assert all(m.buffer(t.buffer) is t for m in (memory, other) for t in tensors)

    def test_hbm_addresses_do_not_overlap(self, memory, other):
        first, second = (m.allocate_hbm((16,), dtypes.float32) for m in (memory, other))
        assert second.address == first.address + 64

    def test_what_one_writes_the_other_reads(self, memory, other):
        ap = memory.allocate_hbm((4,), dtypes.float32).pattern()
        memory.store(ap, np.arange(4, dtype=np.float32))
        assert other.load(ap).tolist() == [[0, 1, 2, 3]]

    def test_sbuf_is_not_shared(self, memory, other):
        corner = loose(SBUF, 0, ((1, 4),))
        memory.store(corner, np.ones((1, 4), np.float32))
        assert other.view(corner).tolist() == [[0] * 4]
        assert other.allocators[SBUF] is not memory.allocators[SBUF]

    def test_memories_that_are_not_beside_each_other(self, memory):
        number = memory.allocate_hbm((4,), dtypes.float32).buffer
        with pytest.raises(OutOfBoundsFault, match="there is no HBM buffer"):
            Memory(TRN2).buffer(number)


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


# --- low-precision floats in float32 ------------------------------------------------------------------


class TestImprecise:
    @pytest.fixture
    def memory(self):
        return Memory(TRN2, precise=False)

    @SPACES
    def test_a_low_precision_float_keeps_all_bits(self, memory, space):
        storage = make(memory, space, (2, 3), dtypes.bfloat16)
        values = np.full((2, 3), 1 + 2**-20, np.float32)
        memory.store(storage.pattern(), values)
        assert memory.load(storage.pattern()).ravel().tolist() == values.ravel().tolist()

    @SPACES
    @settings(max_examples=40, deadline=None)
    @given(data=st.data(), seed=st.integers(0, 99))
    def test_random_views_against_numpy(self, space, data, seed):
        """A bfloat16 tile behaves as a float32 array of its elements."""
        memory = _IMPRECISE
        rows = ROWS if space.on_chip else 1
        storage = make(memory, space, (rows, 40) if space.on_chip else (40,), dtypes.bfloat16)
        content = np.random.default_rng(seed).normal(size=(rows, 40)).astype(np.float32)
        memory.store(storage.pattern(), content)
        ap = part(storage, **data.draw(inside(80, rows, (dtypes.bfloat16,))))
        spot = Footprint(ap)
        picked = content[spot.partition - storage.start, (spot.byte - storage.offset) // 2].reshape(ap.shape)
        np.testing.assert_array_equal(memory.view(ap), picked)

    def test_addresses_are_the_chips(self, memory):
        first, second = (memory.allocate(SBUF, (4, 32), dtypes.bfloat16) for _ in range(2))
        assert second.offset - first.offset == 64
        memory.store(second.pattern(), np.full((4, 32), 3, np.float32))
        memory.store(first.pattern(), np.full((4, 32), 2, np.float32))
        assert memory.load(second.pattern()).tolist() == [[3] * 32] * 4

    def test_the_last_byte_of_sbuf(self, memory):
        corner = loose(SBUF, TRN2.sbuf_bytes - 2, dtype=dtypes.bfloat16, start=127)
        memory.store(corner, np.full((1, 1), 5, np.float32))
        assert memory.load(corner).tolist() == [[5]]

    @pytest.mark.parametrize(
        ("kept", "seen"), [(dtypes.bfloat16, dtypes.uint16), (dtypes.int16, dtypes.float16)], ids=str
    )
    def test_bits_are_not_there(self, memory, kept, seen):
        storage = memory.allocate(SBUF, (2, 4), kept, name="t")
        with pytest.raises(UnimplementedFault, match=f"'t' .2, 4. {kept} in SBUF is accessed as {seen}") as caught:
            memory.view(part(storage, 0, ((1, 4),), dtype=seen))
        assert "NKI_PRECISE_FP=1" in caught.value.advice

    def test_bits_of_integers_and_float32_are(self, memory):
        storage = memory.allocate(SBUF, (1, 2), dtypes.float32)
        memory.store(storage.pattern(), np.array([[1, -2]], np.float32))
        ints = part(storage, 0, ((1, 2),), dtype=dtypes.uint32)
        assert memory.raw(ints).tolist() == [[0x3F800000, 0xC0000000]]

    def test_precise_bits_are_there(self):
        memory = Memory(TRN2)
        storage = memory.allocate(SBUF, (1, 2), dtypes.bfloat16)
        memory.store(storage.pattern(), np.array([[1, -2]], np.float32))
        assert memory.raw(part(storage, 0, ((1, 2),), dtype=dtypes.uint16)).tolist() == [[0x3F80, 0xC000]]

    def test_raw_moves_keep_float32(self, memory):
        a, b = (memory.allocate(SBUF, (1, 2), dtypes.bfloat16) for _ in range(2))
        memory.store(a.pattern(), np.full((1, 2), 1 + 2**-20, np.float32))
        memory.store_raw(b.pattern(), memory.raw(a.pattern()))
        assert memory.load(b.pattern()).tolist() == [[1 + 2**-20] * 2]

    def test_storage_bits_are_widened(self, memory):
        storage = memory.allocate(SBUF, (1, 2), dtypes.bfloat16)
        memory.store_raw(storage.pattern(), np.array([[0x3F80, 0xC000]], np.uint16))
        assert memory.load(storage.pattern()).tolist() == [[1, -2]]

    def test_a_bound_array_is_rounded_on_export(self, memory):
        array = np.array([1, 2], dtypes.bfloat16.numpy)
        storage = memory.bind(array, dtypes.bfloat16)
        memory.store(storage.pattern(), np.array([1 + 2**-20, 3], np.float32))
        assert array.tolist() == [1, 2]
        assert memory.export(storage).tolist() == [0x3F80, 0x4040]
        assert array.tolist() == [1, 3]

    def test_a_bound_float32_array_is_used_in_place(self, memory):
        array = np.zeros(2, np.float32)
        assert np.shares_memory(memory.view(memory.bind(array, dtypes.float32).pattern()), array)


_IMPRECISE = Memory(TRN2, precise=False)


# --- run-time addresses -------------------------------------------------------------------------------


INDEX = loose(SBUF, 0, dtype=dtypes.int32)


def row_pattern(storage, rows, width, *, count=4, stride=None, at=0) -> AccessPattern:
    """Rows of an HBM table of float32, picked by index."""
    dynamic = Dynamic(DynamicKind.VECTOR, INDEX, width if stride is None else stride, count)
    pairs = ((width, rows), (1, width))
    return AccessPattern(HBM, dtypes.float32, at, pairs, buffer=storage.buffer, storage=storage, dynamic=dynamic)


def column_pattern(storage, columns, count, at=0) -> AccessPattern:
    dynamic = Dynamic(DynamicKind.COLUMN, INDEX, 1, count, 16)
    return AccessPattern(
        SBUF,
        storage.dtype,
        storage.offset + at,
        ((0, columns),),
        start=storage.start,
        partitions=storage.partitions,
        storage=storage,
        dynamic=dynamic,
    )


def scalar_pattern(storage, stride, count, pairs=((1, 2),)) -> AccessPattern:
    dynamic = Dynamic(DynamicKind.SCALAR, INDEX, stride, count)
    plain = part(storage, 0, pairs)
    return AccessPattern(
        plain.space,
        plain.dtype,
        plain.offset,
        pairs,
        start=plain.start,
        partitions=plain.partitions,
        buffer=plain.buffer,
        storage=storage,
        dynamic=dynamic,
    )


class TestResolve:
    @pytest.fixture
    def table(self, memory):
        return memory.bind(np.arange(12, dtype=np.float32).reshape(4, 3), dtypes.float32, name="table")

    @pytest.fixture
    def tile(self, memory):
        storage = memory.allocate(SBUF, (2, 6), dtypes.float32, name="tile")
        memory.store(storage.pattern(), np.arange(12, dtype=np.float32))
        return storage

    def test_a_plain_pattern_is_itself(self, memory, tile):
        ap = tile.pattern()
        assert memory.resolve(ap, np.array([3])) is ap

    def test_one_index(self, memory, tile):
        settled = memory.resolve(scalar_pattern(tile, 2, 3), np.array([2]))
        assert isinstance(settled, AccessPattern)
        assert memory.load(settled).tolist() == [[4, 5], [10, 11]]

    @pytest.mark.parametrize("index", [-1, 3])
    def test_one_index_out_of_bounds(self, memory, tile, index):
        with pytest.raises(OutOfBoundsFault, match=re.escape(f"index {index} (number 0 of 1) into 'tile'")) as caught:
            memory.resolve(scalar_pattern(tile, 2, 3), np.array([index]))
        assert caught.value.limit == "0 to 2"
        assert caught.value.target == "trn2, NeuronCore-v3"

    def test_one_index_that_reaches_beyond_the_tile(self, memory, tile):
        settled = memory.resolve(scalar_pattern(tile, 2, 4), np.array([3]))
        with pytest.raises(OutOfBoundsFault, match="outside SBUF tensor 'tile'"):
            memory.load(settled)

    def test_several_indices_where_one_is_due(self, memory, tile):
        with pytest.raises(ConstraintFault, match="takes one index, not 2"):
            memory.resolve(scalar_pattern(tile, 2, 3), np.array([0, 1]))

    def test_rows(self, memory, table):
        rows = memory.resolve(row_pattern(table, 3, 3), np.array([[2], [0], [2]]))
        assert isinstance(rows, Rows)
        assert memory.load_rows(rows).tolist() == [[6, 7, 8, 0, 1, 2, 6, 7, 8]]
        assert rows.nbytes == 3 * 3 * 4

    def test_rows_with_an_offset(self, memory, table):
        rows = memory.resolve(row_pattern(table, 2, 2, stride=3, at=4), np.array([3, 1]))
        assert memory.load_rows(rows).tolist() == [[10, 11, 4, 5]]

    def test_last_of_equal_rows_stays(self, memory, table):
        rows = memory.resolve(row_pattern(table, 3, 3), np.array([1, 3, 1]))
        memory.store_rows(rows, np.arange(9, dtype=np.float32).reshape(3, 3) + 100)
        assert memory.view(table.pattern()).tolist() == [[0, 1, 2], [106, 107, 108], [6, 7, 8], [103, 104, 105]]

    @pytest.mark.parametrize("index", [-1, 4])
    def test_a_row_out_of_bounds(self, memory, table, index):
        with pytest.raises(OutOfBoundsFault, match=re.escape(f"index {index} (number 1 of 3) into 'table'")) as caught:
            memory.resolve(row_pattern(table, 3, 3), np.array([0, index, 9]))
        assert caught.value.limit == "0 to 3"
        assert caught.value.target == "trn2, NeuronCore-v3"

    def test_a_row_that_reaches_beyond_the_table(self, memory, table):
        with pytest.raises(OutOfBoundsFault, match=r"index 4 reaches byte 59 of 'table' .4, 3. float32") as caught:
            memory.resolve(row_pattern(table, 1, 3, count=9), np.array([4]))
        assert caught.value.limit == "48 bytes"
        assert caught.value.target == "trn2, NeuronCore-v3"

    def test_rows_in_front_of_one_that_would_reach_beyond(self, memory, table):
        rows = memory.resolve(row_pattern(table, 2, 3, count=9), np.array([3, 0]))
        assert memory.load_rows(rows).tolist() == [[9, 10, 11, 0, 1, 2]]

    def test_rows_that_are_read_backwards(self, memory, table):
        """Elements of a row in falling order: its highest byte is the first one's."""
        dynamic = Dynamic(DynamicKind.VECTOR, INDEX, 3, 9)
        ap = AccessPattern(
            HBM, dtypes.float32, 8, ((3, 2), (-1, 3)), buffer=table.buffer, storage=table, dynamic=dynamic
        )
        assert memory.load_rows(memory.resolve(ap, np.array([3, 0]))).tolist() == [[11, 10, 9, 2, 1, 0]]
        with pytest.raises(OutOfBoundsFault, match="index 4 reaches byte 59"):
            memory.resolve(ap, np.array([4, 0]))

    def test_another_number_of_rows(self, memory, table):
        with pytest.raises(ConstraintFault, match="has 3 rows and 2 indices") as caught:
            memory.resolve(row_pattern(table, 3, 3), np.array([0, 1]))
        assert caught.value.limit == "one index per row of the outermost dimension"

    def test_rows_of_a_tile(self, memory, tile):
        dynamic = Dynamic(DynamicKind.VECTOR, INDEX, 2, 3)
        ap = AccessPattern(SBUF, dtypes.float32, 0, ((2, 2), (1, 2)), partitions=2, storage=tile, dynamic=dynamic)
        with pytest.raises(UnimplementedFault, match="one index per row of an on-chip operand"):
            memory.resolve(ap, np.array([0, 1]))

    def test_columns(self, memory, tile):
        columns = memory.resolve(column_pattern(tile, 3, 6), np.array([5, 0, 5]))
        assert isinstance(columns, Rows)
        assert memory.load_rows(columns).tolist() == [[5, 0, 5], [11, 6, 11]]
        assert memory.raw_rows(columns).tolist() == [[5, 0, 5], [11, 6, 11]]
        assert columns.nbytes == 2 * 3 * 4

    def test_last_of_equal_columns_stays(self, memory, tile):
        columns = memory.resolve(column_pattern(tile, 3, 6), np.array([1, 4, 1]))
        memory.store_rows(columns, np.array([[1, 2, 3], [4, 5, 6]], np.float32))
        assert memory.load(tile.pattern()).tolist() == [[0, 3, 2, 3, 2, 5], [6, 6, 8, 9, 5, 11]]

    def test_a_column_out_of_bounds(self, memory, tile):
        with pytest.raises(OutOfBoundsFault, match=re.escape("index 6 (number 1 of 2) into 'tile'")):
            memory.resolve(column_pattern(tile, 2, 6), np.array([0, 6]))

    @pytest.mark.parametrize("written", [True, False], ids=["written", "partly"])
    @pytest.mark.parametrize("access", [Memory.load_rows, Memory.raw_rows])
    def test_columns_that_reach_beyond_the_tile(self, memory, access, written):
        storage = memory.allocate(SBUF, (2, 6), dtypes.float32, name="tile")
        some = storage.pattern() if written else part(storage, 0, ((1, 3),))
        memory.store(some, np.zeros((2, some.elements), np.float32))
        columns = memory.resolve(column_pattern(storage, 1, 6, at=4), np.array([0]))
        with pytest.raises(OutOfBoundsFault, match="outside SBUF tensor 'tile'"):
            access(memory, columns)

    def test_scattered_columns_reset_accumulation(self, memory):
        storage = memory.allocate(PSUM, (2, 4), dtypes.float32)
        memory.psum_mark(storage.pattern())
        dynamic = Dynamic(DynamicKind.COLUMN, INDEX, 1, 4, 16)
        ap = AccessPattern(
            PSUM, dtypes.float32, storage.offset, ((0, 1),), partitions=2, storage=storage, dynamic=dynamic
        )
        memory.store_rows(memory.resolve(ap, np.array([2])), np.ones((2, 1), np.float32))
        assert memory.psum_fresh(storage.pattern()).tolist() == [[False, False, True, False]] * 2

    def test_rows_in_low_precision_kept_as_float32(self):
        memory = Memory(TRN2, precise=False)
        storage = memory.allocate_hbm((4, 2), dtypes.bfloat16)
        memory.store(storage.pattern(), np.arange(8, dtype=np.float32) + 2**-16)
        dynamic = Dynamic(DynamicKind.VECTOR, INDEX, 2, 4)
        ap = AccessPattern(
            HBM, dtypes.bfloat16, 0, ((2, 2), (1, 2)), buffer=storage.buffer, storage=storage, dynamic=dynamic
        )
        rows = memory.resolve(ap, np.array([3, 1]))
        assert memory.load_rows(rows).tolist() == [[6 + 2**-16, 7 + 2**-16, 2 + 2**-16, 3 + 2**-16]]
        memory.store_raw_rows(rows, np.array([[0x3F80, 0x3F80], [0xC000, 0xC000]], np.uint16))
        assert memory.load(storage.pattern())[0, 2:].tolist() == [-2, -2, 4 + 2**-16, 5 + 2**-16, 1, 1]


# --- accumulation in PSUM -----------------------------------------------------------------------------


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
