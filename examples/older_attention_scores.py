"""Softmax of scaled scores in the older namespace, neuronxcc.nki (NKI 0.1): softmax(q @ k^T / sqrt(d)).

Instructions return tiles, index tiles and masks take the place of slices, and `+=` on a PSUM tile accumulates.

    trn-sim run examples/older_attention_scores.py
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P = 128


@nki.jit
def scores(q, k):
    """q, k (depth, sequence), depth a multiple of 128; the sequence may end within a tile."""
    depth, length = q.shape
    out = nl.ndarray((length, length), dtype=q.dtype, buffer=nl.shared_hbm)
    keys = nl.ndarray((depth // P, nl.par_dim(P), length), dtype=k.dtype, buffer=nl.sbuf)
    for d in nl.affine_range(depth // P):
        keys[d] = nl.load(k[d * P : (d + 1) * P])
    i_d, i_q = nl.mgrid[0:P, 0:P]
    i_p, i_k = nl.mgrid[0:P, 0:length]
    for t in nl.affine_range((length + P - 1) // P):
        inside = t * P + i_p < length
        products = nl.zeros((nl.par_dim(P), length), dtype=nl.float32, buffer=nl.psum)
        for d in nl.affine_range(depth // P):
            queries = nl.load(q[d * P + i_d, t * P + i_q], mask=t * P + i_q < length)
            products[...] += nisa.nc_matmul(queries, keys[d], mask=t * P + i_q < length)
        low = nl.max(products, axis=1, mask=inside) * (-(depth**-0.5))
        powers = nisa.activation(op=nl.exp, data=products, bias=low, scale=depth**-0.5, mask=inside)
        rows = powers / nl.sum(powers, axis=1, mask=inside)
        nl.store(out[t * P + i_p, i_k], value=rows, mask=inside)
    return out


if __name__ == "__main__":
    from show import show

    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 256, 300), dtype=np.float32)
    s = q.T @ k / 16
    e = np.exp(s - s.max(1, keepdims=True))
    show(scores, q, k, expected=e / e.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)
