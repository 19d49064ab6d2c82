"""``nki_cpu_simulator``: a package that holds ``nki`` and nothing else."""

from __future__ import annotations

from trn_sim import nki
from trn_sim.harness.nki_library import complete_suite

complete_suite()

__all__ = ["nki"]
__path__: list[str] = []  # a package, so that its submodules are looked for
