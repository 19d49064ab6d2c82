"""Memory regions: where NKI says a tensor lives, and which memory of the machine that is."""

from __future__ import annotations

from enum import Enum
from typing import Any

from isa.faults import ConstraintFault
from isa.operands import Space
from trn_sim.nki._support import located

__all__ = ["MemoryRegion", "is_hbm", "is_on_chip", "is_psum", "is_sbuf", "region"]


class MemoryRegion(Enum):
    """Buffers of ``nl.ndarray``; ``nl.hbm`` is ``private_hbm``."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    space: Space
    on_chip: bool

    def __repr__(self) -> str:
        return f"nl.{self.value}"


for _region in MemoryRegion:  # plain attributes: these are read on every view
    _region.space = {"sbuf": Space.SBUF, "psum": Space.PSUM}.get(_region.value, Space.HBM)
    _region.on_chip = _region.space.on_chip


def region(buffer: Any) -> MemoryRegion:
    """The region that ``buffer`` names.

    Raises:
        ConstraintFault: it is no region; strings were accepted by NKI 0.2 only.
    """
    if buffer.__class__ is MemoryRegion:
        return buffer
    advice = "pass nl.sbuf, nl.psum, nl.private_hbm or nl.shared_hbm"
    if isinstance(buffer, str):
        advice += "; NKI 0.2 took strings, 0.3 and later refuse them"
    raise located(ConstraintFault(f"buffer={buffer!r} is not a memory region", advice=advice))


def is_hbm(buffer: Any) -> bool:
    """True for the regions in HBM."""
    return buffer is MemoryRegion.private_hbm or buffer is MemoryRegion.shared_hbm


def is_on_chip(buffer: Any) -> bool:
    """True for SBUF and PSUM."""
    return buffer is MemoryRegion.sbuf or buffer is MemoryRegion.psum


def is_psum(buffer: Any) -> bool:
    """True for PSUM."""
    return buffer is MemoryRegion.psum


def is_sbuf(buffer: Any) -> bool:
    """True for SBUF."""
    return buffer is MemoryRegion.sbuf
