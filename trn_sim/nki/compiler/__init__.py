"""``nki.compiler``: there is no compiler here.  What kernels take from it for speed or allocation is accepted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn, TypeVar

from trn_sim.nki._support import MissingNameFault, located

__all__ = ["no_reorder", "skip_middle_end_transformations"]

_F = TypeVar("_F", bound=Callable[..., Any])


def skip_middle_end_transformations(function: _F) -> _F:
    """The function itself: a hint to the compiler."""
    return function


def no_reorder() -> AbstractContextManager[None]:
    """See :func:`trn_sim.nki.language.no_reorder`."""
    from trn_sim.nki.language.control import no_reorder as region

    return region()


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    raise located(
        MissingNameFault(
            f"nki.compiler.{name}: trn-sim has no NKI compiler",
            advice="call the kernel directly: it runs on the simulator",
        )
    )
