"""How a core behaves: one frozen dataclass that is also the documentation of each switch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from isa.target import Target, resolve_target

__all__ = ["Options"]


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
    """

    target: Target = field(default_factory=resolve_target)
    precise: bool = True
    uninitialized: str = "error"
    values: bool = True

    def __post_init__(self) -> None:
        if self.uninitialized not in ("error", "poison"):
            raise ValueError(f"uninitialized is 'error' or 'poison', not {self.uninitialized!r}")

    @classmethod
    def from_environment(cls, **overrides: Any) -> Options:
        """Options from the environment variables above; keyword arguments win.

        Raises:
            ValueError: a variable holds something it cannot mean.
        """
        precise = os.environ.get("NKI_PRECISE_FP", "1")
        if precise not in ("0", "1"):
            raise ValueError(f"NKI_PRECISE_FP is 0 or 1, not {precise!r}")
        values: dict[str, Any] = {
            "precise": precise == "1",
            "uninitialized": os.environ.get("TRN_SIM_UNINITIALIZED", "error"),
        }
        values.update({name: value for name, value in overrides.items() if value is not None})
        values["target"] = resolve_target(values.get("target"))
        return cls(**values)
