"""``nki.baremetal``, ``nki.benchmark`` and ``nki.profile``: kernels that also save their program, or tell their time.

Time is the modelled one; it is the same in every execution, so warm-up and repetition change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from isa.faults import ConstraintFault
from trn_sim.machine import Options
from trn_sim.neuronxcc.nki.kernel import TracedKernel
from trn_sim.nki._support import located
from trn_sim.nki.kernel import Run

__all__ = ["MeasuredKernel", "baremetal", "benchmark", "profile"]


class MeasuredKernel(TracedKernel):
    """A kernel that does something with every :class:`~trn_sim.nki.kernel.Run`; made by the decorators here."""

    def __init__(
        self,
        function: Callable[..., Any],
        platform_target: Any = None,
        precise: bool | None = None,
        *,
        finish: Callable[[Run], None],
        results: dict[str, Any] | None = None,
    ) -> None:
        """
        Args:
            function: the kernel, or its function.
            platform_target, precise: see :class:`TracedKernel`.
            finish: called after every run that ended well.
            results: shared by the kernel and its copies for launch grids.
        """
        super().__init__(function, platform_target, precise)
        if isinstance(function, TracedKernel):
            self._grid, self._schedule = function._grid, function._schedule
            self.platform_target = platform_target or function.platform_target
        self._finish = finish
        self._results: dict[str, Any] = {} if results is None else results

    def _copy(self) -> MeasuredKernel:
        twin = MeasuredKernel(
            self.function, self.platform_target, self.precise, finish=self._finish, results=self._results
        )
        twin._grid, twin._schedule = self._grid, self._schedule
        return twin

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Run:
        """As :meth:`TracedKernel.run`, then what the decorator is for."""
        run = super().run(args, kwargs, options)
        self._results["run"] = run
        self._finish(run)
        return run

    @property
    def benchmark_result(self) -> Any:
        """Latency of the last call: ``benchmark_result.nc_latency.get_latency_percentile(p)`` in microseconds."""
        from trn_sim.latency import BenchmarkResult

        run = self._results.get("run")
        if run is None:
            raise located(ConstraintFault(f"{self.name} has not run yet", advice="call it with arrays first"))
        return BenchmarkResult(run.profile)


def _save(run: Run, neff: str | Path | None, trace: str | Path | None) -> None:
    if neff is None and trace is None:
        return
    from trn_sim.artifacts import save_profile, save_program

    if neff is not None:
        save_program(run, Path(neff))
    if trace is not None:
        save_profile(run.profile, Path(trace))


def baremetal(
    kernel: Callable[..., Any] | None = None,
    *,
    save_neff_name: str | None = None,
    save_trace_name: str | None = None,
    artifacts_dir: str | None = None,
    platform_target: Any = None,
    **options: Any,
) -> Any:
    """Decorator, bare or called: run the kernel on numpy arrays, and save its program and its profile.

    Args:
        kernel: a kernel or a plain function.
        save_neff_name, save_trace_name: files for the program and for the profile; None saves none.
        artifacts_dir: where files of a relative name go, made if need be.
        platform_target: the target.
        options: ``additional_compile_opt`` and others for AWS's compiler; no effect.
    """
    given = {"save_neff_name": save_neff_name, "save_trace_name": save_trace_name, "artifacts_dir": artifacts_dir}
    if kernel is None:
        return lambda function: baremetal(function, platform_target=platform_target, **given, **options)
    folder = Path(artifacts_dir or ".")

    def finish(run: Run) -> None:
        if save_neff_name or save_trace_name:
            folder.mkdir(parents=True, exist_ok=True)
        _save(run, save_neff_name and folder / save_neff_name, save_trace_name and folder / save_trace_name)

    return MeasuredKernel(kernel, platform_target, finish=finish)


def benchmark(
    kernel: Callable[..., Any] | None = None,
    *,
    warmup: int = 10,
    iters: int = 100,
    save_neff_name: str | None = None,
    save_trace_name: str | None = None,
    platform_target: Any = None,
    **options: Any,
) -> Any:
    """Decorator, bare or called: run the kernel once and model its time; ``kernel.benchmark_result`` has the latency.

    Args:
        kernel: a kernel or a plain function.
        warmup, iters: executions on a chip; every one takes the same modelled time.
        save_neff_name, save_trace_name, platform_target, options: see :func:`baremetal`.
    """
    if warmup < 0 or iters < 1:
        raise located(
            ConstraintFault(f"nki.benchmark(warmup={warmup}, iters={iters})", limit="warmup >= 0, iters >= 1")
        )
    if kernel is None:
        return lambda function: benchmark(
            function,
            save_neff_name=save_neff_name,
            save_trace_name=save_trace_name,
            platform_target=platform_target,
            **options,
        )
    return MeasuredKernel(kernel, platform_target, finish=lambda run: _save(run, save_neff_name, save_trace_name))


def profile(
    func: Callable[..., Any] | None = None,
    *,
    working_directory: str | None = None,
    save_neff_name: str = "file.neff",
    save_trace_name: str = "profile.ntff",
    overwrite: bool = False,
    profile_nth: int = 1,
    num_execs: int = 1,
    platform_target: Any = None,
    **options: Any,
) -> Any:
    """Decorator: run the kernel and write its program, profiles and summaries into a directory.

    Profiles are written for executions ``profile_nth``, ``2 * profile_nth``, ... up to ``num_execs``, at least for
    one: ``profile.ntff`` for the first execution, ``profile_exec_<n>.ntff`` for the n-th; all are alike.  Summaries go
    to ``json_reports``.

    Args:
        func: a kernel or a plain function.
        working_directory: absolute path; made if need be.
        overwrite: False refuses a directory in which the program's file exists.
        save_neff_name, save_trace_name, platform_target, options: see :func:`baremetal`.
    """
    if func is None:
        return lambda function: profile(
            function,
            working_directory=working_directory,
            save_neff_name=save_neff_name,
            save_trace_name=save_trace_name,
            overwrite=overwrite,
            profile_nth=profile_nth,
            num_execs=num_execs,
            platform_target=platform_target,
            **options,
        )
    if not working_directory or not Path(working_directory).is_absolute():
        raise located(
            ConstraintFault(f"nki.profile(working_directory={working_directory!r})", limit="an absolute path, required")
        )
    folder = Path(working_directory)
    executions = range(profile_nth, max(num_execs, profile_nth) + 1, profile_nth)

    def finish(run: Run) -> None:
        neff = folder / save_neff_name
        if neff.exists() and not overwrite:
            raise FileExistsError(f"{neff} exists; pass overwrite=True to nki.profile, or another working_directory")
        reports = folder / "json_reports"
        reports.mkdir(parents=True, exist_ok=True)
        _save(run, neff, None)
        stem, suffix = Path(save_trace_name).stem, Path(save_trace_name).suffix or ".ntff"
        for number in executions:
            name = f"{stem}{suffix}" if number == 1 else f"{stem}_exec_{number}{suffix}"
            _save(run, None, folder / name)
            _summary(run, reports / f"{Path(name).stem}.json")

    return MeasuredKernel(func, platform_target, finish=finish)


def _summary(run: Run, path: Path) -> None:
    from trn_sim.artifacts import save_summary

    save_summary(run.profile, path)
