"""``neuronxcc.nki``: the older namespace (NKI 0.1), on the same instructions as the present one."""

from __future__ import annotations

from typing import Any, NoReturn

from isa.faults import UnimplementedFault
from trn_sim.neuronxcc.nki import compiler, isa, language, typing
from trn_sim.neuronxcc.nki._tile import Tile as tensor  # noqa: N813
from trn_sim.neuronxcc.nki.kernel import jit, simulate_kernel, trace
from trn_sim.neuronxcc.nki.measure import baremetal, benchmark, profile
from trn_sim.nki._support import MissingNameFault, located

__all__ = [
    "FrameworkKernel", "baremetal", "benchmark", "compiler", "isa", "jit", "language", "profile", "simulate_kernel",
    "tensor", "trace", "typing",
]  # fmt: skip


class FrameworkKernel:
    """Base of the glue between kernels and AWS's frameworks: not built yet."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise located(
            UnimplementedFault(
                "neuronxcc.nki.FrameworkKernel: the glue of AWS's frameworks does not exist here",
                advice="call the kernel with numpy arrays or PyTorch tensors",
            )
        )


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    raise located(MissingNameFault(f"neuronxcc.nki.{name} does not exist on trn-sim"))
