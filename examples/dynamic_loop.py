"""A loop whose length is known only on the device: the count is read from a tensor into a register.

trn-sim run examples/dynamic_loop.py
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

P = 128


@nki.jit
def scale_blocks(x, count):
    """out = x with the first ``count`` blocks of 128 rows doubled; x (rows, columns), count (1, 1) int32."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, rows, P):
        tile = nl.ndarray((P, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[r : r + P, :])
        nisa.dma_copy(dst=out[r : r + P, :], src=tile)

    count_tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=count_tile, src=count)
    blocks = nisa.register_alloc()
    nisa.register_load(blocks, count_tile)
    for block in nl.dynamic_range(blocks):
        # reshaped so that one step of the outermost dimension is one block
        source = x.reshape((rows // P, P, columns)).select(0, block)
        target = out.reshape((rows // P, P, columns)).select(0, block)
        tile = nl.ndarray((P, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=source)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=target, src=tile)
    return out


if __name__ == "__main__":
    from show import show

    data = np.random.default_rng(0).standard_normal((512, 256), dtype=np.float32)
    expected = data.copy()
    expected[: 3 * P] *= 2
    show(scale_blocks, data, np.array([[3]], dtype=np.int32), expected=expected, rtol=0, atol=0)
