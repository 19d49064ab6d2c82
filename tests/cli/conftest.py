"""The command line, called in this process where that says the same as a process of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from trn_sim.cli import main

ROOT = Path(__file__).parents[2]

KERNELS = """
import sys

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np


def load(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


@nki.jit
def double(a, factor=2.0):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = load(a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def unwritten(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=out, src=tile)  # FAULT
    return out


@nki.jit
def stumble(a):
    load(a)
    raise KeyError("stumbled")


def helper():
    pass


A = np.ones((128, 256), np.float32)

if __name__ == "__main__":
    print("arguments", sys.argv[1:])
    what = sys.argv[1] if len(sys.argv) > 1 else "double"
    if what == "nothing":
        sys.exit(0)
    assert (double(A) == 2 * A).all()
    if what == "exit":
        sys.exit(int(sys.argv[2]))
    if what == "exit-text":
        sys.exit("bad day")
    if what == "unwritten":
        unwritten(A)
    if what == "stumble":
        stumble(A)
    if what == "interrupt":
        raise KeyboardInterrupt
    print("done")
"""


@dataclass(frozen=True)
class Result:
    """What a call of the command line gave."""

    code: int
    out: str
    err: str


@pytest.fixture
def script(tmp_path) -> Path:
    """A script with kernels that work and kernels that do not."""
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


@pytest.fixture
def cli(capfd, monkeypatch):
    """``cli(*args)`` in this process; leaves no imported script behind."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    path, modules = sys.path[:], set(sys.modules)

    def call(*args: object) -> Result:
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(arg) for arg in args])
        out, err = capfd.readouterr()
        return Result(end.value.code or 0, out, err)

    yield call
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if getattr(sys.modules[name], "__file__", None) and Path(sys.modules[name].__file__).name == "kernels.py":
            del sys.modules[name]


@pytest.fixture
def process():
    """``process(*args)`` as a process of its own."""

    def call(*args: object, cwd: Path = ROOT, **variables: str) -> Result:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
        done = subprocess.run(
            [sys.executable, "-m", "trn_sim", *map(str, args)],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return call
