"""A vector add of the older namespace that leaves its program and profile behind, for neuron-profile.

trn-sim run examples/older_profile.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np


def vector_add(a, b):
    """a + b for (128, n)."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(a.shape[1] // 512):
        columns = nl.ds(i * 512, 512)
        nl.store(out[:, columns], nl.load(a[:, columns]) + nl.load(b[:, columns]))
    return out


if __name__ == "__main__":
    from show import show

    a, b = np.random.default_rng(0).standard_normal((2, 128, 4096), dtype=np.float32)
    saved = nki.baremetal(save_neff_name="vector_add.neff", save_trace_name="vector_add.ntff")(vector_add)
    np.testing.assert_array_equal(saved(a, b), a + b)
    timed = nki.benchmark(warmup=5, iters=10)(vector_add)
    timed(a, b)
    print(f"p99 latency: {timed.benchmark_result.nc_latency.get_latency_percentile(99):.2f} us")
    show(vector_add, a, b, expected=a + b)
