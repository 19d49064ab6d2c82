"""The group: help of every verb, exit codes, a reader that leaves, the progress line."""

import io
import subprocess
import sys
import time

import pytest

from trn_sim.cli._progress import Progress, progress

VERBS = ["run", "profile", "disasm", "doctor"]


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_each_verb(cli, verb):
    result = cli(verb, "--help")
    assert result.code == 0
    assert f"Usage: trn-sim {verb}" in result.out
    assert "--json" in result.out


def test_help_lists_verbs_and_exit_codes(cli):
    result = cli("--help")
    assert result.code == 0
    for words in (*VERBS, "130  interrupted", "a gap of the simulator"):
        assert words in result.out


def test_version(cli):
    import trn_sim

    assert cli("--version").out == f"trn-sim, version {trn_sim.__version__}\n"


def test_unknown_verb_and_option(cli):
    assert cli("fly").code == 2
    assert cli("doctor", "--fly").code == 2


def test_a_reader_that_leaves_gets_no_traceback():
    program = "from trn_sim.cli import main; main(['doctor'])"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        process.wait(timeout=60)


def test_progress_only_on_a_terminal(capfd):
    with progress("working", quiet=False) as line:
        assert line is None
    assert capfd.readouterr().err == ""


def test_progress_line(monkeypatch):
    monkeypatch.setattr("trn_sim.cli._progress.FIRST_S", 0.01)
    monkeypatch.setattr("trn_sim.cli._progress.INTERVAL_S", 0.01)
    stream = io.StringIO()
    count = iter([1234, 1234, *range(2000, 10**6)])
    line = Progress(stream, "running softmax", lambda: next(count))
    wait_for(lambda: "2,000 instructions" in stream.getvalue())
    line.stage("timing softmax")
    wait_for(lambda: "timing softmax" in stream.getvalue())
    line.close()
    assert stream.getvalue().count("1,234 instructions") == 1  # nothing is redrawn that has not changed
    assert stream.getvalue().endswith("\r\x1b[2K")


def test_progress_counts_the_instructions_of_the_kernel_that_runs():
    from trn_sim.cli._progress import _issued
    from trn_sim.machine import Core, Options, use_core

    issued = _issued()
    assert issued() == 0
    core = Core(Options())
    with use_core(core):
        assert issued() == len(core.program) == 0
        core.program._rows.extend((0, 0, 0))
        assert issued() == 1
    assert issued() == 0


def test_no_progress_line_for_what_is_short():
    stream = io.StringIO()
    Progress(stream, "running").close()
    assert stream.getvalue() == ""


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
