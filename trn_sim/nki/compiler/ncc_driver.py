"""``nki.compiler.ncc_driver``: the way from a front end's result to a NEFF, which ends here with a clear fault."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import NoReturn

from isa.faults import UnimplementedFault
from trn_sim.nki._support import located
from trn_sim.nki.compiler.frontend import FrontendResult

__all__ = ["CompileOptions", "CompiledKernel", "compile_mlir_to_neff"]


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of AWS's compiler; kept, never used."""

    target: str = "trn3"
    lnc: int = 1
    output_path: str | os.PathLike[str] = ""
    artifacts_dir: str | os.PathLike[str] = ""
    neuronx_cc_args: tuple[str, ...] = ()

    def disable_backend_optimizations(self) -> CompileOptions:
        """The same options: there is no backend."""
        return replace(self)


class CompiledKernel:
    """A NEFF of AWS's compiler: there is none here."""

    @classmethod
    def from_frontend(cls, result: FrontendResult, options: CompileOptions) -> NoReturn:
        """Always a fault: NEFF files hold machine code of the chip, which only AWS's compiler makes."""
        _no_neff("CompiledKernel.from_frontend")


def compile_mlir_to_neff(*_: object, **__: object) -> NoReturn:
    """Always a fault; see :meth:`CompiledKernel.from_frontend`."""
    _no_neff("compile_mlir_to_neff")


def _no_neff(name: str) -> NoReturn:
    raise located(
        UnimplementedFault(
            f"nki.compiler.ncc_driver.{name}: trn-sim makes no NEFF",
            advice="run the kernel, or save its instruction stream: trn_sim.run(kernel, ...).program.save(path)",
        )
    )
