"""Access patterns: shapes, byte ranges, words and their decoding."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa import dtypes
from isa.operands import AccessPattern, Dynamic, DynamicKind, Space, decode_words, start_partition_allowed

PAIRS = st.lists(st.tuples(st.integers(-4096, 4096), st.integers(1, 512)), max_size=5).map(tuple)
INDEX = AccessPattern(Space.SBUF, dtypes.int32, 64, ((1, 1),), partitions=16)


@st.composite
def patterns(draw: Any) -> AccessPattern:
    """Any pattern of any memory, with or without a run-time part."""
    space = draw(st.sampled_from([Space.HBM, Space.SBUF, Space.PSUM, Space.REGISTER]))
    where: dict[str, Any] = {}
    offset = draw(st.integers(0, 2**40 if space is Space.HBM else 2**18))
    if not space.on_chip:
        where["buffer"] = draw(st.integers(0, 2**31 - 1))
    else:
        where["start"] = draw(st.integers(0, 127))
        where["partitions"] = draw(st.integers(1, 128))
    if space.on_chip:
        where["step"] = draw(st.integers(1, 127))
    if draw(st.booleans()):
        kind = draw(st.sampled_from(DynamicKind))
        where["dynamic"] = Dynamic(kind, INDEX, draw(st.integers(0, 2**30)), draw(st.integers(1, 2**30)))
    return AccessPattern(space, draw(st.sampled_from(dtypes.ALL)), offset, draw(PAIRS), **where)


def facts(pattern: AccessPattern) -> tuple[Any, ...]:
    """What a pattern's words have to preserve."""
    dynamic = pattern.dynamic
    return (
        pattern.space, pattern.dtype, pattern.offset, pattern.pairs, pattern.start, pattern.partitions, pattern.step,
        pattern.buffer, None if dynamic is None else (dynamic.kind, dynamic.stride, dynamic.count),
    )  # fmt: skip


def tile(shape: tuple[int, ...] = (4, 6), dtype: Any = dtypes.float32, **where: Any) -> AccessPattern:
    pairs, stride = [], 1
    for count in reversed(shape[1:]):
        pairs.insert(0, (stride, count))
        stride *= count
    return AccessPattern(Space.SBUF, dtype, where.pop("offset", 0), tuple(pairs), partitions=shape[0], **where)


@given(st.lists(patterns(), min_size=1, max_size=4))
def test_words_round_trip(operands: list[AccessPattern]) -> None:
    words = array("i")
    for operand in operands:
        words.extend(operand.words)
    at = 0
    for operand in operands:
        decoded, at = decode_words(words, at)
        assert facts(decoded) == facts(operand)
    assert at == len(words)


@given(patterns(), st.integers(0, 2**20), st.integers(0, 50))
def test_shape_id_ignores_offset_and_buffer(operand: AccessPattern, offset: int, buffer: int) -> None:
    moved = AccessPattern(
        operand.space,
        operand.dtype,
        offset,
        operand.pairs,
        start=operand.start,
        partitions=operand.partitions,
        step=operand.step,
        buffer=buffer,
        dynamic=operand.dynamic,
    )
    assert moved.shape_id == operand.shape_id


@given(patterns(), patterns())
def test_shape_id_tells_everything_else_apart(a: AccessPattern, b: AccessPattern) -> None:
    def shape(operand: AccessPattern) -> tuple[Any, ...]:
        kept = facts(operand)
        return (*kept[:2], *kept[3:7], None if kept[8] is None else kept[8][:2])

    assert (a.shape_id == b.shape_id) == (shape(a) == shape(b))


@pytest.mark.parametrize(
    "change",
    [{"dtype": dtypes.int32}, {"shape": (4, 7)}, {"shape": (5, 6)}, {"shape": (4, 3, 2)}, {"start": 32}, {"step": 2},
     {"dynamic": Dynamic(DynamicKind.SCALAR, INDEX, 6, 3)}],
)  # fmt: skip
def test_shape_id_sees_each_part(change: dict[str, Any]) -> None:
    assert tile(**change).shape_id != tile().shape_id


def test_shape_and_sizes() -> None:
    operand = tile((4, 3, 5), dtypes.bfloat16)
    assert operand.shape == (4, 3, 5)
    assert operand.elements == 15
    assert operand.nbytes == 4 * 15 * 2
    hbm = AccessPattern(Space.HBM, dtypes.float32, 16, ((10, 4), (1, 5)), buffer=3)
    assert hbm.shape == (4, 5)
    assert hbm.nbytes == 80


def test_byte_range() -> None:
    assert tile((4, 3, 5), offset=100).extent == (100, 100 + 15 * 4)
    gaps = AccessPattern(Space.SBUF, dtypes.bfloat16, 8, ((16, 3), (2, 4)), partitions=1)
    assert gaps.extent == (8, 8 + (2 * 16 + 3 * 2 + 1) * 2)


def test_extent_of_negative_strides():
    back = AccessPattern(Space.SBUF, dtypes.float32, 400, ((-10, 4), (2, 3)), partitions=2)
    assert back.extent == (400 - 30 * 4, 400 + (2 * 2 + 1) * 4)
    empty = AccessPattern(Space.SBUF, dtypes.float32, 400, ((-10, 0),), partitions=2)
    assert empty.extent == (400, 400)


@pytest.mark.parametrize(
    ("pairs", "run", "stride"),
    [
        (((1, 8),), 16, 2),
        (((8, 3), (1, 8)), 48, 2),
        (((9, 3), (1, 8)), 16, 2),
        (((1, 8), (1, 1)), 16, 2),
        (((2, 8),), 2, 4),
        (((0, 8),), 2, 0),
        (((1, 1),), 2, 2),
        ((), 2, 2),
    ],
)
def test_runs_and_innermost_stride(pairs: tuple[tuple[int, int], ...], run: int, stride: int) -> None:
    operand = AccessPattern(Space.SBUF, dtypes.bfloat16, 0, pairs, partitions=4)
    assert operand.contiguous_run == run
    assert operand.innermost_stride_bytes == stride


def test_text() -> None:
    assert str(tile((4, 6), offset=64, start=32)) == "sbuf[32:36]+0x40{[1,6]} float32 4x6"
    assert str(tile((4, 6), step=2)) == "sbuf[0:8:2]+0x0{[1,6]} float32 4x6"
    hbm = AccessPattern(Space.HBM, dtypes.bfloat16, 16, ((10, 4), (1, 5)), buffer=3)
    assert str(hbm) == "hbm3+0x10{[10,4],[1,5]} bfloat16 4x5"
    register = AccessPattern(Space.REGISTER, dtypes.int32, 0, ((1, 1),), buffer=7)
    assert str(register) == "r7"
    dynamic = tile((4, 6), dynamic=Dynamic(DynamicKind.SCALAR, register, 6, 3))
    assert str(dynamic) == "sbuf[0:4]+0x0{[1,6]} float32 4x6 @scalar(r7)*6"


@given(st.integers(0, 127), st.integers(1, 128))
def test_start_partitions(start: int, partitions: int) -> None:
    """Stated as the tile must not leave a run of quadrants that starts at a multiple of its own size."""
    quadrants = {1: 1, 2: 2, 3: 4, 4: 4}[-(-partitions // 32)]
    expected = start % 32 == 0 and (start // 32) % quadrants == 0
    assert start_partition_allowed(start, partitions) is expected
