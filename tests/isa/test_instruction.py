"""What follows from the declaration of an instruction: checks and their messages, keys, words, flags, text."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from isa import dtypes
from isa.activation import ACTIVATIONS
from isa.alu import ALU_OPS, AluOp
from isa.catalogue import INSTRUCTIONS
from isa.engine import Engine
from isa.faults import (
    CapacityFault,
    ConstraintFault,
    DeadlockFault,
    Fault,
    InternalFault,
    KernelFault,
    NumericFault,
    OutOfBoundsFault,
    RaceFault,
    SimulatorGap,
    UnimplementedFault,
    UninitializedReadFault,
    UnverifiedFault,
)
from isa.instruction import Dst, Imm, Instruction, Machine, Src, SrcDst, float_words, instruction, int_words
from isa.operands import AccessPattern, Dynamic, DynamicKind, Space, decode_words
from isa.scalar import Activation
from isa.target import TARGETS, TRN1, TRN2, TRN3, Target, resolve_target
from isa.vector import TensorTensor
from isa.work import Work, WorkFlag, WorkKind
from tests.isa.test_operands import facts

PROBE, UNUSED = 126, 125  # opcodes that no real instruction has


def declare() -> Any:
    @instruction(opcode=PROBE, mnemonic="probe", engines=(Engine.vector,), source="this test", generations=(3, 4))
    class Probe(Instruction):
        """Has one operand of every kind."""

        dst: AccessPattern = Dst()
        data: AccessPattern = Src(
            match="dst",
            dtypes=lambda t: frozenset({"float32", "int8"} if t.generation > 3 else {"float32"}),
            max_elements=64,
        )
        state: AccessPattern = SrcDst(spaces=(Space.SBUF,))
        op: AluOp = Imm()
        sources: tuple[AccessPattern, ...] = Src(many=True, default=(), spaces=(Space.HBM, Space.SBUF), quadrant=False)
        factor: float | AccessPattern = Src(match="dst", vector=True, scalar=True, default=1.0)
        mask: AccessPattern | None = Src(optional=True, default=None)
        mode: str = Imm(default="plain")
        count: int | None = Imm(default=None, keyed=False)

        def work(self, target: Target) -> Work:
            return Work(kind=WorkKind.COPY, elements=self.dst.elements, flags=self.pattern_flags())

        def run(self, machine: Machine) -> None:
            machine.store(self.dst, machine.load(self.data))

    return Probe


@pytest.fixture(scope="module")
def probe() -> Iterator[Any]:
    """An instruction of our own, taken out of the catalogue afterwards."""
    yield declare()
    del INSTRUCTIONS[PROBE]


def tile(*shape: int, dtype: Any = dtypes.float32, space: Space = Space.SBUF, offset: int = 0, **rest: Any) -> Any:
    pairs, stride = [], 1
    for count in reversed(shape[1:]):
        pairs.insert(0, (stride, count))
        stride *= count
    return AccessPattern(space, dtype, offset, tuple(pairs), partitions=shape[0], **rest)


def make(cls: Any, **changes: Any) -> Any:
    """A legal probe, changed."""
    values: dict[str, Any] = {
        "dst": tile(4, 6),
        "data": tile(4, 6),
        "state": tile(8, 2),
        "op": ALU_OPS["add"],
        "sources": (tile(200, 3, space=Space.HBM),),
    }
    return cls(**values | changes)


# --- checks ---------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str, str, str]] = [
    ({"dst": tile(4, 6, space=Space.HBM)}, "dst", "must be in SBUF or PSUM", "SBUF or PSUM"),
    ({"state": tile(4, 6, space=Space.PSUM)}, "state", "must be in SBUF", "SBUF"),
    ({"data": tile(4, 6, dtype=dtypes.int8)}, "data", "dtype int8 is not accepted", "dtypes: float32"),
    ({"data": tile(4, 7)}, "data", r"has 7 elements per partition where 'dst' \(4, 6\) has 6", "equal numbers"),
    ({"data": tile(5, 6)}, "data", r"has 5 partitions where 'dst' \(4, 6\) has 4", "equal numbers of partitions"),
    ({"dst": tile(4, 65), "data": tile(4, 65)}, "data", "has 65 elements", "at most 64"),
    ({"state": tile(129, 1)}, "state", "uses 129 partitions", "1 to 128"),
    ({"state": tile(0, 1)}, "state", "uses 0 partitions", "1 to 128"),
    ({"state": tile(4, 1, start=16)}, "state", "starts at partition 16 with 4", "start partition 0"),
    ({"state": tile(65, 1, start=64)}, "state", "starts at partition 64 with 65", "start partition 0"),
    ({"state": tile(4, 1, step=2)}, "state", r"skips partitions \(step 2\)", "neighbouring"),
    ({"state": tile(4, 2, 2, 2, 2, 2)}, "state", "has 5 free dimensions", "at most 4"),
    ({"factor": tile(4, 2)}, "factor", "has 2 elements per partition", r"\(P, 1\)"),
    ({"factor": tile(3, 1)}, "factor", "has 3 partitions where 'dst'", "equal numbers of partitions"),
    ({"data": 1.0}, "data", "takes a tensor, not float", ""),
    ({"mask": 1.0}, "mask", "takes a tensor, not float", ""),
    ({"data": None}, "data", "missing operand", ""),
    ({"sources": ()}, "sources", "takes a sequence of tensors", ""),
    ({"sources": tile(1, 1)}, "sources", "takes a sequence of tensors", ""),
    ({"sources": (tile(1, 1), 2)}, r"sources[1]", "takes tensors, not int", ""),
    ({"sources": (tile(1, 1), tile(1, 1, space=Space.PSUM))}, "sources[1]", "must be in HBM or SBUF", "HBM or SBUF"),
]


@pytest.mark.parametrize(("changes", "operand", "words", "limit"), REFUSED)
def test_refused(probe: Any, changes: dict[str, Any], operand: str, words: str, limit: str) -> None:
    with pytest.raises(ConstraintFault, match=words) as caught:
        make(probe, **changes).check(TRN2)
    fault = caught.value
    assert (fault.instruction, fault.operand, fault.target) == ("probe", operand, "trn2, NeuronCore-v3")
    assert re.search(limit, fault.limit or "")


ACCEPTED: list[dict[str, Any]] = [
    {},
    {"dst": tile(4, 6, space=Space.PSUM), "data": tile(4, 2, 3, space=Space.PSUM)},
    {"dst": tile(4, 64), "data": tile(4, 64)},
    {"state": tile(128, 1)},
    {"state": tile(64, 1, start=64)},
    {"state": tile(32, 1, start=96)},
    {"state": tile(4, 2, 1, 2, 1, 2, 2)},
    {"factor": tile(4, 1)},
    {"factor": 3},
    {"mask": tile(1, 9)},
    {"sources": (tile(2, 2, start=3, step=2), tile(500, 1, space=Space.HBM))},
]


@pytest.mark.parametrize("changes", ACCEPTED)
def test_accepted(probe: Any, changes: dict[str, Any]) -> None:
    make(probe, **changes).check(TRN2)


def test_dtypes_by_generation(probe: Any) -> None:
    make(probe, data=tile(4, 6, dtype=dtypes.int8)).check(TRN3)


def test_generations(probe: Any) -> None:
    make(probe).check(TRN3)
    with pytest.raises(ConstraintFault, match="probe does not exist on this generation") as caught:
        make(probe).check(TRN1)
    assert caught.value.limit == "available on NeuronCore-v3, NeuronCore-v4"


def test_a_message_names_everything(probe: Any) -> None:
    with pytest.raises(ConstraintFault) as caught:
        make(probe, data=tile(4, 7, dtype=dtypes.float32, space=Space.PSUM)).check(TRN2)
    caught.value.locate("kernel.py", 12, "attention")
    caught.value.locate("elsewhere.py", 1)  # the innermost wins
    assert str(caught.value).splitlines() == [
        "probe operand 'data': has 7 elements per partition where 'dst' (4, 6) has 6 (it is PSUM, shape (4, 7), "
        "dtype float32)",
        "  limit: equal numbers of elements per partition (trn2, NeuronCore-v3)",
        "  help: broadcast the smaller operand explicitly (stride 0 in .ap or .broadcast)",
        "  at kernel.py:12, in attention",
    ]


# --- keys and words -------------------------------------------------------------------------------


def test_equal_keys(probe: Any) -> None:
    key = make(probe).key()
    assert hash(make(probe).key()) == hash(key)
    for changes in (
        {"dst": tile(4, 6, offset=512)}, {"count": 5}, {"factor": 2.0},
        {"sources": (tile(200, 3, space=Space.HBM, buffer=9),)},
    ):  # fmt: skip
        changed = make(probe, **changes)
        reference = make(probe, count=7) if "count" in changes else make(probe)
        assert changed.key() == reference.key(), changes


@pytest.mark.parametrize(
    "changes",
    [{"dst": tile(4, 7)}, {"data": tile(4, 6, dtype=dtypes.int8)}, {"op": ALU_OPS["multiply"]}, {"mode": "fast"},
     {"factor": tile(4, 1)}, {"mask": tile(1, 9)}, {"count": 5}, {"sources": ()}, {"state": tile(8, 2, start=32)},
     {"sources": (tile(200, 3, space=Space.HBM), tile(200, 3, space=Space.HBM))}],
)  # fmt: skip
def test_different_keys(probe: Any, changes: dict[str, Any]) -> None:
    """``count`` is not keyed, but whether there is one is."""
    assert make(probe, **changes).key() != make(probe).key()


def test_keys_of_different_instructions_differ() -> None:
    a = tile(4, 6)
    keys = {TensorTensor(a, a, a, ALU_OPS["add"]).key(), Activation(a, ACTIVATIONS["exp"], a).key()}
    assert {key[0] for key in keys} == {TensorTensor.opcode, Activation.opcode}


def test_words_are_patterns_then_indices_then_numbers(probe: Any) -> None:
    index, other = tile(1, 1, dtype=dtypes.int32, offset=128), tile(1, 1, dtype=dtypes.int32, offset=256)
    data = tile(4, 6, dynamic=Dynamic(DynamicKind.SCALAR, index, 6, 10))
    source = tile(1, 3, space=Space.SBUF, dynamic=Dynamic(DynamicKind.SCALAR, other, 3, 4))
    ins = make(probe, data=data, sources=(source, tile(2, 3)), factor=-0.5, count=2**40 + 3)
    words = array("i")
    expected = [ins.dst, data, ins.state, source, ins.sources[1], index, other]
    assert ins.encode(words) == len(expected)
    at = 0
    for pattern in expected:
        decoded, at = decode_words(words, at)
        assert facts(decoded) == facts(pattern)
    assert tuple(words[at:]) == float_words(-0.5) + int_words(2**40 + 3)


def test_absent_operands_take_no_words(probe: Any) -> None:
    words = array("i")
    assert make(probe, factor=tile(4, 1)).encode(words) == 5  # dst, data, state, one source, factor
    assert make(probe, factor=tile(4, 1), mask=tile(1, 9)).encode(words) == 6


def test_tensors(probe: Any) -> None:
    ins = make(probe, factor=tile(4, 1))
    assert [name for name, _ in ins.tensors()] == ["dst", "data", "state", "sources[0]", "factor"]
    assert [name for name, _ in ins.tensors(reads=False)] == ["dst", "state"]
    assert [name for name, _ in ins.tensors(writes=False)] == ["data", "state", "sources[0]", "factor"]


# --- flags and text -------------------------------------------------------------------------------


def test_pattern_flags() -> None:
    def flags(dst: Any, data1: Any, data2: Any) -> int:
        return TensorTensor(dst, data1, data2, ALU_OPS["add"]).pattern_flags()

    half = tile(4, 6, dtype=dtypes.bfloat16)
    full, psum = tile(4, 6), tile(4, 6, space=Space.PSUM)
    strided = AccessPattern(Space.SBUF, dtypes.float32, 0, ((2, 6),), partitions=4)
    wide = AccessPattern(Space.SBUF, dtypes.float32, 0, ((8, 6),), partitions=4)
    fp8 = tile(4, 6, dtype=dtypes.float8_e4m3)
    F = WorkFlag
    assert flags(full, full, full) == F.SRC_SBUF | F.TWO_TENSORS | F.CONTIGUOUS | F.ALL_32BIT
    assert flags(psum, full, psum) == (
        F.SRC_SBUF | F.SRC_PSUM | F.DST_PSUM | F.TWO_TENSORS | F.CONTIGUOUS | F.ALL_32BIT
    )
    assert flags(half, half, half) & (F.ALL_16BIT | F.ALL_8OR16BIT | F.ALL_32BIT) == F.ALL_16BIT | F.ALL_8OR16BIT
    assert flags(half, half, fp8) & (F.ALL_16BIT | F.ALL_8OR16BIT) == F.ALL_8OR16BIT
    assert not flags(half, half, tile(4, 6, dtype=dtypes.int8)) & F.ALL_8OR16BIT
    assert not flags(half, half, full) & (F.ALL_16BIT | F.ALL_8OR16BIT | F.ALL_32BIT)
    assert flags(full, full, strided) & (F.CONTIGUOUS | F.WIDE_STRIDE) == 0
    assert flags(full, full, wide) & (F.CONTIGUOUS | F.WIDE_STRIDE) == F.WIDE_STRIDE


def test_pattern_flags_of_scalars_and_run_time_addresses(probe: Any) -> None:
    register = AccessPattern(Space.REGISTER, dtypes.int32, 0, ((1, 1),))
    dynamic = tile(4, 6, dynamic=Dynamic(DynamicKind.SCALAR, register, 6, 10))
    assert not make(probe).pattern_flags() & (WorkFlag.VECTOR_OPERAND | WorkFlag.DYNAMIC)
    assert make(probe, factor=tile(4, 1)).pattern_flags() & WorkFlag.VECTOR_OPERAND
    assert make(probe, data=dynamic).pattern_flags() & WorkFlag.DYNAMIC


def test_text_leaves_out_defaults(probe: Any) -> None:
    text = str(make(probe, sources=(), mode="fast", count=3))
    assert text == (
        "probe dst=sbuf[0:4]+0x0{[1,6]} float32 4x6, data=sbuf[0:4]+0x0{[1,6]} float32 4x6, "
        "state=sbuf[0:8]+0x0{[1,2]} float32 8x2, op=add, sources=(), factor=1.0, mode=fast, count=3"
    )
    assert "mode" not in str(make(probe))


# --- declaring ------------------------------------------------------------------------------------


def test_an_opcode_is_declared_once(probe: Any) -> None:
    with pytest.raises(InternalFault, match=f"opcode {PROBE} is declared twice: Probe, Probe"):
        declare()
    assert INSTRUCTIONS[PROBE] is probe


def test_status_is_one_of_three() -> None:
    with pytest.raises(InternalFault, match="unknown status 'sure'"):

        @instruction(opcode=UNUSED, mnemonic="x", engines=(Engine.vector,), source="", status="sure")
        class Sure(Instruction):
            """Never registered."""

    assert UNUSED not in INSTRUCTIONS


def test_an_instruction_without_work_or_run_says_so() -> None:
    bare = Instruction()
    for call in (lambda: bare.work(TRN2), lambda: bare.run(None), bare.key, lambda: bare.encode([])):  # type: ignore[arg-type]
        with pytest.raises(NotImplementedError):
            call()


# --- the catalogue --------------------------------------------------------------------------------

REAL = sorted(opcode for opcode in INSTRUCTIONS if opcode not in (PROBE, UNUSED))
RANGES = {  # part of the stored format
    Engine.tensor: range(1, 16), Engine.scalar: range(16, 32), Engine.vector: range(32, 64),
    Engine.gpsimd: range(64, 96), Engine.dma: (*range(96, 112), *range(128, 160)), Engine.sync: range(112, 128),
}  # fmt: skip


@pytest.mark.parametrize("opcode", REAL)
def test_every_instruction_is_complete(opcode: int) -> None:
    cls = INSTRUCTIONS[opcode]
    assert cls.opcode == opcode
    assert cls.mnemonic
    assert cls.source
    assert cls.status in ("verified", "documented", "guessed")
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}(")  # what dataclass writes where there is no docstring
    assert cls.engines
    assert set(cls.generations) <= {2, 3, 4}
    for method in ("work", "run", "key", "encode"):
        assert getattr(cls, method) is not getattr(Instruction, method), method
    names = [item.name for item in fields(cls)]  # type: ignore[arg-type]
    assert sorted(names) == sorted([name for name, _ in cls.operands] + [name for name, _ in cls.immediates])
    for _, spec in cls.operands:
        assert spec.reads or spec.writes
        assert spec.match is None or spec.match in names


@pytest.mark.parametrize("opcode", REAL)
def test_opcodes_are_in_the_range_of_an_engine(opcode: int) -> None:
    engine = next(engine for engine, numbers in RANGES.items() if opcode in numbers)
    assert engine in INSTRUCTIONS[opcode].engines


# --- targets and faults ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("trn1", TRN1), ("trn2", TRN2), ("trn3", TRN3), ("inf2", TRN1), ("gen2", TRN1), ("gen3", TRN2),
        ("gen4", TRN3), ("trn3pre", TRN3), ("trn2.48xlarge", TRN2), (" TRN1n.32xlarge ", TRN1),
    ],
)  # fmt: skip
def test_target_names(name: str, target: Target) -> None:
    assert resolve_target(name) is target
    assert resolve_target(target) is target


def test_target_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)
    assert resolve_target() is TRN3
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    assert resolve_target() is TRN2
    assert resolve_target("trn1") is TRN1
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "")
    assert resolve_target() is TRN3


@pytest.mark.parametrize("name", ["tpu", "neuron", "t", "gen1"])
def test_unknown_targets(name: str) -> None:
    with pytest.raises(ValueError, match=f"unknown target '{name}'; use one of trn1, trn2, trn3, inf2"):
        resolve_target(name)


def test_targets() -> None:
    assert [target.generation for target in TARGETS.values()] == [2, 3, 4]
    for name, target in TARGETS.items():
        assert target.name == name
        assert str(target) == f"{name}, {target.core}"
        assert target.psum_bytes == 16 * 1024
    assert [target.sbuf_bytes // 1024 for target in TARGETS.values()] == [192, 224, 256]


KERNEL = [ConstraintFault, OutOfBoundsFault, CapacityFault, UninitializedReadFault, RaceFault, DeadlockFault,
          NumericFault]  # fmt: skip
OURS = [UnimplementedFault, UnverifiedFault, InternalFault]


def test_faults_are_the_kernels_or_ours() -> None:
    for cls in KERNEL:
        assert issubclass(cls, KernelFault)
        assert not issubclass(cls, SimulatorGap)
    for cls in OURS:
        assert issubclass(cls, SimulatorGap)
        assert not issubclass(cls, KernelFault)
    categories = [cls.category for cls in (*KERNEL, *OURS, KernelFault, SimulatorGap, Fault)]
    assert len(set(categories)) == len(categories)


def test_a_fault_is_also_a_familiar_exception() -> None:
    assert issubclass(ConstraintFault, ValueError)
    assert issubclass(OutOfBoundsFault, IndexError)
    assert issubclass(CapacityFault, MemoryError)
    assert issubclass(UnimplementedFault, NotImplementedError)


def test_a_fault_as_data() -> None:
    fault = ConstraintFault("is odd", instruction="max8", operand="src", limit="even", target="trn1", advice="add one")
    fault.locate("k.py", 3)
    assert fault.as_dict() == {
        "category": "constraint", "message": "is odd", "instruction": "max8", "operand": "src", "limit": "even",
        "target": "trn1", "advice": "add one", "file": "k.py", "line": 3,
    }  # fmt: skip


def test_a_fault_says_what_it_knows() -> None:
    assert str(KernelFault("went wrong")) == "went wrong"
    assert str(KernelFault("went wrong", operand="dst")) == "operand 'dst': went wrong"
    assert str(KernelFault("went wrong", instruction="iota", target="trn1")) == "iota: went wrong\n  target: trn1"
