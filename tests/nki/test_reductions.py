"""Reductions, normalisations, transpose and matmul of ``nki.language`` against numpy."""

import ml_dtypes
import numpy as np
import pytest

import trn_sim

trn_sim.activate()

import nki.language as nl

from isa.faults import ConstraintFault

rng = np.random.default_rng(0)
X = rng.standard_normal((16, 4, 6), dtype=np.float32)
FLAT = rng.standard_normal((16, 40), dtype=np.float32)


def tile(values, dtype=None):
    return nl.load(nl.shared_constant(np.ascontiguousarray(values)), dtype)


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod", "mean"])
@pytest.mark.parametrize("axis", [2, -1, (1, 2), [1, 2], (2, 1)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(core, name, axis, keepdims):
    result = getattr(nl, name)(tile(X), axis, keepdims=keepdims)
    reference = getattr(np, name)(X, axis=tuple(np.atleast_1d(axis)), keepdims=keepdims)
    if reference.ndim == 1:
        reference = reference[:, None]  # on-chip two dimensions stay
    assert result.shape == reference.shape
    np.testing.assert_allclose(result.numpy(), reference, rtol=1e-5, atol=1e-6)


def test_all(core):
    values = np.array([[1, 2, 3], [1, 0, 3]], np.float32)
    np.testing.assert_array_equal(nl.all(tile(values), 1).numpy(), [[1], [0]])


@pytest.mark.parametrize("axis", [0, (0, 1), 1, (), 3])
def test_only_trailing_free_dimensions(core, axis):
    with pytest.raises(ConstraintFault, match="trailing"):
        nl.sum(tile(X), axis)


def test_the_sum_is_float32_inside(core):
    values = np.full((4, 1024), 1.0, ml_dtypes.bfloat16)
    assert (nl.sum(tile(values), 1).numpy().astype(np.float32) == 1024).all()
    assert nl.sum(tile(values), 1, dtype=nl.float32).dtype == nl.float32


@pytest.mark.parametrize("shape", [(16, 40), (16, 700), (16, 1024)])
def test_var_over_everything(core, shape):
    values = rng.standard_normal(shape, dtype=np.float32) + 3
    result = nl.var(tile(values), 1)
    assert result.shape == (16, 1)
    np.testing.assert_allclose(result.numpy(), values.var(axis=1, keepdims=True), rtol=1e-5)


def test_var_over_the_last_dimension(core):
    result = nl.var(tile(X), -1)
    assert result.shape == (16, 4, 1)
    np.testing.assert_allclose(result.numpy(), X.var(axis=2, keepdims=True), rtol=1e-5)


def reference_softmax(x, axis):
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize(("values", "axis"), [(FLAT, -1), (FLAT * 30, 1), (X, -1), (X, (1, 2))])
def test_softmax(core, values, axis):
    result = nl.softmax(tile(values), axis)
    assert result.shape == values.shape
    np.testing.assert_allclose(result.numpy(), reference_softmax(values, axis), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("partitions_of_w", [16, 1])
def test_rms_norm(core, partitions_of_w):
    w = rng.standard_normal((partitions_of_w, 40), dtype=np.float32)
    result = nl.rms_norm(tile(FLAT), tile(w), axis=1, n=40, epsilon=1e-5)
    reference = FLAT / np.sqrt((FLAT**2).mean(axis=1, keepdims=True) + 1e-5) * w
    np.testing.assert_allclose(result.numpy(), reference, rtol=1e-5, atol=1e-6)


def test_transpose(core):
    turned = nl.transpose(tile(FLAT))
    assert turned.buffer == nl.psum
    np.testing.assert_array_equal(turned.numpy(), FLAT.T)
    assert nl.transpose(tile(FLAT), dtype=nl.bfloat16).dtype == nl.bfloat16
    with pytest.raises(ConstraintFault, match="two dimensions"):
        nl.transpose(tile(X))


def test_matmul(core):
    x = rng.standard_normal((32, 64), dtype=np.float32)
    y = rng.standard_normal((64, 100), dtype=np.float32)
    for result in (nl.matmul(tile(x), tile(y)), nl.matmul(tile(x.T), tile(y), transpose_x=True)):
        assert result.buffer == nl.psum
        assert result.dtype == nl.float32
        np.testing.assert_allclose(result.numpy(), x @ y, rtol=1e-5, atol=1e-5)
