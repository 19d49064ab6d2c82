"""Loops, the launch grid, and scheduling hints.

A dynamic loop runs on the chip; here Python runs its body once per iteration, and the stream gets what the Sync
Engine's sequencer executes for it: a compare and branch before each iteration, an addition after it.  The copies that
the other sequencers execute at the same time are not modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from math import prod
from typing import Any

from isa.alu import ALU_OPS
from isa.engine import Engine
from isa.faults import ConstraintFault, KernelFault
from isa.sync import CompareBranch, RegisterAdd, RegisterMove
from trn_sim.machine import current_core
from trn_sim.nki import _launch
from trn_sim.nki._support import located, note
from trn_sim.nki.register import VirtualRegister

__all__ = [
    "affine_range",
    "dynamic_range",
    "fori_loop",
    "no_reorder",
    "num_programs",
    "program_id",
    "program_ndim",
    "sequential_range",
    "static_range",
    "while_loop",
]

_LESS = ALU_OPS["less"]


def _range(name: str, bounds: tuple[Any, ...], hints: dict[str, Any]) -> range:
    if any(isinstance(bound, VirtualRegister) for bound in bounds):
        raise located(
            ConstraintFault(
                f"nl.{name} with a register as bound",
                limit="bounds known when compiling",
                advice="use nl.dynamic_range or nl.fori_loop",
            )
        )
    if hints:
        note(f"nl.{name}({', '.join(f'{hint}=' for hint in hints)}): scheduling hints have no effect")
    start, stop, step = bounds
    return range(start) if stop is None else range(start, stop, step)


def affine_range(start: int, stop: int | None = None, step: int = 1, **hints: Any) -> range:
    """A plain unrolled loop; deprecated by NKI in favour of ``range``."""
    return _range("affine_range", (start, stop, step), hints)


def sequential_range(start: int, stop: int | None = None, step: int = 1, **hints: Any) -> range:
    """A plain unrolled loop; deprecated by NKI in favour of ``range``."""
    return _range("sequential_range", (start, stop, step), hints)


def static_range(start: int, stop: int | None = None, step: int = 1, **hints: Any) -> range:
    """A plain unrolled loop; deprecated by NKI in favour of ``range``."""
    return _range("static_range", (start, stop, step), hints)


def dynamic_range(start: Any, stop: Any = None, step: int = 1) -> Iterator[VirtualRegister]:
    """A loop on the chip; the loop variable is a register that cannot be written.

    Args:
        start, stop: integers or registers; one argument alone is ``stop``.
        step: positive integer, known when compiling.
    """
    if step.__class__ is not int or step < 1:
        raise AssertionError(f"nl.dynamic_range: step is a positive int known when compiling, not {step!r}")
    if _launch.inside_no_reorder():
        raise located(
            KernelFault(
                "a dynamic loop inside nl.no_reorder()",
                limit="static loops only",
                advice="put nl.no_reorder() into the body of the loop",
            )
        )
    first, last = (0, start) if stop is None else (start, stop)
    return _iterations(first, last, step)


def _iterations(first: Any, last: Any, step: int) -> Iterator[VirtualRegister]:
    core = current_core()
    counter = VirtualRegister(frozen=True)
    register = counter.operand()
    bound = last.operand() if isinstance(last, VirtualRegister) else int(last)
    core.issue(RegisterMove(register, first.operand() if isinstance(first, VirtualRegister) else int(first)))
    while True:
        branch = CompareBranch(register, _LESS, bound)
        core.issue(branch)
        if not branch.taken(core.executor):
            return
        yield counter
        core.issue(RegisterAdd(register, step, engine=Engine.sync))


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[VirtualRegister], None], step: int = 1) -> None:
    """``body_fun(i)`` for i from ``lower`` to ``upper`` (exclusive), on the chip; see :func:`dynamic_range`."""
    for i in dynamic_range(lower, upper, step):
        body_fun(i)


def while_loop(init: Any, body_fun: Callable[[VirtualRegister], VirtualRegister]) -> None:
    """``register = body_fun(register)`` while the register is not 0; it starts as ``init``."""
    if _launch.inside_no_reorder():
        raise located(KernelFault("a dynamic loop inside nl.no_reorder()", limit="static loops only"))
    register = init if isinstance(init, VirtualRegister) else VirtualRegister(init)
    while register:
        register = body_fun(register)
        if not isinstance(register, VirtualRegister):
            raise located(
                KernelFault(
                    f"the body of nl.while_loop returned {register!r}",
                    limit="it returns the register that decides on the next iteration",
                )
            )


def program_id(axis: int = 0) -> int:
    """Position of this core in the launch grid."""
    _check_axis(axis)
    return current_core().place.core


def num_programs(axes: int = 0) -> int:
    """Cores in the launch grid along ``axes``."""
    _check_axis(axes)
    return prod(_launch.grid())


def _check_axis(axis: Any) -> None:
    if axis not in (0, None):
        raise located(ConstraintFault(f"axis {axis} of the launch grid", limit="the grid has one axis, 0"))


def program_ndim() -> int:
    """Axes of the launch grid: 1 for ``kernel[n](...)``, 0 for ``kernel(...)``."""
    return len(_launch.grid())


def no_reorder() -> AbstractContextManager[None]:
    """``with nl.no_reorder():`` keeps the compiler from reordering instructions inside.

    Instructions are issued and modelled in program order anyway, so this only refuses what NKI refuses: dynamic loops.
    """
    return _launch.no_reorder_region()
