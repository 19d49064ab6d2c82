"""``trn-sim`` and kernels on two cores."""

import json

import pytest

KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

@nki.jit
def halves(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    size = x.shape[0] // nl.num_programs(0)
    part = slice(nl.program_id(0) * size, (nl.program_id(0) + 1) * size)
    tile = nl.ndarray((size, x.shape[1]), x.dtype)
    nisa.dma_copy(tile, x[part])
    nisa.dma_copy(out[part], tile)
    return out

if __name__ == "__main__":
    x = np.ones((128, 64), np.float32)
    assert (halves[2](x) == x).all()
"""
X = "x=f32[128,64]"


@pytest.fixture
def pair(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNEL)
    return path


def test_profile(cli, pair, tmp_path):
    trace, program = tmp_path / "trace.json", tmp_path / "program.npz"
    files = ("--trace", trace, "--save-program", program)
    result = cli("profile", f"{pair}:halves", "-a", X, "--cores", "2", "--json", *files)
    assert result.code == 0
    data = json.loads(result.out)
    assert [core["core"] for core in data["cores"]] == ["core 0", "core 1"]
    assert data["summary"]["instruction_count"] == 4
    events = json.loads(trace.read_text())["traceEvents"]
    processes = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert processes == {"halves, core 0 on trn2", "halves, core 1 on trn2"}
    begins = {pid: min(e["ts"] for e in events if e["ph"] == "X" and e["pid"] == pid) for pid in (1, 2)}
    assert begins[1] == begins[2]
    saved = sorted(path.name for path in tmp_path.glob("*.npz"))
    assert saved == ["program.core0.npz", "program.core1.npz"]


def test_saved_programs_are_of_one_core(cli, pair, tmp_path):
    program = tmp_path / "program.npz"
    cli("profile", f"{pair}:halves", "-a", X, "--cores", "2", "--save-program", program)
    saved = tmp_path / "program.core1.npz"
    again = cli("profile", saved, "--json")
    assert json.loads(again.out)["summary"]["instruction_count"] == 2
    refused = cli("profile", saved, "--cores", "2")
    assert refused.code == 2
    assert "--cores has no use" in refused.err


def test_text(cli, pair):
    result = cli("profile", f"{pair}:halves", "-a", X, "--cores", "2")
    assert result.out.startswith("halves on trn2, 2 cores of NeuronCore-v3\n")
    assert max(map(len, result.out.splitlines())) <= 100


def test_a_grid_of_one_core(cli, pair):
    result = cli("profile", f"{pair}:halves", "-a", X, "--cores", "1")
    assert result.code == 0
    assert result.out.startswith("halves on trn2, NeuronCore-v3")


def test_more_cores_than_a_pair_has(cli, pair):
    assert cli("profile", f"{pair}:halves", "-a", X, "--cores", "3").code == 2


def test_run(cli, pair):
    result = cli("run", "--json", "--profile", pair)
    assert result.code == 0
    data = json.loads(result.out)
    assert (data["runs"][0]["cores"], data["runs"][0]["instructions"]) == (2, 4)
    assert len(data["profiles"][0]["cores"]) == 2
