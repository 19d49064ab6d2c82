"""Faults and notes with the user's source line."""

from __future__ import annotations

import warnings
from typing import TypeVar

from isa.faults import Fault, KernelFault
from trn_sim._source import user_location
from trn_sim.machine import Core, core_stack

__all__ = ["NkiNote", "OldNameFault", "located", "note", "running_core"]

_F = TypeVar("_F", bound=Fault)
_noted: set[tuple[str, str, int]] = set()


class NkiNote(UserWarning):
    """Something was accepted for the sake of other NKI versions, or has no effect here."""


class OldNameFault(KernelFault, AttributeError):
    """A name that only ``neuronxcc.nki`` has; an AttributeError, so that ``hasattr`` answers no."""

    category = "old_name"


def located(fault: _F) -> _F:
    """``fault`` with the user's source line attached, to be raised by the caller."""
    fault.locate(*user_location(3))
    return fault


def note(message: str, *, once: bool = False) -> None:
    """Warn once per message and source line, or per message (``once``)."""
    file, line, _ = user_location(3)
    key = (message, "", 0) if once else (message, file, line)
    if key not in _noted:
        _noted.add(key)
        warnings.warn_explicit(message, NkiNote, file, line)


def running_core() -> Core | None:
    """The core of the present kernel, or None outside of kernels."""
    stack = core_stack()
    return stack[-1] if stack else None
