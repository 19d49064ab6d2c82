"""Run-time addresses: one index, gathered and scattered rows, and columns; their bounds."""

from __future__ import annotations

import re

import numpy as np
import pytest

from isa import dtypes
from isa.faults import ConstraintFault, OutOfBoundsFault, UnimplementedFault
from isa.operands import AccessPattern, Dynamic, DynamicKind, Space
from isa.target import TRN2
from memory_model.gather import Rows
from memory_model.memory import Memory
from tests.memory_model.support import loose, part

SBUF, PSUM, HBM = Space.SBUF, Space.PSUM, Space.HBM


@pytest.fixture
def memory() -> Memory:
    return Memory(TRN2)


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

    def test_a_read_only_array_is_not_scattered_into(self, memory):
        array = np.zeros((4, 3), np.float32)
        array.flags.writeable = False
        storage = memory.bind(array, dtypes.float32, name="x")
        rows = memory.resolve(row_pattern(storage, 1, 3), np.array([2]))
        with pytest.raises(ConstraintFault, match="read-only"):
            memory.store_rows(rows, np.ones((1, 3), np.float32))
        assert not array.any()
