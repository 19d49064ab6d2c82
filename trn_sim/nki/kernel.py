"""Kernels: functions that run on the simulated core when they are called with arrays.

A call makes a core, gives the kernel tensors for its arrays, runs it, and returns arrays.  Within a running kernel a
call of another one is inlined.  What a call recorded is kept as a :class:`Run`.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, overload

from isa.faults import ConstraintFault, Fault, KernelFault, UnimplementedFault
from isa.program import Program
from trn_sim._source import user_location
from trn_sim.machine import Core, Options, use_core
from trn_sim.nki import _launch
from trn_sim.nki._host import Arguments, is_host_array, walk
from trn_sim.nki._support import located, note, running_core
from trn_sim.nki.tensor import NkiTensor

__all__ = ["Kernel", "Run", "jit", "last_run", "on_run", "run", "simulate"]


@dataclass(slots=True)
class Run:
    """What one call of a kernel left behind.

    Attributes:
        kernel: name of the kernel.
        core: the core with its memories and its recorded program.
        inputs: name, shape, dtype of each array, and other arguments, as text.
        result: what the kernel returned, as arrays.
        seconds: time the simulation took on the host.
        error: the exception that ended the kernel, a :class:`Fault` or the kernel's own, or None.
    """

    kernel: str
    core: Core
    inputs: list[str]
    result: Any = None
    seconds: float = 0.0
    error: BaseException | None = None
    _profile: Any = field(default=None, repr=False)

    @property
    def program(self) -> Program:
        """The recorded instruction stream."""
        return self.core.program

    @property
    def profile(self) -> Any:
        """Modelled time and counters (:class:`perf_model.profile.Profile`); computed on first use."""
        if self._profile is None:
            self._profile = self.core.profile()
        return self._profile


on_run: list[Callable[[Run], None]] = []
"""Called with the :class:`Run` after every kernel, also after one that ended with a fault."""

_last: Run | None = None


def last_run() -> Run:
    """The last kernel call of this process.

    Raises:
        KernelFault: no kernel has run yet.
    """
    if _last is None:
        raise KernelFault("no kernel has run yet", advice="call a function decorated with @nki.jit")
    return _last


_OLD_OPTIONS = {
    "mode": "mode= has had no effect since NKI 0.3: kernels always run on the simulator here",
    "debug_kernel": "debug_kernel= concerns the compiler; kernels run as Python here, so use breakpoint()",
    "show_compiler_tb": "show_compiler_tb= concerns the compiler; faults show your source line anyway",
    "experimental_flags": "experimental_flags= concerns the compiler and has no effect here",
    "additional_compile_opt": "additional_compile_opt= concerns the compiler and has no effect here",
}


class Kernel:
    """A callable kernel; made by :func:`jit`.

    ``kernel(arrays...)`` runs it on one core, ``kernel[1](...)`` too.  ``inspect.signature`` and ``getsource`` see the
    function.

    Attributes:
        last_run: the :class:`Run` of the last call, or None.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any] | None = None) -> None:
        if isinstance(function, Kernel):  # decorators on top of each other mean the innermost function
            function = function.function
        if not callable(function):
            raise TypeError(f"nki.jit takes a function, not {function!r}")
        functools.update_wrapper(self, function)
        self.function: Callable[..., Any] = function
        self.last_run: Run | None = None
        self._grid: tuple[int, ...] = ()
        self._schedule: tuple[tuple[str, tuple[str, ...]], ...] = ()
        for name in options or {}:
            if name == "platform_target":
                raise located(
                    ConstraintFault(
                        "nki.jit(platform_target=...) is refused since NKI 0.3",
                        advice="set the environment variable NEURON_PLATFORM_TARGET_OVERRIDE, e.g. to trn2",
                    )
                )
            note(_OLD_OPTIONS.get(name, f"nki.jit({name}=...) is unknown here and has no effect"), once=True)

    def _copy(self) -> Kernel:
        twin = Kernel(self.function)
        twin._grid, twin._schedule = self._grid, self._schedule
        return twin

    def __getitem__(self, cores: Any) -> Kernel:
        """The kernel for a number of logical cores: 1, or 2 for a pair (not built yet)."""
        if cores.__class__ is not int or cores not in (1, 2):
            raise located(
                ConstraintFault(
                    f"{self.name}[{cores!r}]",
                    limit="one integer: 1 core, or 2 (LNC2, NeuronCore-v3 and later)",
                    advice="grids of other shapes belong to the old namespace neuronxcc.nki; loop inside the kernel",
                )
            )
        twin = self._copy()
        twin._grid = (cores,)
        return twin

    def with_schedule(self, edges: Iterable[tuple[str, str | Iterable[str]]]) -> Kernel:
        """The kernel with ordering edges (consumer, producer or producers) between instructions called ``name=``.

        Values do not change; in the modelled time the consumer waits for its producers, which come before it in the
        program.
        """
        twin = self._copy()
        added = tuple((after, (before,) if isinstance(before, str) else tuple(before)) for after, before in edges)
        twin._schedule = self._schedule + added
        return twin

    @property
    def name(self) -> str:
        """Name of the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel on arrays; inside a kernel, on its tensors."""
        if self._is_inline(args, kwargs):
            return self.function(*args, **kwargs)
        return self.run(args, kwargs, Options.from_environment()).result

    def _is_inline(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if running_core() is None:
            return False
        arrays = tensors = False

        def look(value: Any, _: str) -> Any:
            nonlocal arrays, tensors
            arrays |= is_host_array(value)
            tensors |= isinstance(value, NkiTensor)
            return value

        walk((args, kwargs), look, "")
        return tensors or not arrays

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Run:
        """Run the kernel on a fresh core.

        Raises:
            Fault: the kernel breaks a rule; ``last_run`` keeps what happened until then.
        """
        global _last
        if self._grid == (2,):
            raise located(
                UnimplementedFault(
                    f"{self.name}[2]: two cores (LNC2) are not built yet", advice="run it on one core: kernel(...)"
                )
            )
        core = Core(options)
        arguments = Arguments(core)
        run = Run(self.name, core, [])
        start = time.perf_counter()
        try:
            with use_core(core), _launch.launch(self._grid):
                args, kwargs = self._take(arguments, args, kwargs, run.inputs)
                returned = self.function(*args, **kwargs)
                core.finish()
                self._add_edges(core)
                arguments.finish()
                run.result = walk(returned, arguments.give, "the result")
        except BaseException as error:
            run.error = error
            if isinstance(error, Fault):
                error.locate(*user_location(1))
                error.target = error.target or str(core.target)
            raise
        finally:
            run.seconds = time.perf_counter() - start
            self.last_run = _last = run
            for callback in on_run:
                callback(run)
        return run

    def _take(
        self, arguments: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any], summary: list[str]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        names = list(inspect.signature(self.function).parameters)
        names += [f"argument {i}" for i in range(len(names), len(args))]
        args = tuple(walk(value, arguments.take, name) for name, value in zip(names, args, strict=False))
        kwargs = {name: walk(value, arguments.take, name) for name, value in kwargs.items()}
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            text = f"{value.shape} {value.dtype}" if isinstance(value, NkiTensor) else _short(value)
            summary.append(f"{name}: {text}")
        return args, kwargs

    def _add_edges(self, core: Core) -> None:
        if not self._schedule:
            return
        places: dict[str, list[int]] = {}
        for position, name in sorted(core.program.names.items()):
            places.setdefault(name, []).append(position)
        for after, producers in self._schedule:
            for name in (after, *producers):
                if name not in places:
                    known = ", ".join(f"'{one}'" for one in places) or "none"
                    raise KernelFault(
                        f"with_schedule: no instruction is called '{name}'",
                        advice=f"give it name=...; the names are: {known}",
                    )
            for before in producers:
                for consumer in places[after]:
                    earlier = [position for position in places[before] if position < consumer]
                    if not earlier:
                        raise KernelFault(
                            f"with_schedule: '{after}' waits for '{before}', which is issued after it",
                            limit="the producer comes before the consumer in the program",
                        )
                    core.add_edge(consumer, earlier[-1])

    def __repr__(self) -> str:
        return f"<nki kernel {self.name}>"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


@overload
def jit(fn: Callable[..., Any], **kwargs: Any) -> Kernel: ...
@overload
def jit(fn: None = None, **kwargs: Any) -> Callable[[Callable[..., Any]], Kernel]: ...
def jit(fn: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Decorator, bare or called: a function as a :class:`Kernel`.

    Arguments of older NKI versions are accepted with a note; ``platform_target`` is refused as NKI does.
    """
    if fn is None:
        return lambda function: Kernel(function, kwargs)
    return Kernel(fn, kwargs)


def simulate(kernel: Callable[..., Any]) -> Kernel:
    """The kernel itself: every call runs on the simulator.  Plain functions are wrapped."""
    return kernel if isinstance(kernel, Kernel) else Kernel(kernel)


def run(
    kernel: Callable[..., Any],
    *args: Any,
    target: Any = None,
    precise: bool | None = None,
    uninitialized: str | None = None,
    values: bool | None = None,
    **kwargs: Any,
) -> Run:
    """Run a kernel and return the whole :class:`Run`: result, program, profile.

    Args:
        kernel: a kernel or a plain function.
        args, kwargs: its arguments.
        target, precise, uninitialized, values: see :class:`trn_sim.Options`; the environment decides where left out.
    """
    options = Options.from_environment(target=target, precise=precise, uninitialized=uninitialized, values=values)
    return simulate(kernel).run(args, kwargs, options)
