"""Tables: the rows of a profile's tables."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EngineTime", "InstructionTime", "LineTime", "PathTime", "QueueTime"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTime:
    """One engine: instructions, time it works, and how much of the critical path is its work."""

    engine: str
    instructions: int
    active_ns: float
    active_percent: float
    critical_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTime:
    """One DMA queue: transfers, bytes, and time during which its data moves."""

    queue: str
    transfers: int
    transferred_bytes: int
    active_ns: float
    active_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionTime:
    """All instructions of one name on one engine; shares are of the sum over all engines."""

    mnemonic: str
    engine: str
    instructions: int
    busy_ns: float
    busy_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LineTime:
    """All instructions of one source line: time on their engines, and on the critical path."""

    file: str
    line: int
    function: str
    instructions: int
    busy_ns: float
    critical_ns: float
    critical_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTime:
    """One kind of time on the critical path; of one engine where an engine works."""

    part: str
    ns: float
    percent: float
