"""Rows of a table picked by run-time indices: an embedding look-up with one indirect DMA per 128 rows.

trn-sim run examples/gather.py
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

P = 128


@nki.jit
def gather(table, indices):
    """out[i, :] = table[indices[i, 0], :] for table (rows, width) and indices (n, 1) int32; n a multiple of 128."""
    width = table.shape[1]
    n = indices.shape[0]
    out = nl.ndarray((n, width), dtype=table.dtype, buffer=nl.shared_hbm)
    for start in range(0, n, P):
        picked = nl.ndarray((P, 1), dtype=indices.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=picked, src=indices[start : start + P, :])
        rows = nl.ndarray((P, width), dtype=table.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=table.ap([[width, P], [1, width]], vector_offset=picked, indirect_dim=0))
        nisa.dma_copy(dst=out[start : start + P, :], src=rows)
    return out


if __name__ == "__main__":
    from show import show

    rng = np.random.default_rng(0)
    table = rng.standard_normal((1000, 512), dtype=np.float32)
    indices = rng.integers(0, 1000, (256, 1), dtype=np.int32)
    show(gather, table, indices, expected=table[indices[:, 0]], rtol=0, atol=0)
