"""Two matrix products with a GELU between them; the hidden layer never leaves SBUF.

The input comes transposed.  The hidden layer is computed transposed too, which is the layout the second product needs
for its stationary side.

    trn-sim run examples/fused_mlp.py
"""

import math

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

P = 128
TN = 512


@nki.jit
def fused_mlp(x_t, w_up, w_down):
    """out (tokens, model) = gelu(x @ w_up) @ w_down with x_t (model, tokens), w_up (model, hidden) and
    w_down (hidden, model); every size a multiple of 128, model a multiple of 512, at most 512 tokens."""
    model, tokens = x_t.shape
    hidden = w_up.shape[1]
    out = nl.ndarray((tokens, model), dtype=x_t.dtype, buffer=nl.shared_hbm)

    inputs = []
    for k in range(0, model, P):
        tile = nl.ndarray((P, tokens), dtype=x_t.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x_t[k : k + P, :])
        inputs.append(tile)
    ups = []
    for k in range(0, model, P):
        tile = nl.ndarray((P, hidden), dtype=w_up.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=w_up[k : k + P, :])
        ups.append(tile)

    activations = []
    for h in range(0, hidden, P):
        psum = nl.ndarray((P, tokens), dtype=nl.float32, buffer=nl.psum)
        for left, right in zip(ups, inputs, strict=True):
            nisa.nc_matmul(dst=psum, stationary=left[:, h : h + P], moving=right)
        tile = nl.ndarray((P, tokens), dtype=x_t.dtype, buffer=nl.sbuf)
        nisa.activation(dst=tile, op=nl.gelu, data=psum)
        activations.append(tile)

    downs = []
    for h in range(0, hidden, P):
        tile = nl.ndarray((P, model), dtype=w_down.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=w_down[h : h + P, :])
        downs.append(tile)
    for t in range(0, tokens, P):
        row = nl.ndarray((P, model), dtype=out.dtype, buffer=nl.sbuf)
        for n in range(0, model, TN):
            psum = nl.ndarray((P, TN), dtype=nl.float32, buffer=nl.psum)
            for left, right in zip(activations, downs, strict=True):
                nisa.nc_matmul(dst=psum, stationary=left[:, t : t + P], moving=right[:, n : n + TN])
            nisa.tensor_copy(dst=row[:, n : n + TN], src=psum)
        nisa.dma_copy(dst=out[t : t + P, :], src=row)
    return out


if __name__ == "__main__":
    from show import show

    def bf16(array):
        return array.astype(ml_dtypes.bfloat16)

    rng = np.random.default_rng(0)
    x_t = bf16(rng.standard_normal((512, 256), dtype=np.float32))
    up = bf16(rng.standard_normal((512, 1024), dtype=np.float32) / 32)
    down = bf16(rng.standard_normal((1024, 512), dtype=np.float32) / 32)
    hidden = x_t.astype(np.float32).T @ up.astype(np.float32)
    erf = np.vectorize(math.erf, otypes=[np.float32])
    gelu = 0.5 * hidden * (1 + erf(hidden / math.sqrt(2)))
    show(fused_mlp, x_t, up, down, expected=gelu @ down.astype(np.float32), rtol=2e-2, atol=2e-2)
