"""Numbers with units, short enough to read at a glance."""

from __future__ import annotations

__all__ = ["bytes_text", "count_text", "duration", "plural"]


def _scaled(value: float, steps: tuple[str, ...], base: float, separator: str = " ") -> str:
    step = 0
    while abs(value) >= base * 0.9995 and step < len(steps) - 1:
        value /= base
        step += 1
    digits = 0 if step == 0 and float(value).is_integer() else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f}{separator}{steps[step]}".rstrip()


def duration(ns: float) -> str:
    """Nanoseconds as text: ``640 ns``, ``12.4 us``, ``3.21 ms``."""
    return _scaled(ns, ("ns", "us", "ms", "s"), 1000)


def bytes_text(count: float) -> str:
    """Bytes as text, in powers of 1024: ``512 B``, ``24.0 MiB``."""
    return _scaled(count, ("B", "KiB", "MiB", "GiB", "TiB"), 1024)


def count_text(count: float) -> str:
    """A count as text: ``96``, ``1.20 k``, ``17.2 G``."""
    return _scaled(count, ("", "k", "M", "G", "T", "P"), 1000)


def plural(count: int, noun: str) -> str:
    """``1 transfer``, ``2,048 transfers``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
