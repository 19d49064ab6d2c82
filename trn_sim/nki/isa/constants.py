"""Enumerations of ``nki.isa``."""

from __future__ import annotations

from isa.engine import Engine
from isa.enums import DgeMode, DmaEngine, MatmulPerfMode, NcVersion, OobMode, ReduceCmd

__all__ = ["dge_mode", "dma_engine", "engine", "matmul_perf_mode", "nc_version", "oob_mode", "reduce_cmd"]

engine = Engine
dge_mode = DgeMode
dma_engine = DmaEngine
matmul_perf_mode = MatmulPerfMode
nc_version = NcVersion
oob_mode = OobMode
reduce_cmd = ReduceCmd
