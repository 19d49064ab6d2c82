"""Written state: exact byte by byte against a table of booleans, and what reads of unwritten bytes do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa import dtypes
from isa.alu import ALU_OPS
from isa.faults import UninitializedReadFault
from isa.operands import AccessPattern, Dynamic, DynamicKind, Space
from isa.target import TRN2
from isa.vector import TensorScalar, TensorTensor
from isa.vector_move import TensorCopy
from memory_model.memory import Memory
from memory_model.shadow import FULL, PARTIAL, UNWRITTEN, Coverage, disjoint
from tests.memory_model.support import Footprint, inside, loose, make, part
from trn_sim.machine import Core, Options

SBUF, PSUM, HBM = Space.SBUF, Space.PSUM, Space.HBM
ROWS, START, BASE, NBYTES = 5, 32, 128, 48
"""The rectangle of the random tests: partitions, the first of them, first byte and bytes of each."""


class Table:
    """The reference: one boolean a byte, whole partitions."""

    def __init__(self) -> None:
        self.covered = np.zeros((128, 256), bool)

    def put(self, ap: AccessPattern, value: bool) -> None:
        spot = Footprint(ap)
        self.covered[spot.rows, spot.columns] = value

    def missing(self, ap: AccessPattern) -> np.ndarray:
        spot = Footprint(ap)
        return ~self.covered[spot.rows, spot.columns].all(axis=1).reshape(ap.shape)

    def uncovered(self, start: int, partitions: int, base: int, nbytes: int) -> int:
        return int((~self.covered[start : start + partitions, base : base + nbytes]).sum())


def inner(form: dict) -> AccessPattern:
    """A pattern of the random tests' rectangle."""
    place = {"start": START + form["start"], "partitions": form["partitions"], "step": form["step"]}
    return loose(SBUF, BASE + form["at"], form["pairs"], form["dtype"], **place)


WHOLE = {"dtype": dtypes.uint8, "at": 0, "pairs": ((1, NBYTES),), "start": 0, "partitions": ROWS, "step": 1}
HALVES = {"dtype": dtypes.uint16, "at": 0, "pairs": ((12, 2), (1, 12)), "start": 0, "partitions": ROWS, "step": 1}
COLUMNS = [{**WHOLE, "at": at, "pairs": ((4, NBYTES // 4),)} for at in range(4)]
TWICE = {**WHOLE, "pairs": ((0, 2), (1, NBYTES // 2))}
"""As many elements as the rectangle has bytes, and half of its bytes."""
SEVERAL = st.sampled_from([WHOLE, HALVES, TWICE, *COLUMNS])
FORMS = st.one_of(inside(NBYTES, ROWS), SEVERAL)
ACTIONS = st.lists(st.tuples(st.sampled_from(("add", "add", "add", "remove", "fill", "clear", "look")), FORMS))


def assert_same(coverage: Coverage, table: Table, ap: AccessPattern) -> None:
    missing = coverage.missing(ap)
    expected = table.missing(ap)
    if missing is None:
        assert not expected.any()
    else:
        np.testing.assert_array_equal(missing, expected)


@settings(max_examples=200, deadline=None)
@given(actions=ACTIONS, looks=st.lists(FORMS, min_size=1, max_size=4), granule=st.sampled_from((1, 2, 4)))
def test_own_map_against_a_table(actions, looks, granule):
    coverage, table = Coverage(START, ROWS, BASE, NBYTES, granule=granule), Table()
    everything = inner(WHOLE)
    for action, form in actions:
        ap = inner(form)
        if action == "look":
            assert_same(coverage, table, ap)
        elif action in ("fill", "clear"):
            getattr(coverage, action)()
            table.put(everything, action == "fill")
        else:
            getattr(coverage, action)(ap)
            table.put(ap, action == "add")
    for form in (*looks, WHOLE):
        assert_same(coverage, table, inner(form))
    left = table.uncovered(START, ROWS, BASE, NBYTES)
    assert coverage.uncovered() == left
    assert coverage.state == {0: FULL, ROWS * NBYTES: UNWRITTEN}.get(left, PARTIAL)


@settings(max_examples=100, deadline=None)
@given(actions=st.lists(st.tuples(st.integers(0, 1), st.sampled_from(("add", "add", "remove", "look")), FORMS)))
def test_shared_map_against_a_table(actions):
    """Two rectangles of the same bytes see what is done through the other."""
    shared, table = np.zeros((128, 256), bool), Table()
    twins = [Coverage(START, ROWS, BASE, NBYTES, shared=shared, monotone=False) for _ in range(2)]
    for which, action, form in actions:
        ap = inner(form)
        if action == "look":
            assert_same(twins[which], table, ap)
        else:
            getattr(twins[which], action)(ap)
            table.put(ap, action == "add")
    np.testing.assert_array_equal(shared, table.covered)
    for twin in twins:
        assert_same(twin, table, inner(WHOLE))
        assert twin.uncovered() == table.uncovered(START, ROWS, BASE, NBYTES)


@settings(max_examples=100, deadline=None)
@given(actions=st.lists(st.tuples(st.integers(0, 1), FORMS)), look=FORMS)
def test_overlapping_monotone_rectangles_against_a_table(actions, look):
    """As for tiles at the user's own addresses: they share half of their bytes, and nothing is uncovered."""
    shared, table = np.zeros((128, 256), bool), Table()
    rectangles = [Coverage(START, ROWS, BASE + at, NBYTES, shared=shared) for at in (0, NBYTES // 2)]
    for which, form in [*actions, (0, look), (1, look)]:
        ap = inner({**form, "at": form["at"] + which * NBYTES // 2})
        assert_same(rectangles[which], table, ap)
        rectangles[which].add(ap)
        table.put(ap, True)
        assert_same(rectangles[1 - which], table, inner({**WHOLE, "at": (1 - which) * NBYTES // 2}))


def test_as_many_elements_as_bytes_are_not_all_bytes():
    coverage = Coverage(START, ROWS, BASE, NBYTES)
    coverage.add(inner(TWICE))
    assert coverage.uncovered() == ROWS * NBYTES // 2
    assert coverage.state == PARTIAL


@pytest.mark.parametrize("granule", [2, 4])
def test_the_last_byte_counts_after_the_map_was_refined(granule):
    """Half of it in elements, the other half byte by byte."""
    coverage = Coverage(START, ROWS, BASE, NBYTES, granule=granule)
    coverage.add(inner({**WHOLE, "dtype": dtypes.float32, "pairs": ((1, NBYTES // 8),)}))
    rest = {**WHOLE, "at": NBYTES // 2, "pairs": ((2, NBYTES // 4),)}
    coverage.add(inner(rest))
    assert coverage.state == PARTIAL
    coverage.add(inner({**rest, "at": NBYTES // 2 + 1}))
    assert coverage.state == FULL


def test_bytes_that_are_no_whole_number_of_granules():
    coverage = Coverage(START, ROWS, BASE, 5, granule=2)
    coverage.add(inner({**WHOLE, "at": 4, "pairs": ((1, 1),)}))
    assert coverage.uncovered() == ROWS * 4


@given(form=inside(200))
def test_disjoint_is_never_wrong(form):
    """A sufficient condition: where it says so, no two elements share a byte."""
    ap = loose(HBM, form["at"], form["pairs"], form["dtype"])
    if disjoint(ap.pairs):
        assert len(Footprint(ap).bytes()) == ap.nbytes


@pytest.mark.parametrize("pairs", [((1, 8),), ((8, 4), (1, 8)), ((-1, 8),), ((1, 4), (4, 3)), ((0, 1), (1, 2)), ()])
def test_patterns_without_repeats_are_disjoint(pairs):
    assert disjoint(pairs)


@pytest.mark.parametrize("pairs", [((0, 2),), ((1, 4), (2, 4)), ((3, 2), (1, 4)), ((1, 2), (-1, 2))])
def test_patterns_with_repeats_are_not(pairs):
    assert not disjoint(pairs)


# --- through the memory -------------------------------------------------------------------------------


def ones(ap: AccessPattern) -> np.ndarray:
    return np.ones((ap.partitions, ap.elements), np.float32)


@pytest.fixture
def memory() -> Memory:
    return Memory(TRN2)


READS = {"load": Memory.load, "raw": Memory.raw, "check": Memory.check}
READERS = pytest.mark.parametrize("reader", READS.values(), ids=READS)
SPACES = pytest.mark.parametrize("space", [SBUF, PSUM, HBM], ids=lambda s: s.name)


@READERS
@SPACES
class TestReads:
    def test_of_a_new_tile(self, memory, space, reader):
        storage = make(memory, space, (4, 8), name="fresh")
        with pytest.raises(UninitializedReadFault, match="'fresh'"):
            reader(memory, storage.pattern())

    def test_of_a_written_tile(self, memory, space, reader):
        ap = make(memory, space, (4, 8)).pattern()
        memory.store(ap, ones(ap))
        reader(memory, ap)
        assert ap.storage.state == FULL

    def test_of_the_part_that_was_written(self, memory, space, reader):
        storage = make(memory, space, (4, 8))
        half = part(storage, 16, ((1, 4),))
        memory.store(half, ones(half))
        reader(memory, half)
        assert storage.state == PARTIAL

    def test_one_element_beyond_the_written_part(self, memory, space, reader):
        storage = make(memory, space, (4, 8))
        half = part(storage, 16, ((1, 4),))
        memory.store(half, ones(half))
        with pytest.raises(UninitializedReadFault):
            reader(memory, part(storage, 12, ((1, 4),)))

    def test_of_the_written_columns_of_a_stride(self, memory, space, reader):
        storage = make(memory, space, (4, 8))
        odd = part(storage, 4, ((2, 4),))
        memory.store(odd, ones(odd))
        reader(memory, part(storage, 12, ((2, 2),)))
        assert storage.state == PARTIAL

    def test_of_the_columns_between(self, memory, space, reader):
        storage = make(memory, space, (4, 8))
        odd = part(storage, 4, ((2, 4),))
        memory.store(odd, ones(odd))
        with pytest.raises(UninitializedReadFault):
            reader(memory, part(storage, 8, ((2, 2),)))

    def test_of_one_byte_that_is_missing(self, memory, space, reader):
        """The bytes of an element are tracked one by one."""
        storage = make(memory, space, (4, 8))
        total = 4 * 8 * 4 if space is HBM else 8 * 4
        most = part(storage, 1, ((1, total - 1),), dtype=dtypes.uint8)
        memory.store(most, ones(most))
        with pytest.raises(UninitializedReadFault, match=r"element \(0"):
            reader(memory, storage.pattern())

    def test_after_the_last_byte_came(self, memory, space, reader):
        storage = make(memory, space, (4, 8))
        total = 4 * 8 * 4 if space is HBM else 8 * 4
        for at, count in ((1, total - 1), (0, 1)):
            some = part(storage, at, ((1, count),), dtype=dtypes.uint8)
            memory.store(some, ones(some))
        reader(memory, storage.pattern())
        assert storage.state == FULL


@SPACES
def test_message_names_element_count_tensor_and_line(memory, space):
    storage = make(memory, space, (4, 6), name="acc", source=("kernel.py", 12))
    written = part(storage, 0, ((1, 6),), partitions=2)
    memory.store(written, ones(written))
    with pytest.raises(UninitializedReadFault) as caught:
        memory.load(storage.pattern())
    first, left = ("(1, 0)", 17) if space is HBM else ("(2, 0)", 11)
    assert f"element {first} of (4, 6) was never written, and {left} more of 24" in str(caught.value)
    assert f"{space.name} tensor 'acc' (4, 6) float32, allocated at kernel.py:12" in str(caught.value)
    assert caught.value.target == "trn2, NeuronCore-v3"
    assert caught.value.advice is not None


def test_partitions_are_tracked_one_by_one(memory):
    storage = memory.allocate(SBUF, (4, 8), dtypes.float32)
    some = part(storage, 0, ((1, 8),), start=1, partitions=2)
    memory.store(some, ones(some))
    memory.load(some)
    with pytest.raises(UninitializedReadFault, match=r"element \(0, 0\) of \(4, 8\) was never written, and 15 more"):
        memory.load(storage.pattern())


def test_every_other_partition(memory):
    storage = memory.allocate(SBUF, (4, 8), dtypes.float32)
    even = part(storage, 0, ((1, 8),), partitions=2, step=2)
    memory.store(even, ones(even))
    memory.load(even)
    with pytest.raises(UninitializedReadFault, match="and 7 more of 8"):
        memory.load(part(storage, 0, ((1, 8),), start=1, partitions=1))


def test_narrow_elements_in_a_wide_tile(memory):
    """A float32 tile seen as bfloat16: writing the upper halves alone is not writing the tile."""
    storage = memory.allocate(SBUF, (2, 4), dtypes.float32)
    upper = part(storage, 2, ((2, 4),), dtype=dtypes.bfloat16)
    memory.store(upper, ones(upper))
    memory.load(upper)
    with pytest.raises(UninitializedReadFault, match="and 7 more of 8"):
        memory.load(storage.pattern())


def test_read_in_reverse(memory):
    storage = memory.allocate(SBUF, (2, 8), dtypes.float32)
    tail = part(storage, 16, ((1, 4),))
    memory.store(tail, np.tile(np.arange(4, dtype=np.float32), (2, 1)))
    back = memory.load(part(storage, 28, ((-1, 4),)))
    assert back.tolist() == [[3, 2, 1, 0]] * 2
    with pytest.raises(UninitializedReadFault, match=r"element \(0, 4\) of \(2, 5\)"):
        memory.load(part(storage, 28, ((-1, 5),)))


def test_broadcast_read_reports_each_repeat(memory):
    storage = memory.allocate(SBUF, (2, 8), dtypes.float32)
    with pytest.raises(UninitializedReadFault, match="and 5 more of 6"):
        memory.load(part(storage, 0, ((0, 3),)))
    first = part(storage)
    memory.store(first, ones(first))
    assert memory.load(part(storage, 0, ((0, 3),))).tolist() == [[1, 1, 1]] * 2


def test_mark_counts_as_a_write(memory):
    storage = memory.allocate(SBUF, (2, 8), dtypes.float32)
    memory.view(storage.pattern())[...] = 3
    memory.mark(storage.pattern())
    assert memory.load(storage.pattern()).tolist() == [[3] * 8] * 2


def test_view_does_not_look_at_the_state(memory):
    storage = memory.allocate(SBUF, (2, 8), dtypes.float32)
    assert memory.view(storage.pattern()).shape == (2, 8)
    assert storage.state == UNWRITTEN


def test_store_raw_counts_as_a_write(memory):
    storage = memory.allocate(SBUF, (2, 8), dtypes.bfloat16)
    memory.store_raw(storage.pattern(), np.full((2, 8), 0x3F80, np.uint16))
    assert memory.load(storage.pattern()).tolist() == [[1] * 8] * 2


class TestLifetimes:
    def test_reused_bytes_start_unwritten(self, memory):
        size = TRN2.sbuf_bytes
        first = memory.allocate(SBUF, (2, size), dtypes.uint8)
        memory.store(first.pattern(), ones(first.pattern()))
        del first
        second = memory.allocate(SBUF, (2, size), dtypes.uint8)
        assert second.offset == 0
        with pytest.raises(UninitializedReadFault):
            memory.raw(second.pattern())

    def test_aliases_at_the_same_address_see_each_other(self, memory):
        a = memory.allocate(SBUF, (4, 8), dtypes.float32, address=(0, 1024))
        b = memory.allocate(SBUF, (4, 8), dtypes.float32, address=(0, 1040))
        head = part(a, 16, ((1, 4),))
        memory.store(head, ones(head))
        assert memory.load(part(b, 0, ((1, 4),))).tolist() == [[1] * 4] * 4
        with pytest.raises(UninitializedReadFault, match=r"element \(0, 4\)"):
            memory.load(b.pattern())

    def test_aliases_of_other_partitions_do_not(self, memory):
        a = memory.allocate(SBUF, (32, 8), dtypes.float32, address=(0, 1024))
        b = memory.allocate(SBUF, (32, 8), dtypes.float32, address=(32, 1024))
        memory.store(a.pattern(), ones(a.pattern()))
        with pytest.raises(UninitializedReadFault):
            memory.load(b.pattern())

    def test_own_address_after_its_bytes_were_another_tiles(self, memory):
        """What a tile at this address wrote is gone once an automatic tile had the bytes."""
        a = memory.allocate(SBUF, (4, 16), dtypes.float32, address=(0, 0))
        memory.store(a.pattern(), ones(a.pattern()))
        del a
        automatic = memory.allocate(SBUF, (4, 16), dtypes.float32)
        assert automatic.offset == 0
        del automatic
        b = memory.allocate(SBUF, (4, 16), dtypes.float32, address=(0, 0))
        with pytest.raises(UninitializedReadFault):
            memory.load(b.pattern())

    def test_own_address_keeps_what_an_earlier_tile_wrote_there(self, memory):
        a = memory.allocate(SBUF, (4, 16), dtypes.float32, address=(0, 0))
        memory.store(a.pattern(), ones(a.pattern()))
        del a
        b = memory.allocate(SBUF, (4, 16), dtypes.float32, address=(0, 0))
        assert memory.load(b.pattern()).tolist() == [[1] * 16] * 4


class TestHbm:
    def test_an_input_is_written_from_the_start(self, memory):
        storage = memory.bind(np.arange(6, dtype=np.float32).reshape(2, 3), dtypes.float32)
        assert memory.load(storage.pattern()).tolist() == [[0, 1, 2, 3, 4, 5]]

    def test_elements_of_an_output_that_were_never_written(self, memory):
        storage = memory.allocate_hbm((4, 6), dtypes.float32, kind="output")
        assert memory.unwritten_elements(storage) == 24
        some = part(storage, 8, ((6, 4), (1, 3)))
        memory.store(some, ones(some))
        assert memory.unwritten_elements(storage) == 12

    def test_an_element_counts_while_one_byte_is_missing(self, memory):
        storage = memory.allocate_hbm((2, 2), dtypes.float32, kind="output")
        most = part(storage, 0, ((1, 15),), dtype=dtypes.uint8)
        memory.store(most, ones(most))
        assert memory.unwritten_elements(storage) == 1

    def test_a_complete_output(self, memory):
        storage = memory.allocate_hbm((4, 6), dtypes.float32, kind="output")
        memory.store(storage.pattern(), ones(storage.pattern()))
        assert memory.unwritten_elements(storage) == 0

    @pytest.mark.parametrize("mode", ["error", "poison", "ignore"])
    def test_outputs_are_tracked_in_each_mode(self, mode):
        memory = Memory(TRN2, uninitialized=mode)
        storage = memory.allocate_hbm((4, 6), dtypes.float32, kind="output")
        row = part(storage, 0, ((1, 6),))
        memory.store(row, ones(row))
        assert memory.unwritten_elements(storage) == 18

    def rows(self, storage, index) -> AccessPattern:
        dynamic = Dynamic(DynamicKind.VECTOR, loose(SBUF, 0, dtype=dtypes.int32), 6, 4)
        return AccessPattern(
            HBM, dtypes.float32, 0, ((6, len(index)), (1, 6)), buffer=storage.buffer, storage=storage, dynamic=dynamic
        )

    @pytest.mark.parametrize("reader", [Memory.load_rows, Memory.raw_rows], ids=["load_rows", "raw_rows"])
    def test_gather_of_unwritten_rows(self, memory, reader):
        storage = memory.allocate_hbm((4, 6), dtypes.float32, name="table")
        two = part(storage, 24, ((1, 12),))
        memory.store(two, ones(two))
        rows = memory.resolve(self.rows(storage, [1, 3]), np.array([1, 3]))
        with pytest.raises(UninitializedReadFault, match=r"element \(1, 0\) of \(2, 6\) .* 5 more of 12.*'table'"):
            reader(memory, rows)

    @pytest.mark.parametrize("reader", [Memory.load_rows, Memory.raw_rows], ids=["load_rows", "raw_rows"])
    def test_gather_of_written_rows(self, memory, reader):
        storage = memory.allocate_hbm((4, 6), dtypes.float32)
        two = part(storage, 24, ((1, 12),))
        memory.store(two, ones(two))
        rows = memory.resolve(self.rows(storage, [2, 1]), np.array([2, 1]))
        assert reader(memory, rows).tolist() == [[1] * 12]

    @pytest.mark.parametrize("writer", [Memory.store_rows, Memory.store_raw_rows], ids=["store", "store_raw"])
    def test_scatter_writes_its_rows_alone(self, memory, writer):
        storage = memory.allocate_hbm((4, 6), dtypes.float32)
        rows = memory.resolve(self.rows(storage, [3, 0]), np.array([3, 0]))
        writer(memory, rows, np.ones((2, 6), np.float32))
        memory.load(part(storage, 72, ((1, 6),)))
        with pytest.raises(UninitializedReadFault):
            memory.load(part(storage, 24, ((1, 6),)))
        assert memory.unwritten_elements(storage) == 12


class TestModes:
    def test_poison_of_floats(self):
        memory = Memory(TRN2, uninitialized="poison")
        for dtype in (dtypes.float32, dtypes.bfloat16, dtypes.float16, dtypes.float8_e4m3):
            assert np.isnan(memory.load(memory.allocate(SBUF, (2, 4), dtype).pattern())).all()

    def test_poison_of_low_precision_floats_kept_as_float32(self):
        memory = Memory(TRN2, precise=False, uninitialized="poison")
        for dtype in (dtypes.float32, dtypes.bfloat16):
            assert np.isnan(memory.load(memory.allocate(SBUF, (2, 4), dtype).pattern())).all()

    def test_poison_of_integers(self):
        memory = Memory(TRN2, uninitialized="poison")
        assert memory.raw(memory.allocate(SBUF, (1, 3), dtypes.uint16).pattern()).tolist() == [[0xFFFF] * 3]
        assert memory.raw(memory.allocate(SBUF, (1, 3), dtypes.int32).pattern()).tolist() == [[-1] * 3]

    def test_poison_of_reused_bytes(self):
        memory = Memory(TRN2, uninitialized="poison")
        first = memory.allocate(SBUF, (128, TRN2.sbuf_bytes // 4), dtypes.float32)
        memory.view(first.pattern())[...] = 1
        del first
        second = memory.allocate(SBUF, (128, TRN2.sbuf_bytes // 4), dtypes.float32)
        assert np.isnan(memory.load(second.pattern())).all()

    def test_poison_of_hbm(self):
        memory = Memory(TRN2, uninitialized="poison")
        assert np.isnan(memory.load(memory.allocate_hbm((2, 4), dtypes.float32).pattern())).all()

    def test_ignore(self):
        memory = Memory(TRN2, uninitialized="ignore")
        assert memory.load(memory.allocate(SBUF, (2, 4), dtypes.float32).pattern()).tolist() == [[0] * 4] * 2

    def test_no_other_mode(self):
        with pytest.raises(ValueError, match="error, poison, ignore, not 'zero'"):
            Memory(TRN2, uninitialized="zero")

    def test_low_precision_floats_kept_as_float32(self):
        """The state knows chip bytes, not host bytes."""
        memory = Memory(TRN2, precise=False)
        storage = memory.allocate(SBUF, (2, 8), dtypes.bfloat16)
        odd = part(storage, 2, ((2, 4),))
        memory.store(odd, ones(odd))
        memory.load(odd)
        with pytest.raises(UninitializedReadFault, match="and 7 more of 16"):
            memory.load(storage.pattern())


# --- no operator hides it -----------------------------------------------------------------------------

ELEMENTWISE = [
    *((name, dtypes.float32) for name in ("maximum", "minimum", "multiply", "add")),
    *((name, dtypes.int32) for name in ("maximum", "add", "bitwise_and", "bitwise_or", "left_shift")),
    *((name, dtypes.uint8) for name in ("bitwise_and", "maximum")),
]


class TestNothingSwallowsIt:
    """A value would vanish in ``max(x, NaN)``, ``0 & x`` or an integer; the state is not a value and does not."""

    @pytest.fixture
    def core(self):
        return Core(Options(target=TRN2))

    def tiles(self, core, dtype):
        """A written tile of zeros, a tile of which one element is missing, a result; and the missing element."""
        known, holey, dst = (core.allocate(SBUF, (4, 8), dtype, name=name) for name in ("known", "holey", "dst"))
        zeros = np.zeros((4, 8), np.float32)
        core.memory.store(known.pattern(), zeros)
        most = part(holey, 0, ((1, 7),))
        core.memory.store(most, zeros[:, :7])
        last = part(holey, 7 * dtype.itemsize, start=0)
        return known.pattern(), holey.pattern(), dst.pattern(), last

    @pytest.mark.parametrize(("name", "dtype"), ELEMENTWISE)
    @pytest.mark.parametrize("side", ["data1", "data2"])
    def test_of_two_tiles(self, core, name, dtype, side):
        known, holey, dst, last = self.tiles(core, dtype)
        pair = {"data1": known, "data2": known} | {side: holey}
        with pytest.raises(UninitializedReadFault, match=r"element \(0, 7\) of \(4, 8\).*'holey'"):
            core.issue(TensorTensor(dst, **pair, op=ALU_OPS[name]))
        assert dst.storage.state == UNWRITTEN
        core.memory.store(last, np.zeros((4, 1), np.float32))
        core.issue(TensorTensor(dst, **pair, op=ALU_OPS[name]))
        assert core.peek(dst).tolist() == [[0] * 8] * 4

    @pytest.mark.parametrize(
        ("name", "dtype", "operand"),
        [("maximum", dtypes.float32, 0.0), ("multiply", dtypes.float32, 0.0), ("bitwise_and", dtypes.int32, 0)],
    )
    def test_of_a_tile_and_a_number(self, core, name, dtype, operand):
        _, holey, dst, last = self.tiles(core, dtype)
        with pytest.raises(UninitializedReadFault, match="'holey'"):
            core.issue(TensorScalar(dst, holey, ALU_OPS[name], operand))
        core.memory.store(last, np.zeros((4, 1), np.float32))
        core.issue(TensorScalar(dst, holey, ALU_OPS[name], operand))
        assert core.peek(dst).tolist() == [[0] * 8] * 4

    @pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int32, dtypes.uint8], ids=str)
    def test_of_a_copy(self, core, dtype):
        """Nor can it be laundered by a copy: the copy itself is the read."""
        _, holey, dst, last = self.tiles(core, dtype)
        with pytest.raises(UninitializedReadFault, match="'holey'") as caught:
            core.issue(TensorCopy(dst, holey))
        assert caught.value.instruction == "tensor_copy"
        core.memory.store(last, np.zeros((4, 1), np.float32))
        core.issue(TensorCopy(dst, holey))
        assert dst.storage.state == FULL
