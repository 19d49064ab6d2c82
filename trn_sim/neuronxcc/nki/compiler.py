"""``neuronxcc.nki.compiler``: direct allocation, and directives to AWS's compiler, which change no value here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trn_sim.neuronxcc.nki._allocation import Region
from trn_sim.nki.language import no_reorder
from trn_sim.nki.regions import MemoryRegion

__all__ = [
    "enable_stack_allocator", "force_auto_alloc", "no_reorder", "psum", "sbuf", "skip_middle_end_transformations",
]  # fmt: skip

sbuf = Region(MemoryRegion.sbuf)
psum = Region(MemoryRegion.psum)


def _unchanged(func: Callable[..., Any] | None) -> Any:
    """``func``, or a decorator that returns what it gets."""
    return func if func is not None else lambda function: function


def enable_stack_allocator(func: Callable[..., Any] | None = None, log_level: int = 50) -> Any:  # noqa: ARG001
    """Decorator, bare or called: AWS's compiler places tensors on a stack by their scopes.  No effect here."""
    return _unchanged(func)


def force_auto_alloc(func: Callable[..., Any] | None = None) -> Any:
    """Decorator, bare or called: AWS's compiler ignores the kernel's own addresses.  No effect here: they are kept."""
    return _unchanged(func)


def skip_middle_end_transformations(func: Callable[..., Any] | None = None) -> Any:
    """Decorator, bare or called: AWS's compiler leaves loops and instructions as they are.  No effect here: they are
    left so anyway."""
    return _unchanged(func)
