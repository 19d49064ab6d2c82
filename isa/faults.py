"""What can go wrong, named by whose fault it is.

``KernelFault`` and its children are the kernel's fault: the program breaks a rule of the chip, and would be
refused, or give other values, on hardware.  ``SimulatorGap`` and its children are ours: the program may be right.
Nothing continues after either one.

A fault says what happened, on which instruction and operand, which limit of which generation was broken and what
to do about it.  The machine adds the user's source line on its way out (:meth:`Fault.locate`).
"""

from __future__ import annotations

__all__ = [
    "CapacityFault",
    "ConstraintFault",
    "DeadlockFault",
    "Fault",
    "InternalFault",
    "KernelFault",
    "NumericFault",
    "OutOfBoundsFault",
    "RaceFault",
    "SimulatorGap",
    "UnimplementedFault",
    "UninitializedReadFault",
    "UnverifiedFault",
]


class Fault(Exception):
    """Base of every fault.  ``category`` is the stable name that tools and tests match on."""

    category = "fault"

    def __init__(
        self,
        message: str,
        *,
        instruction: str | None = None,
        operand: str | None = None,
        limit: str | None = None,
        target: str | None = None,
        advice: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.instruction = instruction
        self.operand = operand
        self.limit = limit
        self.target = target
        self.advice = advice
        self.file: str | None = None
        self.line: int | None = None
        self.function: str | None = None

    def locate(self, file: str, line: int, function: str = "") -> None:
        """Attach the user's source line; the first caller wins, because it is the innermost."""
        if self.file is None:
            self.file, self.line, self.function = file, line, function

    def __str__(self) -> str:
        subject = self.instruction or ""
        if self.operand:
            subject = f"{subject} operand '{self.operand}'" if subject else f"operand '{self.operand}'"
        lines = [f"{subject}: {self.message}" if subject else self.message]
        if self.limit:
            lines.append(f"  limit: {self.limit}" + (f" ({self.target})" if self.target else ""))
        elif self.target:
            lines.append(f"  target: {self.target}")
        if self.advice:
            lines.append(f"  help: {self.advice}")
        if self.file is not None:
            lines.append(f"  at {self.file}:{self.line}" + (f", in {self.function}" if self.function else ""))
        return "\n".join(lines)

    def as_dict(self) -> dict[str, object]:
        """The fault as plain data, for ``--json``."""
        return {
            "category": self.category,
            "message": self.message,
            "instruction": self.instruction,
            "operand": self.operand,
            "limit": self.limit,
            "target": self.target,
            "advice": self.advice,
            "file": self.file,
            "line": self.line,
        }


class KernelFault(Fault):
    """The program breaks a rule of the chip."""

    category = "kernel"


class ConstraintFault(KernelFault, ValueError):
    """An operand or a combination of operands that the instruction does not accept on this generation."""

    category = "constraint"


class OutOfBoundsFault(KernelFault, IndexError):
    """An address or index outside the memory or tensor it belongs to.

    Attributes:
        element: element that a run-time index asks for, and number of elements it may choose from; None elsewhere.
    """

    category = "out_of_bounds"
    element: tuple[int, int] | None = None


class CapacityFault(KernelFault, MemoryError):
    """SBUF, PSUM or HBM is full; the message holds the map of what is live."""

    category = "capacity"


class UninitializedReadFault(KernelFault):
    """A read of bytes that nothing has written."""

    category = "uninitialized_read"


class RaceFault(KernelFault):
    """Two accesses to the same bytes, at least one a write, with no order between them."""

    category = "race"


class DeadlockFault(KernelFault):
    """Every agent waits for another one."""

    category = "deadlock"


class NumericFault(KernelFault, ArithmeticError):
    """A value outside the range in which the instruction is defined."""

    category = "numeric_range"


class SimulatorGap(Fault):
    """The program may be right; trn-sim cannot tell."""

    category = "gap"


class UnimplementedFault(SimulatorGap, NotImplementedError):
    """Known to exist on the chip, not built here."""

    category = "unimplemented"


class UnverifiedFault(SimulatorGap):
    """Built, but on a combination nobody has checked against a source."""

    category = "unverified"


class InternalFault(SimulatorGap, RuntimeError):
    """A bug of trn-sim."""

    category = "internal"
