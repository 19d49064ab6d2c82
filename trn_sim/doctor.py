"""Is this installation sound?  What ``trn-sim doctor`` checks, one function per question.

The four packages have plain names, and another distribution may put a package called ``isa`` in the same
environment; AWS ships a real ``nki``, and PyPI a placeholder of that name.  Each of these is told apart here.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trn_sim.view.report import Report

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Diagnosis", "Finding", "diagnose"]

OK, NOTE, WRONG = "ok", "note", "wrong"
_PACKAGES = ("isa", "memory_model", "perf_model", "trn_sim")
_MARKS = {OK: ("ok", "green"), NOTE: ("note", "yellow"), WRONG: ("WRONG", "bold red")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer to one question.  ``status`` is ok, note (works, but know it) or wrong."""

    check: str
    status: str
    detail: str
    advice: str | None = None


class Diagnosis(Report):
    """All findings; ``healthy`` where nothing is wrong."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings

    @property
    def healthy(self) -> bool:
        """No finding is wrong."""
        return all(finding.status != WRONG for finding in self.findings)

    def json(self) -> dict[str, Any]:
        """``healthy`` and the findings."""
        return {"healthy": self.healthy, "findings": [asdict(finding) for finding in self.findings]}

    def render(self, console: Console) -> None:
        """A line per finding, its advice below."""
        from rich.text import Text

        width = max(len(finding.check) for finding in self.findings)
        for finding in self.findings:
            mark, style = _MARKS[finding.status]
            line = Text.assemble((f"{mark:<7}", style), f"{finding.check:<{width}}  {finding.detail}")
            if finding.advice:
                line.append(f"\n{'':{width + 9}}{finding.advice}")
            console.print(line, soft_wrap=True)


def diagnose() -> Diagnosis:
    """Ask every question.  A question that cannot be answered is a finding, never an exception."""
    findings: list[Finding] = []
    for check in _CHECKS:
        name = check.__name__.removeprefix("_check_").replace("_", " ")
        try:
            findings.extend(check())
        except Exception as error:  # the doctor is for broken installations
            findings.append(Finding(check=name, status=WRONG, detail=f"{type(error).__name__}: {error}"))
    return Diagnosis(findings)


def _check_python() -> Iterator[Finding]:
    supported = sys.version_info >= (3, 11)
    yield Finding(
        check="python",
        status=OK if supported else WRONG,
        detail=f"{platform.python_version()} ({sys.executable}), {platform.system()} {platform.machine()}",
        advice=None if supported else "trn-sim needs Python 3.11 or later",
    )


def _check_versions() -> Iterator[Finding]:
    for name in ("trn-sim", "numpy", "numba", "simpy", "ml_dtypes", "click", "rich"):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            advice = "pip install -e ." if name == "trn-sim" else f"pip install {name}"
            yield Finding(check=name, status=WRONG, detail="not installed", advice=advice)
        else:
            yield Finding(check=name, status=OK, detail=version)


def _check_packages() -> Iterator[Finding]:
    """The four packages come from one place; nothing of the same name stands in front of them."""
    home = Path(__file__).resolve().parents[1]
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if origin is None:
            yield Finding(check=f"package {name}", status=WRONG, detail="not importable", advice="reinstall trn-sim")
        elif origin.parents[1] != home:
            yield Finding(
                check=f"package {name}",
                status=WRONG,
                detail=f"{origin} is not trn-sim's: another distribution has a package of this name",
                advice=f"use an environment without it, or put {home} first on the path",
            )
        else:
            yield Finding(check=f"package {name}", status=OK, detail=str(origin.parent))


def _check_numba_cache() -> Iterator[Finding]:
    """Compiled code is kept on disk, so that only the first process pays for it."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(chosen)] if chosen else [Path(__file__).resolve().parents[1] / name for name in _PACKAGES]
    locked = [place for place in places if not _writable(place)]
    if locked:
        yield Finding(
            check="numba cache",
            status=NOTE,
            detail=f"cannot write to {', '.join(map(str, locked))}: compiled code goes to numba's user-wide cache",
            advice="set NUMBA_CACHE_DIR to a folder that lasts between runs",
        )
    else:
        yield Finding(check="numba cache", status=OK, detail=chosen or "beside the source files")


def _writable(place: Path) -> bool:
    while not place.exists():
        place = place.parent
    return os.access(place, os.W_OK)


def _check_nki() -> Iterator[Finding]:
    """Which ``nki`` a kernel gets."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("nki")
    if spec is None:
        yield Finding(check="nki", status=OK, detail="served by trn-sim (trn-sim run, trn_sim.activate())")
        return
    where = spec.origin or ", ".join(spec.submodule_search_locations or ())
    if PathFinder.find_spec("nki.language", spec.submodule_search_locations) is None:
        yield Finding(
            check="nki",
            status=NOTE,
            detail=f"{where} is the placeholder from PyPI, not AWS's package",
            advice="pip uninstall nki",
        )
    else:
        yield Finding(
            check="nki",
            status=NOTE,
            detail=f"AWS's own package is installed: {where}",
            advice="'trn-sim run' and 'trn-sim profile' serve theirs from trn-sim; a plain python process gets AWS's",
        )


def _check_torch() -> Iterator[Finding]:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        yield Finding(
            check="torch", status=OK, detail="not installed (optional)", advice="pip install 'trn-sim[torch]' to use it"
        )
    else:
        yield Finding(check="torch", status=OK, detail=version)


def _check_perfetto() -> Iterator[Finding]:
    try:
        version = importlib.metadata.version("perfetto")
    except importlib.metadata.PackageNotFoundError:
        yield Finding(
            check="perfetto",
            status=OK,
            detail="not installed (optional)",
            advice="pip install 'trn-sim[view]' for --trace; traces ending in .json need nothing",
        )
    else:
        yield Finding(check="perfetto", status=OK, detail=version)


def _check_targets() -> Iterator[Finding]:
    """Every generation has a description and rates that can be read."""
    from isa.target import TARGETS, resolve_target

    try:
        default = resolve_target()
    except ValueError as error:
        yield Finding(check="default target", status=WRONG, detail=str(error), advice="mend the variable or unset it")
    else:
        yield Finding(check="default target", status=OK, detail=str(default))
    from perf_model.rates import load_rates

    for name, target in TARGETS.items():
        try:
            rates = load_rates(target)
        except (OSError, ValueError) as error:
            yield Finding(check=f"target {name}", status=WRONG, detail=str(error), advice="reinstall trn-sim")
        else:
            guessed = sum(rate.guessed for rate in rates.values())
            yield Finding(
                check=f"target {name}",
                status=OK,
                detail=f"{target.core}, {target.neuron_cores} cores a chip; {len(rates)} rates, {guessed} guessed",
            )


_CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _check_python,
    _check_versions,
    _check_packages,
    _check_numba_cache,
    _check_nki,
    _check_torch,
    _check_perfetto,
    _check_targets,
)
