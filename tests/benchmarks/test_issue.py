"""What an instruction costs on the host beyond the arithmetic numpy would do for it, with all checks on."""

import time

import numpy as np
import pytest

import trn_sim
from trn_sim import nki
from trn_sim.nki import isa as nisa
from trn_sim.nki import language as nl

COUNT = 20_000
LIMIT_US = 12.0


@nki.jit
def additions(x):
    a, b = nl.load(x), nl.load(x)
    for _ in range(COUNT):
        nisa.tensor_tensor(a, a, b, nl.add)
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nl.store(out, a)
    return out


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@pytest.mark.benchmark
@pytest.mark.parametrize("width", [1, 512])
def test_issue_overhead(capsys, width):
    x = np.ones((128, width), np.float32)
    sbuf = np.ones((128, 224 * 256 + 32), np.float32)  # numpy's tiles lie as they do in SBUF, a row in each partition
    a, b = sbuf[:, :width], sbuf[:, width : 2 * width]

    def plain():
        for _ in range(COUNT):
            np.add(a, b, out=a)

    kernel = [seconds(lambda: trn_sim.run(additions, x, target="trn2")) for _ in range(4)][1:]
    numpy = [seconds(plain) for _ in range(4)][1:]
    overhead = (min(kernel) - min(numpy)) / COUNT * 1e6
    with capsys.disabled():
        print(
            f"\ntensor_tensor (128, {width}): {min(kernel) / COUNT * 1e6:.2f} us, numpy "
            f"{min(numpy) / COUNT * 1e6:.2f} us, overhead {overhead:.2f} us (limit {LIMIT_US:.0f})"
        )
    assert overhead <= LIMIT_US
