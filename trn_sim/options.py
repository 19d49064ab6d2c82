"""How a core behaves: one frozen dataclass that is also the documentation of each switch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

from isa.target import Target, resolve_target

__all__ = ["SLACK", "Options"]

SLACK = 256  # bytes per partition
_OVERFLOW = 1 << 26  # bytes per partition; the host has memory for what is used of them


def _switch(variable: str, *, default: str) -> bool:
    value = os.environ.get(variable, default)
    if value not in ("0", "1"):
        raise ValueError(f"{variable} is 0 or 1, not {value!r}")
    return value == "1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Options of one run.

    Attributes:
        target: generation that is simulated.  Environment: ``NEURON_PLATFORM_TARGET_OVERRIDE``; default trn3, as in
            AWS's simulator.
        precise: False keeps low-precision floats in float32 on the host, which tells an algorithm's fault from a
            rounding's.  Environment: ``NKI_PRECISE_FP`` (1 or 0).
        uninitialized: ``error`` faults at a read of bytes that nothing wrote; ``poison`` fills fresh memory with NaN
            and all-ones integers and reads on.  Environment: ``TRN_SIM_UNINITIALIZED``.
        values: False issues and times instructions without executing them; a kernel that looks at a value then gets a
            clear fault.
        overflow: tiles that find no place in SBUF get one behind it, up to 64 MiB in each partition, with a note,
            where AWS's compiler would spill to HBM; PSUM tiles without an address of their own go behind PSUM.  Values
            are right; the modelled time leaves the spilling out.  Environment: ``TRN_SIM_OVERFLOW`` (1 or 0).
        beyond: an access pattern in SBUF may reach up to 256 bytes beyond its tile, where on the chip something else
            lies; kernels that do so drop what they read.  A fault otherwise.
    """

    target: Target = field(default_factory=resolve_target)
    precise: bool = True
    uninitialized: str = "error"
    values: bool = True
    overflow: bool = False
    beyond: bool = False

    def __post_init__(self) -> None:
        if self.uninitialized not in ("error", "poison"):
            raise ValueError(f"uninitialized is 'error' or 'poison', not {self.uninitialized!r}")
        behind = _OVERFLOW if self.overflow else 0
        if (self.target.sbuf_overflow, self.target.psum_overflow) != (behind, behind):
            object.__setattr__(self, "target", replace(self.target, sbuf_overflow=behind, psum_overflow=behind))

    @classmethod
    def from_environment(cls, **overrides: Any) -> Options:
        """Options from the environment variables above; keyword arguments win.

        Raises:
            ValueError: a variable holds something it cannot mean.
        """
        values: dict[str, Any] = {
            "precise": _switch("NKI_PRECISE_FP", default="1"),
            "uninitialized": os.environ.get("TRN_SIM_UNINITIALIZED", "error"),
        }
        values.update({name: value for name, value in overrides.items() if value is not None})
        values["target"] = resolve_target(values.get("target"))
        values.setdefault("overflow", _switch("TRN_SIM_OVERFLOW", default="0"))
        return cls(**values)
