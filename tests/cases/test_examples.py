"""Every example runs on every generation, has right values (it checks them itself) and prints its times."""

import re
import runpy
import sys
from pathlib import Path

import pytest

import trn_sim

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path for path in EXAMPLES.glob("*.py") if path.name != "show.py")


@pytest.fixture(autouse=True)
def _served(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    trn_sim.activate()
    yield
    sys.modules.pop("show", None)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example(script, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # for what it saves
    runpy.run_path(str(script), run_name="__main__")
    times = re.findall(r"(\w+) on (trn[123]):\s+([\d.]+) us", capsys.readouterr().out)
    kernels = {name for name, _, _ in times}
    assert kernels
    for kernel in kernels:
        measured = {target: float(time) for name, target, time in times if name == kernel}
        assert set(measured) == {"trn1", "trn2", "trn3"}
        assert all(time > 0 for time in measured.values())


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_matmul_stages_get_faster(target):
    """Each stage of the matmul example is there because it is faster than the one before."""
    import numpy as np

    stages = runpy.run_path(str(EXAMPLES / "matmul.py"))
    import ml_dtypes

    a = np.ones((1024, 2048), ml_dtypes.bfloat16)
    b = np.ones((1024, 2048), ml_dtypes.bfloat16)
    times = [
        trn_sim.run(stages[name], a, b, target=target, values=False).profile.total_ns
        for name in ("naive", "tiled", "hoisted", "blocked", "fully_blocked")
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] > 2 * times[-1]
