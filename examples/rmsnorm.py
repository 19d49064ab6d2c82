"""RMSNorm: rows divided by their root mean square, columns scaled by a weight.

The weight is one row in HBM; a DMA with stride 0 hands it to all partitions.

    trn-sim run examples/rmsnorm.py
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

P = 128


@nki.jit
def rmsnorm(x, weight, epsilon=1e-6):
    """x (rows, columns) / sqrt(mean(x^2) + epsilon) * weight (1, columns); rows a multiple of 128."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    scale = nl.ndarray((P, columns), dtype=weight.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=scale, src=weight.ap([[0, P], [1, columns]]))
    offset = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=offset, value=epsilon)
    for r in range(0, rows, P):
        tile = nl.ndarray((P, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[r : r + P, :])
        squares = nl.ndarray((P, columns), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(
            dst=squares,
            op=nl.square,
            data=tile,
            reduce_op=nl.add,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        inverse = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=inverse, op=nl.rsqrt, data=total, scale=1.0 / columns, bias=offset)
        nisa.scalar_tensor_tensor(
            dst=tile, data=tile, op0=nl.multiply, operand0=inverse, op1=nl.multiply, operand1=scale
        )
        nisa.dma_copy(dst=out[r : r + P, :], src=tile)
    return out


if __name__ == "__main__":
    from show import show

    rng = np.random.default_rng(0)
    x = rng.standard_normal((256, 2048), dtype=np.float32)
    w = rng.standard_normal((1, 2048), dtype=np.float32)
    show(rmsnorm, x, w, expected=x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6) * w, rtol=1e-4)
