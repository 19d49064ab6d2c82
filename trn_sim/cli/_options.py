"""Options that several verbs share, and what becomes of a report."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from trn_sim.view.report import Report

__all__ = [
    "argument_option",
    "cores_option",
    "json_option",
    "machine",
    "machine_options",
    "new_file",
    "only_json_on_stdout",
    "output_option",
    "quiet_option",
    "seed_option",
    "show",
    "trace_option",
    "traceback_option",
]

F = TypeVar("F", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, to standard output.")


def new_file(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse a file that cannot be made before anything runs; a script may change the working directory meanwhile."""
    if value is None:
        return None
    path = Path(value).absolute()
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {Path(value).parent}")
    if path.is_dir():
        raise click.BadParameter(f"{value} is a folder")
    return str(path)


output_option = click.option(
    "-o",
    "--output",
    metavar="FILE",
    callback=new_file,
    help="Write the report (text, or JSON with --json) to FILE instead.",
)
trace_option = click.option(
    "--trace",
    metavar="FILE",
    callback=new_file,
    help="Write a trace for ui.perfetto.dev; a name ending in .json gives a Chrome trace.",
)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress line and no summary.")
traceback_option = click.option("--traceback", is_flag=True, help="Show the whole Python traceback of an error.")
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="Seed of generated inputs.")
cores_option = click.option(
    "--cores",
    type=click.IntRange(1, 2),
    help="Launch grid: kernel[1], or kernel[2] on a pair of cores.  [default: none, one core]",
)
argument_option = click.option(
    "-a",
    "--arg",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="An input: bf16[2048,2048], zeros:f32[128,512], rand(0,99):i32[128,1], @file.npy, 3, True. Repeatable.",
)


def machine_options(function: F) -> F:
    """``--target`` and ``--uninitialized``."""
    function = click.option(
        "--uninitialized",
        type=click.Choice(["error", "poison"]),
        help="A read of memory that nothing wrote: fault, or NaN and all-ones integers.  [default: error]",
    )(function)
    return click.option(
        "--target",
        metavar="trn1|trn2|trn3",
        help="Generation to simulate.  [default: NEURON_PLATFORM_TARGET_OVERRIDE, else trn3]",
    )(function)


@contextlib.contextmanager
def machine(target: str | None, uninitialized: str | None) -> Iterator[None]:
    """Make the options the defaults of everything that runs in the block, as the environment variables would.

    Raises:
        click.BadParameter: no such target.
    """
    from isa.target import resolve_target

    try:
        name = resolve_target(target).name
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--target") from None
    before = dict(os.environ)
    if target is not None:
        os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = name
    if uninitialized is not None:
        os.environ["TRN_SIM_UNINITIALIZED"] = uninitialized
    try:
        yield
    finally:
        for variable in ("NEURON_PLATFORM_TARGET_OVERRIDE", "TRN_SIM_UNINITIALIZED"):
            if variable in before:
                os.environ[variable] = before[variable]
            else:
                os.environ.pop(variable, None)


def show(report: Report, *, as_json: bool, output: str | None = None) -> None:
    """Print a report, or write it to ``output`` whole."""
    from trn_sim.view.report import dump_json, open_whole

    if output is not None:
        with open_whole(Path(output)) as file:
            file.write(dump_json(report.json()) if as_json else report.text())
    elif as_json:
        sys.stdout.write(dump_json(report.json()))
        sys.stdout.flush()
    else:
        from rich.console import Console

        from trn_sim.view.report import WIDTH

        if sys.stdout.isatty():
            report.render(Console(highlight=False, emoji=False))
        else:
            sys.stdout.write(report.text(width=WIDTH))
        sys.stdout.flush()


@contextlib.contextmanager
def only_json_on_stdout(active: bool) -> Iterator[None]:
    """While the user's code runs, send what it prints to standard error, its child processes' output included."""
    if not active:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
