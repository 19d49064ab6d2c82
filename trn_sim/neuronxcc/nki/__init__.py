"""``neuronxcc.nki``: the older namespace (NKI 0.1), of which kernels of the current one import ``typing``.

Kernels written in it do not run yet; a name that is asked for says so.
"""

from __future__ import annotations

from typing import NoReturn

from isa.faults import UnimplementedFault
from trn_sim.neuronxcc.nki import typing
from trn_sim.nki._support import located

__all__ = ["typing"]


class _NotBuilt(UnimplementedFault, AttributeError):
    """An UnimplementedFault that ``hasattr`` understands."""


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    raise located(
        _NotBuilt(
            f"neuronxcc.nki.{name}: kernels of the older namespace (NKI 0.1) do not run on trn-sim yet",
            advice="port the kernel to the current nki (AWS's migration guide), which runs here",
        )
    )
