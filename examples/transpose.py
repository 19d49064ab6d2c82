"""Transpose of a matrix on the Tensor Engine, 128 x 128 at a time.

trn-sim run examples/transpose.py
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

T = 128


@nki.jit
def transpose(x):
    """out = x.T for (rows, columns), both multiples of 128; columns of one block row are evicted together."""
    rows, columns = x.shape
    out = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, rows, T):
        block = nl.ndarray((T, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=block, src=x[r : r + T, :])
        for c in range(0, columns, T):
            turned = nl.ndarray((T, T), dtype=x.dtype, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=block[:, c : c + T], engine=nisa.engine.tensor)
            tile = nl.ndarray((T, T), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=turned)
            nisa.dma_copy(dst=out[c : c + T, r : r + T], src=tile)
    return out


if __name__ == "__main__":
    from show import show

    matrix = np.random.default_rng(0).standard_normal((256, 512), dtype=np.float32)
    show(
        transpose,
        matrix.astype(ml_dtypes.bfloat16),
        expected=matrix.astype(ml_dtypes.bfloat16).T.astype(np.float32),
        rtol=0,
        atol=0,
    )
