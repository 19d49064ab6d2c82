"""``neuron-profile``: AWS's command, as far as scripts call it, on programs and profiles that trn-sim has saved.

It is installed by ``trn-sim install-neuron-profile`` alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from trn_sim import __version__

__all__ = ["cli", "main"]

FORMATS = ("summary-json", "summary-text", "json")
_EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="neuron-profile (trn-sim)")
def cli() -> None:
    """neuron-profile of trn-sim: modelled profiles, without a chip."""


def _program(path: Path) -> Any:
    from trn_sim.artifacts import load_program

    try:
        return load_program(path)
    except ValueError as error:
        raise click.ClickException(
            f"{error}.  Programs come from nki.baremetal(save_neff_name=...), nki.benchmark or nki.profile on trn-sim; "
            "what AWS's compiler makes cannot be read"
        ) from error


@cli.command()
@click.option("-n", "--neff", type=_EXISTING, required=True, help="Program to time.")
@click.option(
    "-s", "--session-file", type=click.Path(dir_okay=False, path_type=Path), default="profile.ntff", show_default=True
)
@click.option("--profile-nth-exec", type=click.IntRange(min=1), default=1, help="Names the file; all are alike.")
@click.option("--num-exec", type=click.IntRange(min=1), default=1, help="No effect: all executions are alike.")
@click.option("--ignore-exec-errors", is_flag=True, help="No effect.")
def capture(neff: Path, session_file: Path, profile_nth_exec: int, num_exec: int, ignore_exec_errors: bool) -> None:  # noqa: ARG001
    """Time a saved program and write its profile."""
    from trn_sim.artifacts import profile_of, save_profile

    if profile_nth_exec > 1:
        session_file = session_file.with_name(f"{session_file.stem}_exec_{profile_nth_exec}{session_file.suffix}")
    save_profile(profile_of(_program(neff)), session_file)
    click.echo(f"wrote {session_file}", err=True)


@cli.command()
@click.option("-n", "--neff", type=_EXISTING, required=True, help="Program.")
@click.option("-s", "--session-file", type=_EXISTING, required=True, help="Its profile.")
@click.option("--output-format", default="db", help=f"One of {', '.join(FORMATS)}.")
@click.option("--output-file", type=click.Path(dir_okay=False, path_type=Path), help="Instead of standard output.")
@click.option("--ignore-nc-buf-usage", is_flag=True, help="No effect.")
def view(
    neff: Path,
    session_file: Path,
    output_format: str,
    output_file: Path | None,
    ignore_nc_buf_usage: bool,  # noqa: ARG001
) -> None:
    """Print the summary of a profile."""
    from trn_sim.artifacts import load_profile
    from trn_sim.view.neuron_summary import as_json, as_tables, as_text

    if output_format not in FORMATS:
        raise click.UsageError(
            f"--output-format {output_format} does not exist on trn-sim; there are {', '.join(FORMATS)}.  "
            f"For a timeline: trn-sim profile {neff} --trace FILE"
        )
    try:
        summary = load_profile(session_file, _program(neff))
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    text = {"summary-json": as_json, "summary-text": as_text, "json": as_tables}[output_format](summary)
    if output_file is None:
        click.echo(text)
    else:
        output_file.write_text(text + "\n")


def main() -> None:
    """Entry point of the installed script."""
    sys.exit(cli(prog_name="neuron-profile"))


if __name__ == "__main__":
    main()
