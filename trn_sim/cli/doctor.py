"""``trn-sim doctor``: is this installation sound?"""

from __future__ import annotations

import click

from trn_sim.cli._options import json_option, output_option, show

__all__ = ["command"]


@click.command("doctor")
@json_option
@output_option
@click.pass_context
def command(context: click.Context, as_json: bool, output: str | None) -> None:
    """Check versions, packages, caches and targets.

    Ends with 1 if something is wrong; a note is not.
    """
    from trn_sim.doctor import diagnose

    diagnosis = diagnose()
    show(diagnosis, as_json=as_json, output=output)
    context.exit(0 if diagnosis.healthy else 1)
