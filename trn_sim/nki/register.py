"""Registers of the sequencer as kernels see them.

A :class:`VirtualRegister` exists at run time on the chip.  Here it has a value at once, so ``while register`` and
comparisons work; what the compiler would refuse is refused (arithmetic) or noted (comparisons).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NoReturn

from isa.alu import ALU_OPS
from isa.faults import Fault, KernelFault
from isa.operands import AccessPattern
from isa.sync import CompareBranch
from trn_sim.machine import current_core
from trn_sim.nki._support import located, note

__all__ = ["VirtualRegister"]

_NOT_EQUAL = ALU_OPS["not_equal"]


class VirtualRegister:
    """A 32-bit register; made by ``nisa.register_alloc`` and by dynamic loops.

    Attributes:
        frozen: True for loop variables, which a kernel may not write.
    """

    __slots__ = ("_operand", "frozen")

    def __init__(self, state: Any = None, frozen: bool = False) -> None:
        if state.__class__ is AccessPattern:
            self._operand: AccessPattern = state
        else:
            self._operand = current_core().new_register(None if state is None else int(state))
        self.frozen = frozen

    def operand(self) -> AccessPattern:
        """The register as an instruction operand."""
        return self._operand

    @property
    def value(self) -> int:
        """The present value, for printing and debugging; on the chip no program can see it."""
        return current_core().register_value(self._operand)

    def __bool__(self) -> bool:
        """Whether a ``while`` loop goes on; costs the compare and branch that the loop has on the chip."""
        core = current_core()
        core.issue(CompareBranch(self._operand, _NOT_EQUAL, 0))
        return core.register_value(self._operand) != 0

    def _compare(self, other: Any, operator: str) -> bool:
        note(
            f"a register is compared ({operator}) in Python: works in the simulator, but the NKI compiler knows no "
            "branch on it; use 'while register' or device instructions"
        )
        value = other.value if isinstance(other, VirtualRegister) else other
        return bool(getattr(self.value, f"__{operator}__")(value))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (int, VirtualRegister)):
            return False
        return self is other or self._compare(other, "eq")

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, "lt")

    def __le__(self, other: Any) -> bool:
        return self._compare(other, "le")

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, "gt")

    def __ge__(self, other: Any) -> bool:
        return self._compare(other, "ge")

    def _refuse(self, *_: Any) -> NoReturn:
        raise located(
            KernelFault(
                "Python arithmetic on a register",
                limit="a register has a value on the chip only; Python sees none when the kernel is compiled",
                advice="scale with the stride instead: reshape the tensor and use .select(dim, register), .ap(..., "
                "scalar_offset=register), or the step of nl.dynamic_range",
            )
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = _refuse
    __mod__ = __rmod__ = __neg__ = __truediv__ = __rtruediv__ = __lshift__ = __rshift__ = __and__ = __or__ = _refuse
    __index__ = __int__ = __float__ = _refuse

    def __repr__(self) -> str:
        text = f"<VirtualRegister r{self._operand.buffer}"
        with suppress(Fault):  # outside of a kernel: a repr never fails
            text += f" = {self.value}"
        return text + (" frozen>" if self.frozen else ">")
