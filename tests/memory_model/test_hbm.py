"""HBM: the caller's arrays in place, copies where that cannot be, and cores beside each other."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from isa import dtypes
from isa.faults import ConstraintFault, OutOfBoundsFault
from isa.operands import Space
from isa.target import TRN2
from memory_model.memory import Memory
from tests.memory_model.support import loose, part

SBUF, PSUM, HBM = Space.SBUF, Space.PSUM, Space.HBM


@pytest.fixture
def memory() -> Memory:
    return Memory(TRN2)


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
