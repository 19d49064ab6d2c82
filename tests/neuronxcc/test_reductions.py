"""Reductions, normalisations, transpose and matmul of the older ``nki.language``."""

import neuronxcc.nki.language as nl
import numpy as np
import pytest

from isa.faults import ConstraintFault

X = np.sin(np.arange(16 * 24, dtype=np.float32)).reshape(16, 4, 6)


def tile(values):
    return nl.load(nl.shared_constant(np.ascontiguousarray(values)))


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod", "mean"])
def test_over_any_free_dimensions(core, name):
    function, reference = getattr(nl, name), getattr(np, name)
    np.testing.assert_allclose(function(tile(X), axis=2).numpy(), reference(X, 2), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(function(tile(X), axis=1).numpy(), reference(X, 1), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        function(tile(X), axis=[-2, -1]).numpy()[:, 0], reference(X, (1, 2)), rtol=1e-4, atol=1e-6
    )
    kept = function(tile(X), axis=[2], keepdims=True).numpy()
    np.testing.assert_allclose(kept, reference(X, 2, keepdims=True), rtol=1e-4, atol=1e-6)
    assert function(tile(X), axis=2, dtype=nl.bfloat16).dtype == nl.bfloat16


def test_over_partitions_is_refused(core):
    with pytest.raises(ConstraintFault, match="axis 0"):
        nl.sum(tile(X), axis=0)


def test_all(core):
    held = nl.all(tile((X > -0.9).astype(np.float32)), axis=2)
    assert held.dtype == nl.bool_
    np.testing.assert_array_equal(held.numpy(), (X > -0.9).all(2))


def test_var(core):
    np.testing.assert_allclose(nl.var(tile(X), axis=[1, 2]).numpy().reshape(16), X.var((1, 2)), rtol=1e-4)


def test_softmax(core):
    flat = X.reshape(16, 24)
    e = np.exp(flat - flat.max(1, keepdims=True))
    np.testing.assert_allclose(nl.softmax(tile(flat), axis=1).numpy(), e / e.sum(1, keepdims=True), rtol=1e-5)


def test_rms_norm(core):
    flat, w = X.reshape(16, 24), np.linspace(1, 2, 24, dtype=np.float32)[None]
    expected = flat / np.sqrt((flat**2).mean(1, keepdims=True) + 1e-6) * w
    np.testing.assert_allclose(nl.rms_norm(tile(flat), tile(w), axis=1, n=24).numpy(), expected, rtol=1e-4, atol=1e-6)


def test_transpose(core):
    flat = X.reshape(16, 24)
    np.testing.assert_array_equal(nl.transpose(tile(flat)).numpy(), flat.T)
    assert nl.transpose(tile(flat), dtype=nl.bfloat16).dtype == nl.bfloat16


def test_matmul(core):
    a, b = X.reshape(16, 24), np.cos(np.arange(24 * 10, dtype=np.float32)).reshape(24, 10)
    np.testing.assert_allclose(nl.matmul(tile(a), tile(b)).numpy(), a @ b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(nl.matmul(tile(a), tile(a), transpose_x=True).numpy(), a.T @ a, rtol=1e-4, atol=1e-5)
    product = nl.matmul(tile(a), tile(b))
    assert product.buffer == nl.psum
    assert product.dtype == nl.float32
