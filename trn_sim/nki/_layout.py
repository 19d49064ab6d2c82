"""Arithmetic on shapes and strides (in elements): what the view methods of a tensor are made of.

Functions return None where a layout cannot be expressed; the tensor words the fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

__all__ = ["compact", "contiguous", "reshape", "row_major_strides"]

Ints = tuple[int, ...]


def row_major_strides(shape: Sequence[int]) -> Ints:
    """Strides of a dense array."""
    strides = []
    stride = 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))


def contiguous(shape: Ints, strides: Ints) -> bool:
    """True if the elements are neighbours in row-major order; dimensions of size 1 do not matter."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def compact(shape: Ints, strides: Ints) -> list[tuple[int, int]]:
    """(stride, count) pairs with the same elements in the same order, and as few pairs as possible."""
    pairs: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if pairs and pairs[-1][0] == stride * size:
            pairs[-1] = (stride, pairs[-1][1] * size)
        else:
            pairs.append((stride, size))
    return pairs or [(1, 1)]


def reshape(shape: Ints, strides: Ints, wanted: Ints) -> Ints | None:
    """Strides of the view of shape ``wanted`` (same number of elements), or None where only a copy would do."""
    pairs = compact(shape, strides)
    result: list[int] = []
    remaining = list(reversed(wanted))
    for stride, count in pairs:
        sizes: list[int] = []  # outermost first: the wanted dimensions that make up this run
        covered = 1
        while remaining and (covered < count or remaining[-1] == 1):
            sizes.append(remaining.pop())
            covered *= sizes[-1]
        if covered != count:
            return None
        inner = stride * count
        for size in sizes:
            inner //= size
            result.append(inner)
    result += [1] * len(remaining)
    return tuple(result) if prod(wanted) == prod(shape) else None
