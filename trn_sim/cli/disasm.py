"""``trn-sim disasm``: the instructions of a kernel, or of a saved program, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trn_sim.cli._execute import execute, guard, is_program, load_program
from trn_sim.cli._options import (
    argument_option,
    json_option,
    machine,
    machine_options,
    only_json_on_stdout,
    output_option,
    quiet_option,
    seed_option,
    show,
    traceback_option,
)
from trn_sim.cli._progress import progress

if TYPE_CHECKING:
    from trn_sim.view.listing import Listing

__all__ = ["command", "disassemble"]


def disassemble(
    what: str,
    arguments: tuple[str, ...] = (),
    *,
    seed: int = 0,
    start: int = 0,
    stop: int | None = None,
    engine: str | None = None,
) -> Listing:
    """The listing of a saved program (a name ending in .npz) or of ``SCRIPT_OR_MODULE:FUNCTION`` with inputs.

    Raises:
        click.UsageError: nothing of that name, or inputs that do not fit.
    """
    from trn_sim.view.listing import Listing

    program = load_program(what, arguments) if is_program(what) else execute(what, arguments, seed=seed).program
    return Listing(program, start=start, stop=stop, engine=engine)


@click.command("disasm", short_help="List the instructions of a kernel.")
@click.argument("what", metavar="PROGRAM.npz | SCRIPT_OR_MODULE:FUNCTION")
@argument_option
@seed_option
@machine_options
@click.option("--start", type=click.IntRange(min=0), default=0, help="First instruction.")
@click.option("--stop", type=click.IntRange(min=0), help="Instruction to stop before.")
@click.option(
    "--engine",
    type=click.Choice(["tensor", "vector", "scalar", "gpsimd", "dma", "sync"]),
    help="Only the instructions of one engine.",
)
@json_option
@output_option
@quiet_option
@traceback_option
def command(
    what: str,
    arguments: tuple[str, ...],
    seed: int,
    target: str | None,
    uninitialized: str | None,
    start: int,
    stop: int | None,
    engine: str | None,
    as_json: bool,
    output: str | None,
    quiet: bool,
    traceback: bool,
) -> None:
    """List the instructions of a kernel or of a program saved by 'trn-sim profile --save-program'.

    \b
    trn-sim disasm examples/softmax.py:softmax --arg x='f32[128,512]'
    trn-sim disasm softmax.npz --engine vector
    """
    with (
        machine(target, uninitialized),
        guard(traceback=traceback, as_json=as_json),
        only_json_on_stdout(as_json),
        progress(f"running {what}", quiet=quiet),
    ):
        listing = disassemble(what, arguments, seed=seed, start=start, stop=stop, engine=engine)
    show(listing, as_json=as_json, output=output)
