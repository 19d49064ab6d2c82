"""``neuronxcc``: AWS's older package, as far as kernels and their tests import it."""

from __future__ import annotations

__all__: list[str] = []
