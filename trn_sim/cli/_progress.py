"""One line on standard error that says what is going on and how far it is, for whatever takes longer than a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

__all__ = ["Progress", "progress"]

FIRST_S = 1.0  # nothing shorter is worth a line
INTERVAL_S = 0.2
_CLEAR = "\r\x1b[2K"


class Progress:
    """The line.  It is redrawn only when its text has changed, so that it never runs over a debugger's prompt."""

    def __init__(self, stream: IO[str], text: str, measure: Callable[[], int] | None = None) -> None:
        self._stream = stream
        self._text = text
        self._measure = measure
        self._start = time.monotonic()
        self._last: tuple[str, int] | None = None
        self._drawn = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="trn-sim progress", daemon=True)
        self._thread.start()

    def stage(self, text: str) -> None:
        """What happens from now on."""
        self._text = text

    def close(self) -> None:
        """Take the line away."""
        self._done.set()
        self._thread.join()
        if self._drawn:
            self._stream.write(_CLEAR)
            self._stream.flush()

    def _watch(self) -> None:
        delay = FIRST_S
        while not self._done.wait(delay):
            delay = INTERVAL_S
            state = (self._text, self._measure() if self._measure is not None else 0)
            if state == self._last:
                continue
            self._last = state
            count = f", {state[1]:,} instructions" if state[1] else ""
            elapsed = time.monotonic() - self._start
            self._stream.write(f"{_CLEAR}trn-sim: {state[0]}{count}, {elapsed:.0f} s")
            self._stream.flush()
            self._drawn = True


def _issued() -> Callable[[], int]:
    """A count, for other threads, of the instructions that the kernel on this thread has issued so far."""
    from trn_sim.machine import core_stack

    cores = core_stack()
    return lambda: sum(len(core.program) for core in cores[-1:])


@contextmanager
def progress(text: str, *, quiet: bool) -> Iterator[Progress | None]:
    """Show ``text`` and the number of instructions while the block runs; nothing unless stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    line = Progress(sys.stderr, text, _issued())
    try:
        yield line
    finally:
        line.close()
