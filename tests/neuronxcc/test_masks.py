"""Masks: elements left out are neither read nor written, and undefined in a new tile."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from isa.faults import ConstraintFault, UnimplementedFault

A = np.arange(128 * 64, dtype=np.float32).reshape(128, 64) / 64
P, F = np.arange(128)[:, None], np.arange(64)[None, :]


def given(values):
    return nl.load(nl.shared_constant(values))


def pf():
    return nl.arange(128)[:, None], nl.arange(64)[None, :]


def test_new_tiles_are_undefined_where_a_mask_says_no(core):
    p, f = pf()
    result = nl.exp(given(A * 0), mask=(p < 100) & (f >= 8))
    inside = (P < 100) & (F >= 8)
    assert np.isnan(result.numpy()[~inside]).all()
    assert (result.numpy()[inside] == 1).all()
    twice = nl.add(result, result)  # reading what is undefined is legal
    assert np.isnan(twice.numpy()[~inside]).all()


def test_destinations_keep_what_a_mask_leaves_out(core):
    p, f = pf()
    out = nl.full((128, 64), -1.0, dtype=nl.float32)
    out[p, f] = nl.copy(given(A), mask=(f < 10))
    np.testing.assert_array_equal(out.numpy(), np.where(F < 10, A, -1))


def test_masks_that_are_no_box_take_several_instructions(core):
    p, f = pf()
    out = nl.full((128, 64), -1.0, dtype=nl.float32)
    out[p, f] = nl.multiply(given(A), 2.0, mask=(p < 2 * f + 2))
    np.testing.assert_array_equal(out.numpy(), np.where(2 * F + 2 > P, 2 * A, -1))
    source = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(source, 0.0)
    nl.store(source[p, f], given(A), mask=p > f)
    np.testing.assert_array_equal(nl.load(source).numpy(), np.where(P > F, A, 0))


def test_python_truth_values_are_masks(core):
    out = nl.full((128, 64), -1.0, dtype=nl.float32)
    out[...] = nl.copy(given(A), mask=3 < 2)
    np.testing.assert_array_equal(out.numpy(), np.full_like(A, -1))
    out[...] = nl.copy(given(A), mask=True)
    np.testing.assert_array_equal(out.numpy(), A)
    with pytest.raises(ConstraintFault, match="mask="):
        nl.copy(out, mask="all")


def test_reductions_leave_masked_elements_out(core):
    p, f = pf()
    total = nl.sum(given(A), axis=1, mask=(f < 5) & (p < 64))
    np.testing.assert_allclose(total.numpy()[:64, 0], A[:64, :5].sum(1), rtol=1e-6)
    assert np.isnan(total.numpy()[64:]).all()
    top = nisa.max8(given(A), mask=f < 16)
    np.testing.assert_array_equal(top.numpy(), A[:, 15:7:-1])
    with pytest.raises(UnimplementedFault, match="no box"):
        nl.sum(given(A), axis=1, mask=p > f)


def test_matmul_leaves_out_rows_and_columns(core):
    x, y = given(A[:, :32].copy()), given(A)
    k, n = nl.arange(128)[:, None], nl.arange(64)[None, :]
    full = nl.full((32, 64), -1.0, dtype=nl.float32, buffer=nl.psum)
    product = nisa.nc_matmul(x, y, mask=(k < 100) & (n < 40))
    np.testing.assert_allclose(product.numpy()[:, :40], A[:100, :32].T @ A[:100, :40], rtol=1e-5)
    m = nl.arange(32)[None, :]
    rows = nisa.nc_matmul(x, y, mask=m < 8)
    np.testing.assert_allclose(rows.numpy()[:8], A[:, :8].T @ A, rtol=1e-5)
    full[...] = nisa.nc_matmul(x, y, mask=n < 0)
    assert (full.numpy() == -1).all()


def test_transposes_and_selections(core):
    p, f = pf()
    assert nisa.nc_transpose(given(A), mask=f < 32).numpy()[:32].tolist() == A.T[:32].tolist()
    chosen = nisa.affine_select(pred=(p > f) & (f > 3), on_true_tile=given(A), on_false_value=-5.0)
    np.testing.assert_array_equal(chosen.numpy(), np.where((P > F) & (F > 3), A, -5))
    values = nisa.iota(2 * p + f + 1, dtype=nl.int32, mask=p < 32)
    np.testing.assert_array_equal(values.numpy()[:32], (2 * P + F + 1)[:32])


def test_composites(core):
    _, f = pf()
    result = nl.softmax(given(A), axis=1, mask=f < 8)
    e = np.exp(A[:, :8] - A[:, :8].max(1, keepdims=True))
    np.testing.assert_allclose(result.numpy()[:, :8], e / e.sum(1, keepdims=True), rtol=1e-5)


def test_and_joins_masks_in_the_source_of_a_kernel():
    offset = 2

    @nki.jit
    def kernel(x, unused=None):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:128, 0:64]
        tile = nl.full((128, 64), 0.0, dtype=x.dtype)
        tile[p, f] = nl.load(x, mask=(p < 64 and f < offset and p > 3))
        nl.store(out, tile)
        return out

    np.testing.assert_array_equal(kernel(A), np.where((P < 64) & (F < 2) & (P > 3), A, 0))
    assert kernel.__wrapped__.__name__ == "kernel"


def test_and_outside_of_a_kernels_source_is_refused(core):
    p, f = pf()
    with pytest.raises(ConstraintFault, match="truth value"):
        nl.exp(given(A), mask=p < 3 and f < 3)


def test_gathers_follow_the_mask(core):
    rows = given(np.array([[3], [1], [9], [90]], np.int32))
    p, f = nl.arange(4)[:, None], nl.arange(64)[None, :]
    source = nl.shared_constant(A[:10].copy())
    np.testing.assert_array_equal(nl.load(source[rows, f], mask=p < 3).numpy()[:3], A[[3, 1, 9]])
    target = nl.ndarray((10, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(target, 0.0)
    nl.store(target[rows[0:3], f], given(A[:3].copy()))
    expected = np.zeros((10, 64), np.float32)
    expected[[3, 1, 9]] = A[:3]
    np.testing.assert_array_equal(nl.load(target).numpy(), expected)
