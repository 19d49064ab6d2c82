"""Entry points for foreign test suites that reach their simulator in a way of their own.

``trn_sim.activate(harness="nki-library")`` makes ready for AWS's nki-library: the layout of the simulator package that
its simulation mode imports, ``nki.cpu_simulate``, and the host-side dtypes its tests use.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["HARNESSES", "prepare"]


def _nki_library() -> None:
    from trn_sim.harness.nki_library import prepare as ready

    ready()


HARNESSES: dict[str, Callable[[], None]] = {"nki-library": _nki_library}


def prepare(name: str) -> None:
    """Make ready for the suite ``name``.

    Raises:
        ValueError: no harness of that name.
    """
    if name not in HARNESSES:
        raise ValueError(f"no harness {name!r}; there is {', '.join(HARNESSES)}")
    HARNESSES[name]()
