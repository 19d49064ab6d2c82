"""What the simulation mode of nki-library's published tests (copy of 2026-04-13) leaves out, completed while they run.

Two things of its orchestrator: an attribute that it reads after every run but sets only when it compiles, and inputs by
rank, which its hardware mode takes apart and its simulation mode hands on as one object.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["complete"]

MODULE = "test.utils.test_orchestrator"


def complete(simulate: Callable[..., list[Any]]) -> None:
    """Complete the orchestrator, where the suite has imported it; calling it again changes nothing.

    Args:
        simulate: ``simulate(kernel, cores, inputs)`` gives the results of all ranks for their inputs.
    """
    orchestrator = getattr(sys.modules.get(MODULE), "Orchestrator", None)
    if orchestrator is None or hasattr(orchestrator, "_compiled_kernel"):
        return
    orchestrator._compiled_kernel = None
    alone = getattr(orchestrator, "_run_simulator_inference", None)
    if alone is not None:
        orchestrator._run_simulator_inference = _by_rank(alone, simulate)


def _by_rank(alone: Callable[..., Any], simulate: Callable[..., list[Any]]) -> Callable[..., Any]:
    def run(self: Any, kernel_under_test: Any) -> Any:
        """Run a kernel in the simulator; one with inputs by rank on all of its ranks, outputs in a folder for each."""
        ranks = kernel_under_test.inference_args.collective_ranks
        if ranks <= 1:
            return alone(self, kernel_under_test)
        given = kernel_under_test.kernel_input
        inputs = [_named(given.for_rank(rank) if hasattr(given, "for_rank") else given) for rank in range(ranks)]
        compiler = kernel_under_test.compiler_input
        os.environ["NKI_NC_VERSION"] = compiler.platform_target.get_nc_gen()
        cores = compiler.logical_nc_config
        results = simulate(kernel_under_test.kernel_func, cores, inputs)
        folder = Path(self.fs_config.artifacts_output_directory_path, _folder_name())
        for rank, result in enumerate(results):
            tensors = _outputs(kernel_under_test.validation_args.golden_output, rank, result)
            self.__dump_tensors__(str(folder / f"output_worker_{rank}"), tensors, lambda name: name)
        return str(folder)

    return run


def _folder_name() -> str:
    return str(sys.modules[MODULE].INF_ARTIFACT_DIR_NAME)


def _named(inputs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the kernel's names, without the suffix that marks outputs for the compiler."""
    return {name.removesuffix(".must_alias_input"): value for name, value in inputs.items()}


def _outputs(golden: Any, rank: int, result: Any) -> dict[str, Any]:
    """The results of a rank by the names, and in the dtypes, of what the suite expects."""
    if hasattr(golden, "for_rank"):
        golden = golden.for_rank(rank)
    expected = getattr(golden, "output_ndarray", golden)
    results = list(result) if isinstance(result, (list, tuple)) else [result]
    if len(results) != len(expected):
        raise RuntimeError(f"rank {rank} returned {len(results)} outputs; expected are {', '.join(expected)}")
    return {
        name: np.asarray(value, dtype=wanted.dtype)
        for (name, wanted), value in zip(expected.items(), results, strict=True)
    }
