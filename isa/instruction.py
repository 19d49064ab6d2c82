"""The declaration of an instruction, and everything that follows from it.

An instruction is one class with the decorator :func:`instruction`.  Its fields are operands (:func:`Dst`,
:func:`Src`, :func:`SrcDst`) and immediates (:func:`Imm`).  From the fields follow the constructor, the checks and
their messages, the read and write sets, the key under which its work is costed once, its words in the stream, its
text, and its row in the instruction reference.  What a class adds by hand: ``constrain`` (rules between operands),
``select_engine`` where there is a choice, ``work`` and ``run``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeVar, dataclass_transform

import numpy as np
import numpy.typing as npt

from isa.dtypes import bfloat16, float16
from isa.engine import Engine
from isa.faults import ConstraintFault, InternalFault
from isa.indirect import check_engines, check_indirect
from isa.operands import AccessPattern, Space, start_partition_allowed
from isa.place import Place
from isa.target import Target
from isa.work import Work, WorkFlag

__all__ = [
    "INSTRUCTIONS",
    "Array",
    "Dst",
    "Imm",
    "Instruction",
    "Machine",
    "OperandSpec",
    "Scalar",
    "Src",
    "SrcDst",
    "instruction",
]

Array = npt.NDArray[Any]
Scalar = float | int | AccessPattern
DTypes = frozenset[str] | Callable[[Target], frozenset[str]]

ON_CHIP = (Space.SBUF, Space.PSUM)


class Machine(Protocol):
    """What ``run`` may ask of the machine that executes it.

    Two-dimensional arrays are (partitions, elements per partition).  Arrays returned by ``load`` and ``raw`` may be
    views of memory: do not write into them.
    """

    target: Target
    place: Place

    def load(self, operand: AccessPattern) -> npt.NDArray[np.float32]:
        """The operand converted to float32, two-dimensional."""

    def raw(self, operand: AccessPattern) -> Array:
        """The operand in its storage dtype (integers as they are, other dtypes as bits), two-dimensional."""

    def view(self, operand: AccessPattern, *, write: bool = False) -> Array:
        """Storage view in the operand's own shape, without a copy; marks it written when ``write``."""

    def store(self, operand: AccessPattern, values: Array) -> None:
        """Round float32 (or convert integer) values once to the operand's dtype and write them."""

    def store_raw(self, operand: AccessPattern, bits: Array) -> None:
        """Write storage bits unchanged; any shape with the right number of elements."""

    def gather(self, operand: AccessPattern, rows: npt.NDArray[np.int64]) -> Array:
        """Storage bits of the rows ``rows`` of an operand with a VECTOR run-time address: (len(rows), counts[1:]...).

        Row r starts ``r * operand.dynamic.stride`` elements after the operand's offset; ``rows`` must be in bounds."""

    def scatter(self, operand: AccessPattern, rows: npt.NDArray[np.int64], bits: Array) -> None:
        """Write storage bits to rows of an operand with a VECTOR run-time address; later rows win."""

    def scalar(self, value: Scalar) -> Any:
        """A float, or a (partitions, 1) float32 array where the operand is a tile."""

    def index(self, operand: AccessPattern) -> npt.NDArray[np.int64]:
        """Run-time indices held by an SBUF tile or a register, flattened partition by partition."""

    def accumulator(self, engine: Engine) -> npt.NDArray[np.float32]:
        """The 128 accumulator registers of the Scalar or Vector Engine, shape (128,); they outlive instructions."""

    def matmul(
        self,
        dst: AccessPattern,
        stationary: AccessPattern,
        moving: AccessPattern,
        *,
        accumulate: bool | None,
        double_row: bool = False,
    ) -> None:
        """dst (+)= stationary.T @ moving; may be executed later, when somebody looks."""

    def add_product(
        self,
        dst: AccessPattern,
        left: npt.NDArray[np.float32],
        right: npt.NDArray[np.float32],
        *,
        accumulate: bool | None,
    ) -> None:
        """dst (+)= left.T @ right, values (K, M) and (K, N) that nobody writes to afterwards; else as ``matmul``."""

    def read_register(self, operand: AccessPattern) -> int:
        """Value of a register as a signed 32-bit integer."""

    def write_register(self, operand: AccessPattern, value: int) -> None:
        """Set a register (wraps to 32 bits)."""

    def random_state(self, engine: Engine) -> Any:
        """The pseudo-random generator of an engine (:class:`isa.random.Generator`)."""

    def meet(self, what: str, agents: tuple[int, ...], give: Callable[[], Any], *, lane: str = "") -> dict[int, Any]:
        """Wait until all of ``agents`` have come to ``what``, each as often as this one; what each of them gives.

        ``give`` is called when all have come, before anybody goes on.  ``lane`` names what waits in order on the core,
        an engine or a pipe.

        Raises:
            ConstraintFault: the kernel was launched on fewer cores.
            DeadlockFault: they will never come.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandSpec:
    """Role and limits of one operand field.

    ``match`` names another operand with which partitions and elements per partition must agree.  ``vector`` operands
    are one column, (P, 1).  ``scalar`` operands may also be Python numbers.  ``quadrant`` applies the start-partition
    rule; DMA operands are free of it.  An ``optional`` operand may be None, and is by default unless its declaration
    says ``required=True``: then None has to be written.  ``many`` operands are a tuple of tensors, each under the
    limits of the field.  ``indirect`` operands may be views by run-time offsets on v4; it names the operand whose
    partitions the offsets share (:mod:`isa.indirect`).
    """

    reads: bool
    writes: bool
    spaces: tuple[Space, ...] = ON_CHIP
    dtypes: DTypes | None = None
    match: str | None = None
    optional: bool = False
    scalar: bool = False
    vector: bool = False
    quadrant: bool = True
    many: bool = False
    max_elements: int | None = None
    indirect: str | None = None
    doc: str = ""


def _operand(*, reads: bool, writes: bool, default: Any, required: bool = False, **limits: Any) -> Any:
    spec = OperandSpec(reads=reads, writes=writes, **limits)
    if default is not ...:
        return field(default=default, metadata={"operand": spec})
    if spec.optional and not required:
        return field(default=None, metadata={"operand": spec})
    return field(metadata={"operand": spec})


def Dst(*, default: Any = ..., **limits: Any) -> Any:
    """A written operand."""
    return _operand(reads=False, writes=True, default=default, **limits)


def Src(*, default: Any = ..., **limits: Any) -> Any:
    """A read operand."""
    return _operand(reads=True, writes=False, default=default, **limits)


def SrcDst(*, default: Any = ..., **limits: Any) -> Any:
    """An operand of which some elements keep their old value, or that is updated in place."""
    return _operand(reads=True, writes=True, default=default, **limits)


def Imm(default: Any = ..., *, keyed: bool = True, doc: str = "") -> Any:
    """An immediate.  ``keyed=False`` for numbers on which neither legality nor work depends."""
    metadata = {"imm": True, "keyed": keyed, "doc": doc}
    return field(metadata=metadata) if default is ... else field(default=default, metadata=metadata)


INSTRUCTIONS: dict[int, type[Instruction]] = {}
"""Every declared instruction by opcode."""

_C = TypeVar("_C", bound="type[Instruction]")


class Instruction:
    """Base of all instructions; see the module docstring.

    Class attributes set by the decorator: ``opcode`` (part of the stored format), ``mnemonic``, ``engines`` (those
    that can execute it), ``generations``, ``source`` (where semantics and limits come from), ``status`` (``verified``
    against hardware data, ``documented``, or ``guessed``), ``operands`` and ``immediates``.
    """

    __slots__ = ()
    opcode: ClassVar[int]
    mnemonic: ClassVar[str]
    engines: ClassVar[tuple[Engine, ...]]
    generations: ClassVar[tuple[int, ...]]
    source: ClassVar[str]
    status: ClassVar[str]
    operands: ClassVar[tuple[tuple[str, OperandSpec], ...]]
    immediates: ClassVar[tuple[tuple[str, bool], ...]]
    takes_packed: ClassVar[bool] = False
    """Moves bits, so packed dtypes are as good as others where an operand names no dtypes; arithmetic is not."""
    indirect_engines: ClassVar[tuple[Engine, ...]] = ()
    """Engines that take indirect operands, where not all of ``engines`` do."""
    orders: ClassVar[bool] = False
    """Its operands say what is in order before and after it; none of their bytes move."""
    control: ClassVar[bool] = False
    """Executed even where values are not computed, because control flow depends on it."""

    # --- what each instruction adds ---------------------------------------------------------------

    def constrain(self, target: Target) -> None:
        """Rules between operands and on immediates; raises :class:`ConstraintFault` (use :meth:`refuse`)."""

    def constrain_address(self, target: Target) -> None:
        """Rules that depend on the address; called on every issue, so keep it short."""

    def select_engine(self, target: Target) -> Engine:
        """The engine that executes this instance."""
        return self.engines[0]

    def queue(self, target: Target) -> int:
        """DMA: the engine that triggers the transfer (an :class:`Engine` value), which names its queue; otherwise 0."""
        return 0

    @classmethod
    def meeting(cls, constants: Mapping[str, str], work: Work, place: Place) -> tuple[str, tuple[int, ...]] | None:
        """Where the core at ``place`` waits for others: the name of the meeting, and the agents that come to it.

        ``constants`` are the keyed immediates as text, as a :class:`isa.program.Template` has them."""
        return None

    def constants(self) -> tuple[tuple[str, str], ...]:
        """The keyed immediates as text, for printing and :meth:`meeting`."""
        found = ((name, getattr(self, name)) for name, keyed in self.immediates if keyed)
        return tuple((name, str(getattr(value, "name", value))) for name, value in found if value is not None)

    def work(self, target: Target) -> Work:
        """Neutral quantities; see :class:`isa.work.Work`."""
        raise NotImplementedError

    def run(self, machine: Machine) -> None:
        """Semantics."""
        raise NotImplementedError

    # --- what follows from the declaration --------------------------------------------------------

    def key(self) -> tuple[Any, ...]:
        """Equal keys have equal legality and equal work.  Replaced by generated code."""
        raise NotImplementedError

    def encode(self, out: Any) -> int:
        """Append the instruction's words to ``out``: access patterns in declaration order, then the index operands of
        run-time addresses, then numbers.  Returns the number of patterns.  Replaced by generated code."""
        raise NotImplementedError

    def refuse(
        self,
        operand: str | None,
        message: str,
        *,
        limit: str | None = None,
        advice: str | None = None,
        target: Target | None = None,
    ) -> ConstraintFault:
        """The fault for a broken rule (to be raised by the caller); names the operand with its shape and dtype."""
        value = self._value(operand) if operand else None
        if isinstance(value, AccessPattern):
            where = f"{value.space.name}, " if value.space is not Space.REGISTER else ""
            message = f"{message} (it is {where}shape {value.shape}, dtype {value.dtype})"
        return ConstraintFault(
            message,
            instruction=self.mnemonic,
            operand=operand,
            limit=limit,
            advice=advice,
            target=None if target is None else str(target),
        )

    def refuse_packed(self, operand: str, target: Target) -> ConstraintFault:
        """The fault for a packed dtype where numbers are taken apart."""
        return self.refuse(
            operand,
            "has a packed dtype, which cannot be computed with",
            limit="one number per element",
            target=target,
            advice="move packed tiles with tensor_copy between equal dtypes; they are inputs of nc_matmul_mx",
        )

    def _value(self, operand: str) -> Any:
        """What ``operand`` names: a field, or ``field[i]`` of a tuple of tensors."""
        name, bracket, place = operand.partition("[")
        value = getattr(self, name)
        return value[int(place.rstrip("]"))] if bracket else value

    def check(self, target: Target) -> None:
        """All rules that do not depend on addresses.

        Raises:
            ConstraintFault: naming instruction, operand, limit and generation.
        """
        if target.generation not in self.generations:
            names = ", ".join(f"NeuronCore-v{g}" for g in self.generations)
            raise self.refuse(
                None, f"{self.mnemonic} does not exist on this generation", limit=f"available on {names}", target=target
            )
        for name, spec in self.operands:
            value = getattr(self, name)
            if spec.many:
                self._check_many(name, spec, value, target)
            elif isinstance(value, AccessPattern):
                self._check_operand(name, spec, value, target)
            elif value is None:
                if not spec.optional:
                    raise self.refuse(name, "missing operand", target=target)
            elif not spec.scalar:
                raise self.refuse(
                    name,
                    f"takes a tensor, not {type(value).__name__}",
                    target=target,
                    advice="pass a tile; Python numbers go into scalar operands or memset",
                )
        self.constrain(target)
        if any(value.indirect for _, value in self.tensors()):
            check_engines(self, target)

    def _check_many(self, name: str, spec: OperandSpec, values: Any, target: Target) -> None:
        if not isinstance(values, tuple) or not values:
            raise self.refuse(name, f"takes a sequence of tensors, not {values!r}", target=target)
        for number, value in enumerate(values):
            if not isinstance(value, AccessPattern):
                raise ConstraintFault(
                    f"takes tensors, not {type(value).__name__}",
                    instruction=self.mnemonic,
                    operand=f"{name}[{number}]",
                    target=str(target),
                )
            self._check_operand(f"{name}[{number}]", spec, value, target)

    def _check_operand(self, name: str, spec: OperandSpec, value: AccessPattern, target: Target) -> None:
        if value.space not in spec.spaces:
            allowed = " or ".join(space.name for space in spec.spaces)
            raise self.refuse(
                name,
                f"must be in {allowed}",
                limit=f"memory: {allowed}",
                target=target,
                advice="copy it there first (dma_copy from HBM, tensor_copy between SBUF and PSUM)",
            )
        if spec.dtypes is not None:
            allowed_dtypes = spec.dtypes(target) if callable(spec.dtypes) else spec.dtypes
            if value.dtype not in allowed_dtypes:
                raise self.refuse(
                    name,
                    f"dtype {value.dtype} is not accepted",
                    limit="dtypes: " + ", ".join(sorted(allowed_dtypes)),
                    target=target,
                )
        elif value.dtype.element is not None and not self.takes_packed:
            raise self.refuse_packed(name, target)
        if value.space.on_chip:
            if not 1 <= value.partitions <= target.partitions:
                raise self.refuse(
                    name,
                    f"uses {value.partitions} partitions",
                    limit=f"1 to {target.partitions} partitions",
                    target=target,
                    advice="split the tile along its first dimension",
                )
            if spec.quadrant and not start_partition_allowed(value.start, value.partitions):
                raise self.refuse(
                    name,
                    f"starts at partition {value.start} with {value.partitions} partitions",
                    limit="start partition 0; or 64 with at most 64 partitions; or 32 and 96 with at most 32",
                    target=target,
                )
            if spec.quadrant and value.step != 1:
                raise self.refuse(
                    name,
                    f"skips partitions (step {value.step})",
                    limit="compute engines access neighbouring partitions",
                    target=target,
                    advice="move the partitions together with dma_copy or nc_stream_shuffle",
                )
            long_pairs = sum(1 for _, count in value.pairs if count > 1)
            if long_pairs > target.max_free_dims:
                raise self.refuse(
                    name,
                    f"has {long_pairs} free dimensions",
                    limit=f"at most {target.max_free_dims} free dimensions",
                    target=target,
                )
        if value.indirect:
            check_indirect(self, name, spec, value, target)
        if spec.vector and value.elements != 1:
            raise self.refuse(
                name,
                f"has {value.elements} elements per partition",
                limit="one element per partition, shape (P, 1)",
                target=target,
            )
        if spec.max_elements is not None and value.elements > spec.max_elements:
            raise self.refuse(
                name,
                f"has {value.elements} elements per partition",
                limit=f"at most {spec.max_elements} elements per partition",
                target=target,
            )
        if spec.match is not None:
            other = getattr(self, spec.match)
            if isinstance(other, AccessPattern):
                if value.partitions != other.partitions:
                    raise self.refuse(
                        name,
                        f"has {value.partitions} partitions where '{spec.match}' {other.shape} has {other.partitions}",
                        limit="equal numbers of partitions",
                        target=target,
                    )
                if not spec.vector and value.elements != other.elements:
                    raise self.refuse(
                        name,
                        f"has {value.elements} elements per partition where '{spec.match}' "
                        f"{other.shape} has {other.elements}",
                        limit="equal numbers of elements per partition",
                        target=target,
                        advice="broadcast the smaller operand explicitly (stride 0 in .ap or .broadcast)",
                    )

    def tensors(self, *, reads: bool = True, writes: bool = True) -> list[tuple[str, AccessPattern]]:
        """Named access patterns among the operands, in declaration order."""
        found = []
        for name, spec in self.operands:
            if (reads and spec.reads) or (writes and spec.writes):
                value = getattr(self, name)
                if isinstance(value, AccessPattern):
                    found.append((name, value))
                elif spec.many:
                    found += [(f"{name}[{number}]", item) for number, item in enumerate(value)]
        return found

    def _patterns(self) -> Iterator[tuple[AccessPattern, OperandSpec]]:
        """Every access pattern among the operands with the limits of its field."""
        for name, spec in self.operands:
            value = getattr(self, name)
            if isinstance(value, AccessPattern):
                yield value, spec
            elif spec.many:
                for item in value:
                    yield item, spec

    def pattern_flags(self) -> int:
        """The flags of :class:`WorkFlag` that follow from the operands alone; (P, 1) scalars do not count as
        tensors."""
        flags = WorkFlag.CONTIGUOUS | WorkFlag.ALL_16BIT | WorkFlag.ALL_32BIT | WorkFlag.ALL_8OR16BIT
        inputs = 0
        for value, spec in self._patterns():
            if value.space is Space.REGISTER:
                continue
            if value.indirect:
                flags |= WorkFlag.SCATTER if spec.writes else WorkFlag.GATHER
            elif value.dynamic is not None:
                flags |= WorkFlag.DYNAMIC
            if spec.vector or spec.scalar:
                if spec.reads:
                    flags |= WorkFlag.VECTOR_OPERAND
                continue
            if spec.reads and not spec.writes:
                inputs += 1
                flags |= WorkFlag.SRC_PSUM if value.space is Space.PSUM else WorkFlag.SRC_SBUF
            elif value.space is Space.PSUM:
                flags |= WorkFlag.DST_PSUM
            if value.dtype not in (bfloat16, float16):
                flags &= ~WorkFlag.ALL_16BIT
                if value.dtype.itemsize != 1 or not value.dtype.is_float:
                    flags &= ~WorkFlag.ALL_8OR16BIT
            if value.dtype.itemsize != 4:
                flags &= ~WorkFlag.ALL_32BIT
            stride = value.innermost_stride_bytes
            if stride != value.dtype.itemsize:
                flags &= ~WorkFlag.CONTIGUOUS
                if stride > 16:
                    flags |= WorkFlag.WIDE_STRIDE
        if inputs >= 2:
            flags |= WorkFlag.TWO_TENSORS
        return int(flags)

    def __str__(self) -> str:
        parts = []
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            default = item.default
            if "imm" in item.metadata and value == default:
                continue
            if value is None:
                continue
            parts.append(f"{item.name}={value.name if isinstance(value, Enum) else value}")
        return f"{self.mnemonic} " + ", ".join(parts)


def float_words(value: float) -> tuple[int, int]:
    """A double as two 32-bit words, low first (signed, to fit the word column)."""
    low, high = struct.unpack("<ii", struct.pack("<d", value))
    return low, high


def int_words(value: int) -> tuple[int, int]:
    """A 64-bit integer as two signed 32-bit words, low first."""
    low, high = struct.unpack("<ii", struct.pack("<q", value))
    return low, high


def _generate(cls: type[Instruction]) -> None:
    """Write ``key`` and ``encode`` for a class as straight-line code: they run once per issued instruction."""
    key_terms: list[str] = []
    patterns: list[str] = []
    indices: list[str] = []
    numbers: list[str] = []
    for name, spec in cls.operands:
        value = f"self.{name}"
        if spec.many:
            key_terms.append(f"tuple([v.shape_id for v in {value}])")
            patterns += [f"    for v in {value}:", "        out.extend(v._words or v.words); count += 1"]
            indices += [f"    for v in {value}:", "        if v.dynamic is not None:"]
            indices += ["            out.extend(v.dynamic.index.words); count += 1"]
            continue
        if spec.optional or spec.scalar:
            key_terms.append(f"({value}.shape_id if {value}.__class__ is AccessPattern else {value}.__class__)")
            patterns += [f"    v = {value}", "    if v.__class__ is AccessPattern:"]
            patterns += ["        out.extend(v._words or v.words); count += 1"]
            indices += [f"    v = {value}", "    if v.__class__ is AccessPattern and v.dynamic is not None:"]
        else:
            key_terms.append(f"{value}.shape_id")
            patterns += [f"    v = {value}", "    out.extend(v._words or v.words); count += 1"]
            indices += [f"    v = {value}", "    if v.dynamic is not None:"]
        indices += ["        out.extend(v.dynamic.index.words); count += 1"]
        if spec.scalar:
            numbers += [f"    v = {value}", "    if v is not None and v.__class__ is not AccessPattern:"]
            numbers += ["        out.extend(float_words(v))"]
    for name, keyed in cls.immediates:
        value = f"self.{name}"
        if keyed:
            key_terms.append(value)
        else:
            key_terms.append(f"{value}.__class__")
            numbers += [f"    v = {value}", "    if v is not None:"]
            numbers += ["        out.extend(float_words(v) if v.__class__ is float else int_words(v))"]
    source = "\n".join(
        [
            "def key(self):",
            f"    return ({cls.opcode}, {', '.join(key_terms)})",
            "def encode(self, out):",
            "    count = 0",
            *patterns,
            *indices,
            *numbers,
            "    return count",
        ]
    )
    namespace: dict[str, Any] = {
        "AccessPattern": AccessPattern,
        "float_words": float_words,
        "int_words": int_words,
    }
    exec(compile(source, f"<generated for {cls.__name__}>", "exec"), namespace)
    cls.key = namespace["key"]  # type: ignore[method-assign]
    cls.encode = namespace["encode"]  # type: ignore[method-assign]


@dataclass_transform(field_specifiers=(Dst, Src, SrcDst, Imm))
def instruction(
    *,
    opcode: int,
    mnemonic: str,
    engines: Sequence[Engine],
    source: str,
    status: str = "documented",
    generations: Sequence[int] = (2, 3, 4),
) -> Callable[[_C], _C]:
    """Declare an instruction and register it; see :class:`Instruction` for the meaning of the arguments."""

    def declare(cls: _C) -> _C:
        if status not in ("verified", "documented", "guessed"):
            raise InternalFault(f"{cls.__name__}: unknown status {status!r}")
        declared = dataclass(slots=True, eq=False, repr=False)(cls)
        declared.opcode = opcode
        declared.mnemonic = mnemonic
        declared.engines = tuple(engines)
        declared.generations = tuple(generations)
        declared.source = source
        declared.status = status
        declared.operands = tuple(
            (item.name, item.metadata["operand"])
            for item in fields(declared)  # type: ignore[arg-type]
            if "operand" in item.metadata
        )
        declared.immediates = tuple(
            (item.name, item.metadata["keyed"])
            for item in fields(declared)  # type: ignore[arg-type]
            if "imm" in item.metadata
        )
        if opcode in INSTRUCTIONS:
            raise InternalFault(f"opcode {opcode} is declared twice: {INSTRUCTIONS[opcode].__name__}, {cls.__name__}")
        _generate(declared)
        INSTRUCTIONS[opcode] = declared
        return declared  # type: ignore[return-value]

    return declare
