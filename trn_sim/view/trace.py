"""A trace file of one or more kernel runs, in the format that the file's name asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from trn_sim.view.chrome import ChromeWriter
from trn_sim.view.perfetto import PerfettoWriter
from trn_sim.view.report import open_whole
from trn_sim.view.timeline import Timeline

__all__ = ["Trace", "open_trace"]

GAP_NS = 1000  # between two runs in one trace, so that they can be told apart


class _Writer(Protocol):
    def add(self, timeline: Timeline, *, offset_ns: int = 0) -> None: ...

    def close(self) -> None: ...


class Trace:
    """Time lines one after another: what a device would show that runs nothing else."""

    def __init__(self, writer: _Writer) -> None:
        self._writer = writer
        self._end_ns = 0

    def add(self, *timelines: Timeline) -> None:
        """Append a run behind the ones before; the time lines of its cores begin together."""
        for timeline in timelines:
            self._writer.add(timeline, offset_ns=self._end_ns)
        self._end_ns += max(timeline.end_ns for timeline in timelines) + GAP_NS


@contextmanager
def open_trace(path: str | Path) -> Iterator[Trace]:
    """A trace to add time lines to: ``.json`` is a Chrome trace, any other name a Perfetto trace.

    The file appears whole when the block ends, and not at all when it raises.

    Raises:
        MissingViewExtraError: a Perfetto trace without the ``view`` extra.
    """
    with open_whole(path, "wb") as file:
        writer: _Writer = ChromeWriter(file) if Path(path).suffix == ".json" else PerfettoWriter(file)
        yield Trace(writer)
        writer.close()
