"""``nl.tile_size``: sizes of the hardware that kernels tile by."""

from __future__ import annotations

import os

from isa.target import Target, resolve_target
from trn_sim.nki._support import running_core
from trn_sim.nki.objects import NKIObject

__all__ = ["TileSize", "tile_size"]


def _target() -> Target:
    core = running_core()
    return resolve_target() if core is None else core.target


class TileSize(NKIObject):
    """Sizes of the target: of the running kernel, else the one the environment names.

    ``psum_min_align`` and ``sbuf_min_align`` are not published; 4 and 1 bytes are what access patterns need.
    """

    pmax = 128  # partitions
    psum_fmax = 512  # deprecated name of psum_bank_fmax
    psum_bank_fmax = 512  # float32 elements of a bank in a partition
    psum_bank_fmax_bytes = 2048
    gemm_stationary_fmax = 128
    gemm_moving_fmax = 512
    bn_stats_fmax = 512
    psum_min_align = 4
    sbuf_min_align = 1

    @property
    def psum_num_banks(self) -> int:
        """Usable PSUM banks; the mode that transposes by the Tensor Engine instead of DMA keeps one for itself."""
        reserved = os.environ.get("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "").lower() == "true"
        return _target().psum_banks - int(reserved)

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF, all partitions."""
        target = _target()
        return target.sbuf_bytes * target.partitions

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Bytes of a partition of SBUF."""
        return _target().sbuf_bytes

    @property
    def sbuf_fmax(self) -> int:
        """float32 elements of a partition of SBUF."""
        return _target().sbuf_bytes // 4

    @property
    def total_available_sbuf_size(self) -> int:
        """Bytes of a partition of SBUF; NKI's deprecated name for them."""
        return _target().sbuf_bytes


tile_size = TileSize()
