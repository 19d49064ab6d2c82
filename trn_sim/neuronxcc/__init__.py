"""``neuronxcc``: AWS's older package, as far as kernels and their tests import it."""

from __future__ import annotations

import logging

__all__: list[str] = []

if not hasattr(logging, "OFF"):  # AWS's package adds this level, and scripts switch logging off by it
    logging.OFF = logging.CRITICAL + 10  # type: ignore[attr-defined]
