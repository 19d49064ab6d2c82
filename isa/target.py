"""The generations of the chip: sizes, limits and legality.  Rates are in ``perf_model/rates``.

Sources: the architecture guides of NeuronCore-v2, -v3 and -v4 and the documented operand limits of each
instruction in the AWS Neuron SDK documentation (2026-08).  ``sbuf_bytes`` is the architectural size per partition.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["TARGETS", "TRN1", "TRN2", "TRN3", "Target", "resolve_target"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One generation of NeuronCore.  Sizes in bytes are per partition unless said otherwise."""

    name: str
    core: str
    generation: int
    sbuf_bytes: int
    hbm_bytes: int  # of one chip, in all
    neuron_cores: int  # physical cores of one chip
    partitions: int = 128
    psum_banks: int = 8
    psum_bank_bytes: int = 2048
    max_free_dims: int = 4
    matmul_rows: int = 128  # contraction: partitions of both inputs
    matmul_stationary_columns: int = 128
    matmul_moving_columns: int = 512
    matmul_moving_columns_bf16: int = 512  # where the destination is bfloat16
    row_tiles: tuple[int, ...] = (64, 128)
    column_tiles: tuple[int, ...] = (64, 128)
    vector_transpose_edge: int = 32
    sbuf_overflow: int = 0  # imagined bytes behind SBUF's, for what a compiler would spill to HBM
    psum_overflow: int = 0  # imagined bytes behind PSUM's

    @property
    def psum_bytes(self) -> int:
        """PSUM bytes per partition."""
        return self.psum_banks * self.psum_bank_bytes

    @property
    def sbuf_reach(self) -> int:
        """SBUF bytes per partition that addresses can name, the imagined ones included."""
        return self.sbuf_bytes + self.sbuf_overflow

    @property
    def psum_reach(self) -> int:
        """PSUM bytes per partition that addresses can name, the imagined ones included."""
        return self.psum_bytes + self.psum_overflow

    def __str__(self) -> str:
        return f"{self.name}, {self.core}"


TRN1 = Target(
    name="trn1",
    core="NeuronCore-v2",
    generation=2,
    sbuf_bytes=192 * 1024,
    hbm_bytes=32 * 1024**3,
    neuron_cores=2,
)
TRN2 = Target(
    name="trn2",
    core="NeuronCore-v3",
    generation=3,
    sbuf_bytes=224 * 1024,
    hbm_bytes=96 * 1024**3,
    neuron_cores=8,
    row_tiles=(32, 64, 128),
    column_tiles=(32, 64, 128),
)
TRN3 = Target(
    name="trn3",
    core="NeuronCore-v4",
    generation=4,
    sbuf_bytes=256 * 1024,
    hbm_bytes=144 * 1024**3,
    neuron_cores=8,
    matmul_moving_columns=4096,
    matmul_moving_columns_bf16=8192,
    row_tiles=(32, 64, 128),
    column_tiles=(32, 64, 128),
)

TARGETS = {target.name: target for target in (TRN1, TRN2, TRN3)}
_ALIASES = {"inf2": TRN1, "gen2": TRN1, "gen3": TRN2, "gen4": TRN3}


def resolve_target(name: str | Target | None = None) -> Target:
    """The target called ``name`` (``trn2``, ``gen3``, ``inf2``; longer spellings such as ``trn3pre`` or
    ``trn2.48xlarge`` resolve by prefix).

    ``None`` asks ``NEURON_PLATFORM_TARGET_OVERRIDE``, as the NKI simulator does, and falls back to trn3.

    Raises:
        ValueError: no generation has that name.
    """
    if isinstance(name, Target):
        return name
    asked = name if name is not None else os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE") or "trn3"
    lowered = asked.strip().lower()
    for prefix, target in (*TARGETS.items(), *_ALIASES.items()):
        if lowered.startswith(prefix):
            return target
    raise ValueError(
        f"unknown target {asked!r}; use one of {', '.join((*TARGETS, *_ALIASES))} "
        "(from the option --target or the variable NEURON_PLATFORM_TARGET_OVERRIDE)"
    )
