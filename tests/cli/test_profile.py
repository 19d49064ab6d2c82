"""``trn-sim profile`` and ``trn-sim disasm``: inputs, reports, files, and everything that can be asked wrongly."""

import json

import numpy as np
import pytest

A = "a=f32[128,256]"


def test_report_for_people(cli, script):
    result = cli("profile", f"{script}:double", "--arg", A)
    assert result.code == 0
    assert result.err == ""
    assert result.out.startswith("double on trn2")
    for words in ("MFU", "HBM bandwidth", "Busy", "Instructions", "Source lines", "kernels.py:", "guessed"):
        assert words in result.out
    assert max(map(len, result.out.splitlines())) <= 100
    assert "\x1b" not in result.out


def test_report_for_programs_is_the_same_every_time(cli, script):
    first = cli("profile", f"{script}:double", "-a", A, "--json")
    second = cli("profile", f"{script}:double", "-a", A, "--json")
    assert first.out == second.out
    report = json.loads(first.out)
    assert (report["kernel"], report["summary"]["target"]) == ("double", "trn2")
    assert report["summary"]["total_time_ns"] > 0


def test_what_the_kernel_prints_stays_out_of_the_json(cli, script):
    script.write_text(script.read_text().replace("    tile = load(a)\n", "    tile = load(a)\n    print('hello')\n"))
    result = cli("profile", f"{script}:double", "-a", A, "--json")
    assert json.loads(result.out)["kernel"] == "double"
    assert "hello" in result.err


def test_target_and_timing_only(cli, script):
    times = {}
    for target in ("trn1", "trn2"):
        whole = json.loads(cli("profile", f"{script}:double", "-a", A, "--json", "--target", target).out)
        timed = json.loads(cli("profile", f"{script}:double", "-a", A, "--json", "--target", target, "--no-values").out)
        assert whole == timed
        times[target] = whole["summary"]["total_time_ns"]
        assert whole["summary"]["target"] == target
    assert times["trn1"] != times["trn2"]


def test_inputs_from_files_and_literals(cli, script, tmp_path):
    np.save(tmp_path / "a.npy", np.ones((128, 64), np.float32))
    result = cli("profile", f"{script}:double", "-a", f"a=@{tmp_path}/a.npy", "-a", "factor=3.0", "--json")
    assert result.code == 0
    assert json.loads(result.out)["summary"]["total_time_ns"] > 0


def test_module(cli, script, monkeypatch):
    monkeypatch.chdir(script.parent)
    monkeypatch.syspath_prepend(str(script.parent))
    assert cli("profile", "kernels:double", "-a", A).code == 0
    missing = cli("profile", "kernelz:double", "-a", A)
    assert missing.code == 2
    assert "there is no module kernelz" in missing.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{script}:double"], ["double(a, factor=2.0) needs 'a'", "--arg a="]),
        (["{script}:double", "-a", A, "-a", "b=3"], ["double(a, factor=2.0) has no input 'b'"]),
        (["{script}:double", "-a", "a=f33[2]"], ["no array of dtype 'f33'"]),
        (["{script}:doubel", "-a", A], ["has no 'doubel'", "Did you mean 'double'?"]),
        (["{script}:A", "-a", A], ["not a function"]),
        (["{script}", "-a", A], ["SCRIPT_OR_MODULE:FUNCTION"]),
        (["missing.py:double", "-a", A], ["there is no file missing.py"]),
        (["missing.npz"], ["cannot load missing.npz"]),
        (["{script}:double", "-a", A, "--target", "trn8"], ["unknown target 'trn8'"]),
        (["{script}:double", "-a", A, "--save-program", "program"], ["ends in .npz"]),
        (["{script}:double", "-a", A, "-o", "nowhere/report.txt"], ["there is no folder nowhere"]),
        (["{script}:double", "-a", A, "--trace", "."], [". is a folder"]),
    ],
)
def test_asked_wrongly(cli, script, arguments, words):
    result = cli("profile", *(argument.format(script=script) for argument in arguments))
    assert result.code == 2
    for text in words:
        assert text in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(("kernel", "words"), [("unwritten", "uninitialized_read"), ("stumble", "KeyError")])
def test_a_kernel_that_raises_leaves_no_files(cli, script, tmp_path, kernel, words):
    result = cli(
        "profile", f"{script}:{kernel}", "-a", A, "-o", tmp_path / "r.txt", "--trace", tmp_path / "t.pftrace",
        "--save-program", tmp_path / "p.npz",
    )  # fmt: skip
    assert result.code == 1
    assert words in result.err
    assert result.out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kernels.py"]


def test_trace_without_the_package(cli, script, monkeypatch, tmp_path):
    import sys

    monkeypatch.setitem(sys.modules, "perfetto.trace_builder.proto_builder", None)
    result = cli("profile", f"{script}:double", "-a", A, "--trace", tmp_path / "t.pftrace")
    assert result.code == 2
    assert "pip install 'trn-sim[view]'" in result.err
    assert cli("profile", f"{script}:double", "-a", A, "--trace", tmp_path / "t.json").code == 0


def test_saved_program_has_the_same_time(cli, script, tmp_path):
    program = tmp_path / "double.npz"
    first = cli("profile", f"{script}:double", "-a", A, "--json", "--save-program", program)
    again = cli("profile", program, "--json")
    assert json.loads(again.out) == json.loads(first.out)
    other = json.loads(cli("profile", program, "--json", "--target", "trn3").out)
    assert other["summary"]["target"] == "trn3"
    assert cli("profile", program, "-a", A).code == 2


def test_listing(cli, script, tmp_path):
    program = tmp_path / "double.npz"
    cli("profile", f"{script}:double", "-a", A, "--save-program", program)
    from_program = cli("disasm", program)
    from_kernel = cli("disasm", f"{script}:double", "-a", A)
    assert from_program.out == from_kernel.out
    lines = from_program.out.splitlines()
    assert [line.split()[2] for line in lines] == ["dma_copy", "tensor_scalar", "dma_copy"]
    assert all("; kernels.py:" in line for line in lines)
    assert "op0=multiply" in lines[1]
    assert cli("disasm", program, "--engine", "vector").out.splitlines() == [lines[1]]
    assert cli("disasm", program, "--start", 1, "--stop", 2).out.splitlines() == [lines[1]]


def test_listing_as_json(cli, script):
    listing = json.loads(cli("disasm", f"{script}:double", "-a", A, "--json", "--stop", 2).out)
    assert listing["target"] == "trn2"
    first, second = listing["instructions"]
    assert (first["instruction"], second["instruction"]) == ("dma_copy", "tensor_scalar")
    assert second["index"] == 1
    assert set(second["operands"]) >= {"dst", "data"}
    assert second["constants"]["op0"] == "multiply"
    assert second["file"] == str(script)


def test_listing_of_a_kernel_that_raises(cli, script):
    result = cli("disasm", f"{script}:unwritten", "-a", A)
    assert result.code == 1
    assert "uninitialized_read fault" in result.err
