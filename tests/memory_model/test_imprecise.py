"""Low-precision floats kept in float32 (``precise=False``): values, addresses, and the bits that are not there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa import dtypes
from isa.faults import UnimplementedFault
from isa.operands import Space
from isa.target import TRN2
from memory_model.memory import Memory
from tests.memory_model.support import Footprint, inside, loose, make, part

SBUF, PSUM, HBM = Space.SBUF, Space.PSUM, Space.HBM
SPACES = pytest.mark.parametrize("space", [SBUF, PSUM, HBM], ids=lambda s: s.name)
ROWS = 6
_IMPRECISE = Memory(TRN2, precise=False)


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
