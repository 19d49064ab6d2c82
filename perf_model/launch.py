"""Launch: the profile of cores that run one kernel together.

Each core has its own engines, DMA queues and share of the HBM bandwidth (the rate ``hbm.core_gb_s`` is the chip's
bandwidth by the number of its cores); meetings tie their times together.  The launch takes as long as its longest core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from isa.program import Program
from isa.target import Target
from perf_model.analysis import Part, critical_path
from perf_model.counters import count
from perf_model.profile import Profile, rates_for
from perf_model.rates import Rates
from perf_model.schedule import Schedule, schedule
from perf_model.stream import EdgeArrays, join, stream_of

__all__ = ["LaunchProfile", "profile_launch"]

_SUMS = (
    "instruction_count",
    "model_flops",
    "hardware_flops",
    "transpose_flops",
    "hbm_read_bytes",
    "hbm_write_bytes",
    "sbuf_read_bytes",
    "sbuf_write_bytes",
    "psum_read_bytes",
    "psum_write_bytes",
    "dma_transfer_bytes",
    "dma_descriptor_count",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class LaunchProfile:
    """Time of several programs on as many cores.

    Attributes:
        cores: the profile of each core; its times count from the launch, waiting for other cores included.
        titles: what each core is called.
    """

    cores: list[Profile]
    titles: list[str]

    @property
    def longest(self) -> Profile:
        """The core that ends last, of equal ones the first."""
        return max(self.cores, key=lambda core: core.schedule.total_ps)

    @property
    def target(self) -> Target:
        """The generation it was timed for."""
        return self.cores[0].target

    @property
    def total_ns(self) -> float:
        """From the launch to the last result of the last core."""
        return self.longest.total_ns

    @property
    def band_ns(self) -> tuple[float, float]:
        """Lowest and highest total that the bands of the rates on the longest core's critical path allow."""
        return self.longest.band_ns

    @property
    def guessed_percent(self) -> float:
        """Share of the longest core's critical path that rests on guessed rates."""
        return self.longest.guessed_percent

    @property
    def bound_by(self) -> str:
        """What decides the total time, in one sentence: what the longest core is bound by."""
        return f"{self.longest.bound_by} (of {self.titles[self.cores.index(self.longest)]}, which ends last)"

    @cached_property
    def waiting_ns(self) -> list[float]:
        """Time on the critical path of each core that it waits for others."""
        return [core.path.part_ps(Part.CORES) / 1e3 for core in self.cores]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the ``summary`` of all cores together, in the units of
        :meth:`perf_model.profile.Profile.as_dict`, and each core's own data in ``cores``."""
        cores = [core.as_dict() for core in self.cores]
        summary = dict(cores[self.cores.index(self.longest)]["summary"])
        for name in _SUMS:
            summary[name] = sum(core["summary"][name] for core in cores)
        seconds = self.total_ns * 1e-9
        peak = sum(core["summary"]["mfu_peak_flops_per_second"] for core in cores)
        bandwidth = sum(1e9 * core.rates.value("hbm.core_gb_s") for core in self.cores)
        moved = summary["hbm_read_bytes"] + summary["hbm_write_bytes"]

        def percent(part: float, whole: float) -> float:
            return 100 * part / whole if whole else 0.0

        kept = {name: value for name, value in summary.items() if name in _SUMS or name.startswith("total_time")}
        return {
            "summary": {
                "target": summary["target"],
                "neuron_core": summary["neuron_core"],
                "core_count": len(cores),
                **kept,
                "guessed_rates_percent": self.guessed_percent,
                "bound_by": self.bound_by,
                "mfu_estimated_percent": percent(summary["model_flops"], peak * seconds),
                "hfu_estimated_percent": percent(summary["hardware_flops"], peak * seconds),
                "mbu_estimated_percent": percent(moved, bandwidth * seconds),
                "mfu_peak_flops_per_second": peak,
                "mfu_peak_inputs": summary["mfu_peak_inputs"],
            },
            "cores": [
                {"core": title, "waiting_time_ns": waiting, **core}
                for title, waiting, core in zip(self.titles, self.waiting_ns, cores, strict=True)
            ],
        }


def profile_launch(
    programs: Sequence[Program],
    edges: Sequence[EdgeArrays],
    meetings: Sequence[Sequence[tuple[int, int]]],
    *,
    titles: Sequence[str] = (),
    rates: Rates | None = None,
    target: str | Target | None = None,
) -> LaunchProfile:
    """Time the programs of cores that run together.

    Args:
        programs, edges: of each core; see :func:`perf_model.profile.profile`.
        meetings: for each meeting the (core, instruction) of everybody who takes part (:func:`isa.meetings.meetings`).
        titles: what the cores are called; ``core 0`` and so on otherwise.
        rates, target: as for one core.

    Raises:
        ValueError: rates and target name different generations, or no such target.
    """
    rates = rates_for(programs[0], rates, target)
    made = [stream_of(program, own, rates) for program, own in zip(programs, edges, strict=True)]
    joined = schedule(join([stream for stream, _ in made], meetings))
    cores = []
    first = 0
    for program, (stream, costs) in zip(programs, made, strict=True):
        own = _part(joined, first, first + len(stream))
        first += len(stream)
        cores.append(
            Profile(
                program=program,
                rates=rates,
                stream=stream,
                schedule=own,
                costs=costs,
                path=critical_path(stream, own),
                counters=count(program, rates),
            )
        )
    return LaunchProfile(cores=cores, titles=list(titles) or [f"core {number}" for number in range(len(cores))])


def _part(joined: Schedule, start: int, stop: int) -> Schedule:
    """One core's rows; nothing in them points to another core."""
    columns = {name: getattr(joined, name)[start:stop] for name in Schedule.__dataclass_fields__}
    result = Schedule(**columns)
    return replace(
        result,
        bound_by=np.where(result.bound_by < 0, result.bound_by, result.bound_by - start).astype(np.int32),
        data_by=np.where(result.data_by < 0, result.data_by, result.data_by - start).astype(np.int32),
    )
