"""The XORWOW generator against a scalar transcription of the published recurrence."""

from __future__ import annotations

import numpy as np
import pytest

from isa.engine import Engine
from isa.random import LANES, Generator

MASK = 0xFFFFFFFF


def xorwow(state: list[int], count: int) -> tuple[list[int], list[int]]:
    """Marsaglia's five-word xorshift with counter, one step at a time."""
    x, y, z, w, v, d = state
    out = []
    for _ in range(count):
        t = x ^ (x >> 2)
        x, y, z, w = y, z, w, v
        v = (v ^ (v << 4) ^ t ^ (t << 1)) & MASK
        d = (d + 362437) & MASK
        out.append((d + v) & MASK)
    return out, [x, y, z, w, v, d]


def test_published_first_values() -> None:
    """The constants of Marsaglia's paper as state; the first output worked out by hand.

    t = 123456789 ^ (123456789 >> 2) = 0x075BCD15 ^ 0x01D6F345 = 0x068D3E50; v = 5783321 = 0x00583F19;
    v' = v ^ (v << 4) ^ t ^ (t << 1) and the counter 6615241 + 362437.
    """
    t, v = 0x068D3E50, 0x00583F19
    first = ((v ^ (v << 4) ^ t ^ (t << 1)) + 6615241 + 362437) & MASK
    generator = Generator()
    generator.set_state(np.array([[123456789, 362436069, 521288629, 88675123, 5783321, 6615241]], np.uint32))
    assert generator.bits((1, 1))[0, 0] == first


def test_every_lane_follows_the_recurrence() -> None:
    generator = Generator(7)
    before = generator.get_state()
    drawn = generator.bits((LANES, 3, 5)).reshape(LANES, -1)
    after = generator.get_state()
    for lane in (0, 31, 127):
        values, state = xorwow([int(word) for word in before[lane]], 15)
        assert drawn[lane].tolist() == values
        assert after[lane].tolist() == state


def test_four_streams_draw_in_turn() -> None:
    generator = Generator.of(Engine.vector, 3)
    assert generator.columns == 24
    state = generator.get_state(2)
    drawn = generator.bits((2, 10))
    for stream in range(4):
        values, _ = xorwow([int(word) for word in state[1, 6 * stream : 6 * stream + 6]], 3)
        assert drawn[1, stream::4].tolist() == values[: len(drawn[1, stream::4])]


def test_lanes_are_independent_of_their_neighbours() -> None:
    wide, narrow = Generator(5), Generator(5)
    expected = wide.bits((128, 4))
    assert np.array_equal(narrow.bits((32, 4), start=64), expected[64:96])


def test_seed_repeats_and_differs() -> None:
    first, again, other = Generator(1), Generator(2), Generator(2)
    again.seed(1)
    assert np.array_equal(first.bits((128, 8)), again.bits((128, 8)))
    assert not np.array_equal(Generator(1).bits((128, 8)), other.bits((128, 8)))
    states = Generator.of(Engine.vector).get_state().reshape(-1, 6)
    assert len({tuple(state) for state in states.tolist()}) == 512


def test_state_round_trip() -> None:
    generator = Generator(9)
    generator.bits((128, 17))
    saved = generator.get_state(64, start=32)
    expected = generator.bits((64, 20), start=32)
    generator.set_state(saved, start=32)
    assert np.array_equal(generator.bits((64, 20), start=32), expected)


def test_state_of_another_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="6 words a lane"):
        Generator().set_state(np.zeros((128, 24), np.uint32))
    with pytest.raises(ValueError, match="lanes 120 to 151"):
        Generator().get_state(32, start=120)


def test_uniform_is_in_range_and_flat() -> None:
    values = Generator(11).uniform((128, 512))
    assert values.dtype == np.float32
    assert 0 <= values.min() <= values.max() < 1
    counts = np.histogram(values, bins=16, range=(0, 1))[0]
    expected = values.size / 16
    assert ((counts - expected) ** 2 / expected).sum() < 40  # chi-square, 15 degrees of freedom: p < 0.001
