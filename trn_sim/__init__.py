"""trn-sim: a functional emulator of AWS Trainium at the level of its instructions, with a performance model.

Names are imported on first use, so that ``import trn_sim`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "Core": "trn_sim.machine",
    "Options": "trn_sim.machine",
    "current_core": "trn_sim.machine",
    "activate": "trn_sim.finder",
    "deactivate": "trn_sim.finder",
    "Run": "trn_sim.nki.kernel",
    "last_run": "trn_sim.nki.kernel",
    "run_ranks": "trn_sim.nki.ranks",
    "run": "trn_sim.nki.kernel",
    "Profile": "perf_model.profile",
    "Program": "isa.program",
    "Fault": "isa.faults",
    "KernelFault": "isa.faults",
    "SimulatorGap": "isa.faults",
}

__all__ = [
    "Core",
    "Fault",
    "KernelFault",
    "Options",
    "Profile",
    "Program",
    "Run",
    "SimulatorGap",
    "__version__",
    "activate",
    "current_core",
    "deactivate",
    "last_run",
    "run",
    "run_ranks",
]

if TYPE_CHECKING:
    from isa.faults import Fault, KernelFault, SimulatorGap
    from isa.program import Program
    from perf_model.profile import Profile
    from trn_sim.finder import activate, deactivate
    from trn_sim.machine import Core, Options, current_core
    from trn_sim.nki.kernel import Run, last_run, run
    from trn_sim.nki.ranks import run_ranks


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'trn_sim' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
