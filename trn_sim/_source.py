"""Which line of the user's code issued an instruction."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

__all__ = ["user_frame", "user_location"]

_OURS = frozenset({"trn_sim", "isa", "memory_model", "perf_model"})
_is_ours: dict[CodeType, bool] = {}


def user_frame(depth: int = 1) -> FrameType | None:
    """The innermost frame outside trn-sim's own packages."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        ours = _is_ours.get(code)
        if ours is None:
            name = frame.f_globals.get("__name__", "")
            ours = _is_ours[code] = name.partition(".")[0] in _OURS or code.co_filename.startswith("<generated")
        if not ours:
            return frame
        frame = frame.f_back
    return None


def user_location(depth: int = 2) -> tuple[str, int, str]:
    """(file, line, function) of :func:`user_frame`; ("<unknown>", 0, "") where there is none."""
    frame = user_frame(depth)
    if frame is None:
        return "<unknown>", 0, ""
    return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
