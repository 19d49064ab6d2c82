"""Kernels of the older namespace: ``nki.jit`` with its modes, and the functions that run, time and save a kernel."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

from isa.faults import ConstraintFault, OutOfBoundsFault
from isa.operands import Space
from memory_model.allocate import BankAllocator
from trn_sim.machine import Core, Options, use_core
from trn_sim.neuronxcc.nki import _grid, language
from trn_sim.neuronxcc.nki._rewrite import with_mask_logic
from trn_sim.neuronxcc.nki._tile import Tile, discard, settle
from trn_sim.nki._host import Arguments
from trn_sim.nki._support import located, note
from trn_sim.nki.kernel import Kernel, Run
from trn_sim.nki.regions import MemoryRegion

__all__ = ["TracedKernel", "jit", "simulate_kernel", "trace"]

MODES = ("auto", "jax", "torchxla", "baremetal", "benchmark", "simulation", "trace")
DEFAULT_TARGET = "trn2"
"""NKI 0.1 has no later generation."""


class _Arguments(Arguments):
    """Results may be in any memory, and incomplete, as in AWS's simulator of NKI 0.1."""

    returned: ClassVar = (MemoryRegion.shared_hbm, MemoryRegion.private_hbm)
    complete: ClassVar = False

    def give(self, value: Any, name: str) -> Any:
        if isinstance(value, Tile) and value.buffer.on_chip:
            note(f"{name} is in {value.buffer.name}; a kernel on the chip returns HBM tensors, so it is copied there")
            out = language.ndarray(value.shape, value.dtype, buffer=MemoryRegion.shared_hbm, name=value.name)
            language.store(out, value)
            value = out
        return super().give(value, name)


class TracedKernel(Kernel):
    """A kernel of the older namespace; made by :func:`jit`.

    ``kernel[g0, g1, ...](arrays...)`` runs the instances of a grid one after the other.  Inside another kernel a call
    is inlined.  The target is ``platform_target``, the environment's, or trn2.
    """

    def __init__(self, function: Callable[..., Any], platform_target: Any = None, precise: bool | None = None) -> None:
        """
        Args:
            function: the kernel's function.
            platform_target: the target; None: the environment's, else trn2.
            precise: False where low-precision floats are float32, as in AWS's simulator of NKI 0.1.
        """
        super().__init__(function)
        self.platform_target = platform_target
        self.precise = precise
        self._traced: Callable[..., Any] | None = None

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Run:
        """As :meth:`Kernel.run`.

        Raises:
            IndexError: in simulation mode, for a run-time index beyond its tensor: numpy's, which AWS's tests of the
                simulation mode ask for; its cause is the fault.
        """
        try:
            return super().run(args, kwargs, options)
        except OutOfBoundsFault as fault:
            if self.precise is not False or fault.element is None:
                raise
            element, size = fault.element
            raise IndexError(f"index {element} is out of bounds for axis 0 with size {size}") from fault

    def _copy(self) -> TracedKernel:
        twin = type(self)(self.function, self.platform_target, self.precise)
        twin._grid, twin._schedule = self._grid, self._schedule
        return twin

    def __getitem__(self, grid: Any) -> TracedKernel:
        """The kernel for a launch grid: integers, ``nl.nc(n)``, ``nl.spmd_dim(a, b)``."""
        sizes = grid if isinstance(grid, tuple) else (grid,)
        try:
            numbers = tuple(size.__index__() for size in sizes)
        except AttributeError:
            numbers = (-1,)
        if any(number < 1 for number in numbers):
            raise located(
                ConstraintFault(f"{self.name}[{grid!r}]", limit="positive integers, nl.nc(n), nl.spmd_dim(a, b)")
            )
        if any(not isinstance(size, int) for size in sizes):
            note("nl.nc spreads instances over physical cores; here all of them run on one", once=True)
        twin = self._copy()
        twin._grid = numbers
        return twin

    def options(self, **overrides: Any) -> Options:
        """As :meth:`Kernel.options`; tiles that AWS's compiler would spill or place over dead ones find room."""
        if overrides.get("target") is None:
            named = "NEURON_PLATFORM_TARGET_OVERRIDE" in os.environ
            overrides["target"] = self.platform_target or (None if named else DEFAULT_TARGET)
        if overrides.get("precise") is None and "NKI_PRECISE_FP" not in os.environ:
            overrides["precise"] = self.precise
        if overrides.get("overflow") is None and "TRN_SIM_OVERFLOW" not in os.environ:
            overrides["overflow"] = True
        return Options.from_environment(**overrides)

    def _cores(self, options: Options, *, ranks: int) -> list[Core]:
        grid, self._grid = self._grid, ()
        try:
            cores = super()._cores(options, ranks=ranks)
        finally:
            self._grid = grid
        for core in cores:
            allocator = core.memory.allocators[Space.PSUM]
            if isinstance(allocator, BankAllocator):
                allocator.inside = True
        return cores

    def _arguments(self, core: Core) -> Arguments:
        return _Arguments(core, Tile)

    def _body(self, core: Core, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        returned = None
        function = self._traced = self._traced or with_mask_logic(self.function)
        discard()
        try:
            with use_core(core), _grid.instances(self._grid) as positions:
                for _ in positions:
                    returned = function(*args, **kwargs)
                    settle()
                core.finish()
        finally:
            discard()
        return returned


def jit(func: Callable[..., Any] | None = None, mode: str = "auto", **kwargs: Any) -> Any:
    """Decorator, bare or called: a function as a kernel.

    Args:
        mode: jax, torchxla, baremetal and auto run it here; ``simulation`` too, with low-precision floats as float32,
            as AWS's simulator had them (``NKI_PRECISE_FP=1`` rounds them); ``benchmark`` also fills
            ``kernel.benchmark_result``; ``trace`` is for kernels that others call.
        kwargs: ``platform_target`` is the target; what concerns AWS's compiler has no effect.
    """
    if mode not in MODES:
        raise located(ConstraintFault(f"nki.jit(mode={mode!r})", limit=f"one of {', '.join(MODES)}"))
    if mode == "benchmark":
        from trn_sim.neuronxcc.nki.measure import benchmark

        return benchmark(func, **kwargs)
    target = kwargs.get("platform_target")
    if func is None:
        return lambda function: jit(function, mode, **kwargs)
    return TracedKernel(func, target, False if mode == "simulation" else None)


def trace(func: Callable[..., Any] | None = None, **_: Any) -> Any:
    """Decorator for kernels that others call."""
    return jit(func, "trace")


def simulate_kernel(kernel: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a kernel, or ``kernel[grid]``, or a plain function, on arrays; arrays that it writes to change in place.

    Low-precision floats are float32 inside, as in AWS's simulator, unless ``NKI_PRECISE_FP=1`` is set.
    """
    wrapped = kernel._copy() if isinstance(kernel, TracedKernel) else TracedKernel(kernel)
    wrapped.precise = False
    return wrapped(*args, **kwargs)  # inside a kernel: inline
