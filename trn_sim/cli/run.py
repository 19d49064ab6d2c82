"""``trn-sim run``: any script that imports nki, unchanged, and what its kernels took."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trn_sim.cli._execute import guard
from trn_sim.cli._options import (
    json_option,
    machine,
    machine_options,
    only_json_on_stdout,
    output_option,
    quiet_option,
    show,
    trace_option,
    traceback_option,
)
from trn_sim.cli._progress import progress
from trn_sim.view.report import Report

if TYPE_CHECKING:
    from rich.console import Console

    from trn_sim.nki.kernel import Run
    from trn_sim.view.trace import Trace

__all__ = ["RunReport", "command", "run_script"]


@dataclass(slots=True)
class RunReport(Report):
    """What the kernels of a script took, in the order in which they ran.

    Attributes:
        script: what ran.
        exit_code: the script's own.
        runs: per kernel run: kernel, target, cores, instructions, times in nanoseconds, what bounds it, seconds on the
            host.
        profiles: the whole reports, where asked for.
    """

    script: str
    exit_code: int = 0
    runs: list[dict[str, Any]] = field(default_factory=list)
    profiles: list[Report] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        """Script, exit code, runs, and the profiles where asked for."""
        data: dict[str, Any] = {"script": self.script, "exit_code": self.exit_code, "runs": self.runs}
        if self.profiles:
            data["profiles"] = [profile.json() for profile in self.profiles]
        return data

    def render(self, console: Console) -> None:
        """A line per run; runs in a row that took the same share one."""
        from trn_sim.view.units import duration

        for profile in self.profiles:
            profile.render(console)
            console.print()
        shown = [
            (
                f"{run['kernel']} on {run['target']}: {duration(run['total_ns'])} "
                f"({duration(run['band_ns'][0])} to {duration(run['band_ns'][1])})  {run['bound_by']}"
            )
            for run in self.runs
        ]
        at = 0
        while at < len(shown):
            same = at
            while same < len(shown) and shown[same] == shown[at]:
                same += 1
            times = f"  x {same - at}" if same - at > 1 else ""
            console.print(f"trn-sim: {shown[at]}{times}", markup=False, soft_wrap=True)
            at = same
        if not self.runs:
            console.print(f"trn-sim: {self.script} ran no kernel")


def run_script(
    script: str,
    arguments: tuple[str, ...] = (),
    *,
    module: bool = False,
    observe: bool = True,
    profiles: bool = False,
    trace: str | None = None,
) -> RunReport:
    """Run a script as ``__main__`` with ``import nki`` served by trn-sim.

    Args:
        script: file, or with ``module`` the name of a module.
        arguments: its ``sys.argv[1:]``.
        observe: time every kernel run; False leaves that out.
        profiles: keep the whole report of every run.
        trace: file for a trace of all runs.

    Raises:
        click.UsageError: no such file.
        Exception: whatever the script raises, except SystemExit, which gives the report its exit code.
    """
    from trn_sim.finder import activate
    from trn_sim.view.trace import open_trace

    if not module and not Path(script).is_file():
        raise click.UsageError(f"there is no file {script}")
    report = RunReport(script)
    with ExitStack() as stack:
        # Opened before the script runs: a missing package should not cost a run.
        pending = stack.enter_context(open_trace(trace)) if trace is not None else None
        if observe or profiles or pending is not None:
            stack.enter_context(_observed(report, profiles=profiles, trace=pending))
        activate(override=True)
        with _as_main(script, arguments, module=module):
            try:
                if module:
                    runpy.run_module(script, run_name="__main__", alter_sys=True)
                else:
                    runpy.run_path(script, run_name="__main__")
            except SystemExit as end:
                report.exit_code = _exit_code(end)
    return report


@contextmanager
def _observed(report: RunReport, *, profiles: bool, trace: Trace | None) -> Iterator[None]:
    """Note every kernel run of the block that ends well."""
    from trn_sim.nki.kernel import on_run
    from trn_sim.view.launch_report import report_of
    from trn_sim.view.timeline import timelines

    def note(run: Run) -> None:
        if run.error is not None:
            return
        profile = run.profile
        report.runs.append(
            {
                "kernel": run.kernel,
                "target": run.program.target.name,
                "cores": len(run.cores),
                "instructions": sum(len(core.program) for core in run.cores),
                "total_ns": profile.total_ns,
                "band_ns": list(profile.band_ns),
                "bound_by": profile.bound_by,
                "host_seconds": run.seconds,
            }
        )
        if profiles:
            report.profiles.append(report_of(run.kernel, profile))
        if trace is not None:
            trace.add(*timelines(run.kernel, profile))

    on_run.append(note)
    try:
        yield
    finally:
        on_run.remove(note)


@contextmanager
def _as_main(script: str, arguments: tuple[str, ...], *, module: bool) -> Iterator[None]:
    """``sys.argv`` and ``sys.path[0]`` as Python itself would set them."""
    argv, path = sys.argv, sys.path[:]
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path.cwd() if module else Path(script).resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


def _exit_code(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    print(end.code, file=sys.stderr)
    return 1


@click.command(
    "run", short_help="Run a script and time its kernels.", context_settings={"allow_interspersed_args": False}
)
@click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as with python -m.")
@machine_options
@click.option("--profile", "profiles", is_flag=True, help="Report every kernel run as 'trn-sim profile' does.")
@json_option
@output_option
@trace_option
@quiet_option
@traceback_option
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    context: click.Context,
    script: str,
    arguments: tuple[str, ...],
    module: bool,
    target: str | None,
    uninitialized: str | None,
    profiles: bool,
    as_json: bool,
    output: str | None,
    trace: str | None,
    quiet: bool,
    traceback: bool,
) -> None:
    """Run SCRIPT, unchanged, with 'import nki' served by trn-sim; then say what its kernels took.

    Options for trn-sim come before SCRIPT; everything after it belongs to the script.

    \b
    trn-sim run --target trn2 examples/softmax.py
    trn-sim run -m pytest tests/test_my_kernels.py
    """
    wanted = as_json or profiles or output is not None or not quiet
    with (
        machine(target, uninitialized),
        guard(traceback=traceback, as_json=as_json),
        only_json_on_stdout(as_json and output is None),
        progress(f"running {script}", quiet=quiet),
    ):
        report = run_script(script, arguments, module=module, observe=wanted, profiles=profiles, trace=trace)
    if wanted:
        show(report, as_json=as_json, output=output)
    context.exit(report.exit_code)
