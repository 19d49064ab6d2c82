"""``trn-sim profile``: run one kernel on given or generated inputs and report its time."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trn_sim.cli._execute import execute, guard, is_program, load_program
from trn_sim.cli._options import (
    argument_option,
    cores_option,
    json_option,
    machine,
    machine_options,
    new_file,
    only_json_on_stdout,
    output_option,
    quiet_option,
    seed_option,
    show,
    trace_option,
    traceback_option,
)
from trn_sim.cli._progress import Progress, progress

if TYPE_CHECKING:
    from trn_sim.view.report import Report

__all__ = ["command", "profile"]


def profile(
    what: str,
    arguments: tuple[str, ...] = (),
    *,
    seed: int = 0,
    target: str | None = None,
    values: bool = True,
    trace: str | None = None,
    save_program: str | None = None,
    cores: int | None = None,
    line: Progress | None = None,
) -> Report:
    """Time ``SCRIPT_OR_MODULE:FUNCTION`` with inputs, or a saved program (a name ending in .npz) once more.

    Args:
        what, arguments, seed: as on the command line.
        target: generation for a saved program; None is the one that recorded it.
        values: False issues and times the instructions without computing values.
        trace: file for a trace.
        save_program: file for the recorded program; on several cores one file each, ``name.core0.npz`` and so on.
        cores: launch grid.
        line: progress line to tell the stages to.

    Raises:
        click.UsageError: nothing of that name, or inputs that do not fit.
        Exception: whatever the kernel raises; then no file is written.
    """
    from trn_sim.view.launch_report import report_of
    from trn_sim.view.timeline import timelines
    from trn_sim.view.trace import open_trace

    with ExitStack() as stack:
        # Opened before the kernel runs: a missing package or folder should not cost a run.
        pending = stack.enter_context(open_trace(trace)) if trace is not None else None
        if is_program(what):
            from memory_model.hazards import edges
            from perf_model.profile import profile as time_program

            if cores is not None:
                raise click.UsageError(f"{what} is a saved program of one core: --cores has no use")
            program = load_program(what, arguments)
            programs = [program]
            kernel = Path(what).stem
            if line is not None:
                line.stage(f"timing {kernel}")
            result: Any = time_program(program, edges(program), target=target)
        else:
            run = execute(what, arguments, seed=seed, values=values, cores=cores)
            programs, kernel = [core.program for core in run.cores], run.kernel
            if line is not None:
                line.stage(f"timing {kernel}")
            result = run.profile
        if pending is not None:
            if line is not None:
                line.stage("writing the trace")
            pending.add(*timelines(kernel, result))
        if save_program is not None:
            path = Path(save_program)
            for number, program in enumerate(programs):
                program.save(path if len(programs) == 1 else path.with_suffix(f".core{number}.npz"))
    return report_of(kernel, result)


@click.command("profile", short_help="Time one kernel, in detail.")
@click.argument("what", metavar="SCRIPT_OR_MODULE:FUNCTION | PROGRAM.npz")
@argument_option
@cores_option
@seed_option
@machine_options
@click.option(
    "--no-values", is_flag=True, help="Time only: no values are computed, and the kernel may not look at any."
)
@json_option
@output_option
@trace_option
@click.option(
    "--save-program",
    metavar="FILE.npz",
    callback=new_file,
    help="Keep the recorded instructions, to time or list them again.",
)
@quiet_option
@traceback_option
def command(
    what: str,
    arguments: tuple[str, ...],
    cores: int | None,
    seed: int,
    target: str | None,
    uninitialized: str | None,
    no_values: bool,
    as_json: bool,
    output: str | None,
    trace: str | None,
    save_program: str | None,
    quiet: bool,
    traceback: bool,
) -> None:
    """Run one kernel and report its time, what bounds it and where the time goes.

    Inputs are generated from their dtype and shape, or read from .npy files.

    \b
    trn-sim profile examples/matmul.py:fully_blocked \\
        --arg lhs_t='bf16[2048,2048]' --arg rhs='bf16[2048,2048]' --target trn2
    trn-sim profile softmax.npz --target trn3
    """
    if save_program is not None and not is_program(save_program):
        raise click.BadParameter("the name of a saved program ends in .npz", param_hint="--save-program")
    with (
        machine(target, uninitialized),
        guard(traceback=traceback, as_json=as_json),
        only_json_on_stdout(as_json),
        progress(f"running {what}", quiet=quiet) as line,
    ):
        report = profile(
            what,
            arguments,
            seed=seed,
            target=target,
            values=not no_values,
            trace=trace,
            save_program=save_program,
            cores=cores,
            line=line,
        )
    show(report, as_json=as_json, output=output)
