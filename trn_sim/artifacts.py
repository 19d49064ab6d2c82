"""Files that AWS's tools would leave behind, with what trn-sim knows in them: a program for a NEFF, its profile for an
NTFF.

The program is the stored format of :class:`isa.program.Program`.  A profile is JSON: ``format``, ``version``,
``program`` (SHA-256 of the instruction stream it was made from) and ``summary``
(:func:`trn_sim.view.neuron_summary.summarize`).  Files appear whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isa.faults import UnimplementedFault
from isa.program import Program

if TYPE_CHECKING:
    from perf_model.profile import Profile
    from trn_sim.nki.kernel import Run

__all__ = ["load_profile", "load_program", "profile_of", "save_profile", "save_program", "save_summary"]

FORMAT = "trn-sim profile"
VERSION = 1


def save_program(run: Run, path: Path) -> None:
    """Write the instruction stream of a run.

    Raises:
        UnimplementedFault: it ran on several cores.
    """
    if len(run.cores) > 1:
        raise UnimplementedFault(f"{run.kernel} ran on {len(run.cores)} cores; programs of one core can be saved")
    run.program.save(path)


def load_program(path: Path) -> Program:
    """Read a program.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is none of trn-sim's, e.g. a NEFF of AWS's compiler.
    """
    return Program.load(path)


def profile_of(program: Program) -> Profile:
    """The modelled time of a program."""
    from memory_model.hazards import edges
    from perf_model.profile import profile

    return profile(program, edges(program))


def _digest(program: Program) -> str:
    return hashlib.sha256(program.rows().tobytes() + program.words().tobytes()).hexdigest()


def save_profile(profile: Profile, path: Path) -> None:
    """Write the summary of a profile."""
    from trn_sim.view.neuron_summary import summarize

    record = {"format": FORMAT, "version": VERSION, "program": _digest(profile.program), "summary": summarize(profile)}
    _write(path, json.dumps(record, indent=1))


def save_summary(profile: Profile, path: Path) -> None:
    """Write the summary alone, as ``neuron-profile view --output-format summary-json`` prints it."""
    from trn_sim.view.neuron_summary import as_json, summarize

    _write(path, as_json(summarize(profile)))


def load_profile(path: Path, program: Program) -> dict[str, Any]:
    """The summary in a profile's file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is none of trn-sim's, or belongs to another program.
    """
    try:
        record = json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not a trn-sim profile: {error}") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"{path} is not a trn-sim profile")
    if record["version"] != VERSION:
        raise ValueError(f"{path} has format version {record['version']}; this build reads {VERSION}")
    if record["program"] != _digest(program):
        raise ValueError(f"{path} is the profile of another program; capture it again")
    summary: dict[str, Any] = record["summary"]
    return summary


def _write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text + "\n")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
