"""Softmax over the last dimension: one pass of the Scalar Engine gives exponentials and their sum.

trn-sim run examples/softmax.py
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

P = 128


@nki.jit
def softmax(x):
    """Row-wise softmax of (rows, columns); rows a multiple of 128."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, rows, P):
        tile = nl.ndarray((P, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[r : r + P, :])
        negative_max = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=negative_max, op=nl.maximum, data=tile, axis=1, negate=True)
        exponentials = nl.ndarray((P, columns), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(
            dst=exponentials,
            op=nl.exp,
            data=tile,
            bias=negative_max,
            reduce_op=nl.add,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        inverse = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=inverse, data=total)
        nisa.tensor_scalar(dst=tile, data=exponentials, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[r : r + P, :], src=tile)
    return out


if __name__ == "__main__":
    from show import show

    logits = np.random.default_rng(0).standard_normal((256, 2048), dtype=np.float32)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    show(softmax, logits, expected=powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)
