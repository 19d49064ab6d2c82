"""Running what a verb was asked about: a function with inputs, or a program from a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trn_sim.cli._fault import ScriptError
from trn_sim.cli._load import bind, load_function

if TYPE_CHECKING:
    from isa.program import Program
    from trn_sim.nki.kernel import Run

__all__ = ["execute", "guard", "is_program", "load_program"]


@contextmanager
def guard(*, traceback: bool, as_json: bool) -> Iterator[None]:
    """Turn whatever the user's code raises into the error message of the command.

    Raises:
        ScriptError: around any exception but those that speak to the command line itself.
    """
    from trn_sim.view.perfetto import MissingViewExtraError

    try:
        yield
    except MissingViewExtraError as error:
        raise click.UsageError(str(error)) from None
    except (click.ClickException, ScriptError):
        raise
    except Exception as error:
        raise ScriptError(error, traceback=traceback, as_json=as_json) from None


def execute(place: str, arguments: Iterable[str], *, seed: int, values: bool = True, cores: int | None = None) -> Run:
    """Run ``SCRIPT_OR_MODULE:FUNCTION`` on the inputs; returns the run (:class:`trn_sim.nki.kernel.Run`).

    ``cores`` is the launch grid; None launches without one, on one core.

    Raises:
        click.UsageError: no such function, or inputs that do not fit it.
        Exception: whatever the kernel raises.
    """
    from trn_sim.nki.kernel import simulate

    function = load_function(place)
    bound = bind(function, arguments, seed=seed)
    kernel = simulate(function)
    if cores is not None:
        kernel = kernel[cores]
    return kernel.run(bound.args, bound.kwargs, kernel.options(values=values))


def is_program(text: str) -> bool:
    """True for the name of a saved program."""
    return text.endswith((".npz", ".neff"))


def load_program(path: str, arguments: Iterable[str] = ()) -> Program:
    """The program in a file.

    Raises:
        click.UsageError: no such file, not a program, or inputs for something that takes none.
    """
    from isa.program import Program

    if tuple(arguments):
        raise click.UsageError(f"{path} is a saved program: its inputs are part of the past, --arg has no use")
    try:
        return Program.load(Path(path))
    except (OSError, ValueError, KeyError) as error:
        raise click.UsageError(f"cannot load {path}: {error}") from None
