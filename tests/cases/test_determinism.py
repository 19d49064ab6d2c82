"""Same inputs, same bits, same time: in two processes with different hash seeds, and whoever looks meanwhile."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import trn_sim

EXAMPLES = Path(__file__).parents[2] / "examples"

PROGRAM = """
import hashlib, json, runpy, sys
import ml_dtypes, numpy as np, trn_sim
trn_sim.activate()
out = {}
rng = np.random.default_rng(0)
def bf16(*shape):
    return rng.standard_normal(shape, dtype=np.float32).astype(ml_dtypes.bfloat16)
attention = runpy.run_path("flash_attention.py")["flash_attention"]
matmul = runpy.run_path("matmul.py")["blocked"]
for name, kernel, args in [
    ("attention", attention, (bf16(64, 512), bf16(64, 512), bf16(512, 64), 0.125)),
    ("matmul", matmul, (bf16(512, 512), bf16(512, 1024))),
]:
    run = trn_sim.run(kernel, *args, target="trn2")
    out[name] = [hashlib.sha256(np.asarray(run.result).tobytes()).hexdigest(), run.profile.as_dict()]
print(json.dumps(out))
"""


def result_of_process(seed: str) -> dict:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=EXAMPLES, env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_two_processes_agree():
    first, second = result_of_process("1"), result_of_process("2")
    assert first == second
    assert set(first) == {"attention", "matmul"}


trn_sim.activate()

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def watched_matmul(a, b, look):
    """A matmul over four groups of rows; the watcher looks at PSUM between them."""
    psum = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for k in range(0, 512, 128):
        left = nl.ndarray((128, 128), dtype=a.dtype, buffer=nl.sbuf)
        right = nl.ndarray((128, 512), dtype=b.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=a[k : k + 128, :])
        nisa.dma_copy(dst=right, src=b[k : k + 128, :])
        nisa.nc_matmul(dst=psum, stationary=left, moving=right)
        look(k, psum)
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=psum)
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_looking_changes_nothing():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((512, 128), dtype=np.float32)
    b = rng.standard_normal((512, 512), dtype=np.float32)
    seen = {}

    def look(k, psum):
        seen[k] = np.asarray(psum.numpy())

    blind = trn_sim.run(watched_matmul, a, b, lambda k, psum: None, target="trn2")
    watched = trn_sim.run(watched_matmul, a, b, look, target="trn2")
    assert hashlib.sha256(blind.result).digest() == hashlib.sha256(watched.result).digest()
    assert blind.profile.total_ns == watched.profile.total_ns
    for k, values in seen.items():
        np.testing.assert_allclose(values, a[: k + 128].T @ b[: k + 128], rtol=1e-4, atol=1e-4)
