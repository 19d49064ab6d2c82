"""The selective scan of a Mamba layer: one scan instruction carries the state of 128 channels through time.

trn-sim run examples/mamba_scan.py
"""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

P = 128


@nki.jit
def mamba_scan(delta, u, decay, b, c):
    """y[ch, t] = sum over states s of c[s, t] * h[ch, s, t], where
    h[ch, s, t] = exp(delta * decay)[ch, s, t] * h[ch, s, t - 1] + delta[ch, t] * u[ch, t] * b[s, t].

    delta, u (channels, time); decay (channels, states); b, c (states, time); channels a multiple of 128.
    """
    channels, time = delta.shape
    states = decay.shape[1]
    out = nl.ndarray((channels, time), dtype=delta.dtype, buffer=nl.shared_hbm)
    for start in range(0, channels, P):
        rows = slice(start, start + P)
        delta_tile = nl.ndarray((P, time), dtype=delta.dtype, buffer=nl.sbuf)
        driven = nl.ndarray((P, time), dtype=u.dtype, buffer=nl.sbuf)
        decay_tile = nl.ndarray((P, states), dtype=decay.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=delta_tile, src=delta[rows, :])
        nisa.dma_copy(dst=driven, src=u[rows, :])
        nisa.dma_copy(dst=decay_tile, src=decay[rows, :])
        nisa.tensor_tensor(dst=driven, data1=driven, data2=delta_tile, op=nl.multiply)
        total = nl.ndarray((P, time), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        for s in range(states):
            # a row of b and of c, handed to all partitions by a DMA with stride 0
            b_tile = nl.ndarray((P, time), dtype=b.dtype, buffer=nl.sbuf)
            c_tile = nl.ndarray((P, time), dtype=c.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=b_tile, src=b.ap([[0, P], [1, time]], offset=s * time))
            nisa.dma_copy(dst=c_tile, src=c.ap([[0, P], [1, time]], offset=s * time))
            keep = nl.ndarray((P, time), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=keep, op=nl.exp, data=delta_tile, scale=decay_tile[:, s : s + 1])
            nisa.tensor_tensor(dst=b_tile, data1=b_tile, data2=driven, op=nl.multiply)
            state = nl.ndarray((P, time), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor_scan(dst=state, data0=keep, data1=b_tile, initial=0.0, op0=nl.multiply, op1=nl.add)
            nisa.tensor_tensor(dst=state, data1=state, data2=c_tile, op=nl.multiply)
            nisa.tensor_tensor(dst=total, data1=total, data2=state, op=nl.add)
        nisa.dma_copy(dst=out[rows, :], src=total)
    return out


if __name__ == "__main__":
    from show import show

    rng = np.random.default_rng(0)
    channels, time, states = 256, 512, 8
    delta = rng.uniform(0.01, 0.1, (channels, time)).astype(np.float32)
    u = rng.standard_normal((channels, time), dtype=np.float32)
    decay = -rng.uniform(0.5, 4.0, (channels, states)).astype(np.float32)
    b = rng.standard_normal((states, time), dtype=np.float32)
    c = rng.standard_normal((states, time), dtype=np.float32)
    h = np.zeros((channels, states), np.float32)
    y = np.empty((channels, time), np.float32)
    for t in range(time):
        h = np.exp(delta[:, t, None] * decay) * h + (delta[:, t] * u[:, t])[:, None] * b[:, t]
        y[:, t] = (h * c[:, t]).sum(axis=1)
    show(mamba_scan, delta, u, decay, b, c, expected=y, rtol=1e-3, atol=1e-4)
