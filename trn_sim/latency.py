"""Latency as ``nki.benchmark`` reports it, from modelled time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perf_model.profile import Profile

__all__ = ["PERCENTILES", "BenchmarkResult", "Latency"]

PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)
"""What AWS's ``get_latency_percentile`` answers."""


class Latency:
    """Latency of a kernel on one NeuronCore."""

    def __init__(self, total_ns: float) -> None:
        self._total_ns = total_ns

    def get_latency_percentile(self, percentile: int) -> float:
        """Microseconds.  The model has no noise, so every percentile is the same.

        Raises:
            ValueError: a percentile that AWS's tool does not have.
        """
        if percentile not in PERCENTILES:
            raise ValueError(f"percentile {percentile}; there are {', '.join(map(str, PERCENTILES))}")
        return self._total_ns / 1e3


class BenchmarkResult:
    """``kernel.benchmark_result``.

    Attributes:
        nc_latency: latency on the NeuronCore.
    """

    def __init__(self, profile: Profile) -> None:
        self.nc_latency = Latency(profile.total_ns)
