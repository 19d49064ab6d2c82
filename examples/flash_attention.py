"""Causal attention, forward, without ever holding the matrix of scores: running maximum and sum per query.

Queries and keys come transposed, (head, time), values as (time, head).

    trn-sim run examples/flash_attention.py
"""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

TQ = 128  # queries of one tile: PSUM partitions
TK = 512  # keys of one step: a PSUM bank
FAR = -30000.0  # score of a key in the future


@nki.jit
def flash_attention(q_t, k_t, v, scale):
    """out (time, head) = softmax(causal(q k^T * scale)) v; time a multiple of 512, head at most 128."""
    head, time = q_t.shape
    out = nl.ndarray((time, head), dtype=v.dtype, buffer=nl.shared_hbm)
    k_tile = nl.ndarray((head, time), dtype=k_t.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=k_tile, src=k_t)
    v_tile = nl.ndarray((TQ, time // TQ, head), dtype=v.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=v_tile, src=v.ap([[head, TQ], [TQ * head, time // TQ], [1, head]]))

    for q in range(0, time, TQ):
        q_tile = nl.ndarray((head, TQ), dtype=q_t.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=q_tile, src=q_t[:, q : q + TQ])
        top = nl.ndarray((TQ, 1), dtype=nl.float32, buffer=nl.sbuf)  # running maximum, negated
        total = nl.ndarray((TQ, 1), dtype=nl.float32, buffer=nl.sbuf)
        mixed = nl.ndarray((TQ, head), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=top, value=-FAR)
        nisa.memset(dst=total, value=0.0)
        nisa.memset(dst=mixed, value=0.0)

        for k in range(0, q + TQ, TK):
            psum = nl.ndarray((TQ, TK), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=psum, stationary=q_tile, moving=k_tile[:, k : k + TK])
            scores = nl.ndarray((TQ, TK), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=scores, data=psum, op0=nl.multiply, operand0=scale)
            if k + TK > q:  # some keys of this step are in the future of some queries
                nisa.affine_select(
                    dst=scores,
                    pattern=[[-1, TK]],
                    channel_multiplier=1,
                    on_true_tile=scores,
                    on_false_value=FAR,
                    cmp_op=nl.greater_equal,
                    offset=q - k,
                )
            step_top = nl.ndarray((TQ, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=step_top, op=nl.maximum, data=scores, axis=1, negate=True)
            new_top = nl.ndarray((TQ, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=new_top, data1=step_top, data2=top, op=nl.minimum)
            # what was summed so far shrinks by exp(old maximum - new maximum)
            shrink = nl.ndarray((TQ, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=shrink, op=nl.exp, data=top, scale=-1.0, bias=new_top)
            top = new_top

            weights = nl.ndarray((TQ, TK), dtype=v.dtype, buffer=nl.sbuf)
            step_total = nl.ndarray((TQ, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(
                dst=weights,
                op=nl.exp,
                data=scores,
                bias=top,
                reduce_op=nl.add,
                reduce_res=step_total,
                reduce_cmd=nisa.reduce_cmd.reset_reduce,
            )
            nisa.scalar_tensor_tensor(
                dst=total, data=total, op0=nl.multiply, operand0=shrink, op1=nl.add, operand1=step_total
            )

            step_mixed = nl.ndarray((TQ, head), dtype=nl.float32, buffer=nl.psum)
            for part in range(TK // TQ):
                turned = nl.ndarray((TQ, TQ), dtype=v.dtype, buffer=nl.psum)
                nisa.nc_transpose(dst=turned, data=weights[:, part * TQ : (part + 1) * TQ], engine=nisa.engine.tensor)
                weights_t = nl.ndarray((TQ, TQ), dtype=v.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=weights_t, src=turned)
                nisa.nc_matmul(
                    dst=step_mixed, stationary=weights_t, moving=v_tile[:, k // TQ + part, :], accumulate=part > 0
                )
            nisa.scalar_tensor_tensor(
                dst=mixed, data=mixed, op0=nl.multiply, operand0=shrink, op1=nl.add, operand1=step_mixed
            )

        inverse = nl.ndarray((TQ, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=inverse, data=total)
        result = nl.ndarray((TQ, head), dtype=out.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=result, data=mixed, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[q : q + TQ, :], src=result)
    return out


if __name__ == "__main__":
    from show import show

    rng = np.random.default_rng(0)
    time, head = 1024, 128
    q, k, v = (rng.standard_normal((time, head), dtype=np.float32).astype(ml_dtypes.bfloat16) for _ in range(3))
    scale = head**-0.5
    scores = q.astype(np.float32) @ k.astype(np.float32).T * scale
    scores[np.triu_indices(time, 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    show(
        flash_attention,
        np.ascontiguousarray(q.T),
        np.ascontiguousarray(k.T),
        v,
        scale,
        expected=weights @ v.astype(np.float32),
        rtol=2e-2,
        atol=1e-2,
    )
