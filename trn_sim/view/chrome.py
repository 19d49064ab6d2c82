"""Traces in the JSON format of chrome://tracing, written event by event.

The format counts in microseconds; nanoseconds are its three decimals.
"""

from __future__ import annotations

import json
from typing import IO, Any

from trn_sim.view.timeline import Timeline

__all__ = ["ChromeWriter"]


class ChromeWriter:
    """Appends time lines to one trace; :meth:`close` ends the list."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._processes = 0
        self._separator = b"\n"
        file.write(b'{"displayTimeUnit": "ns", "traceEvents": [')

    def add(self, timeline: Timeline, *, offset_ns: int = 0) -> None:
        """Write one time line, moved by ``offset_ns``."""
        self._processes += 1
        pid = self._processes
        self._write(ph="M", pid=pid, name="process_name", args={"name": timeline.process})
        threads: dict[tuple[str, int], int] = {}
        for piece in timeline.slices:
            place = (piece.track, piece.lane)
            tid = threads.get(place)
            if tid is None:
                tid = threads[place] = len(threads) + 1
                title = piece.track if piece.lane == 0 else f"{piece.track} ({piece.lane + 1})"
                rank = timeline.tracks.index(piece.track) * 1000 + piece.lane
                self._write(ph="M", pid=pid, tid=tid, name="thread_name", args={"name": title})
                self._write(ph="M", pid=pid, tid=tid, name="thread_sort_index", args={"sort_index": rank})
            self._write(
                ph="X",
                pid=pid,
                tid=tid,
                name=piece.name,
                ts=(piece.start_ns + offset_ns) / 1000,
                dur=(piece.end_ns - piece.start_ns) / 1000,
                args=piece.args,
            )
        for counter in timeline.counters:
            for time, value in counter.points:
                self._write(
                    ph="C", pid=pid, name=counter.name, ts=(time + offset_ns) / 1000, args={counter.unit: value}
                )

    def close(self) -> None:
        """End the JSON text."""
        self._file.write(b"\n]}\n")

    def _write(self, **event: Any) -> None:
        self._file.write(self._separator + json.dumps(event, separators=(",", ":")).encode())
        self._separator = b",\n"
