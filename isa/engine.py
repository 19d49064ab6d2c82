"""The agents that execute instructions."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Engine"]


class Engine(IntEnum):
    """Engines of a NeuronCore; the values are NKI's (``nki.isa.engine``) and part of the stored program format."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6

    @property
    def title(self) -> str:
        """The name used in reports, as in Neuron Explorer."""
        return {1: "Tensor", 2: "Scalar", 3: "GpSimd", 4: "DMA", 5: "Vector", 6: "Sync"}.get(int(self), "-")
