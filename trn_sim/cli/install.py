"""``trn-sim install-neuron-profile``: put ``neuron-profile`` where scripts find it, or take it away."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

__all__ = ["command", "install", "remove"]

NAME = "neuron-profile"
MARK = "# trn-sim: neuron-profile"


def _script() -> str:
    return f"#!{sys.executable}\n{MARK}\nfrom trn_sim.cli.neuron_profile import main\n\nmain()\n"


def _ours(path: Path) -> bool:
    return path.is_file() and MARK in path.read_bytes()[:400].decode(errors="replace")


def install(folder: Path, *, force: bool = False) -> Path:
    """Write the launcher; returns its path.

    Raises:
        FileExistsError: another program has that name there.
    """
    path = folder / NAME
    if path.exists() and not _ours(path) and not force:
        raise FileExistsError(f"{path} exists and is not trn-sim's; --force replaces it")
    partial = path.with_name(f".{NAME}.partial")
    try:
        partial.write_text(_script())
        partial.chmod(0o755)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def remove(folder: Path) -> Path:
    """Take the launcher away; returns its path.

    Raises:
        FileNotFoundError: there is none of trn-sim's.
    """
    path = folder / NAME
    if not _ours(path):
        raise FileNotFoundError(f"{path} is not there, or not trn-sim's")
    path.unlink()
    return path


@click.command("install-neuron-profile", short_help="Install a neuron-profile command that reads trn-sim's files.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where to; default: beside the running Python.",
)
@click.option("--force", is_flag=True, help="Replace a neuron-profile that is not trn-sim's.")
@click.option("--remove", "take_away", is_flag=True, help="Take it away again.")
def command(folder: Path | None, force: bool, take_away: bool) -> None:
    """Install 'neuron-profile' for scripts that call it: 'capture', and 'view --output-format summary-json' or
    'summary-text', on what nki.baremetal, nki.benchmark and nki.profile have saved on trn-sim."""
    folder = folder or Path(sys.executable).parent
    try:
        path = remove(folder) if take_away else install(folder, force=force)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{'removed' if take_away else 'installed'} {path}")
