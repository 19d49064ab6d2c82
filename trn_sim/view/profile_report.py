"""The profile of one kernel run: how long, how sure, what bounds it, and where the time goes.

Everything shown is in :meth:`perf_model.profile.Profile.as_dict`; nothing is worked out here.
"""

from __future__ import annotations

import linecache
import os
from typing import TYPE_CHECKING, Any

from trn_sim.view.report import Report
from trn_sim.view.units import bytes_text, count_text, duration, plural

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["ProfileReport", "share_of", "table_of"]

BAR = 20  # characters for 100 %
ROWS = 10  # of the tables that can be long
LABEL = 15  # width of the first column


class ProfileReport(Report):
    """The report of ``kernel``; ``data`` is the plain data of its profile."""

    def __init__(self, kernel: str, data: dict[str, Any]) -> None:
        self.kernel = kernel
        self.data = data

    def json(self) -> dict[str, Any]:
        """The kernel's name and the plain data of the profile."""
        return {"kernel": self.kernel, **self.data}

    def render(self, console: Console) -> None:
        """Totals, then what is busy, what moved, which instructions, which lines, and the critical path."""
        self._totals(console)
        self._busy(console)
        self._bytes(console)
        self._instructions(console)
        self._lines(console)
        self._critical(console)

    def _totals(self, console: Console) -> None:
        from rich.text import Text

        s = self.data["summary"]
        console.print(Text.assemble((self.kernel, "bold"), f" on {s['target']}, {s['neuron_core']}"))
        rows = [
            (
                "Time",
                f"{duration(s['total_time_ns'])}, between {duration(s['total_time_low_ns'])} and "
                f"{duration(s['total_time_high_ns'])}; {s['guessed_rates_percent']:.1f} % rests on guessed rates",
            ),
            ("Bound", s["bound_by"].removeprefix("bound ")),
        ]
        if s["hardware_flops"]:
            peak = f"{count_text(s['mfu_peak_flops_per_second'])}FLOP/s ({s['mfu_peak_inputs']})"
            rows += [
                ("MFU", f"{s['mfu_estimated_percent']:.1f} % of {peak}, {count_text(s['model_flops'])}FLOP"),
                ("HFU", f"{s['hfu_estimated_percent']:.1f} %, transposes included"),
            ]
        else:
            rows.append(("MFU", "none: no matrix multiplication"))
        rows.append(
            (
                "HBM bandwidth",
                f"{s['mbu_estimated_percent']:.1f} % of the core's share, "
                f"{bytes_text(s['hbm_read_bytes'] + s['hbm_write_bytes'])} moved",
            )
        )
        table = table_of(("", LABEL, False), ("", None, False))
        for label, words in rows:
            table.add_row(label, words)
        console.print(table)

    def _busy(self, console: Console) -> None:
        s = self.data["summary"]
        table = table_of(("Busy", LABEL, False), ("", 7, True), ("", BAR, False), ("", None, False))
        for row in self.data["engines"]:
            words = (
                f"{plural(row['instructions'], 'instruction')}, {row['critical_percent']:.1f} % of the critical path"
            )
            table.add_row(row["engine"], *share_of(row["active_percent"]), words if row["instructions"] else "")
        engines = f"any data moves; the DMA engines are {s['dma_engine_busy_percent']:.1f} % busy"
        table.add_row("DMA", *share_of(s["dma_active_time_percent"]), engines)
        for row in self.data["dma_queues"]:
            words = f"{plural(row['transfers'], 'transfer')}, {bytes_text(row['transferred_bytes'])}"
            table.add_row(f"  {row['queue']} queue", *share_of(row["active_percent"]), words)
        _section(console, table)

    def _bytes(self, console: Console) -> None:
        s = self.data["summary"]
        table = table_of(("Bytes", LABEL, False), ("read", 10, True), ("written", 10, True))
        for memory in ("hbm", "sbuf", "psum"):
            read, written = (bytes_text(s[f"{memory}_{way}_bytes"]) for way in ("read", "write"))
            table.add_row(memory.upper(), read, written)
        _section(console, table)

    def _instructions(self, console: Console) -> None:
        rows = self.data["instructions"]
        table = table_of(
            ("Instructions", 26, False), ("", 8, False), ("count", 9, True), ("time", 9, True), ("", 7, True)
        )
        for row in rows[:ROWS]:
            time, share = duration(row["busy_ns"]), f"{row['busy_percent']:.1f} %"
            table.add_row(row["mnemonic"], row["engine"], f"{row['instructions']:,}", time, share)
        _section(console, table, more=len(rows) - ROWS)

    def _lines(self, console: Console) -> None:
        from rich.text import Text

        rows = self.data["source_lines"]
        table = table_of(("Source lines", 26, False), ("critical", 9, True), ("", 7, True), ("", None, False))
        for row in rows[:ROWS]:
            code = Text(linecache.getline(row["file"], row["line"]).strip(), no_wrap=True, overflow="ellipsis")
            place = f"{os.path.basename(row['file'])}:{row['line']}"
            table.add_row(place, duration(row["critical_ns"]), f"{row['critical_percent']:.1f} %", code)
        _section(console, table, more=len(rows) - ROWS)

    def _critical(self, console: Console) -> None:
        table = table_of(("Critical path", 26, False), ("time", 9, True), ("", 7, True), ("", BAR, False))
        for row in self.data["critical_path"]:
            table.add_row(row["part"], duration(row["ns"]), *share_of(row["percent"]))
        _section(console, table)


def table_of(*columns: tuple[str, int | None, bool]) -> Table:
    """A table without lines from (heading, width, to the right); without headings where the first has none."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=bool(columns[0][0]), header_style="bold", padding=(0, 2, 0, 0))
    for heading, width, right in columns:
        justify = "right" if right else "left"
        table.add_column(heading, min_width=width, justify=justify, overflow="fold", no_wrap=width is not None)  # type: ignore[arg-type]
    return table


def _section(console: Console, table: Table, *, more: int = 0) -> None:
    console.print()
    console.print(table)
    if more > 0:
        console.print(f"and {more} more, in --json")


def share_of(percent: float) -> tuple[str, str]:
    """The number and a bar."""
    return f"{percent:.1f} %", "#" * round(percent * BAR / 100)
