"""Kernels: functions that run on the simulated core when they are called with arrays.

A call makes a core, gives the kernel tensors for its arrays, runs it, and returns arrays.  Within a running kernel a
call of another one is inlined.  What a call recorded is kept as a :class:`Run`.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from isa.faults import ConstraintFault, Fault, KernelFault
from isa.program import Program
from trn_sim._source import user_location
from trn_sim.machine import Core, Options, launch_profile, use_core
from trn_sim.nki import _launch
from trn_sim.nki._cores import agreed, make_cores, run_cores
from trn_sim.nki._host import Arguments, is_host_array, walk
from trn_sim.nki._support import located, note, running_core
from trn_sim.nki.tensor import NkiTensor

__all__ = ["Kernel", "Run", "jit", "last_run", "on_run", "run", "simulate"]


@dataclass(slots=True)
class Run:
    """What one call of a kernel left behind.

    Attributes:
        kernel: name of the kernel.
        cores: the cores with their memories and their recorded programs: one, a pair, or those of all ranks.
        inputs: name, shape, dtype of each array, and other arguments, as text.
        result: what the kernel returned, as arrays; of a launch on ranks, a list by rank.
        seconds: time the simulation took on the host.
        error: the exception that ended the kernel, a :class:`Fault` or the kernel's own, or None.
    """

    kernel: str
    cores: list[Core]
    inputs: list[str]
    result: Any = None
    seconds: float = 0.0
    error: BaseException | None = None
    _profile: Any = field(default=None, repr=False)

    @property
    def core(self) -> Core:
        """The core, the first of several."""
        return self.cores[0]

    @property
    def program(self) -> Program:
        """The recorded instruction stream, of the first core."""
        return self.core.program

    @property
    def profile(self) -> Any:
        """Modelled time and counters, computed on first use: a :class:`perf_model.profile.Profile`, on several cores a
        :class:`perf_model.launch.LaunchProfile`."""
        if self._profile is None:
            self._profile = launch_profile(self.cores)
        return self._profile


on_run: list[Callable[[Run], None]] = []
"""Called with the :class:`Run` after every kernel, also after one that ended with a fault."""

_last: Run | None = None

FIRST_PAIRS = 3
"""The first generation with pairs of cores."""


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

    ``kernel(arrays...)`` runs it on one core, ``kernel[1](...)`` too, ``kernel[2](...)`` on a pair of cores (LNC2) that
    share an HBM; on ranks with collectives :func:`trn_sim.run_ranks` does.  ``inspect.signature`` and ``getsource`` see
    the function.

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
        """The kernel for a number of physical cores: 1, or 2 for a pair that works as one logical core."""
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
        return self.run(args, kwargs, self.options()).result

    def options(self, **overrides: Any) -> Options:
        """Options of a run: ``overrides``, then the environment; see :class:`trn_sim.Options`."""
        return Options.from_environment(**overrides)

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
        """Run the kernel on fresh cores: on one, or on the pair that ``kernel[2]`` asks for.

        Raises:
            Fault: the kernel breaks a rule; ``last_run`` keeps what happened until then.
        """
        run = Run(self.name, self._cores(options, ranks=1), [])
        self._note(run, lambda: self._launch(run, [(args, kwargs)])[0])
        return run

    def run_ranks(self, inputs: Sequence[tuple[tuple[Any, ...], dict[str, Any]]], options: Options) -> Run:
        """Run the kernel on one rank for each entry of ``inputs``; the result is a list by rank."""
        run = Run(self.name, self._cores(options, ranks=len(inputs)), [])
        self._note(run, lambda: self._launch(run, inputs))
        return run

    def _note(self, run: Run, body: Callable[[], Any]) -> None:
        """Put the result of ``body``, its time and its error into ``run``, and tell everybody who wants to know."""
        global _last
        start = time.perf_counter()
        try:
            run.result = body()
        except BaseException as error:
            run.error = error
            if isinstance(error, Fault):
                error.locate(*user_location(1))
                error.target = error.target or str(run.core.target)
            raise
        finally:
            run.seconds = time.perf_counter() - start
            self.last_run = _last = run
            for callback in on_run:
                callback(run)

    def _launch(self, run: Run, inputs: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[Any]:
        """Run the function on ``run.cores``; inputs and results by rank."""
        cores = run.cores
        width = cores[0].place.cores
        ranks = [cores[first : first + width] for first in range(0, len(cores), width)]
        arguments = [self._arguments(own[0]) for own in ranks]
        bodies = []
        for core in cores:
            rank = core.place.rank
            with use_core(ranks[rank][0]):
                args, kwargs = self._take(arguments[rank], *inputs[rank], run.inputs if core is cores[0] else [])
            bodies.append(functools.partial(self._body, core, args, kwargs))
        returned = run_cores(cores, bodies)
        self._add_edges(cores)
        results = []
        for rank, own in enumerate(ranks):
            with use_core(own[0]):
                arguments[rank].finish()
                mine = agreed(returned[rank * width : (rank + 1) * width])
                results.append(walk(mine, arguments[rank].give, "the result"))
        return results

    def _arguments(self, core: Core) -> Arguments:
        return Arguments(core)

    def _body(self, core: Core, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with use_core(core), _launch.launch(self._grid):
            returned = self.function(*args, **kwargs)
            core.finish()
            return returned

    def _cores(self, options: Options, *, ranks: int) -> list[Core]:
        cores = self._grid[0] if self._grid else 1
        if cores > 1 and options.target.generation < FIRST_PAIRS:
            raise located(
                ConstraintFault(
                    f"{self.name}[{cores}]: two cores of this generation do not make a pair (LNC2)",
                    limit="one core; two on NeuronCore-v3 and later",
                    target=str(options.target),
                )
            )
        return make_cores(options, cores=cores, ranks=ranks)

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

    def _add_edges(self, cores: Sequence[Core]) -> None:
        if not self._schedule:
            return
        known = dict.fromkeys(name for core in cores for _, name in sorted(core.program.names.items()))
        for after, producers in self._schedule:
            for name in (after, *producers):
                if name not in known:
                    names = ", ".join(f"'{one}'" for one in known) or "none"
                    raise KernelFault(
                        f"with_schedule: no instruction is called '{name}'",
                        advice=f"give it name=...; the names are: {names}",
                    )
        for core in cores:
            places: dict[str, list[int]] = {}
            for position, name in sorted(core.program.names.items()):
                places.setdefault(name, []).append(position)
            for after, producers in self._schedule:
                for before in producers:
                    self._order(core, after, before, places)

    @staticmethod
    def _order(core: Core, after: str, before: str, places: dict[str, list[int]]) -> None:
        """Instructions ``after`` wait for the last ``before`` in front of them; a core may have neither."""
        if before not in places:
            return
        for consumer in places.get(after, []):
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
    """The kernel itself: every call runs on the simulator.  Plain functions are wrapped, as kernels of the namespace
    that their module imports."""
    if isinstance(kernel, Kernel):
        return kernel
    names = (getattr(value, "__name__", None) for value in getattr(kernel, "__globals__", {}).values())
    if any(isinstance(name, str) and name.startswith("trn_sim.neuronxcc.nki") for name in names):
        from trn_sim.neuronxcc.nki.kernel import TracedKernel

        return TracedKernel(kernel)
    return Kernel(kernel)


def run(
    kernel: Callable[..., Any],
    *args: Any,
    target: Any = None,
    precise: bool | None = None,
    uninitialized: str | None = None,
    values: bool | None = None,
    overflow: bool | None = None,
    **kwargs: Any,
) -> Run:
    """Run a kernel and return the whole :class:`Run`: result, program, profile.

    Args:
        kernel: a kernel or a plain function.
        args, kwargs: its arguments.
        target, precise, uninitialized, values, overflow: see :class:`trn_sim.Options`; the environment decides where
            left out.
    """
    wrapped = simulate(kernel)
    options = wrapped.options(
        target=target, precise=precise, uninitialized=uninitialized, values=values, overflow=overflow
    )
    return wrapped.run(args, kwargs, options)
