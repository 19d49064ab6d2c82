"""Matrix multiplication in five stages, from one load per use to blocking in all three dimensions.

The left side comes transposed, (K, M), because the Tensor Engine contracts over partitions.

    trn-sim run examples/matmul.py
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

TK = 128  # contraction rows of one matmul
TM = 128  # stationary columns
TN = 512  # moving columns: one PSUM bank of float32


def _load(source, rows, columns):
    """A fresh SBUF tile with source[rows, columns]."""
    tile = nl.ndarray((rows.stop - rows.start, columns.stop - columns.start), dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source[rows, columns])
    return tile


def _evict(psum, destination):
    """Round a PSUM tile to the output's dtype and write it to HBM."""
    tile = nl.ndarray(psum.shape, dtype=destination.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=psum)
    nisa.dma_copy(dst=destination, src=tile)


@nki.jit
def naive(lhs_t, rhs):
    """Square tiles of 128 and a load for every operand of every matmul."""
    k_size, m_size = lhs_t.shape
    n_size = rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for m in range(0, m_size, TM):
        for n in range(0, n_size, 128):
            psum = nl.ndarray((TM, 128), dtype=nl.float32, buffer=nl.psum)
            for k in range(0, k_size, TK):
                left = _load(lhs_t, slice(k, k + TK), slice(m, m + TM))
                right = _load(rhs, slice(k, k + TK), slice(n, n + 128))
                nisa.nc_matmul(dst=psum, stationary=left, moving=right, accumulate=k > 0)
            _evict(psum, out[m : m + TM, n : n + 128])
    return out


@nki.jit
def tiled(lhs_t, rhs):
    """Moving tiles of 512 columns fill a PSUM bank: four times fewer matmuls and loads of the left side."""
    k_size, m_size = lhs_t.shape
    n_size = rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for m in range(0, m_size, TM):
        for n in range(0, n_size, TN):
            psum = nl.ndarray((TM, TN), dtype=nl.float32, buffer=nl.psum)
            for k in range(0, k_size, TK):
                left = _load(lhs_t, slice(k, k + TK), slice(m, m + TM))
                right = _load(rhs, slice(k, k + TK), slice(n, n + TN))
                nisa.nc_matmul(dst=psum, stationary=left, moving=right)
            _evict(psum, out[m : m + TM, n : n + TN])
    return out


@nki.jit
def hoisted(lhs_t, rhs):
    """The left side's column of tiles is loaded once per row of the result."""
    k_size, m_size = lhs_t.shape
    n_size = rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for m in range(0, m_size, TM):
        lefts = [_load(lhs_t, slice(k, k + TK), slice(m, m + TM)) for k in range(0, k_size, TK)]
        for n in range(0, n_size, TN):
            psum = nl.ndarray((TM, TN), dtype=nl.float32, buffer=nl.psum)
            for i, k in enumerate(range(0, k_size, TK)):
                right = _load(rhs, slice(k, k + TK), slice(n, n + TN))
                nisa.nc_matmul(dst=psum, stationary=lefts[i], moving=right)
            _evict(psum, out[m : m + TM, n : n + TN])
    return out


@nki.jit
def blocked(lhs_t, rhs, block_m=512, block_n=1024):
    """Blocks of the result: what is loaded for a block serves all its tiles."""
    k_size, m_size = lhs_t.shape
    n_size = rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for m in range(0, m_size, block_m):
        lefts = [_load(lhs_t, slice(k, k + TK), slice(m, m + block_m)) for k in range(0, k_size, TK)]
        for n in range(0, n_size, block_n):
            rights = [_load(rhs, slice(k, k + TK), slice(n, n + block_n)) for k in range(0, k_size, TK)]
            for bm in range(0, block_m, TM):
                for bn in range(0, block_n, TN):
                    psum = nl.ndarray((TM, TN), dtype=nl.float32, buffer=nl.psum)
                    for left, right in zip(lefts, rights, strict=True):
                        nisa.nc_matmul(dst=psum, stationary=left[:, bm : bm + TM], moving=right[:, bn : bn + TN])
                    _evict(psum, out[m + bm : m + bm + TM, n + bn : n + bn + TN])
    return out


@nki.jit
def fully_blocked(lhs_t, rhs, block_m=512, block_n=1024, block_k=512):
    """Blocks in all three dimensions: partial results stay in SBUF, DMAs are long, the array never waits."""
    k_size, m_size = lhs_t.shape
    n_size = rhs.shape[1]
    block_m, block_n, block_k = min(block_m, m_size), min(block_n, n_size), min(block_k, k_size)
    out = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for n in range(0, n_size, block_n):
        partials = [
            nl.ndarray((TM, block_n), dtype=nl.float32 if k_size > block_k else out.dtype, buffer=nl.sbuf)
            for _ in range(0, m_size, TM)
        ]
        for k in range(0, k_size, block_k):
            rights = [_load(rhs, slice(kk, kk + TK), slice(n, n + block_n)) for kk in range(k, k + block_k, TK)]
            for m in range(0, m_size, block_m):
                lefts = [_load(lhs_t, slice(kk, kk + TK), slice(m, m + block_m)) for kk in range(k, k + block_k, TK)]
                for bm in range(0, block_m, TM):
                    partial = partials[(m + bm) // TM]
                    for bn in range(0, block_n, TN):
                        psum = nl.ndarray((TM, TN), dtype=nl.float32, buffer=nl.psum)
                        for left, right in zip(lefts, rights, strict=True):
                            nisa.nc_matmul(dst=psum, stationary=left[:, bm : bm + TM], moving=right[:, bn : bn + TN])
                        target = partial[:, bn : bn + TN]
                        if k == 0:
                            nisa.tensor_copy(dst=target, src=psum)
                        else:
                            nisa.tensor_tensor(dst=target, data1=target, data2=psum, op=nl.add)
                    if k + block_k == k_size:  # complete: on its way while the array goes on
                        nisa.dma_copy(dst=out[m + bm : m + bm + TM, n : n + block_n], src=partial)
    return out


if __name__ == "__main__":
    from show import show

    rng = np.random.default_rng(0)
    a = rng.standard_normal((512, 512), dtype=np.float32).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((512, 1024), dtype=np.float32).astype(ml_dtypes.bfloat16)
    product = a.astype(np.float32).T @ b.astype(np.float32)
    for kernel in (naive, tiled, hoisted, blocked, fully_blocked):
        show(kernel, a, b, expected=product, rtol=1e-2, atol=1e-1)
