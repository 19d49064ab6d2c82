"""``nki`` (AWS's Neuron Kernel Interface, 0.6) on the simulator; ``trn_sim.activate()`` serves it as ``import nki``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from trn_sim.nki import typing
from trn_sim.nki.kernel import Kernel, jit, simulate

__version__ = "0.6.0"
"""The version of the interface, not of trn-sim."""

__all__ = ["Kernel", "__version__", "jit", "simulate", "typing"]

_SUBMODULES = ("collectives", "compiler", "dtype", "isa", "language")


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:  # ``import nki`` alone gives them too
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'nki' has no attribute '{name}'")
