"""``nki.isa``: one function per instruction, generated from the declarations in the package ``isa``.

Signatures are those of NKI 0.6.  Every function needs a running kernel, checks its operands for the present
generation, records and executes the instruction, and returns an :class:`NkiInstruction`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from isa.catalogue import INSTRUCTIONS
from isa.faults import ConstraintFault as NkiValidationError
from isa.faults import UnimplementedFault
from isa.sync import RegisterLoad, RegisterMove, RegisterStore
from isa.target import resolve_target
from trn_sim.machine import current_core
from trn_sim.nki._support import OldNameFault, located, running_core
from trn_sim.nki.isa import constants
from trn_sim.nki.isa._convert import scalar_operand, tensor_operand
from trn_sim.nki.isa._generate import NkiInstruction, function
from trn_sim.nki.isa._transpose import nc_transpose
from trn_sim.nki.isa.constants import (
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from trn_sim.nki.register import VirtualRegister

_FUNCTIONS = (
    "activate2", "activation", "activation_reduce", "affine_select", "bn_aggr", "bn_stats", "core_barrier",
    "dma_compute", "dma_copy", "dma_transpose", "dropout", "exponential", "iota", "local_gather", "max8", "memset",
    "nc_find_index8", "nc_match_replace8", "nc_matmul", "nc_matmul_mx", "nc_n_gather", "nc_stream_shuffle",
    "nonzero_with_count", "quantize_mx", "rand2", "rand_get_state", "rand_set_state", "range_select", "reciprocal",
    "rng", "scalar_tensor_tensor", "select_reduce", "sendrecv", "sequence_bounds", "set_rng_seed", "tensor_copy",
    "tensor_copy_predicated", "tensor_partition_reduce", "tensor_reduce", "tensor_scalar", "tensor_scalar_cumulative",
    "tensor_scalar_reduce", "tensor_tensor", "tensor_tensor_scan", "topk",
)  # fmt: skip
"""The generated functions: those of NKI 0.6 that are written out nowhere here."""

_OLD = {
    "builtin_custom_op": "custom code for the GpSimd Engine cannot run here",
    "tensor_copy_dynamic_dst": "use tensor_copy with dst.select(dim, index) or dst.ap(..., scalar_offset=index)",
    "tensor_copy_dynamic_src": "use tensor_copy with src.select(dim, index) or src.ap(..., scalar_offset=index)",
}

__all__ = [
    "NkiInstruction", "NkiValidationError", "VirtualRegister", "constants", "dge_mode", "dma_engine", "engine",
    "get_nc_sub_version", "get_nc_version", "gpsimd_engine", "matmul_perf_mode", "nc_transpose", "nc_version",
    "oob_mode", "reduce_cmd", "register_alloc", "register_load", "register_move", "register_store", "scalar_engine",
    "tensor_engine", "unknown_engine", "vector_engine", *_FUNCTIONS,
]  # fmt: skip

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown


def _missing(mnemonic: str) -> Any:
    def unbuilt(*_: Any, **__: Any) -> NoReturn:
        raise located(
            UnimplementedFault(
                f"nki.isa.{mnemonic} exists in NKI, but not in trn-sim yet",
                instruction=mnemonic,
                target=str(current_core().target),
            )
        )

    unbuilt.__name__ = unbuilt.__qualname__ = mnemonic
    unbuilt.__doc__ = f"{mnemonic}: not built yet."
    return unbuilt


_classes = {cls.mnemonic: cls for cls in INSTRUCTIONS.values()}
for _mnemonic in _FUNCTIONS:
    _cls = _classes.get(_mnemonic)
    globals()[_mnemonic] = _missing(_mnemonic) if _cls is None else function(_cls)


# --- host ---------------------------------------------------------------------------------------------


def get_nc_version() -> nc_version:
    """The generation of the target: of the running kernel, else the one the environment names."""
    core = running_core()
    return nc_version((resolve_target() if core is None else core.target).generation)


def get_nc_sub_version() -> int:
    """The silicon revision: 0, the only one modelled."""
    return 0


# --- registers ----------------------------------------------------------------------------------------


def register_alloc(x: Any = None) -> VirtualRegister:
    """A new register holding the integer ``x`` (undefined for None; 0 here)."""
    register = VirtualRegister()
    if x is not None:
        register_move(register, x)
    return register


def _writable(dst: Any, instruction: str) -> Any:
    if isinstance(dst, VirtualRegister) and dst.frozen:
        raise AssertionError(f"{instruction}: loop variables cannot be written; copy it into a register of your own")
    return tensor_operand(dst, instruction, "dst")


def register_move(dst: VirtualRegister, src: Any) -> None:
    """dst = src, an integer or a register."""
    src = scalar_operand(src, "register_move", "src")
    current_core().issue(RegisterMove(_writable(dst, "register_move"), src))


def register_load(dst: VirtualRegister, src: Any) -> None:
    """dst = the one element of ``src``, in SBUF or HBM."""
    src = tensor_operand(src, "register_load", "src")
    current_core().issue(RegisterLoad(_writable(dst, "register_load"), src))


def register_store(dst: Any, src: VirtualRegister) -> None:
    """The one element of ``dst`` = src."""
    dst = tensor_operand(dst, "register_store", "dst")
    current_core().issue(RegisterStore(dst, tensor_operand(src, "register_store", "src")))


def __getattr__(name: str) -> Any:
    if name in _OLD:
        raise located(
            OldNameFault(
                f"nki.isa.{name} belongs to the old namespace neuronxcc.nki (NKI 0.1 to 0.3)", advice=_OLD[name]
            )
        )
    raise AttributeError(f"module 'nki.isa' has no attribute '{name}'")
