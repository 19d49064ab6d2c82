"""Errors of the user's code on their way to the user: the message, the user's own lines, none of ours."""

from __future__ import annotations

import json
import linecache
import sys
import traceback
from types import TracebackType
from typing import Any

__all__ = ["ScriptError"]

_HIDDEN = frozenset({"trn_sim", "isa", "memory_model", "perf_model", "runpy", "importlib", "click"})


class ScriptError(Exception):
    """The user's code raised ``cause``; the command ends.

    Args:
        cause: what it raised.
        traceback: show the whole traceback, our frames included.
        as_json: also print the error as JSON to standard output.
    """

    def __init__(self, cause: BaseException, *, traceback: bool = False, as_json: bool = False) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.whole = traceback
        self.as_json = as_json

    @property
    def exit_code(self) -> int:
        """3 for a gap of the simulator, 1 for everything else."""
        from isa.faults import SimulatorGap

        return 3 if isinstance(self.cause, SimulatorGap) else 1

    def json(self) -> dict[str, Any]:
        """The error as plain data."""
        from isa.faults import Fault

        if isinstance(self.cause, Fault):
            return {"error": self.cause.as_dict()}
        return {"error": {"category": "script", "type": type(self.cause).__name__, "message": str(self.cause)}}

    def show(self) -> None:
        """Print to standard error (and the JSON, if asked for, to standard output)."""
        from isa.faults import Fault

        if self.as_json:
            print(json.dumps(self.json(), indent=2))
        if self.whole:
            traceback.print_exception(self.cause)
        elif isinstance(self.cause, Fault):
            print(f"trn-sim: {self.cause.category} fault: {self.cause}", file=sys.stderr)
            for line in _calls(self.cause):
                print(line, file=sys.stderr)
        else:
            _hide_our_frames(self.cause)
            traceback.print_exception(self.cause)


def _frames(tb: TracebackType | None) -> list[TracebackType]:
    """The user's own entries of a traceback, outermost first."""
    found = []
    while tb is not None:
        frame = tb.tb_frame
        generated = frame.f_code.co_filename.startswith("<generated")
        if not generated and frame.f_globals.get("__name__", "").partition(".")[0] not in _HIDDEN:
            found.append(tb)
        tb = tb.tb_next
    return found


def _calls(fault: Any) -> list[str]:
    """The user's source line with its text, and who called it, innermost first."""
    lines = []
    if fault.file is not None and (text := linecache.getline(fault.file, fault.line).strip()):
        lines.append(f"     {text}")
    for entry in reversed(_frames(fault.__traceback__)):
        code = entry.tb_frame.f_code
        if (code.co_filename, entry.tb_lineno) != (fault.file, fault.line):
            lines.append(f"  called from {code.co_filename}:{entry.tb_lineno}, in {code.co_name}")
    return lines


def _hide_our_frames(error: BaseException) -> None:
    """Cut the frames between the command and the script off the traceback; what the script called stays."""
    if frames := _frames(error.__traceback__):
        error.__traceback__ = frames[0]
