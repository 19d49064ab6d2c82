"""Element-wise functions of the older ``nki.language``: values against numpy, dtypes, masks, both roles of a name."""

import math

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from isa.faults import ConstraintFault, UnimplementedFault

X = np.linspace(-3, 3, 8 * 12, dtype=np.float32).reshape(8, 12)
Y = np.roll(X, 5).copy()
POSITIVE = np.abs(X) + np.float32(0.1)


def tile(values, dtype=None):
    return nl.load(nl.shared_constant(np.ascontiguousarray(values)), dtype=dtype)


BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal, "logical_and": np.logical_and,
    "logical_or": np.logical_or, "logical_xor": np.logical_xor,
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_binary(core, name):
    function, reference = getattr(nl, name), BINARY[name]
    x, y = np.round(X), np.round(Y)  # some equal, some zero
    np.testing.assert_array_equal(function(tile(x), tile(y)).numpy(), reference(x, y))
    np.testing.assert_array_equal(function(tile(x), 1.0, dtype=nl.float32).numpy(), reference(x, 1).astype(np.float32))
    np.testing.assert_array_equal(function(2.0, tile(y)).numpy(), reference(2, y))
    masked = function(tile(x), tile(y), mask=nl.arange(12)[None, :] < 5, dtype=nl.float32).numpy()
    np.testing.assert_array_equal(masked[:, :5], reference(x, y)[:, :5].astype(np.float32))


@pytest.mark.parametrize("name", ["divide", "power", "mod", "fmod"])
def test_binary_that_rounds(core, name):
    reference = {"divide": np.divide, "power": np.power, "mod": np.mod, "fmod": np.fmod}[name]
    x = POSITIVE if name == "power" else X
    np.testing.assert_allclose(
        getattr(nl, name)(tile(x), tile(POSITIVE)).numpy(), reference(x, POSITIVE), rtol=2e-5, atol=1e-6
    )


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"])
def test_bits(core, name):
    x, y = np.arange(96, dtype=np.int32).reshape(8, 12) * 77, np.arange(96, dtype=np.int32).reshape(8, 12) % 5
    np.testing.assert_array_equal(getattr(nl, name)(tile(x), tile(y)).numpy(), getattr(np, name)(x, y))
    np.testing.assert_array_equal(getattr(nl, name)(tile(x), 3).numpy(), getattr(np, name)(x, 3))


def test_invert(core):
    x = np.arange(96, dtype=np.int32).reshape(8, 12)
    np.testing.assert_array_equal(nl.invert(tile(x)).numpy(), ~x)
    np.testing.assert_array_equal(nl.logical_not(tile(np.round(X))).numpy(), np.round(X) == 0)


def erf(x):
    return np.vectorize(math.erf)(x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return x * 0.5 * (1 + erf(x / np.sqrt(2)))


def derivative(function):
    return lambda x: (function(x + 1e-5) - function(x - 1e-5)) / 2e-5


UNARY = {
    "abs": np.abs, "arctan": np.arctan, "ceil": np.ceil, "cos": np.cos, "erf": erf, "erf_dx": derivative(erf),
    "exp": np.exp, "floor": np.floor, "gelu": gelu, "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": derivative(lambda x: x * sigmoid(1.702 * x)),
    "gelu_apprx_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "gelu_dx": derivative(gelu), "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))), "negative": np.negative,
    "relu": lambda x: np.maximum(x, 0), "sigmoid": sigmoid, "sign": np.sign, "silu": lambda x: x * sigmoid(x),
    "silu_dx": derivative(lambda x: x * sigmoid(x)), "sin": np.sin, "softplus": lambda x: np.log1p(np.exp(x)),
    "square": np.square, "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(core, name):
    x = X / 2 if name in ("arctan", "tan") else X
    expected = UNARY[name](x.astype(np.float64))
    np.testing.assert_allclose(getattr(nl, name)(tile(x)).numpy(), expected, rtol=1e-4, atol=1e-5)
    masked = getattr(nl, name)(tile(x), mask=nl.arange(8)[:, None] < 4).numpy()
    np.testing.assert_allclose(masked[:4], expected[:4], rtol=1e-4, atol=1e-5)
    assert getattr(nl, name)(tile(x), dtype=nl.bfloat16).dtype == nl.bfloat16


@pytest.mark.parametrize("name", ["log", "rsqrt", "sqrt", "reciprocal"])
def test_unary_of_positive_numbers(core, name):
    reference = {"log": np.log, "rsqrt": lambda x: x**-0.5, "sqrt": np.sqrt, "reciprocal": lambda x: 1 / x}[name]
    np.testing.assert_allclose(getattr(nl, name)(tile(POSITIVE)).numpy(), reference(POSITIVE), rtol=1e-5, atol=1e-6)


def test_names_are_operators_too(core):
    result = nisa.tensor_tensor(tile(X), tile(Y), op=nl.maximum)
    np.testing.assert_array_equal(result.numpy(), np.maximum(X, Y))
    result = nisa.activation(op=nl.square, data=tile(X), scale=2.0)
    np.testing.assert_array_equal(result.numpy(), np.square(2 * X))
    result = nisa.tensor_scalar(tile(X), np.multiply, 3.0, op1=np.subtract, operand1=1.0)
    np.testing.assert_array_equal(result.numpy(), 3 * X - 1)


def test_where_and_dropout(core):
    condition = nl.less(tile(X), 0.0)
    np.testing.assert_array_equal(nl.where(condition, tile(X), tile(Y)).numpy(), np.where(X < 0, X, Y))
    np.testing.assert_array_equal(nl.where(condition, 1.0, tile(Y)).numpy(), np.where(X < 0, 1, Y))
    dropped = nl.dropout(tile(POSITIVE), 0.5).numpy()
    assert ((dropped == 0) | (dropped == POSITIVE)).all()
    assert 0 < (dropped == 0).sum() < dropped.size


def test_what_is_no_tile_is_refused(core):
    for call in (lambda: nl.exp(X), lambda: nl.add(1.0, 2.0), lambda: nl.add(tile(X), X), lambda: nl.matmul(X, X)):
        with pytest.raises(ConstraintFault):
            call()


def test_loop_reduce(core):
    total, top = nl.ndarray((8, 12), dtype=nl.float32), nl.ndarray((8, 12), dtype=nl.float32)
    parts = []
    for i in nl.affine_range(2):
        for j in nl.sequential_range(1, 4):
            part = X * (i + 1) - np.float32(j)
            parts.append(part)
            total[...] = nl.loop_reduce(tile(part), op=np.add, loop_indices=[i, j], dtype=nl.float32)
            top[...] = nl.loop_reduce(tile(part), op=nl.maximum, loop_indices=[i, j])
    np.testing.assert_allclose(total.numpy(), np.sum(parts, 0), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(top.numpy(), np.max(parts, 0))
    with pytest.raises(ConstraintFault, match="new tile"):
        for i in nl.affine_range(2):
            nl.loop_reduce(tile(X), op=np.add, loop_indices=[i]).settle()


def test_reductions_over_the_grid_are_not_built(core):
    with pytest.raises(UnimplementedFault, match="all_reduce"):
        nl.all_reduce(tile(X), np.add, [0])
