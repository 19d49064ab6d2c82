"""Element-wise addition: the smallest kernel that moves data, computes and moves it back.

trn-sim run examples/vector_add.py
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

TILE_F = 2048


@nki.jit
def vector_add(a, b):
    """out = a + b for two (rows, columns) tensors; rows a multiple of 128."""
    rows, columns = a.shape
    out = nl.ndarray((rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
    for r in range(0, rows, nl.tile_size.pmax):
        for c in range(0, columns, TILE_F):
            width = min(TILE_F, columns - c)
            a_tile = nl.ndarray((nl.tile_size.pmax, width), dtype=a.dtype, buffer=nl.sbuf)
            b_tile = nl.ndarray((nl.tile_size.pmax, width), dtype=b.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=a_tile, src=a[r : r + nl.tile_size.pmax, c : c + width])
            nisa.dma_copy(dst=b_tile, src=b[r : r + nl.tile_size.pmax, c : c + width])
            nisa.tensor_tensor(dst=a_tile, data1=a_tile, data2=b_tile, op=nl.add)
            nisa.dma_copy(dst=out[r : r + nl.tile_size.pmax, c : c + width], src=a_tile)
    return out


if __name__ == "__main__":
    from show import show

    rng = np.random.default_rng(0)
    x = rng.standard_normal((256, 4096), dtype=np.float32)
    y = rng.standard_normal((256, 4096), dtype=np.float32)
    show(vector_add, x, y, expected=x + y)
