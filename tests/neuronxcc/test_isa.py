"""Instructions of the older ``nki.isa``: results that are returned, against numpy."""

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from isa.faults import ConstraintFault, UnimplementedFault

A = np.sin(np.arange(64 * 48, dtype=np.float32)).reshape(64, 48)
B = np.cos(np.arange(64 * 48, dtype=np.float32)).reshape(64, 48)
V = A[:, :1].copy()


def tile(values, dtype=None):
    return nl.load(nl.shared_constant(np.ascontiguousarray(values)), dtype=dtype)


def same(ours, theirs, rtol=1e-5):
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=rtol, atol=1e-6)


def test_activation(core):
    same(nisa.activation(op=nl.exp, data=tile(A), bias=tile(V), scale=2.0), np.exp(2 * A + V))
    same(nisa.activation(np.square, tile(A), scale=tile(V), mask=None), np.square(A * V))
    assert nisa.activation(nl.copy, tile(A), dtype=nl.bfloat16).dtype == nl.bfloat16
    total = nl.ndarray((64, 1), dtype=nl.float32)
    powers = nisa.activation(
        nl.exp, tile(A), reduce_op=np.add, reduce_res=total, reduce_cmd=nisa.reduce_cmd.reset_reduce
    )
    same(powers, np.exp(A))
    same(total, np.exp(A).sum(1, keepdims=True))


def test_activation_reduce(core):
    total = nl.ndarray((64, 1), dtype=nl.float32)
    same(nisa.activation_reduce(nl.exp, tile(A), reduce_op=np.add, reduce_res=total[:, :]), np.exp(A))
    same(total, np.exp(A).sum(1, keepdims=True))


def test_vector_arithmetic(core):
    same(nisa.tensor_tensor(tile(A), tile(B), op=nl.multiply, engine=nisa.vector_engine), A * B)
    same(nisa.tensor_tensor(tile(A), tile(B)[:, 0:1], np.add), A + B[:, :1])
    same(nisa.tensor_scalar(tile(A), np.subtract, 1.0, reverse0=True), 1 - A)
    same(nisa.tensor_scalar(tile(A), op0=np.multiply, operand0=tile(V), op1=nl.add, operand1=2.5), A * V + 2.5)
    same(
        nisa.scalar_tensor_tensor(data=tile(A), op0=np.multiply, operand0=2.0, op1=np.subtract, operand1=tile(B)),
        2 * A - B,
    )
    same(nisa.reciprocal(tile(B + 3), engine=nisa.unknown_engine), 1 / (B + 3))
    same(nisa.tensor_copy(tile(A), engine=nisa.scalar_engine, dtype=nl.float32), A)
    sums = nl.ndarray((64, 1), dtype=nl.float32)
    same(
        nisa.tensor_scalar_reduce(data=tile(A), op0=np.multiply, operand0=3.0, reduce_op=np.add, reduce_res=sums), 3 * A
    )
    same(sums, 3 * A.sum(1, keepdims=True), rtol=1e-4)


def test_reductions(core):
    cube = tile(A).reshape((64, 6, 8))
    same(nisa.tensor_reduce(np.max, cube, axis=[2]), A.reshape(64, 6, 8).max(2))
    same(nisa.tensor_reduce(np.add, cube, axis=[1], negate=True), -A.reshape(64, 6, 8).sum(1))
    same(
        nisa.tensor_reduce(nl.add, cube, axis=(1, 2), keepdims=True, dtype=nl.float32)[:, 0],
        A.sum(1, keepdims=True),
        1e-4,
    )
    same(nisa.tensor_partition_reduce(np.add, tile(A)), A.sum(0, keepdims=True), 1e-4)
    half = nisa.tensor_partition_reduce(np.add, tile(A), mask=nl.arange(64)[:, None] < 32)
    same(half, A[:32].sum(0, keepdims=True), 1e-4)


def test_scan(core):
    expected = np.zeros((64, 48), np.float32)
    state = np.zeros(64, np.float32)
    for i in range(48):
        state = expected[:, i] = A[:, i] * state + B[:, i]
    same(nisa.tensor_tensor_scan(tile(A), tile(B), initial=0, op0=np.multiply, op1=np.add), expected, 1e-4)


def test_tensor_scalar_cumulative(core):
    out = nl.ndarray((64, 48), dtype=nl.float32)
    nisa.tensor_scalar_cumulative(src=tile(A), dst=out, op0=np.multiply, op1=np.add, imm0=2.0, imm1=5.0)
    same(out, np.cumsum(2 * A, 1), 1e-4)
    nisa.tensor_scalar_cumulative(
        src=tile(A), dst=out, op0=np.multiply, op1=np.add, imm0=2.0, imm1=5.0,
        reduce_cmd=nisa.reduce_cmd.load_reduce,
    )  # fmt: skip
    same(out, 5 + np.cumsum(2 * A, 1), 1e-4)


def test_statistics(core):
    stats = nisa.bn_stats(tile(A))
    assert stats.shape == (64, 6)
    mean_variance = nisa.bn_aggr(stats)
    same(mean_variance[:, 0], A.mean(1, keepdims=True), 1e-3)
    same(mean_variance[:, 1], A.var(1, keepdims=True), 1e-3)


def test_search(core):
    x = tile(A)
    top = nisa.max8(src=x)
    np.testing.assert_array_equal(top.numpy(), np.sort(A, 1)[:, :-9:-1])
    where = nisa.nc_find_index8(data=x, vals=top)
    assert where.dtype == nl.uint32
    np.testing.assert_array_equal(np.take_along_axis(A, where.numpy().astype(int), 1), top.numpy())
    found = nl.ndarray((64, 8), dtype=nl.uint32)
    replaced = nisa.nc_match_replace8(data=x, vals=top, imm=-9.0, dst_idx=found)
    np.testing.assert_array_equal(replaced.numpy(), np.where(np.sort(A, 1)[:, -8:-7] <= A, -9, A))
    np.testing.assert_array_equal(np.sort(found.numpy()), np.sort(where.numpy()))


def test_selections(core):
    bounds = tile(np.zeros((64, 1), np.float32)), tile(np.full((64, 1), 10, np.float32))
    top = nl.ndarray((64, 1), dtype=nl.float32)
    picked = nisa.range_select(
        on_true_tile=tile(A), comp_op0=np.greater_equal, comp_op1=np.less, bound0=bounds[0], bound1=bounds[1],
        reduce_res=top, reduce_op=np.max, range_start=4, on_false_value=nl.fp32.min,
    )  # fmt: skip
    inside = (np.arange(48) + 4 < 10)[None]
    same(picked, np.where(inside, A, nl.fp32.min))
    same(top, A[:, :6].max(1, keepdims=True))
    out = nl.ndarray((64, 48), dtype=nl.float32)
    nisa.select_reduce(dst=out, predicate=tile(A > 0), on_true=tile(A), on_false=-1.0)
    same(out, np.where(A > 0, A, -1))
    nisa.tensor_copy_predicated(src=tile(B), dst=out, predicate=tile(A > 0))
    same(out, np.where(A > 0, B, -1))
    p, f = nl.arange(64)[:, None], nl.arange(48)[None, :]
    same(
        nisa.affine_select(pred=p - f >= 2, on_true_tile=tile(A), on_false_value=0.5),
        np.where(np.subtract.outer(np.arange(64), np.arange(48)) >= 2, A, 0.5),
    )
    same(nisa.affine_select(pred=False, on_true_tile=tile(A), on_false_value=0.5), np.full_like(A, 0.5))
    with pytest.raises(ConstraintFault, match="pred"):
        nisa.affine_select(pred=tile(A), on_true_tile=tile(A), on_false_value=0.0)


def test_fills(core):
    same(nisa.memset(shape=(64, 3), value=1.5, dtype=nl.float32, engine=nisa.gpsimd_engine), np.full((64, 3), 1.5))
    p, f = nl.arange(64)[:, None], nl.arange(8)[None, :]
    same(nisa.iota(3 * p - f + 2, dtype=nl.int32), 3 * np.arange(64)[:, None] - np.arange(8) + 2)
    with pytest.raises(ConstraintFault, match="expr"):
        nisa.iota(tile(A), dtype=nl.int32)


def test_dropout(core):
    kept = nisa.dropout(tile(A), prob=0.0)
    same(kept, A)
    assert (nisa.dropout(tile(A), prob=1.0).numpy() == 0).all()


def test_moves(core):
    same(nisa.nc_transpose(tile(A)), A.T)
    same(nisa.nc_transpose(tile(A[:32, :32].copy())), A[:32, :32].T)
    same(nisa.nc_transpose(tile(A), engine=nisa.tensor_engine), A.T)
    assert nisa.nc_transpose(tile(A)).buffer == nl.psum
    assert nisa.nc_transpose(tile(A[:32, :32].copy())).buffer == nl.sbuf
    same(nisa.dma_transpose(nl.shared_constant(A)), A.T)
    out = nl.ndarray((64, 48), dtype=nl.float32)
    nisa.dma_copy(dst=out, src=nl.shared_constant(A), oob_mode=nisa.oob_mode.error, dge_mode=nisa.dge_mode.none)
    same(out, A)
    far = nl.ndarray((64, 48), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=far, src=out)
    nisa.dma_copy(dst=far, src=tile(B), dst_rmw_op=np.add)
    same(nl.load(far), A + B)
    shuffled = nl.ndarray((32, 48), dtype=nl.float32)
    nisa.nc_stream_shuffle(src=tile(A[:32].copy()), dst=shuffled, shuffle_mask=[(i - 1) % 32 for i in range(32)])
    same(shuffled, np.roll(A[:32], 1, 0))


def test_dynamic_copies(core):
    at = tile(np.array([[5]], np.int32))
    x = tile(A)
    p = nl.arange(64)[:, None]
    same(nisa.tensor_copy_dynamic_src(x[p, at]), A[:, 5:6])
    out = nl.zeros((64, 48), dtype=nl.float32)
    nisa.tensor_copy_dynamic_dst(dst=out[p, at], src=x[:, 3])
    expected = np.zeros_like(A)
    expected[:, 5] = A[:, 3]
    same(out, expected)


def test_gather(core):
    source, index = (
        np.arange(128 * 20, dtype=np.float32).reshape(128, 20),
        np.tile(np.arange(16, dtype=np.uint16) % 20, 8),
    )
    got = nisa.local_gather(tile(source), tile(index[:, None].copy()))
    assert got.shape == (128, 1, 16)
    same(got[:, 0], source[:, :16])


def test_sequence_bounds(core):
    bounds = nisa.sequence_bounds(segment_ids=tile(np.array([[1, 1, 2, 0]], np.float32)))
    np.testing.assert_array_equal(bounds.numpy(), [[[0, 0, 2, 4], [2, 2, 3, -1]]])


def test_matmul(core):
    x, y = tile(A), tile(B)
    same(nisa.nc_matmul(x, y), A.T @ B, 1e-4)
    same(
        nisa.nc_matmul(x[:, 0:32], tile(np.eye(64, dtype=np.float32)), is_moving_onezero=True, is_transpose=True),
        A[:, :32].T,
    )
    same(nisa.nc_matmul(stationary=nisa.nc_transpose(y), moving=nisa.nc_transpose(x)), B @ A.T, 1e-4)  # from PSUM
    small = nisa.nc_matmul(x[0:32, 0:32], y[0:32], tile_position=(0, 0), tile_size=(32, 32))
    same(small, A[:32, :32].T @ B[:32], 1e-4)


def test_names(core):
    assert nisa.get_nc_version() == nisa.nc_version.gen3 > nisa.nc_version.gen2
    assert nisa.reduce_cmd.idle is not nisa.reduce_cmd.reset is not nisa.reduce_cmd.reduce
    assert nisa.oob_mode.skip is nisa.constants.oob_mode.skip
    assert nisa.dma_engine is nisa.constants.dma_engine


def test_arguments_are_those_of_the_function(core):
    for call, word in [
        (lambda: nisa.reciprocal(), "missing 1 required argument: 'data'"),
        (lambda: nisa.reciprocal(tile(A), tile(A), tile(A)), "positional arguments"),
        (lambda: nisa.reciprocal(tile(A), data=tile(A)), "multiple values"),
        (lambda: nisa.reciprocal(tile(A), color=3), "unexpected keyword argument 'color'"),
    ]:
        with pytest.raises(TypeError, match=word):
            call()
    with pytest.raises(ConstraintFault, match="takes a tile"):
        nisa.reciprocal(A)


def test_custom_code_is_not_built(core):
    with pytest.raises(UnimplementedFault, match="GpSimd"):
        nisa.builtin_custom_op(function_name="f", lib_file_name="l", srcs=[], dsts=[])
