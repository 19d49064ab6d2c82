"""``trn-sim run``: scripts run unchanged; what they end with; what they leave behind."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_script_runs_unchanged_and_its_kernels_are_summed_up(cli, script):
    result = cli("run", script, "double", "--target", "x")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[:2] == ["arguments ['double', '--target', 'x']", "done"]
    assert lines[2].startswith("trn-sim: double on trn2: ")
    assert " us (" in lines[2] or " ns (" in lines[2]


def test_target(cli, script):
    assert "double on trn1" in cli("run", "--target", "trn1", script).out
    refused = cli("run", "--target", "trn7", script)
    assert refused.code == 2
    assert "unknown target 'trn7'" in refused.err


def test_quiet(cli, script):
    assert cli("run", "-q", script).out == "arguments []\ndone\n"


def test_json_is_all_of_stdout(cli, script):
    result = cli("run", "--json", script)
    report = json.loads(result.out)
    assert "done" in result.err
    assert report["exit_code"] == 0
    (run,) = report["runs"]
    assert (run["kernel"], run["target"]) == ("double", "trn2")
    assert run["band_ns"][0] <= run["total_ns"] <= run["band_ns"][1]
    assert run["instructions"] == 3
    assert "profiles" not in report


def test_profiles(cli, script):
    (profile,) = json.loads(cli("run", "--json", "--profile", script).out)["profiles"]
    assert profile["kernel"] == "double"
    assert "Busy" in cli("run", "--profile", script).out


def test_output_goes_to_a_file(cli, script, tmp_path):
    result = cli("run", "-o", tmp_path / "report.json", "--json", script)
    assert result.out == "arguments []\ndone\n"
    assert json.loads((tmp_path / "report.json").read_text())["runs"][0]["kernel"] == "double"


def test_exit_codes_of_the_script_are_kept(cli, script):
    assert cli("run", script, "exit", "0").code == 0
    result = cli("run", script, "exit", "7")
    assert result.code == 7
    assert "trn-sim: double on trn2" in result.out
    text = cli("run", script, "exit-text")
    assert text.code == 1
    assert "bad day" in text.err


def test_a_script_without_kernels(cli, script):
    result = cli("run", script, "nothing")
    assert result.code == 0
    assert "ran no kernel" in result.out


def test_fault_of_the_kernel(cli, script, tmp_path):
    line = 1 + next(i for i, text in enumerate(script.read_text().splitlines()) if "# FAULT" in text)
    result = cli("run", "-o", tmp_path / "report.txt", "--trace", tmp_path / "trace.json", script, "unwritten")
    assert result.code == 1
    assert "uninitialized_read fault: dma_copy" in result.err
    assert f"at {script}:{line}" in result.err
    assert "nisa.dma_copy(dst=out, src=tile)" in result.err
    assert "Traceback" not in result.err
    assert "runpy" not in result.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kernels.py"]
    whole = cli("run", "--traceback", script, "unwritten")
    assert whole.code == 1
    assert "Traceback" in whole.err


def test_fault_as_json(cli, script):
    result = cli("run", "--json", script, "unwritten")
    assert result.code == 1
    error = json.loads(result.out)["error"]
    assert error["category"] == "uninitialized_read"
    assert error["file"] == str(script)
    assert json.loads(cli("run", "--json", script, "stumble").out)["error"]["type"] == "KeyError"


def test_poison_lets_the_read_pass(cli, script):
    assert cli("run", "--uninitialized", "poison", script, "unwritten").code == 0


def test_error_of_the_script_has_the_scripts_own_traceback(cli, script, tmp_path):
    result = cli("run", "--trace", tmp_path / "trace.json", script, "stumble")
    assert result.code == 1
    assert "KeyError: 'stumbled'" in result.err
    assert str(script) in result.err
    assert "runpy" not in result.err
    assert "cli/run.py" not in result.err
    assert not (tmp_path / "trace.json").exists()


def test_gap_of_the_simulator(cli, tmp_path):
    script = tmp_path / "gap.py"
    script.write_text("from isa.faults import UnimplementedFault\nraise UnimplementedFault('no moon')\n")
    result = cli("run", script)
    assert result.code == 3
    assert "unimplemented fault: no moon" in result.err


def test_interrupt(cli, script, tmp_path):
    result = cli("run", "--trace", tmp_path / "trace.json", script, "interrupt")
    assert result.code == 130
    assert "interrupted" in result.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kernels.py"]


def test_module(cli, script, monkeypatch):
    monkeypatch.chdir(script.parent)
    monkeypatch.syspath_prepend(str(script.parent))
    result = cli("run", "-m", "kernels", "double")
    assert result.code == 0
    assert "trn-sim: double on trn2" in result.out


def test_no_such_script(cli):
    result = cli("run", "missing.py")
    assert result.code == 2
    assert "there is no file missing.py" in result.err


def test_misspelt_option_is_not_taken_for_the_script(cli, script):
    result = cli("run", "--tarrget", "trn2", script)
    assert result.code == 2
    assert "--tarrget" in result.err


def test_equal_runs_share_a_line(cli, tmp_path, script):
    loop = tmp_path / "loop.py"
    loop.write_text("from kernels import A, double\nfor _ in range(3):\n    double(A)\n")
    lines = cli("run", loop).out.splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("  x 3")


def test_trace_holds_every_run(cli, tmp_path, script):
    path = tmp_path / "trace.json"
    loop = tmp_path / "loop.py"
    loop.write_text("from kernels import A, double\nfor _ in range(2):\n    double(A)\n")
    assert cli("run", "--trace", path, loop).code == 0
    events = json.loads(path.read_text())["traceEvents"]
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["double on trn2"] * 2
    starts = {pid: min(e["ts"] for e in events if e["ph"] == "X" and e["pid"] == pid) for pid in (1, 2)}
    ends = max(e["ts"] + e["dur"] for e in events if e["ph"] == "X" and e["pid"] == 1)
    assert starts[2] > ends


def test_a_script_that_changes_the_folder(cli, script, tmp_path, monkeypatch):
    away = tmp_path / "away"
    away.mkdir()
    monkeypatch.chdir(tmp_path)
    script.write_text(f"import os; os.chdir({str(away)!r})\n{script.read_text()}")
    assert cli("run", "--trace", "trace.json", "-o", "report.txt", script).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["away", "kernels.py", "report.txt", "trace.json"]


def test_interrupt_from_the_keyboard(tmp_path):
    script = tmp_path / "wait.py"
    script.write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    command = [sys.executable, "-m", "trn_sim", "run", "--trace", str(tmp_path / "trace.json"), str(script)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == "\ntrn-sim: interrupted\n"
    assert [path.name for path in tmp_path.iterdir()] == ["wait.py"]


def test_process(process, script):
    result = process("run", script, NEURON_PLATFORM_TARGET_OVERRIDE="trn3")
    assert result.code == 0
    assert "done\ntrn-sim: double on trn3" in result.out


@pytest.mark.parametrize("name", ["report.txt", "report.json"])
def test_folder_that_is_not_there(cli, script, tmp_path, name):
    result = cli("run", "--trace", tmp_path / "nowhere" / name, script)
    assert result.code == 2
    assert "nowhere" in result.err
    assert "done" not in result.out
