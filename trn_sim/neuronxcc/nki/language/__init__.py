"""``neuronxcc.nki.language`` (NKI 0.1): index tiles, tensors with blocks, functions that return tiles."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from trn_sim.neuronxcc.nki._index import arange, mgrid
from trn_sim.neuronxcc.nki._tile import Tile
from trn_sim.neuronxcc.nki.language import constants, control, reductions, tensors
from trn_sim.neuronxcc.nki.language.control import *  # noqa: F403
from trn_sim.neuronxcc.nki.language.elementwise import FUNCTIONS, loop_reduce
from trn_sim.neuronxcc.nki.language.reductions import *  # noqa: F403
from trn_sim.neuronxcc.nki.language.tensors import *  # noqa: F403
from trn_sim.nki.language import (
    MemoryRegion,
    bfloat16,
    bool_,
    ds,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    hbm,
    int8,
    int16,
    int32,
    no_reorder,
    private_hbm,
    psum,
    sbuf,
    shared_hbm,
    tfloat32,
    tile_size,
    uint8,
    uint16,
    uint32,
)
from trn_sim.nki.tensor import dtype_of

globals().update(FUNCTIONS)

__all__ = [
    "MemoryRegion", "Tile", "arange", "atomic_rmw", "bfloat16", "bfp16", "bool_", "constants", "ds", "finfo",
    "float8_e4m3",
    "float8_e5m2",
    "float16", "float32", "fp32", "hbm", "int8", "int16", "int32", "loop_reduce", "mgrid", "no_reorder", "private_hbm",
    "psum", "sbuf", "shared_hbm", "static_cast", "tfloat32", "tile_size", "uint8", "uint16", "uint32",
    *control.__all__, *FUNCTIONS, *reductions.__all__, *tensors.__all__,
]  # fmt: skip

finfo = ml_dtypes.finfo
fp32 = np.finfo(np.float32)
bfp16 = ml_dtypes.finfo(ml_dtypes.bfloat16)


def static_cast(array: Any, dtype: Any) -> npt.NDArray[Any]:
    """An array of the host in another dtype."""
    return np.asarray(array).astype(dtype_of(dtype).numpy)


def atomic_rmw(dst: Tile, value: Tile, op: Any, *, mask: Any = None) -> None:
    """HBM view ``dst`` = dst op value by DMA; instances of the grid run one after the other, so it is atomic."""
    from trn_sim.neuronxcc.nki.isa import dma_copy

    dma_copy(dst=dst, src=value, mask=mask, dst_rmw_op=op)
