"""Which line of the user's code issued an instruction."""

from __future__ import annotations

import sys
import threading
from types import CodeType, FrameType

__all__ = ["Site", "at_site", "site", "user_frame", "user_location"]

_OURS = frozenset({"trn_sim", "isa", "memory_model", "perf_model"})
_is_ours: dict[CodeType, bool] = {}


class Site:
    """A place in the user's code, remembered for an instruction that is issued later; reads like the frame it was."""

    __slots__ = ("f_code", "f_lasti", "f_lineno")

    def __init__(self, frame: FrameType) -> None:
        self.f_code = frame.f_code
        self.f_lasti = frame.f_lasti
        self.f_lineno = frame.f_lineno


class _Present(threading.local):
    site: Site | None = None


_present = _Present()


def site(depth: int = 1) -> Site | None:
    """The present place of :func:`user_frame`."""
    frame = user_frame(depth + 1)
    return Site(frame) if isinstance(frame, FrameType) else frame


class at_site:  # noqa: N801  # used as a function; a generator would cost as much as half an instruction
    """``with at_site(place):`` the user's code is at ``place``, whatever the stack says."""

    __slots__ = ("_before", "_place")

    def __init__(self, place: Site | None) -> None:
        self._place = place

    def __enter__(self) -> None:
        self._before = _present.site
        _present.site = self._place

    def __exit__(self, *_: object) -> None:
        _present.site = self._before


def user_frame(depth: int = 1) -> FrameType | Site | None:
    """The innermost frame outside trn-sim's own packages, or the place that :func:`at_site` has set."""
    if _present.site is not None:
        return _present.site
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
