"""The profile of a kernel on several cores: the launch as a whole, then each core as :mod:`trn_sim.view.profile_report`
shows it.

Everything shown is in :meth:`perf_model.launch.LaunchProfile.as_dict`; nothing is worked out here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trn_sim.view.profile_report import LABEL, ProfileReport, share_of, table_of
from trn_sim.view.report import Report
from trn_sim.view.units import bytes_text, duration, plural

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["LaunchReport", "report_of"]


class LaunchReport(Report):
    """The report of ``kernel``; ``data`` is the plain data of a launch profile."""

    def __init__(self, kernel: str, data: dict[str, Any]) -> None:
        self.kernel = kernel
        self.data = data

    def json(self) -> dict[str, Any]:
        """The kernel's name and the plain data of the profile."""
        return {"kernel": self.kernel, **self.data}

    def render(self, console: Console) -> None:
        """The total, a line per core, and the report of each core."""
        from rich.text import Text

        s = self.data["summary"]
        title = f" on {s['target']}, {plural(s['core_count'], 'core')} of {s['neuron_core']}"
        console.print(Text.assemble((self.kernel, "bold"), title))
        moved = bytes_text(s["hbm_read_bytes"] + s["hbm_write_bytes"])
        table = table_of(("", LABEL, False), ("", None, False))
        for label, words in (
            (
                "Time",
                f"{duration(s['total_time_ns'])}, between {duration(s['total_time_low_ns'])} and "
                f"{duration(s['total_time_high_ns'])}; {s['guessed_rates_percent']:.1f} % rests on guessed rates",
            ),
            ("Bound", s["bound_by"].removeprefix("bound ")),
            ("MFU", f"{s['mfu_estimated_percent']:.1f} % of all cores" if s["hardware_flops"] else "none"),
            ("HBM bandwidth", f"{s['mbu_estimated_percent']:.1f} % of the cores' shares, {moved} moved"),
        ):
            table.add_row(label, words)
        console.print(table)
        console.print()
        table = table_of(
            ("Cores", LABEL, False), ("time", 10, True), ("waiting", 10, True), ("", 7, True), ("", None, False)
        )
        for core in self.data["cores"]:
            total, waiting = core["summary"]["total_time_ns"], core["waiting_time_ns"]
            share = share_of(100 * waiting / total if total else 0.0)[0]
            bound = core["summary"]["bound_by"]
            table.add_row(core["core"], duration(total), duration(waiting), share, bound)
        console.print(table)
        for core in self.data["cores"]:
            console.print()
            ProfileReport(f"{self.kernel}, {core['core']}", core).render(console)


def report_of(kernel: str, profile: Any) -> Report:
    """The report of a profile of one core (:class:`perf_model.profile.Profile`) or of several."""
    from perf_model.launch import LaunchProfile

    kind = LaunchReport if isinstance(profile, LaunchProfile) else ProfileReport
    return kind(kernel, profile.as_dict())
