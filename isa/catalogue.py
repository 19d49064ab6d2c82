"""Every instruction: importing this module declares them all."""

from __future__ import annotations

from isa import (  # noqa: F401
    collective,
    collective_variable,
    dma,
    dma_compute,
    gpsimd,
    gpsimd_search,
    mx,
    pair,
    random_state,
    scalar,
    sync,
    tensor,
    vector,
    vector_accumulate,
    vector_move,
    vector_random,
    vector_reduce,
    vector_scan,
    vector_search,
    vector_statistics,
)
from isa.instruction import INSTRUCTIONS

__all__ = ["INSTRUCTIONS"]
