"""The launch grid of the kernel that runs on this thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["grid", "inside_no_reorder", "launch", "no_reorder_region"]


class _State(threading.local):
    grid: tuple[int, ...] = ()
    no_reorder: int = 0


_state = _State()


def grid() -> tuple[int, ...]:
    """Sizes of the launch grid; () for a kernel that was launched without one."""
    return _state.grid


@contextmanager
def launch(sizes: tuple[int, ...]) -> Iterator[None]:
    """Inside, :func:`grid` is ``sizes``."""
    before = _state.grid, _state.no_reorder
    _state.grid, _state.no_reorder = sizes, 0
    try:
        yield
    finally:
        _state.grid, _state.no_reorder = before


def inside_no_reorder() -> bool:
    """True in the body of ``with nl.no_reorder()``."""
    return _state.no_reorder > 0


@contextmanager
def no_reorder_region() -> Iterator[None]:
    """Inside, :func:`inside_no_reorder` is true."""
    _state.no_reorder += 1
    try:
        yield
    finally:
        _state.no_reorder -= 1
