"""The recorded stream: rows, templates, text, and the stored format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa import dtypes
from isa.activation import ACTIVATIONS
from isa.alu import ALU_OPS
from isa.dma import DmaCopy
from isa.engine import Engine
from isa.instruction import Instruction
from isa.operands import AccessPattern, Dynamic, DynamicKind, Space
from isa.program import FORMAT_VERSION, Buffer, Program, Source
from isa.scalar import Activation
from isa.target import TARGETS, TRN2
from isa.tensor import Matmul
from isa.vector import TensorTensor
from tests.isa.test_instruction import tile
from tests.isa.test_operands import facts

ADD, EXP = ALU_OPS["add"], ACTIVATIONS["exp"]


def issue(program: Program, ins: Instruction, line: int = 1, file: str = "/home/user/kernel.py") -> int:
    """Record one instruction with a template of its own."""
    work = ins.work(program.target)
    template = program.add_template(ins, ins.select_engine(program.target), ins.queue(program.target), work)
    return program.append(template, program.source_id(file, line, "kernel"), ins)


def dynamic_source() -> tuple[AccessPattern, AccessPattern]:
    register = AccessPattern(Space.REGISTER, dtypes.int32, 0, ((1, 1),), buffer=5)
    source = AccessPattern(
        Space.HBM, dtypes.float32, 16, ((6, 4), (1, 6)), buffer=1, dynamic=Dynamic(DynamicKind.SCALAR, register, 24, 7)
    )
    return source, register


def sample() -> Program:
    """A product, an activation with a number and a column, and a DMA with a run-time address."""
    program = Program(TRN2)
    program.buffers = [Buffer("weights", 4096, 1024, "input"), Buffer("out", 8192, 96, "output")]
    psum = tile(6, 5, space=Space.PSUM)
    issue(
        program,
        Matmul(psum, tile(4, 6), tile(4, 5, offset=256), accumulate=False, tile_size=(64, 128), tile_position=(64, 0)),
        10,
    )
    issue(program, Activation(tile(6, 5, offset=1024), EXP, psum, tile(6, 1), 0.125), 11)
    issue(program, DmaCopy(tile(4, 6), dynamic_source()[0]), 11)
    issue(program, TensorTensor(tile(4, 6), tile(4, 6), tile(4, 6, offset=64), ADD), 12, "/home/user/other.py")
    program.names = {1: "softmax"}
    program.edges = [(2, 0), (3, 1)]
    program.barriers = [2]
    return program


# --- recording ------------------------------------------------------------------------------------


def test_an_empty_program(tmp_path: Path) -> None:
    program = Program(TRN2)
    assert len(program) == 0
    assert program.rows().shape == (0, 3)
    assert program.words().shape == (0,)
    assert list(program.disassemble()) == []
    program.save(tmp_path / "empty.npz")
    assert len(Program.load(tmp_path / "empty.npz")) == 0


def test_rows() -> None:
    program = sample()
    rows = program.rows()
    assert rows.dtype == np.int32
    assert rows[:, 0].tolist() == [0, 1, 2, 3]
    assert rows[:, 1].tolist() == [0, 1, 1, 2]
    starts = rows[:, 2].tolist()
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    assert starts[-1] < len(program.words())
    assert program.nbytes == 4 * (rows.size + len(program.words()))


def test_rows_and_words_are_copies() -> None:
    program = sample()
    program.rows()[...] = -1
    program.words()[...] = -1
    issue(program, TensorTensor(tile(4, 6), tile(4, 6), tile(4, 6), ADD))  # possible only without exported buffers
    assert (program.rows() >= 0).all()
    assert program.operands(0)[0][0] == "dst"


def test_templates() -> None:
    matmul, activation, dma, _ = sample().templates
    assert (matmul.mnemonic, matmul.engine, matmul.operands) == ("nc_matmul", Engine.tensor, 3)
    assert (matmul.reads, matmul.writes) == (0b110, 0b001)
    assert matmul.fields == ("dst", "stationary", "moving")
    assert ("tile_size", "(64, 128)") in matmul.constants
    assert ("accumulate", "False") in matmul.constants
    assert ("perf_mode", "none") in matmul.constants
    assert activation.fields == ("dst", "data", "bias")
    assert activation.numbers == (("scale", "f"),)
    assert (activation.reads, activation.writes) == (0b110, 0b001)
    assert ("op", "exp") in activation.constants
    assert dma.fields == ("dst", "src", "src@index")
    assert dma.reads == 0b110  # the index is read as well
    assert dma.writes == 0b001


def test_read_and_written_operands_set_both_bits() -> None:
    program = Program(TRN2)
    scalars = Activation(tile(4, 6), EXP, tile(4, 6), tile(4, 1), tile(4, 1), ADD, tile(4, 1))
    issue(program, scalars)
    template = program.templates[0]
    assert template.fields == ("dst", "data", "bias", "scale", "reduce_res")
    assert template.reads == 0b01110
    assert template.writes == 0b10001
    assert template.numbers == ()


def test_sources() -> None:
    program = sample()
    assert program.sources == [
        Source("/home/user/kernel.py", 10, "kernel"), Source("/home/user/kernel.py", 11, "kernel"),
        Source("/home/user/other.py", 12, "kernel"),
    ]  # fmt: skip
    assert program.source_id("/home/user/kernel.py", 11, "kernel") == 1
    assert program.source_id("/home/user/kernel.py", 11, "helper") == 3
    assert program.source_of(2).line == 11


def test_operands() -> None:
    program = sample()
    source, register = dynamic_source()
    assert [name for name, _ in program.operands(1)] == ["dst", "data", "bias"]
    named = dict(program.operands(2))
    assert facts(named["src"]) == facts(source)
    assert facts(named["src@index"]) == facts(register)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 128), st.integers(1, 99), st.floats(-1e9, 1e9, width=32), st.booleans()),
             min_size=1, max_size=8)
)  # fmt: skip
def test_what_is_recorded_comes_back(shapes: list[tuple[int, int, float, bool]]) -> None:
    program = Program(TRN2)
    expected = []
    for p, n, scale, column in shapes:
        dst, data, bias = tile(p, n, offset=4 * p), tile(p, n, offset=8 * n), tile(p, 1) if column else None
        issue(program, Activation(dst, EXP, data, bias, scale))
        expected.append([facts(one) for one in (dst, data, bias) if one is not None])
    for index, operands in enumerate(expected):
        assert [facts(pattern) for _, pattern in program.operands(index)] == operands
    for line, (_, _, scale, _) in zip(program.disassemble(), shapes, strict=True):
        text = line.split("scale=")[1].split(",")[0]
        assert float(text) == scale


# --- text -----------------------------------------------------------------------------------------


def test_disassembly() -> None:
    lines = list(sample().disassemble())
    assert lines[0] == (
        "     0 tensor  nc_matmul dst=psum[0:6]+0x0{[1,5]} float32 6x5, stationary=sbuf[0:4]+0x0{[1,6]} float32 4x6, "
        "moving=sbuf[0:4]+0x100{[1,5]} float32 4x5, is_stationary_onezero=False, is_moving_onezero=False, "
        "is_transpose=False, accumulate=False, tile_position=(64, 0), tile_size=(64, 128), perf_mode=none"
        "  ; kernel.py:10"
    )
    assert "bias=sbuf[0:6]+0x0{[1,1]} float32 6x1, scale=0.125, op=exp, reduce_cmd=idle name='softmax'" in lines[1]
    assert "src@index=r5" in lines[2]
    assert lines[3].endswith("; other.py:12")


def test_part_of_the_disassembly() -> None:
    program = sample()
    assert list(program.disassemble(1, 3)) == list(program.disassemble())[1:3]
    assert list(program.disassemble(3, 99)) == list(program.disassemble())[3:]


# --- storage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["stream.npz", "stream"])
def test_save_and_load(tmp_path: Path, name: str) -> None:
    program = sample()
    program.save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]  # no partial file left
    loaded = Program.load(str(tmp_path / name))
    assert loaded.target is program.target
    assert np.array_equal(loaded.rows(), program.rows())
    assert np.array_equal(loaded.words(), program.words())
    for table in ("templates", "sources", "buffers", "names", "edges", "barriers"):
        assert getattr(loaded, table) == getattr(program, table), table
    assert list(loaded.disassemble()) == list(program.disassemble())
    assert [type(one.work.kind) for one in loaded.templates] == [type(one.work.kind) for one in program.templates]


def test_a_loaded_program_goes_on(tmp_path: Path) -> None:
    sample().save(tmp_path / "stream")
    loaded = Program.load(tmp_path / "stream")
    issue(loaded, TensorTensor(tile(4, 6), tile(4, 6), tile(4, 6), ADD), 11)
    assert len(loaded) == 5
    assert loaded.source_of(4).line == 11
    assert len(loaded.sources) == 3


@pytest.mark.parametrize("target", TARGETS.values(), ids=str)
def test_the_target_is_stored(tmp_path: Path, target: Any) -> None:
    Program(target).save(tmp_path / "stream")
    assert Program.load(tmp_path / "stream").target is target


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "stream"
    sample().save(path)

    def fail(*args: Any, **rest: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        Program(TRN2).save(path)
    monkeypatch.undo()
    assert len(Program.load(path)) == 4
    assert [one.name for one in tmp_path.iterdir()] == ["stream"]


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "stream.npz"
    sample().save(path)
    with np.load(path) as stored:
        arrays = dict(stored)
    meta = json.loads(arrays["meta"].tobytes())
    assert meta["version"] == FORMAT_VERSION
    meta["version"] = FORMAT_VERSION + 1
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=f"has format version {FORMAT_VERSION + 1}; this build reads {FORMAT_VERSION}"):
        Program.load(path)


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", weights=np.zeros(3))
    with pytest.raises(ValueError, match=r"other.npz is not a trn-sim program: it has no 'meta' entry"):
        Program.load(tmp_path / "other.npz")


@pytest.mark.parametrize("content", [b"", b"some text\n", b"\x93NUMPY\x01\x00", b"PK\x03\x04 but no archive"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(ValueError, match="other is not a trn-sim program"):
        Program.load(tmp_path / "other")


def test_an_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"array.npy is not a trn-sim program"):
        Program.load(tmp_path / "array.npy")


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Program.load(tmp_path / "nowhere")
