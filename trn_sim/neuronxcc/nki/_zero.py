"""``nl.zeros`` in PSUM: no instruction where matmuls write first, as the compiler makes it, zeros where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np

from memory_model.shadow import FULL, UNWRITTEN
from trn_sim.neuronxcc.nki._tile import Tile
from trn_sim.nki import isa as nisa

__all__ = ["fill_missing", "holds_values"]


def fill_missing(tile: Tile) -> None:
    """Write zeros where nothing was written yet."""
    written = tile.storage.written
    if written.state == FULL:
        return
    absent = written.missing(tile.operand())
    if absent is None:
        return
    if absent.all():
        nisa.memset(tile, 0)
        return
    for box in _boxes(absent.reshape(tile.shape)):
        nisa.memset(tile.part(box), 0)


def _boxes(absent: Any) -> Any:
    from trn_sim.neuronxcc.nki._index import pieces

    return pieces(np.asarray(absent))


def holds_values(tile: Tile) -> bool:
    """True where something other than matmuls wrote into a PSUM tile: a matmul would overwrite that, not add to it.

    A tile at the kernel's own address begins empty: who wrote the bytes there is not known.
    """
    storage = tile.storage
    accumulated = storage.accumulated
    if storage.manual or storage.written.state == UNWRITTEN or accumulated is None:
        return False
    operand = tile.operand()
    fresh = accumulated.missing(operand)
    if fresh is None:
        return False
    absent = storage.written.missing(operand)
    return bool((fresh if absent is None else fresh & ~absent).any())
