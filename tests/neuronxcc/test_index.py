"""Index tiles and masks: what positions they mean, and how masks become boxes."""

import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.faults import ConstraintFault
from trn_sim.neuronxcc.nki._index import boxes


def covered(mask, shape):
    """How often each position is in one of the boxes."""
    counts = np.zeros(shape, int)
    for box in boxes(mask, shape):
        counts[tuple(slice(a, b) for a, b in box)] += 1
    return counts


def test_arange():
    np.testing.assert_array_equal(nl.arange(5).numpy(), np.arange(5))
    np.testing.assert_array_equal(nl.arange(2, 9, 3)[:, None].numpy(), np.arange(2, 9, 3)[:, None])
    np.testing.assert_array_equal(nl.arange(3)[None, :, None].numpy(), np.arange(3)[None, :, None])
    np.testing.assert_array_equal(nl.arange(3)[..., None].numpy(), np.arange(3)[:, None])


def test_arithmetic_is_that_of_numpy():
    p, f = nl.arange(4)[:, None], nl.arange(6)[None, :]
    a, b = np.arange(4)[:, None], np.arange(6)[None, :]
    for ours, theirs in [
        (3 * p + f - 1, 3 * a + b - 1),
        (5 - p * 2, 5 - a * 2),
        (-f, -b),
        (p * np.int64(7), a * 7),
        (4 * f // 2, 4 * b // 2),
        ((4 * f + 3) % 4, (4 * b + 3) % 4),
    ]:
        np.testing.assert_array_equal(np.broadcast_to(ours.numpy(), theirs.shape), theirs)


def test_mgrid():
    grid = nl.mgrid[0:4, 2:8:2]
    p, x = np.mgrid[0:4, 2:8:2]
    np.testing.assert_array_equal(grid.p.numpy(), p)
    np.testing.assert_array_equal(grid.x.numpy(), x)
    with pytest.raises(AttributeError, match="no axis 'y'"):
        _ = grid.y


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda i: i * i, "operator"),
        (lambda i: i // 3, "operator //"),
        (lambda i: i % 3, "operator %"),
        (lambda i: i[0], "indexed by"),
        (lambda i: bool(i), "truth value"),
        (lambda i: bool(i < 3), "join masks by '&'"),
        (lambda i: (i < 3) | (i > 5), r"\|"),
        (lambda i: nl.arange(0), "empty"),
        (lambda i: i + nl.arange(5), "sizes that are equal"),
        (lambda i: i.__setitem__(0, 1), "assigned to"),
    ],
)
def test_what_is_not_affine_is_refused(make, word):
    with pytest.raises(ConstraintFault) as refused:
        make(nl.arange(8))
    assert any(
        word.replace("\\", "") in str(text) for text in (refused.value, refused.value.limit, refused.value.advice)
    )


def test_mask_of_bounds_is_one_box():
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    assert boxes((p < 100) & (f >= 3) & (2 * f <= 20), (128, 512)) == [((0, 100), (3, 11))]
    assert boxes((p >= 0) & (f < 600), (128, 512)) == [((0, 128), (0, 512))]
    assert boxes((p < 5) & (p > 7), (128, 512)) == []
    assert boxes(~(p < 5) & True, (128, 512)) == [((5, 128), (0, 512))]


def test_mask_over_dense_index_tiles():
    p, k, _ = nl.mgrid[0:16, 0:3, 0:8]
    assert boxes((p + 4 < 10) & (k != 1), (16, 3, 8)) == [((0, 6), (0, 1), (0, 8)), ((0, 6), (2, 3), (0, 8))]


@given(
    st.integers(-3, 3), st.integers(-3, 3), st.integers(-9, 9), st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"])
)
def test_boxes_cover_the_mask_once(a, b, c, operator):
    index = a * nl.arange(6)[:, None] + b * nl.arange(7)[None, :] + c
    mask = getattr(index, f"__{operator}__")(0)
    values = np.broadcast_to(index.numpy(), (6, 7))
    np.testing.assert_array_equal(covered(mask, (6, 7)), getattr(values, f"__{operator}__")(0).astype(int))


def test_mask_of_other_positions_is_refused():
    with pytest.raises(ConstraintFault, match="positions"):
        boxes(nl.arange(64)[:, None] < 3, (128, 4))
