"""The machine: one NeuronCore that checks, records and executes what front ends issue.

Issue = check, append to the program, execute, in one call, so that Python control flow, prints and ``breakpoint()``
see values.  Legality and work depend only on an instruction's key, so each shape is checked once; what remains per
instruction is a dictionary look-up, the row in the stream and the arithmetic.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

import numpy as np
import numpy.typing as npt

from isa import dtypes
from isa.dtypes import DType
from isa.faults import ConstraintFault, Fault, KernelFault
from isa.instruction import Instruction
from isa.operands import AccessPattern, Space
from isa.place import ALONE, Place
from isa.program import Buffer, Program
from memory_model.memory import Memory, Storage
from trn_sim._executor import Executor
from trn_sim._races import PairExecutor, Watch
from trn_sim._source import user_frame, user_location
from trn_sim.options import SLACK, Options
from trn_sim.team import Team

__all__ = ["Core", "Options", "core_stack", "current_core", "launch_profile", "use_core"]


class Core:
    """One physical NeuronCore with its memories, its recorded program and its engines' state."""

    def __init__(
        self,
        options: Options | None = None,
        *,
        place: Place = ALONE,
        team: Team | None = None,
        beside: Core | None = None,
    ) -> None:
        """
        Args:
            options: how it behaves; None asks the environment.
            place: where it stands among the cores of a launch.
            team: what it waits for other cores with; None for a core that works alone.
            beside: another core of the same rank, whose HBM it shares.
        """
        self.options = options if options is not None else Options.from_environment()
        self.target = self.options.target
        self.program = Program(self.target)
        self.memory: Memory = Memory(
            self.target,
            precise=self.options.precise,
            uninitialized=self.options.uninitialized,
            slack=SLACK if self.options.beyond else 0,
            beside=None if beside is None else beside.memory,
        )
        self.executor = Executor(self.target, self.memory, place, team)
        if place.cores > 1:
            self.executor = PairExecutor(self.target, self.memory, place, team)
            known = None if beside is None else beside.executor
            self.executor.watch = known.watch if isinstance(known, PairExecutor) else Watch(place.cores)
        self.place = place
        self._shared: dict[tuple[str, int], tuple[Storage, set[int]]] = {} if beside is None else beside._shared
        self._shared_counts: dict[str, int] = {}
        if beside is not None:
            self.program.buffers = beside.program.buffers
        self._templates: dict[tuple[Any, ...], int] = {}
        self._lines: dict[tuple[CodeType, int], int] = {}
        self._values = self.options.values

    # --- issuing ----------------------------------------------------------------------------------

    def issue(self, ins: Instruction, *, name: str | None = None) -> int:
        """Check, record and execute one instruction; returns its position in the program.

        Raises:
            Fault: the instruction is illegal, reads unwritten bytes, leaves its memory...; the fault carries the
                user's source line.
        """
        try:
            key = ins.key()
            template = self._templates.get(key)
            if template is None:
                template = self._admit(ins, key)
            ins.constrain_address(self.target)
            index = self.program.append(template, self._line(), ins)
            if name:
                self.program.names[index] = name
            if self._values or ins.control:
                ins.run(self.executor)
        except Fault as fault:
            if fault.instruction is None:
                fault.instruction = ins.mnemonic
            if fault.target is None:
                fault.target = str(self.target)
            fault.locate(*user_location())
            raise
        return index

    def _admit(self, ins: Instruction, key: tuple[Any, ...]) -> int:
        ins.check(self.target)
        engine = ins.select_engine(self.target)
        template = self.program.add_template(ins, engine, ins.queue(self.target), ins.work(self.target))
        self._templates[key] = template
        return template

    def _line(self) -> int:
        frame = user_frame(2)
        if frame is None:
            return self.program.source_id("<unknown>", 0, "")
        key = (frame.f_code, frame.f_lasti)
        number = self._lines.get(key)
        if number is None:
            code = frame.f_code
            number = self._lines[key] = self.program.source_id(code.co_filename, frame.f_lineno, code.co_name)
        return number

    def add_edge(self, consumer: int, producer: int) -> None:
        """An explicit ordering edge: ``consumer`` waits for ``producer``."""
        if not 0 <= producer < consumer < len(self.program):
            raise KernelFault(
                f"instruction {consumer} cannot wait for instruction {producer}",
                limit="the producer comes before the consumer in program order",
            )
        self.program.edges.append((consumer, producer))

    # --- memory -----------------------------------------------------------------------------------

    def allocate(
        self,
        space: Space,
        shape: tuple[int, ...],
        dtype: DType,
        *,
        name: str = "",
        address: tuple[int, int] | None = None,
    ) -> Storage:
        """Reserve an on-chip tile (partitions, free...); ``address`` is (start partition, byte offset) or None.

        Raises:
            CapacityFault: the memory is full; the message is the map of what is live.
        """
        try:
            source = user_location()[:2]
            return self.memory.allocate(space, shape, dtype, name=name, address=address, source=source)
        except Fault as fault:
            fault.locate(*user_location())
            raise

    def hbm(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        *,
        name: str = "",
        kind: str = "internal",
        array: npt.NDArray[Any] | None = None,
    ) -> Storage:
        """Reserve an HBM tensor, or take the caller's ``array`` (in place where it is contiguous) as one."""
        try:
            if array is not None:
                storage = self.memory.bind(array, dtype, name=name, kind=kind)
            else:
                storage = self.memory.allocate_hbm(shape, dtype, name=name, kind=kind, source=user_location()[:2])
        except Fault as fault:
            fault.locate(*user_location())
            raise
        self.program.buffers.append(Buffer(name, storage.address, storage.nbytes, kind))
        return storage

    def shared_hbm(self, shape: tuple[int, ...], dtype: DType, *, name: str = "") -> Storage:
        """An HBM tensor that all cores of the rank share: whoever comes first makes it.

        The n-th tensor of a name is one on all cores; tensors without a name count together.

        Raises:
            ConstraintFault: another core has made a different tensor in this place.
        """
        cores = self.place.cores
        if cores == 1:
            return self.hbm(shape, dtype, name=name, kind="output")
        count = self._shared_counts[name] = self._shared_counts.get(name, 0) + 1
        known = self._shared.get((name, count))
        if known is None:
            storage = self.hbm(shape, dtype, name=name, kind="output")
            self._shared[name, count] = storage, {self.place.core}
            return storage
        storage, takers = known
        if (storage.shape, storage.dtype) != (shape, dtype):
            label = f"called '{name}'" if name else "without a name"
            fault = ConstraintFault(
                f"shared_hbm tensor number {count} {label} is {shape} {dtype} on core {self.place.core}, and "
                f"{storage.shape} {storage.dtype} on core {min(takers)} (made at {storage.place})",
                limit="all cores make the same shared tensors, in the same order or under the same names",
                target=str(self.target),
                advice="name the tensors; what belongs to one core goes into nl.private_hbm",
            )
            fault.locate(*user_location())
            raise fault
        takers.add(self.place.core)
        if len(takers) == cores:
            del self._shared[name, count]  # from here on it lives as long as somebody holds it
        return storage

    def read_back(self, storage: Storage) -> npt.NDArray[Any]:
        """The whole tensor as a numpy array of its shape and dtype."""
        self.finish()
        return dtypes.to_numpy(self.memory.export(storage), storage.dtype)

    def peek(self, operand: AccessPattern) -> npt.NDArray[Any]:
        """Values of an operand as a numpy array, for printing and debugging; changes nothing."""
        if operand.space is Space.REGISTER:
            return np.array([self.executor.read_register(operand)])
        operand = self.executor.resolve(operand)
        if operand.space is Space.PSUM:
            with self.executor.pending.peek_guard(operand):
                return self._copy_out(operand)
        return self._copy_out(operand)

    def _copy_out(self, operand: AccessPattern) -> npt.NDArray[Any]:
        view = self.memory.view(operand).copy()
        if view.dtype == operand.dtype.storage:
            return dtypes.to_numpy(view, operand.dtype)
        return view  # NKI_PRECISE_FP=0 holds low-precision floats as float32

    # --- registers --------------------------------------------------------------------------------

    def new_register(self, value: int | None = None) -> AccessPattern:
        """A fresh 32-bit register of the sequencer."""
        registers = self.executor.registers
        registers.append(value or 0)
        return AccessPattern(Space.REGISTER, dtypes.int32, 0, ((1, 1),), buffer=len(registers) - 1)

    def register_value(self, register: AccessPattern) -> int:
        """Present value of a register."""
        return self.executor.read_register(register)

    # --- results ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Execute whatever is still pending."""
        self.executor.pending.flush()

    def profile(self, *, target: Any = None, rates: Any = None) -> Any:
        """Time, counters and bounds of the recorded program (:class:`perf_model.profile.Profile`)."""
        from memory_model.hazards import edges
        from perf_model.profile import profile

        return profile(self.program, edges(self.program), target=target, rates=rates)


def launch_profile(cores: Sequence[Core], *, target: Any = None, rates: Any = None) -> Any:
    """Time, counters and bounds of what the cores of one launch have recorded: a
    :class:`perf_model.launch.LaunchProfile`, of one core its :class:`perf_model.profile.Profile`."""
    if len(cores) == 1:
        return cores[0].profile(target=target, rates=rates)
    from isa.meetings import meetings
    from memory_model.hazards import edges
    from perf_model.launch import profile_launch

    programs = [core.program for core in cores]
    return profile_launch(
        programs,
        [edges(program) for program in programs],
        meetings(programs, cores=cores[0].place.cores),
        titles=[core.place.title() for core in cores],
        target=target,
        rates=rates,
    )


_cores = threading.local()


def core_stack() -> list[Core]:
    """The cores of the kernels that run on this thread, innermost last; the list itself, which changes with them."""
    stack: list[Core] | None = getattr(_cores, "stack", None)
    if stack is None:
        stack = _cores.stack = []
    return stack


def current_core() -> Core:
    """The core that runs the present kernel.

    Raises:
        KernelFault: no kernel is running.
    """
    stack = getattr(_cores, "stack", None)
    if not stack:
        fault = KernelFault(
            "NKI instructions and tensors exist only inside a kernel",
            advice="decorate the function with @nki.jit and call it with arrays, or use nki.simulate(function)(arrays)",
        )
        fault.locate(*user_location())
        raise fault
    core: Core = stack[-1]
    return core


@contextmanager
def use_core(core: Core) -> Iterator[Core]:
    """Make ``core`` the current one for this thread."""
    stack = core_stack()
    stack.append(core)
    try:
        yield core
    finally:
        stack.pop()
