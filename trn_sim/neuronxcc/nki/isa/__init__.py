"""``neuronxcc.nki.isa`` (NKI 0.1): instructions that return their result, with ``mask`` and ``dtype``."""

from __future__ import annotations

from typing import Any, NoReturn

from isa import dtypes
from isa.faults import UnimplementedFault
from trn_sim.neuronxcc.nki.isa._functions import columns, gathered, into_destination, returning
from trn_sim.neuronxcc.nki.isa._special import (
    affine_select,
    dma_copy,
    dma_transpose,
    iota,
    memset,
    nc_matmul,
    nc_transpose,
    tensor_copy_dynamic_dst,
    tensor_copy_dynamic_src,
    tensor_partition_reduce,
    tensor_reduce,
    tensor_scalar_cumulative,
)
from trn_sim.nki._support import located
from trn_sim.nki.isa import (
    constants,
    dge_mode,
    dma_engine,
    engine,
    get_nc_sub_version,
    get_nc_version,
    gpsimd_engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
    scalar_engine,
    tensor_engine,
    unknown_engine,
    vector_engine,
)

__all__ = [
    "activation", "activation_reduce", "affine_select", "bn_aggr", "bn_stats", "builtin_custom_op", "constants",
    "dge_mode", "dma_copy", "dma_engine", "dma_transpose", "dropout", "engine", "get_nc_sub_version", "get_nc_version",
    "gpsimd_engine", "iota", "local_gather", "matmul_perf_mode", "max8", "memset", "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul", "nc_stream_shuffle", "nc_transpose", "nc_version", "oob_mode", "range_select", "reciprocal",
    "reduce_cmd", "scalar_engine", "scalar_tensor_tensor", "select_reduce", "sequence_bounds", "tensor_copy",
    "tensor_copy_dynamic_dst", "tensor_copy_dynamic_src", "tensor_copy_predicated", "tensor_engine",
    "tensor_partition_reduce", "tensor_reduce", "tensor_scalar", "tensor_scalar_cumulative", "tensor_scalar_reduce",
    "tensor_tensor", "tensor_tensor_scan", "unknown_engine", "vector_engine",
]  # fmt: skip

activation = returning("activation")
activation_reduce = returning("activation_reduce")
bn_aggr = returning("bn_aggr", columns(2))
bn_stats = returning("bn_stats", columns(6))
dropout = returning("dropout")
local_gather = returning("local_gather", gathered)
max8 = returning("max8", columns(8, "src"))
nc_find_index8 = returning("nc_find_index8", columns(8), dtypes.uint32)
nc_match_replace8 = returning("nc_match_replace8", lambda bound: bound["data"].shape)
range_select = returning("range_select")
reciprocal = returning("reciprocal", hints=("engine",))
scalar_tensor_tensor = returning("scalar_tensor_tensor")
sequence_bounds = returning(
    "sequence_bounds", lambda bound: (bound["segment_ids"].shape[0], 2, bound["segment_ids"].shape[1])
)
tensor_copy = returning("tensor_copy")
tensor_scalar = returning("tensor_scalar")
tensor_scalar_reduce = returning("tensor_scalar_reduce")
tensor_tensor = returning("tensor_tensor")
tensor_tensor_scan = returning("tensor_tensor_scan")

nc_stream_shuffle = into_destination("nc_stream_shuffle", "src", "dst")
select_reduce = into_destination("select_reduce", "dst")
tensor_copy_predicated = into_destination("tensor_copy_predicated", "src", "dst")


def builtin_custom_op(function_name: str, *_: Any, **__: Any) -> NoReturn:
    """Custom code for the GpSimd Engine: not built yet."""
    raise located(
        UnimplementedFault(
            f"custom GpSimd code '{function_name}' cannot run here: it is a library for the chip's processors",
            instruction="builtin_custom_op",
            advice="express it with instructions of nki.isa",
        )
    )
