"""What every example does with its kernel: run it on each generation, check the values, print the time."""

import sys

import numpy as np

import trn_sim


def show(kernel, *inputs, expected, rtol=1e-5, atol=1e-6):
    """Run ``kernel(*inputs)`` on trn1, trn2 and trn3; compare with ``expected`` (float32) and print the times."""
    for target in ("trn1", "trn2", "trn3"):
        run = trn_sim.run(kernel, *inputs, target=target)
        results = run.result if isinstance(run.result, tuple) else (run.result,)
        references = expected if isinstance(expected, tuple) else (expected,)
        for result, reference in zip(results, references, strict=True):
            np.testing.assert_allclose(np.asarray(result, np.float32), reference, rtol=rtol, atol=atol)
        profile = run.profile
        low, high = profile.band_ns
        print(
            f"{kernel.__name__:>16} on {target}: {profile.total_ns / 1e3:9.2f} us "
            f"({low / 1e3:.2f} to {high / 1e3:.2f})  {profile.bound_by}",
            file=sys.stdout,
        )
