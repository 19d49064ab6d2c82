"""``neuron-profile`` on saved programs, and its installation."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import trn_sim
from trn_sim.cli import install
from trn_sim.cli.group import cli as trn_sim_command
from trn_sim.cli.neuron_profile import cli

trn_sim.activate()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Program, profile and run of a matmul."""
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl

    folder = tmp_path_factory.mktemp("saved")
    neff, ntff = folder / "k.neff", folder / "k.ntff"

    @nki.baremetal(save_neff_name=str(neff), save_trace_name=str(ntff))
    def kernel(x, y):
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        product = nisa.nc_matmul(nisa.tensor_copy(nisa.nc_transpose(nl.load(x))), nl.load(y))
        nl.store(out, nl.copy(product))
        return out

    kernel(np.ones((128, 128), np.float32), np.ones((128, 512), np.float32))
    return neff, ntff, kernel.last_run


def view(*arguments):
    return CliRunner().invoke(cli, ["view", *map(str, arguments)])


def test_summary_json(saved):
    neff, ntff, run = saved
    result = view("--output-format", "summary-json", "-n", neff, "-s", ntff)
    assert result.exit_code == 0
    summaries = json.loads(result.stdout)
    (summary,) = summaries.values()
    profile = run.profile
    assert summary["total_time"] == pytest.approx(profile.total_ns * 1e-9)
    assert summary["hbm_read_bytes"] == (128 * 128 + 128 * 512) * 4
    assert summary["hbm_write_bytes"] == 128 * 512 * 4
    assert summary["hardware_flops"] - summary["transpose_flops"] == summary["model_flops"] == 2 * 128 * 128 * 512
    assert summary["matmul_instruction_count"] == 1
    assert summary["tensor_engine_instruction_count"] == 2
    assert summary["dma_transfer_count"] == 3
    assert summary["dma_transfer_total_bytes"] == summary["hbm_read_bytes"] + summary["hbm_write_bytes"]
    peak = profile.counters.peak_flops_per_s * summary["total_time"]
    assert summary["hfu_estimated_percent"] == pytest.approx(summary["hardware_flops"] / peak)
    assert summary["mfu_estimated_percent"] == pytest.approx(summary["model_flops"] / peak)
    assert all(0 <= value <= 1 for name, value in summary.items() if name.endswith("percent"))
    assert list(summary) == sorted(summary)


def test_other_formats(saved, tmp_path):
    neff, ntff, _ = saved
    text = view("--output-format", "summary-text", "-n", neff, "-s", ntff).stdout
    values = dict(line.split() for line in text.splitlines())
    assert values["dma_transfer_count"] == "3"
    assert float(values["total_time"]) > 0
    out = tmp_path / "profile.json"
    assert view("--output-format", "json", "--output-file", out, "-n", neff, "-s", ntff).exit_code == 0
    assert json.loads(out.read_text())["summary"][0]["matmul_instruction_count"] == 1
    refused = view("-n", neff, "-s", ntff)
    assert (refused.exit_code, "summary-json" in refused.stderr) == (2, True)


def test_capture(saved, tmp_path):
    neff, ntff, _ = saved
    session = tmp_path / "again.ntff"
    result = CliRunner().invoke(cli, ["capture", "-n", str(neff), "-s", str(session), "--profile-nth-exec=2"])
    assert result.exit_code == 0
    assert (tmp_path / "again_exec_2.ntff").read_text() == ntff.read_text()


def test_foreign_files_are_refused(saved, tmp_path):
    neff, ntff, _ = saved
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"\x7fELF" + bytes(range(256)))
    for arguments in (("-n", foreign, "-s", ntff), ("-n", neff, "-s", foreign), ("-n", neff, "-s", neff)):
        result = view("--output-format", "summary-json", *arguments)
        assert (result.exit_code, "not a trn-sim" in result.stderr) == (1, True)
    record = json.loads(ntff.read_text())
    for change, word in (({"program": "0"}, "another program"), ({"version": 9}, "version 9")):
        foreign.write_text(json.dumps(record | change))
        result = view("--output-format", "summary-json", "-n", neff, "-s", foreign)
        assert (result.exit_code, word in result.stderr) == (1, True)
    assert view("-n", tmp_path / "none", "-s", ntff).exit_code == 2


def test_installation(saved, tmp_path):
    neff, ntff, _ = saved
    run = CliRunner().invoke
    assert run(trn_sim_command, ["install-neuron-profile", "--dir", str(tmp_path)]).exit_code == 0
    command = tmp_path / "neuron-profile"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [command, "view", "--output-format", "summary-json", "-n", neff, "-s", ntff]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=True, timeout=60)
    assert "total_time" in done.stdout
    assert run(trn_sim_command, ["install-neuron-profile", "--dir", str(tmp_path)]).exit_code == 0  # again
    assert run(trn_sim_command, ["install-neuron-profile", "--dir", str(tmp_path), "--remove"]).exit_code == 0
    assert list(tmp_path.iterdir()) == []
    command.write_text("#!/bin/sh\n")
    for option in ([], ["--remove"]):
        refused = run(trn_sim_command, ["install-neuron-profile", "--dir", str(tmp_path), *option])
        assert (refused.exit_code, "trn-sim's" in refused.stderr) == (1, True)
    assert install.install(tmp_path, force=True) == command


def test_several_cores_cannot_be_saved(tmp_path):
    from isa.faults import UnimplementedFault
    from trn_sim.artifacts import save_program
    from trn_sim.machine import Options
    from trn_sim.nki.kernel import Kernel

    kernel = Kernel(lambda: None)[2]
    run = kernel.run((), {}, Options.from_environment(target="trn2"))
    with pytest.raises(UnimplementedFault, match="2 cores"):
        save_program(run, tmp_path / "x.neff")
    assert list(tmp_path.iterdir()) == []


def test_commands_of_the_page(tmp_path, monkeypatch):
    """docs/neuron_profile.md, line by line."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "neuron_profile.md").read_text()
    lines = re.search(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[1].splitlines()
    assert len(lines) >= 6
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    commands = {"trn-sim": [sys.executable, "-m", "trn_sim"], "neuron-profile": [str(tmp_path / "neuron-profile")]}
    for line in lines:
        name, *arguments = line.split()
        arguments = [str(root / word) if word.startswith("examples/") else word for word in arguments]
        if "install-neuron-profile" in arguments:
            arguments += ["--dir", str(tmp_path)]
        done = subprocess.run(
            [*commands[name], *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
