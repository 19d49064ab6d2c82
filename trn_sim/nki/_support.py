"""Faults and notes with the user's source line."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

from isa.faults import ConstraintFault, Fault, KernelFault, UnimplementedFault
from trn_sim._source import user_location
from trn_sim.machine import Core, core_stack

__all__ = ["MissingNameFault", "NkiNote", "OldNameFault", "located", "note", "running_core", "unexpected"]

_F = TypeVar("_F", bound=Fault)
_noted: set[tuple[str, str, int]] = set()


class NkiNote(UserWarning):
    """Something was accepted for the sake of other NKI versions, or has no effect here."""


class MissingNameFault(UnimplementedFault, AttributeError):
    """A name that is not built here; an AttributeError, so that ``hasattr`` answers no."""


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


def unexpected(function: str, extra: dict[str, Any]) -> None:
    """Arguments of other NKI versions: explained, and dropped where they had no effect on values of equal dtypes.

    Raises:
        ConstraintFault: a mask.
        TypeError: no version of NKI has the argument.
    """
    for argument in extra:
        if argument == "dtype":
            note(f"{function}(dtype=...) has no effect: the result has the dtype of dst (NKI 0.3 and later)")
        elif argument == "mask":
            raise located(
                ConstraintFault(
                    f"mask={extra[argument]!r}",
                    instruction=function,
                    limit="masks belong to the old namespace neuronxcc.nki",
                    advice="slice the operands to the part that is meant",
                )
            )
        else:
            raise TypeError(f"{function}() got an unexpected keyword argument '{argument}'")
