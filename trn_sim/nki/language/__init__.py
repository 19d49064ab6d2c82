"""``nki.language`` (0.6): tensors, element-wise functions, reductions, loops, dtypes and memory regions.

Functions issue the instructions that do their work; see the module of each.  Most names are operators of instructions
too (``op=nl.add``).
"""

from __future__ import annotations

from typing import Any

from isa.dtypes import DType
from trn_sim.nki._support import OldNameFault, located
from trn_sim.nki.language import composites, control, dtypes, elementwise, reductions, tensors
from trn_sim.nki.language.composites import *  # noqa: F403
from trn_sim.nki.language.control import *  # noqa: F403
from trn_sim.nki.language.dtypes import *  # noqa: F403
from trn_sim.nki.language.elementwise import *  # noqa: F403
from trn_sim.nki.language.reductions import *  # noqa: F403
from trn_sim.nki.language.tensors import *  # noqa: F403
from trn_sim.nki.language.tile_size import tile_size
from trn_sim.nki.objects import NKIObject
from trn_sim.nki.regions import MemoryRegion, is_hbm, is_on_chip, is_psum, is_sbuf
from trn_sim.nki.tensor import NkiTensor

__all__ = [
    "DType", "MemoryRegion", "NKIObject", "NkiTensor", "hbm", "is_hbm", "is_on_chip", "is_psum", "is_sbuf",
    "private_hbm", "psum", "sbuf", "shared_hbm", "tile_size", *composites.__all__, *control.__all__, *dtypes.__all__,
    *elementwise.__all__, *reductions.__all__, *tensors.__all__,
]  # fmt: skip

sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm
hbm = private_hbm

_OLD = {
    "all_reduce": "use nki.collectives",
    "arange": "index with slices: tile[0:128, start:stop]",
    "atomic_rmw": "use nisa.dma_compute",
    "bfp16": "use the values of numpy and ml_dtypes, e.g. ml_dtypes.finfo(ml_dtypes.bfloat16)",
    "fp32": "use numpy.finfo(numpy.float32)",
    "loop_reduce": "accumulate in PSUM with nisa.nc_matmul, or with nisa.tensor_tensor",
    "mgrid": "index with slices: tile[0:128, start:stop]",
    "nc": "launch with kernel[2](...)",
    "par_dim": "the first size of an on-chip shape is the partition",
    "spmd_dim": "launch with kernel[1](...) or kernel[2](...), and loop inside the kernel",
    "static_cast": "convert on the host with array.astype",
}


def __getattr__(name: str) -> Any:
    if name in _OLD:
        raise located(
            OldNameFault(f"nki.language.{name} belongs to the old namespace neuronxcc.nki (NKI 0.1)", advice=_OLD[name])
        )
    raise AttributeError(f"module 'nki.language' has no attribute '{name}'")
