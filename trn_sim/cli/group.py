"""The group of verbs, its exit codes, and what happens to an exception that nobody handled."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from trn_sim import __version__
from trn_sim.cli import disasm, doctor, install, profile, run
from trn_sim.cli._fault import ScriptError

__all__ = ["INTERRUPTED", "cli", "main"]

INTERRUPTED = 130  # 128 + SIGINT, as shells say it

EPILOG = """\b
Exit codes:
  0    done
  1    a fault of the kernel or an error of the script; 'doctor': something is wrong
  2    the command line is not understood
  3    a gap of the simulator: the kernel may be right
  130  interrupted
'run' ends with the script's own code where the script ends by itself.
"""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="trn-sim")
def cli() -> None:
    """AWS Trainium without the chip: run, time and inspect kernels at the level of instructions."""


for _command in (run.command, profile.command, disasm.command, doctor.command, install.command):
    cli.add_command(_command)


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the console script; ends the process with the codes of ``trn-sim --help``."""
    try:
        code = cli.main(args, prog_name="trn-sim", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except ScriptError as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        print("trn-sim: interrupted", file=sys.stderr)
        code = INTERRUPTED
    sys.exit(code)
