"""AWS's nki-library: what the simulation mode of its tests imports.

The suite aliases the modules of a simulator package ``nki_cpu_simulator`` to ``nki``, sets ``NKI_NC_VERSION`` before
every kernel, and calls ``nki.cpu_simulate(kernel)[cores](**arrays)``.  The package itself is not published; the layout
is the one that the suite's ``test/utils/simulation_setup.py`` imports.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from isa.target import resolve_target
from trn_sim.finder import serve
from trn_sim.options import Options

__all__ = ["CpuSimulation", "complete_suite", "cpu_simulate", "prepare"]

SERVED = {
    "nki_cpu_simulator": "trn_sim.harness.cpu_simulator",
    "nki_cpu_simulator.nki": "trn_sim.nki",
    "nki_cpu_simulator.nki.builtin": "trn_sim.harness.builtin",
    "neuron_dtypes": "trn_sim.harness.neuron_dtypes",
}


class CpuSimulation:
    """``cpu_simulate(kernel)``: a call runs it on one core, ``[cores]`` chooses their number.

    The target is the generation in ``NKI_NC_VERSION`` if that is set, else the one every run has.  Fresh memory holds
    NaN, as in the simulator that the suite was written with: some of its kernels compute on parts of a tile that they
    never wrote, and drop the results.  ``TRN_SIM_UNINITIALIZED=error`` makes that a fault here too.
    Nor does that simulator bound SBUF and PSUM, so tiles may overflow them unless ``TRN_SIM_OVERFLOW`` is 0, and access
    patterns may reach a little beyond their tile.
    """

    def __init__(self, kernel: Callable[..., Any], cores: int = 1) -> None:
        from trn_sim.nki.kernel import simulate

        functools.update_wrapper(self, kernel)
        self._kernel = simulate(kernel)
        self._cores = cores

    def __getitem__(self, cores: int) -> CpuSimulation:
        return CpuSimulation(self._kernel, cores)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        complete_suite()
        return self._kernel[self._cores].run(args, kwargs, _options()).result


def cpu_simulate(kernel: Callable[..., Any]) -> CpuSimulation:
    """A kernel, or a plain function, as a :class:`CpuSimulation`."""
    return CpuSimulation(kernel)


def complete_suite() -> None:
    """Complete the suite that imports the simulator; see :mod:`trn_sim.harness.suite`."""
    from trn_sim.harness.suite import complete

    complete(_simulate_ranks)


def _simulate_ranks(kernel: Callable[..., Any], cores: int, inputs: list[dict[str, Any]]) -> list[Any]:
    from trn_sim.nki.kernel import simulate

    results: list[Any] = simulate(kernel)[cores].run_ranks([((), own) for own in inputs], _options()).result
    return results


def _options() -> Options:
    generation = os.environ.get("NKI_NC_VERSION")
    return Options.from_environment(
        target=resolve_target(generation) if generation else None,
        uninitialized=None if "TRN_SIM_UNINITIALIZED" in os.environ else "poison",
        overflow=None if "TRN_SIM_OVERFLOW" in os.environ else True,
        beyond=True,
    )


def prepare() -> None:
    """Serve the names above, and give ``nki`` its ``cpu_simulate``."""
    from trn_sim import nki
    from trn_sim.harness import neuron_dtypes

    for name, home in SERVED.items():
        serve(name, home)
    nki.cpu_simulate = cpu_simulate
    neuron_dtypes.register()
