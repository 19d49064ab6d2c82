"""Enumerations that instructions take as immediates, with NKI's members and values (``nki.isa``, 0.6)."""

from __future__ import annotations

from enum import IntEnum, StrEnum

__all__ = ["DgeMode", "DmaEngine", "MatmulPerfMode", "NcVersion", "OobMode", "ReduceCmd"]


class ReduceCmd(IntEnum):
    """What an instruction does to the accumulator registers of its engine."""

    idle = 0  # leave them alone (Scalar); contents undefined afterwards (Vector)
    reset = 1  # set to the start value of the operator
    reduce = 2  # combine with the present contents
    reset_reduce = 3  # reset, then combine
    load_reduce = 4  # start from a given value, then combine


class OobMode(IntEnum):
    """What a DMA does with a run-time index outside its tensor."""

    error = 0
    skip = 1


class DgeMode(IntEnum):
    """Who builds the descriptors of a DMA."""

    unknown = 0
    swdge = 1  # GpSimd Engine, at run time
    hwdge = 2  # hardware block beside the Sync and Scalar sequencers
    none = 3  # the host, before the kernel starts


class MatmulPerfMode(StrEnum):
    """Throughput modes of the Tensor Engine."""

    none = "none"
    double_row = "double_row"


class NcVersion(IntEnum):
    """Generations of the NeuronCore; kernels compare members and plain integers with each other."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class DmaEngine(IntEnum):
    """Which DMA moves data between the two cores of a pair."""

    dma = 1
    gpsimd_dma = 2
