"""``nki.compiler.frontend``: from a kernel and its inputs to what a compiler would go on with.

Here that is the recorded instruction stream: compiling a kernel runs it on the simulated cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from isa.program import Program
from trn_sim.nki.kernel import Run, simulate
from trn_sim.options import Options

__all__ = ["FrontendResult", "NKIFrontend", "ParserFrontend", "TracerFrontend"]


@dataclass(frozen=True, slots=True)
class FrontendResult:
    """What :meth:`NKIFrontend.compile` gives.

    Attributes:
        run: the run that recorded the program.
        output_names: as they were passed.
    """

    run: Run
    output_names: tuple[str, ...] = ()

    @property
    def program(self) -> Program:
        """The recorded instruction stream."""
        return self.run.program


class NKIFrontend:
    """Base of the front ends; they differ in how AWS's compiler reads Python, which makes no difference here."""

    def compile(
        self,
        kernel: Callable[..., Any],
        *,
        inputs: Mapping[str, Any],
        target: str,
        lnc: int = 1,
        artifacts_dir: str | os.PathLike[str] | None = None,
        dump_python_ast: bool = False,
        output_names: list[str] | None = None,
    ) -> FrontendResult:
        """Run the kernel once and keep its instruction stream.

        Args:
            kernel: a kernel or a plain function.
            inputs: its arguments by name; arrays give shapes, dtypes and values.
            target: a target's name, such as ``trn2``.
            lnc: number of physical cores behind the logical one.
            artifacts_dir, dump_python_ast: of AWS's compiler; nothing is written.
            output_names: names of the results.

        Raises:
            Fault: the kernel breaks a rule.
        """
        options = Options.from_environment(target=target)
        run = simulate(kernel)[lnc].run((), dict(inputs), options)
        return FrontendResult(run, tuple(output_names or ()))


class ParserFrontend(NKIFrontend):
    """AWS's front end that parses the kernel's source."""


class TracerFrontend(NKIFrontend):
    """AWS's front end that traces the kernel as it runs."""
