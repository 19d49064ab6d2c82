"""Hazards: hand-made cases, and random programs against two readings of the rules that are as slow as they are plain.

``documented`` keeps the last writer and all readers of each granule in a dictionary and gives the very edges.
``conflicts`` compares all pairs of instructions byte by byte; it knows nothing of granules or of edges left out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa import dtypes
from isa.engine import Engine
from isa.faults import InternalFault
from isa.operands import AccessPattern, Dynamic, DynamicKind, Space
from isa.program import Buffer, Program, Template
from isa.target import TARGETS, TRN1, TRN2
from isa.work import Work, WorkKind
from memory_model.hazards import EdgeKind, edges
from tests.memory_model.support import Footprint, inside, loose

RAW, WAR, WAW, EXPLICIT = EdgeKind.RAW, EdgeKind.WAR, EdgeKind.WAW, EdgeKind.EXPLICIT
HBM, SBUF, PSUM = Space.HBM, Space.SBUF, Space.PSUM
VECTOR, SCALAR, GPSIMD, TENSOR, DMA = Engine.vector, Engine.scalar, Engine.gpsimd, Engine.tensor, Engine.dma
OUT_OF_ORDER = (Engine.unknown, Engine.dma)
QUADRANT = 32


@dataclass
class Step:
    """One instruction: its engine and what it reads and writes."""

    engine: Engine
    reads: list[AccessPattern] = field(default_factory=list)
    writes: list[AccessPattern] = field(default_factory=list)

    def encode(self, out: Any) -> int:
        for pattern in (*self.reads, *self.writes):
            out.extend(pattern.words)
        return len(self.reads) + len(self.writes)


def record(steps: list[Step], target=TRN2, buffers: tuple[int, ...] = (), explicit=()) -> Program:
    """A program of these steps; ``buffers``: sizes of the HBM tensors."""
    program = Program(target)
    program.buffers = [Buffer(f"t{i}", i << 32, size, "internal") for i, size in enumerate(buffers)]
    numbers: dict[tuple[Engine, int, int], int] = {}
    for step in steps:
        reads, writes = len(step.reads), len(step.writes)
        number = numbers.get((step.engine, reads, writes))
        if number is None:
            number = numbers[step.engine, reads, writes] = len(program.templates)
            program.templates.append(
                Template(
                    opcode=32,
                    engine=step.engine,
                    queue=0,
                    work=Work(kind=WorkKind.CONTROL),
                    operands=reads + writes,
                    reads=(1 << reads) - 1,
                    writes=((1 << writes) - 1) << reads,
                    constants=(),
                    fields=tuple(f"operand{i}" for i in range(reads + writes)),
                    numbers=(),
                )
            )
        program.append(number, program.source_id("kernel.py", 1, "kernel"), step)
    program.edges = list(explicit)
    return program


def found(program: Program) -> dict[tuple[int, int], EdgeKind]:
    """The edges as {(consumer, producer): kind}."""
    result = edges(program)
    return {(i, p): kind for i in range(len(program)) for p, kind in result.of(i)}


def of(steps: list[Step], **how: Any) -> dict[tuple[int, int], EdgeKind]:
    return found(record(steps, **how))


def sbuf(offset: int, nbytes: int = 64, start: int = 0, partitions: int = 128, step: int = 1) -> AccessPattern:
    return loose(SBUF, offset, ((1, nbytes),), dtypes.uint8, start=start, partitions=partitions, step=step)


def psum(offset: int, nbytes: int = 64) -> AccessPattern:
    return loose(PSUM, offset, ((1, nbytes),), dtypes.uint8, partitions=128)


def hbm(buffer: int, offset: int, nbytes: int = 64) -> AccessPattern:
    return loose(HBM, offset, ((1, nbytes),), dtypes.uint8, buffer=buffer)


def register(number: int) -> AccessPattern:
    return loose(Space.REGISTER, 0, ((1, 1),), dtypes.int32, buffer=number)


def read(engine: Engine, *patterns: AccessPattern) -> Step:
    return Step(engine, reads=list(patterns))


def write(engine: Engine, *patterns: AccessPattern) -> Step:
    return Step(engine, writes=list(patterns))


# --- the oracles --------------------------------------------------------------------------------------


def granules(ap: AccessPattern, sizes: tuple[int, ...]) -> set[tuple[int, ...]]:
    """The granules of the module's documentation."""
    if ap.space is Space.REGISTER:
        return {(3, ap.buffer)}
    touched = Footprint(ap).bytes() if ap.dynamic is None else reached(ap, sizes)
    if ap.space is HBM:
        return {(0, ap.buffer, byte >> 6) for _, byte in touched}
    return {(int(ap.space), partition // QUADRANT, byte >> 2) for partition, byte in touched}


def reached(ap: AccessPattern, sizes: tuple[int, ...]) -> set[tuple[int, int]]:
    """From the lowest to the highest byte that a legal index can reach, gaps included."""
    dynamic = ap.dynamic
    assert dynamic is not None
    pairs = ap.pairs[1:] if dynamic.kind is DynamicKind.VECTOR else ap.pairs
    moved = ((dynamic.stride, dynamic.count), *pairs)
    ends = Footprint(loose(HBM, ap.offset, moved, ap.dtype)).columns
    limit = sizes[ap.buffer] if ap.space is HBM else getattr(TRN2, f"{ap.space.name.lower()}_bytes")
    columns = range(max(int(ends.min()), 0), min(int(ends.max()) + 1, limit))
    partitions = range(ap.start, ap.start + ap.partitions * ap.step, ap.step)
    return {(partition, column) for partition in partitions for column in columns}


def documented(steps: list[Step], sizes: tuple[int, ...] = (), explicit=()) -> dict[tuple[int, int], EdgeKind]:
    """The edges that the documentation of ``memory_model.hazards`` promises, granule by granule."""
    tracked = {ap.buffer for step in steps for ap in step.writes if ap.space is HBM}
    writer: dict[tuple[int, ...], int] = {}
    readers: dict[tuple[int, ...], list[int]] = {}
    result: dict[tuple[int, int], EdgeKind] = {}

    def add(consumer: int, producer: int, kind: EdgeKind) -> None:
        result[consumer, producer] = min(kind, result.get((consumer, producer), EXPLICIT))

    def cells(patterns: list[AccessPattern]) -> set[tuple[int, ...]]:
        kept = [ap for ap in patterns if ap.space is not HBM or ap.buffer in tracked]
        return set().union(*(granules(ap, sizes) for ap in kept))

    for i, step in enumerate(steps):
        for cell in cells(step.reads):
            if cell in writer:
                add(i, writer[cell], RAW)
            readers.setdefault(cell, []).append(i)
        for cell in cells(step.writes):
            since = readers.pop(cell, [])
            followed: set[Engine] = {step.engine} - set(OUT_OF_ORDER)
            for reader in reversed(since):
                engine = steps[reader].engine
                if reader != i and engine not in followed:
                    add(i, reader, WAR)
                if engine not in OUT_OF_ORDER:
                    followed.add(engine)
            if not since and cell in writer:
                same = steps[writer[cell]].engine is step.engine and step.engine not in OUT_OF_ORDER
                if not same:
                    add(i, writer[cell], WAW)
            writer[cell] = i
    for consumer, producer in explicit:
        add(consumer, producer, EXPLICIT)
    return result


def conflicts(steps: list[Step]) -> dict[tuple[int, int], EdgeKind]:
    """All pairs that share a byte of which one writes: {(later, earlier): strongest reason}."""

    def touched(patterns: list[AccessPattern]) -> set[tuple[int, ...]]:
        return {
            (int(ap.space), ap.buffer, *place)
            for ap in patterns
            for place in ([(0, 0)] if ap.space is Space.REGISTER else Footprint(ap).bytes())
        }

    reads, writes = [touched(s.reads) for s in steps], [touched(s.writes) for s in steps]
    result = {}
    for i in range(len(steps)):
        for p in range(i):
            if reads[i] & writes[p]:
                result[i, p] = RAW
            elif writes[i] & reads[p]:
                result[i, p] = WAR
            elif writes[i] & writes[p]:
                result[i, p] = WAW
    return result


def ordered_pairs(steps: list[Step], pairs: Any) -> set[tuple[int, int]]:
    """Transitive closure of ``pairs`` and of the order within each in-order engine."""
    before = [0] * len(steps)  # bit p of before[i]: p comes before i
    last: dict[Engine, int] = {}
    for i, step in enumerate(steps):
        producers = [p for c, p in pairs if c == i]
        if step.engine in last and step.engine not in OUT_OF_ORDER:
            producers.append(last[step.engine])
        for p in producers:
            before[i] |= before[p] | 1 << p
        last[step.engine] = i
    return {(i, p) for i in range(len(steps)) for p in range(i) if before[i] >> p & 1}


# --- random programs ----------------------------------------------------------------------------------

SIZES = (700, 320, 256)
WINDOW = 288  # bytes of SBUF and PSUM that random programs use: several blocks of 64, and a cut one


@st.composite
def accesses(draw: Any, run_time: bool) -> AccessPattern:
    space = draw(st.sampled_from((HBM, SBUF, SBUF, PSUM, Space.REGISTER)))
    if space is Space.REGISTER:
        return register(draw(st.integers(0, 2)))
    buffer = draw(st.integers(0, len(SIZES) - 1)) if space is HBM else 0
    room = SIZES[buffer] if space is HBM else WINDOW
    if draw(st.booleans()):  # dense and aligned, as tiles are
        size = draw(st.sampled_from((64, 128, 192, 256)))
        at = draw(st.integers(0, (room - size) // 32)) * 32
        form: dict[str, Any] = {"dtype": dtypes.bfloat16, "at": at, "pairs": ((1, size // 2),)}
        form |= {"start": draw(st.sampled_from((0, 32, 64, 96))), "partitions": draw(st.sampled_from((1, 32)))}
        form |= {"step": 1}
    else:
        form = draw(inside(room, 128 if space.on_chip else 1))
    dynamic = None
    if run_time and draw(st.integers(0, 3)) == 0 and form["pairs"]:
        kind = draw(st.sampled_from((DynamicKind.SCALAR, DynamicKind.VECTOR)))
        dynamic = Dynamic(kind, register(0), draw(st.integers(-40, 40)), draw(st.integers(1, 30)))
    place = {"start": form["start"], "partitions": form["partitions"], "step": form["step"]} if space.on_chip else {}
    return AccessPattern(space, form["dtype"], form["at"], form["pairs"], buffer=buffer, dynamic=dynamic, **place)


def programs(run_time: bool = False) -> Any:
    some = st.lists(accesses(run_time), max_size=2)
    return st.lists(st.builds(Step, st.sampled_from(tuple(Engine)), some, some), max_size=24)


@settings(max_examples=150, deadline=None)
@given(steps=programs(run_time=True), data=st.data())
def test_random_programs_have_the_documented_edges(steps, data):
    pairs = st.tuples(st.integers(0, 23), st.integers(0, 23)).filter(lambda p: p[1] < p[0] < len(steps))
    explicit = data.draw(st.lists(pairs, max_size=3)) if len(steps) > 1 else []
    program = record(steps, buffers=SIZES, explicit=explicit)
    assert found(program) == documented(steps, SIZES, explicit)


@settings(max_examples=100, deadline=None)
@given(steps=programs())
def test_every_conflict_of_a_random_program_is_ordered(steps):
    """The least there has to be: bytes in common and a write, by brute force, are ordered by edges and engines."""
    order = ordered_pairs(steps, of(steps, buffers=SIZES))
    assert set(conflicts(steps)) - order == set()


@st.composite
def whole_granules(draw: Any) -> list[Step]:
    """Programs whose accesses are whole granules and whole quadrants, where bytes and granules say the same."""

    def access() -> AccessPattern:
        space = draw(st.sampled_from((HBM, SBUF, PSUM)))
        if space is HBM:
            return hbm(draw(st.integers(0, 1)), 64 * draw(st.integers(0, 3)), 64 * draw(st.integers(1, 2)))
        pairs = ((draw(st.sampled_from((1, 3, 16))), draw(st.integers(1, 20))),)
        first = draw(st.integers(0, 3))
        wide = draw(st.integers(1, 4 - first))
        return loose(space, 4 * draw(st.integers(0, 40)), pairs, start=QUADRANT * first, partitions=QUADRANT * wide)

    engines = st.sampled_from((VECTOR, SCALAR, TENSOR, DMA))
    count = draw(st.integers(2, 16))
    steps = []
    for _ in range(count):
        reads = [access() for _ in range(draw(st.integers(0, 2)))]
        steps.append(Step(draw(engines), reads, [access() for _ in range(draw(st.integers(0, 1)))]))
    return steps


@settings(max_examples=60, deadline=None)
@given(steps=whole_granules())
def test_edges_order_exactly_the_conflicts(steps):
    """Where accesses are whole granules, edges and brute force have the same transitive closure: nothing is missing,
    and nothing is ordered without a reason."""
    assert ordered_pairs(steps, of(steps, buffers=(512, 512))) == ordered_pairs(steps, conflicts(steps))


# --- one case each ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [(write, read, RAW), (read, write, WAR), (write, write, WAW)],
    ids=["raw", "war", "waw"],
)
@pytest.mark.parametrize("place", [sbuf, psum, lambda at: hbm(0, at)], ids=["sbuf", "psum", "hbm"])
class TestKinds:
    def test_same_bytes(self, first, second, kind, place):
        assert of([first(VECTOR, place(128)), second(SCALAR, place(128))], buffers=(512,)) == {(1, 0): kind}

    def test_bytes_next_to_them(self, first, second, kind, place):
        assert of([first(VECTOR, place(128)), second(SCALAR, place(192))], buffers=(512,)) == {}


def test_reads_do_not_wait_for_reads():
    assert of([read(VECTOR, sbuf(0)), read(SCALAR, sbuf(0))]) == {}


def test_spaces_do_not_share_bytes():
    assert of([write(VECTOR, sbuf(0)), write(SCALAR, psum(0)), write(GPSIMD, hbm(0, 0))], buffers=(64,)) == {}


def test_buffers_do_not_share_bytes():
    assert of([write(DMA, hbm(0, 0)), write(DMA, hbm(1, 0))], buffers=(64, 64)) == {}


def test_registers_are_exact():
    steps = [write(VECTOR, register(0)), write(VECTOR, register(1)), read(SCALAR, register(1))]
    assert of(steps) == {(2, 1): RAW}


def test_register_numbers_beyond_16_bits():
    steps = [write(VECTOR, register(3)), write(VECTOR, register(65536 + 3)), read(SCALAR, register(65536 + 3))]
    assert of(steps) == {(2, 1): RAW}


class TestExactness:
    """What counts as the same place, from both sides."""

    def test_bytes_of_one_granule(self):
        assert of([write(VECTOR, sbuf(0, 2)), read(SCALAR, sbuf(2, 2))]) == {(1, 0): RAW}

    def test_bytes_of_neighbouring_granules(self):
        assert of([write(VECTOR, sbuf(0, 4)), read(SCALAR, sbuf(4, 2))]) == {}

    def test_partitions_of_one_quadrant(self):
        steps = [write(VECTOR, sbuf(0, partitions=1)), read(SCALAR, sbuf(0, start=31, partitions=1))]
        assert of(steps) == {(1, 0): RAW}

    def test_partitions_of_neighbouring_quadrants(self):
        steps = [write(VECTOR, sbuf(0, partitions=32)), read(SCALAR, sbuf(0, start=32, partitions=32))]
        assert of(steps) == {}

    def test_step_into_a_quadrant(self):
        steps = [write(DMA, sbuf(0, partitions=2, step=96)), read(SCALAR, sbuf(0, start=96, partitions=32))]
        assert of(steps) == {(1, 0): RAW}

    def test_step_over_a_quadrant(self):
        steps = [write(DMA, sbuf(0, partitions=2, step=96)), read(SCALAR, sbuf(0, start=32, partitions=64))]
        assert of(steps) == {}

    def test_columns_between_strided_columns(self):
        even = loose(SBUF, 0, ((2, 8),), partitions=128)
        odd = loose(SBUF, 4, ((2, 8),), partitions=128)
        assert of([write(VECTOR, even), write(SCALAR, odd)]) == {}

    def test_strided_columns(self):
        even = loose(SBUF, 0, ((2, 8),), partitions=128)
        assert of([write(VECTOR, even), write(SCALAR, loose(SBUF, 24, ((2, 2),), partitions=128))]) == {(1, 0): WAW}

    def test_strides_downwards(self):
        down = loose(SBUF, 28, ((-1, 8),), partitions=128)
        assert of([write(VECTOR, down), read(SCALAR, sbuf(0, 4)), read(GPSIMD, sbuf(32, 4))]) == {(1, 0): RAW}

    def test_one_line_of_hbm(self):
        assert of([write(DMA, hbm(0, 0, 4)), read(DMA, hbm(0, 60, 4))], buffers=(128,)) == {(1, 0): RAW}

    def test_neighbouring_lines_of_hbm(self):
        assert of([write(DMA, hbm(0, 0, 64)), read(DMA, hbm(0, 64, 4))], buffers=(128,)) == {}

    @pytest.mark.parametrize(("written", "line"), [(1 << 28, 64), ((1 << 28) + 1, 128), (1 << 29, 128)])
    def test_lines_grow_beyond_256_mib_of_written_hbm(self, written, line):
        steps = [write(DMA, hbm(0, 0, 4)), read(DMA, hbm(0, line - 4, 4)), read(DMA, hbm(0, line, 4))]
        assert of(steps, buffers=(written,)) == {(1, 0): RAW}

    def test_last_byte_of_the_largest_buffer_with_lines_of_64_bytes(self):
        end = hbm(0, (1 << 28) - 1, 1)
        assert of([write(DMA, end), read(DMA, end)], buffers=(1 << 28,)) == {(1, 0): RAW}

    def test_lines_do_not_grow_for_hbm_that_is_only_read(self):
        steps = [write(DMA, hbm(0, 0)), read(DMA, hbm(0, 64)), read(DMA, hbm(1, 0))]
        assert of(steps, buffers=(1 << 12, 1 << 29)) == {}

    def test_offsets_beyond_31_bits(self):
        high = 1 << 33
        steps = [write(DMA, hbm(0, high)), write(DMA, hbm(0, 0)), read(DMA, hbm(0, high))]
        assert of(steps, buffers=(high + 64,)) == {(2, 0): RAW}

    @pytest.mark.parametrize("target", TARGETS.values(), ids=str)
    def test_last_byte_of_each_memory(self, target):
        ends = [sbuf(target.sbuf_bytes - 4, 4, start=96, partitions=32), psum(target.psum_bytes - 4, 4)]
        steps = [write(VECTOR, ends[0]), write(VECTOR, ends[1]), read(SCALAR, ends[0]), read(SCALAR, ends[1])]
        assert of(steps, target=target) == {(2, 0): RAW, (3, 1): RAW}

    def test_an_empty_pattern_touches_nothing(self):
        empty = loose(SBUF, 0, ((1, 0),), partitions=128)
        assert of([write(VECTOR, sbuf(0)), read(SCALAR, empty), write(GPSIMD, empty)]) == {}


class TestLeftOut:
    """Edges that others imply, and their twins that have to stay."""

    def test_war_within_an_engine(self):
        assert of([read(VECTOR, sbuf(0)), write(VECTOR, sbuf(0))]) == {}

    def test_waw_within_an_engine(self):
        assert of([write(VECTOR, sbuf(0)), write(VECTOR, sbuf(0))]) == {}

    def test_raw_within_an_engine_stays(self):
        assert of([write(VECTOR, sbuf(0)), read(VECTOR, sbuf(0))]) == {(1, 0): RAW}

    @pytest.mark.parametrize(("first", "kind"), [(read, WAR), (write, WAW)])
    @pytest.mark.parametrize("engine", OUT_OF_ORDER)
    def test_war_and_waw_between_dma_transfers_stay(self, engine, first, kind):
        assert of([first(engine, sbuf(0)), write(engine, sbuf(0))]) == {(1, 0): kind}

    def test_war_to_a_reader_that_another_of_its_engine_follows(self):
        steps = [read(VECTOR, sbuf(0)), read(VECTOR, sbuf(0)), write(SCALAR, sbuf(0))]
        assert of(steps) == {(2, 1): WAR}

    def test_war_to_readers_of_different_engines(self):
        steps = [read(VECTOR, sbuf(0)), read(GPSIMD, sbuf(0)), write(SCALAR, sbuf(0))]
        assert of(steps) == {(2, 0): WAR, (2, 1): WAR}

    def test_war_to_all_reading_dma_transfers(self):
        steps = [read(DMA, sbuf(0)), read(DMA, sbuf(0)), write(SCALAR, sbuf(0))]
        assert of(steps) == {(2, 0): WAR, (2, 1): WAR}

    @pytest.mark.parametrize("between", [0, 7, 8, 9, 20])
    def test_followed_reader_behind_many_dma_transfers(self, between):
        """The search for an earlier reader of the engine gives up at some depth; the edges are the same."""
        transfers = [read(DMA, sbuf(0)) for _ in range(between)]
        steps = [read(VECTOR, sbuf(0)), *transfers, read(VECTOR, sbuf(0)), write(SCALAR, sbuf(0))]
        assert of(steps) == {(len(steps) - 1, p): WAR for p in range(1, len(steps) - 1)}

    def test_waw_after_a_reader(self):
        steps = [write(VECTOR, sbuf(0)), read(GPSIMD, sbuf(0)), write(SCALAR, sbuf(0))]
        assert of(steps) == {(1, 0): RAW, (2, 1): WAR}

    def test_waw_beside_the_bytes_that_were_read(self):
        steps = [write(VECTOR, sbuf(0, 128)), read(GPSIMD, sbuf(0, 64)), write(SCALAR, sbuf(0, 128))]
        assert of(steps) == {(1, 0): RAW, (2, 0): WAW, (2, 1): WAR}

    def test_only_the_last_writer_counts(self):
        steps = [write(VECTOR, sbuf(0)), write(SCALAR, sbuf(0)), read(GPSIMD, sbuf(0))]
        assert of(steps) == {(1, 0): WAW, (2, 1): RAW}

    def test_reads_of_a_partly_overwritten_tile_wait_for_both_writers(self):
        steps = [write(VECTOR, sbuf(0, 256)), write(SCALAR, sbuf(100, 20)), read(GPSIMD, sbuf(0, 256))]
        assert of(steps) == {(1, 0): WAW, (2, 0): RAW, (2, 1): RAW}

    def test_hbm_that_nothing_writes(self):
        assert of([read(DMA, hbm(0, 0)), read(DMA, hbm(0, 0))], buffers=(64,)) == {}


def test_an_instruction_does_not_wait_for_itself():
    assert of([Step(VECTOR, [sbuf(0)], [sbuf(0)]), Step(DMA, [sbuf(64)], [sbuf(64), sbuf(64)])]) == {}


def test_update_in_place_waits_for_the_writer_once():
    steps = [write(DMA, sbuf(0)), Step(VECTOR, [sbuf(0), sbuf(0)], [sbuf(0)])]
    assert of(steps) == {(1, 0): RAW}


def test_two_reasons_keep_the_smaller():
    steps = [Step(SCALAR, [sbuf(0)], [sbuf(64)]), Step(VECTOR, [sbuf(64)], [sbuf(0)])]
    assert of(steps) == {(1, 0): RAW}


class TestExplicit:
    steps = (read(VECTOR, sbuf(0)), read(SCALAR, sbuf(64)), read(GPSIMD, sbuf(128)))

    def test_stated_edges_appear(self):
        assert of(list(self.steps), explicit=[(2, 0), (1, 0)]) == {(1, 0): EXPLICIT, (2, 0): EXPLICIT}

    def test_no_stated_edges(self):
        assert of(list(self.steps)) == {}

    def test_stated_twice(self):
        assert of(list(self.steps), explicit=[(2, 1), (2, 1)]) == {(2, 1): EXPLICIT}

    def test_stated_where_bytes_say_so_already(self):
        assert of([write(VECTOR, sbuf(0)), read(SCALAR, sbuf(0))], explicit=[(1, 0)]) == {(1, 0): RAW}

    @pytest.mark.parametrize("edge", [(0, 1), (1, 1), (3, 0), (1, -1)], ids=["later", "itself", "beyond", "negative"])
    def test_impossible_edges_are_refused(self, edge):
        program = record(list(self.steps), explicit=[edge])
        with pytest.raises(InternalFault, match="does not point to an earlier instruction"):
            edges(program)


class TestRunTimeAddresses:
    def scalar(self, space: Space, stride: int, count: int, **place: Any) -> AccessPattern:
        dynamic = Dynamic(DynamicKind.SCALAR, register(0), stride, count)
        return AccessPattern(space, dtypes.float32, 0, ((1, 16),), dynamic=dynamic, **place)

    def test_all_that_the_index_can_reach(self):
        tile = self.scalar(SBUF, 16, 4, partitions=128)
        assert of([write(VECTOR, tile), read(SCALAR, sbuf(192))]) == {(1, 0): RAW}

    def test_nothing_beyond(self):
        tile = self.scalar(SBUF, 16, 4, partitions=128)
        assert of([write(VECTOR, tile), read(SCALAR, sbuf(256))]) == {}

    def test_clipped_to_the_buffer(self):
        steps = [write(DMA, self.scalar(HBM, 16, 1000)), read(DMA, hbm(0, 448)), read(DMA, hbm(1, 0))]
        assert of(steps, buffers=(512, 512)) == {(1, 0): RAW}

    def test_scattered_rows(self):
        dynamic = Dynamic(DynamicKind.VECTOR, sbuf(0, 16), 16, 8)
        rows = AccessPattern(HBM, dtypes.float32, 0, ((16, 4), (1, 16)), dynamic=dynamic)
        steps = [write(DMA, rows), read(DMA, hbm(0, 7 * 64)), read(DMA, hbm(0, 8 * 64))]
        assert of(steps, buffers=(1024,)) == {(1, 0): RAW}

    def test_scattered_columns(self):
        dynamic = Dynamic(DynamicKind.COLUMN, sbuf(4096, 4), 1, 32, 16)
        columns = AccessPattern(SBUF, dtypes.float32, 0, ((0, 4),), partitions=128, dynamic=dynamic)
        steps = [write(VECTOR, columns), read(SCALAR, sbuf(124, 4)), read(GPSIMD, sbuf(128, 4))]
        assert of(steps) == {(1, 0): RAW}


# --- the arrays ---------------------------------------------------------------------------------------


def loop(tiles: int, width: int = 2048) -> list[Step]:
    """A double-buffered tile loop: load, compute on three engines, store; ``width`` bytes per partition."""
    steps = []
    for i in range(tiles):
        a, b, c = (sbuf(4096 * k + 2048 * (i % 2), width) for k in range(3))
        acc = psum(2048 * (i % 8), width)
        steps += [
            Step(DMA, [hbm(0, 2048 * (i % 64), width)], [a]),
            Step(TENSOR, [a], [acc]),
            Step(SCALAR, [acc], [b]),
            Step(VECTOR, [b, a], [c]),
            Step(DMA, [c], [hbm(1, 2048 * (i % 64), width)]),
        ]
    return steps


def test_an_empty_program():
    result = edges(Program(TRN2))
    assert result.start.tolist() == [0]
    assert len(result) == 0


def test_arrays_have_the_dtypes_of_the_contract():
    result = edges(record(loop(3), buffers=(1 << 17, 1 << 17)))
    assert result.start.dtype == np.int32
    assert result.producer.dtype == np.int32
    assert result.kind.dtype == np.int8


def test_rows_are_complete_and_sorted():
    program = record(loop(3), buffers=(1 << 17, 1 << 17))
    result = edges(program)
    assert len(result.start) == len(program) + 1
    assert result.start[-1] == len(result)
    assert (np.diff(result.start) >= 0).all()


def test_nbytes_counts_the_three_arrays():
    result = edges(record([write(VECTOR, sbuf(0)), read(SCALAR, sbuf(0))]))
    assert result.nbytes == 3 * 4 + 4 + 1


def test_of_sorts_by_producer():
    steps = [write(VECTOR, sbuf(0)), write(SCALAR, sbuf(64)), read(GPSIMD, sbuf(64), sbuf(0))]
    assert edges(record(steps)).of(2) == [(0, RAW), (1, RAW)]


def test_same_program_same_arrays():
    first, second = (edges(record(loop(40), buffers=(1 << 17, 1 << 17))) for _ in range(2))
    assert first.producer.tobytes() == second.producer.tobytes()
    assert first.start.tobytes() == second.start.tobytes()
    assert first.kind.tobytes() == second.kind.tobytes()


def test_a_stored_program_has_the_same_edges(tmp_path: Path):
    program = record(loop(20), buffers=(1 << 17, 1 << 17), explicit=[(7, 2)])
    program.save(tmp_path / "program.npz")
    assert found(Program.load(tmp_path / "program.npz")) == found(program)


def test_a_tile_loop_against_the_documented_rule():
    steps = loop(12, 96)
    assert of(steps, buffers=(1 << 17, 1 << 17)) == documented(steps, (1 << 17, 1 << 17))


def test_generation_sets_the_size_of_sbuf():
    beyond = sbuf(TRN1.sbuf_bytes, 4)
    steps = [write(VECTOR, beyond), read(SCALAR, beyond)]
    assert of(steps, target=TRN2) == {(1, 0): RAW}
    assert of(steps, target=TRN1) == {}  # cut off: such a program cannot have run


def test_edges_grow_with_the_program():
    """A steady loop has 11 edges per iteration, however long it runs: the load waits for the readers of its tile on two
    engines (2), the matmul for load and accumulator (2), the activation for its input and output (2), the sum for two
    inputs and the store of its output (3), the store for the sum and for the store to the same rows (2)."""
    counts = [len(edges(record(loop(tiles), buffers=(1 << 17, 1 << 17)))) for tiles in (200, 300, 400)]
    assert [b - a for a, b in pairwise(counts)] == [1100, 1100]


def readers_then_writers(n: int) -> list[Step]:
    """The worst case for lists of readers: four engines read a tile n times, then its granules are written one by
    one.  Each write meets the list; it has to have stayed short."""
    engines = (VECTOR, SCALAR, GPSIMD, TENSOR)
    tile = sbuf(0, 4 * 8000, partitions=32)
    reads = [read(engines[i % 4], tile) for i in range(n)]
    return [write(DMA, tile), *reads, *(write(DMA, sbuf(4 * i, 4, partitions=32)) for i in range(n))]


@pytest.mark.parametrize("make", [loop, readers_then_writers])
def test_time_is_linear(make):
    """Eight times the program takes some eight times the processor time; a pass over all pairs would take 64."""

    def seconds(size: int) -> float:
        program = record(make(size), buffers=(1 << 17, 1 << 17))
        edges(program)
        taken = []
        for _ in range(3):
            start = time.process_time()
            edges(program)
            taken.append(time.process_time() - start)
        return min(taken)

    assert seconds(8000) < 30 * seconds(1000)
