"""Element-wise functions of ``nki.language``: values on small tiles against numpy, dtypes, and both roles of a name."""

import inspect
import math
import warnings

import ml_dtypes
import numpy as np
import pytest

import trn_sim
from trn_sim.nki._support import NkiNote

trn_sim.activate()

import nki.isa as nisa
import nki.language as nl

from isa.faults import ConstraintFault

X = np.linspace(-3, 3, 8 * 12, dtype=np.float32).reshape(8, 12)
Y = np.roll(X, 5).copy()
POSITIVE = np.abs(X) + np.float32(0.1)
I = (np.arange(96, dtype=np.int64).reshape(8, 12) * 2654435761 % 2**31).astype(np.int32)  # noqa: E741
J = np.roll(I, 7).copy()


def tile(values, dtype=None):
    return nl.load(nl.shared_constant(np.ascontiguousarray(values)), dtype)


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
    np.testing.assert_array_equal(function(tile(x), tile(y)).numpy(), reference(x, y).astype(np.float32))
    np.testing.assert_array_equal(function(tile(x), 1.0).numpy(), reference(x, 1).astype(np.float32))
    np.testing.assert_array_equal(function(2.0, tile(y)).numpy(), reference(2, y).astype(np.float32))


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bitwise(core, name):
    reference = getattr(np, name)
    np.testing.assert_array_equal(getattr(nl, name)(tile(I), tile(J)).numpy(), reference(I, J))
    np.testing.assert_array_equal(getattr(nl, name)(tile(I), 0x0F0F).numpy(), reference(I, 0x0F0F))


def test_shifts_and_invert(core):
    distance = np.arange(96, dtype=np.int32).reshape(8, 12) % 32
    np.testing.assert_array_equal(nl.left_shift(tile(I), 3).numpy(), I << 3)
    shifted = (I.view(np.uint32) >> distance.view(np.uint32)).view(np.int32)
    np.testing.assert_array_equal(nl.right_shift(tile(I), tile(distance)).numpy(), shifted)
    np.testing.assert_array_equal(nl.invert(tile(I)).numpy(), ~I)
    small = np.arange(96, dtype=np.uint8).reshape(8, 12)
    np.testing.assert_array_equal(nl.invert(tile(small)).numpy(), ~small)


def test_bitwise_needs_integers(core):
    with pytest.raises(ConstraintFault, match="integer"):
        nl.bitwise_and(tile(X), tile(Y))


def test_magnitude_selection(core_v4):
    x = np.array([[3, -3, 2, -1]], np.float32)
    y = np.array([[-4, 1, -2, 1]], np.float32)
    np.testing.assert_array_equal(nl.abs_max(tile(x), tile(y)).numpy(), [[-4, -3, -2, 1]])
    np.testing.assert_array_equal(nl.abs_min(tile(x), tile(y)).numpy(), [[3, 1, -2, 1]])


def test_magnitude_selection_is_new_in_v4(core):
    with pytest.raises(ConstraintFault):
        nl.abs_max(tile(X), tile(Y))


def test_power(core):
    np.testing.assert_allclose(nl.power(tile(POSITIVE), tile(Y)).numpy(), POSITIVE**Y, rtol=1e-6)


erf = np.vectorize(math.erf)
UNARY = {
    "exp": np.exp, "square": np.square, "abs": np.abs, "sign": np.sign, "tanh": np.tanh, "arctan": np.arctan,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2, "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(x)), "erf": erf, "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "gelu_apprx_sigmoid": lambda x: x / (1 + np.exp(-1.702 * x)),
    "gelu_apprx_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "gelu_dx": lambda x: (1 + erf(x / math.sqrt(2))) / 2 + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "silu_dx": lambda x: (1 / (1 + np.exp(-x))) * (1 + x * (1 - 1 / (1 + np.exp(-x)))),
    "gelu_apprx_sigmoid_dx": lambda x: (s := 1 / (1 + np.exp(-1.702 * x))) * (1 + 1.702 * x * (1 - s)),
    "negative": np.negative, "reciprocal": np.reciprocal, "copy": np.array,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "sin": np.sin, "cos": np.cos, "tan": np.tan,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(core, name):
    result = getattr(nl, name)(tile(X))
    assert result.buffer == nl.sbuf
    assert result.dtype == nl.float32
    np.testing.assert_allclose(
        result.numpy(), UNARY[name](X.astype(np.float64)), rtol=1e-5 if name == "tan" else 2e-6, atol=1e-6
    )


@pytest.mark.parametrize(("name", "reference"), [("log", np.log), ("sqrt", np.sqrt), ("rsqrt", lambda x: x**-0.5)])
def test_unary_of_positive_numbers(core, name, reference):
    np.testing.assert_allclose(getattr(nl, name)(tile(POSITIVE)).numpy(), reference(POSITIVE), rtol=1e-6)


def test_logical_not(core):
    np.testing.assert_array_equal(nl.logical_not(tile(np.array([[0, 1, 1, 0]], np.float32))).numpy(), [[1, 0, 0, 1]])


def test_sin_and_cos_reduce_the_range(core):
    x = np.linspace(-2000, 2000, 8 * 512, dtype=np.float32).reshape(8, 512)
    np.testing.assert_allclose(nl.sin(tile(x)).numpy(), np.sin(x.astype(np.float64)), atol=2e-6)
    np.testing.assert_allclose(nl.cos(tile(x)).numpy(), np.cos(x.astype(np.float64)), atol=2e-6)
    small = np.array([[1e-6, -1e-3, 0.0, math.pi]], np.float32)
    np.testing.assert_allclose(nl.sin(tile(small)).numpy(), np.sin(small.astype(np.float64)), rtol=1e-5, atol=3e-7)
    out = nl.ndarray((1, 4), nl.float32)
    nisa.activation(out, nl.sin, tile(small + np.float32(2 * math.pi)))
    assert np.abs(out.numpy() - np.sin(small)).max() > 1  # the instruction itself does not


def test_rounding_of_halves_and_integers(core):
    x = np.array([[-2.5, -2.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.5, 1e9, -1e9]], np.float32)
    for name in ("floor", "ceil", "trunc"):
        np.testing.assert_array_equal(getattr(nl, name)(tile(x)).numpy(), getattr(np, name)(x))


@pytest.mark.parametrize(("name", "reference"), [("divide", np.divide), ("mod", np.mod), ("fmod", np.fmod)])
def test_what_no_instruction_does_gets_a_note(core, name, reference):
    with pytest.warns(NkiNote, match="simulators only"):
        result = getattr(nl, name)(tile(X), tile(POSITIVE))
    np.testing.assert_allclose(result.numpy(), reference(X, POSITIVE), rtol=1e-6)


# --- dtypes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [("float32", "bfloat16", "float32"), ("bfloat16", "bfloat16", "bfloat16"), ("float16", "bfloat16", "float32"),
     ("float16", "int32", "float16"), ("int8", "int32", "int32"), ("uint8", "int8", "int16"),
     ("uint32", "int32", "float32"), ("float8_e5m2", "bfloat16", "bfloat16"), ("int32", "float32", "float32")],
)  # fmt: skip
def test_result_dtype_of_two_inputs(core, a, b, result):
    x, y = nl.ones((4, 4), a), nl.ones((4, 4), b)
    total = nl.add(x, y)
    assert total.dtype == result
    assert (total.numpy().astype(np.float32) == 2).all()


def test_dtype_argument_converts_once(core):
    x = tile(X.astype(ml_dtypes.bfloat16))
    assert nl.add(x, 1.0).dtype == nl.bfloat16
    wide = nl.multiply(x, x, dtype=nl.float32)
    exact = X.astype(ml_dtypes.bfloat16).astype(np.float32) ** 2
    np.testing.assert_array_equal(wide.numpy(), exact)
    assert nl.exp(x, dtype=nl.float32).dtype == nl.float32
    np.testing.assert_array_equal(
        nl.copy(tile(X * 100), dtype=nl.int8).numpy(), np.clip(np.rint(X * np.float32(100)), -128, 127).astype(np.int8)
    )
    assert nl.equal(x, x, dtype=nl.uint8).dtype == nl.uint8


def test_exact_integers(core):
    np.testing.assert_array_equal(nl.add(tile(I), tile(J)).numpy(), I + J)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(nl.multiply(tile(I), tile(J)).numpy(), I * J)


# --- shapes -----------------------------------------------------------------------------------------


def test_free_dimensions_of_size_one_repeat_with_a_note(core):
    column = X[:, :1]
    with pytest.warns(NkiNote, match="broadcast"):
        result = nl.subtract(tile(X), tile(column))
    np.testing.assert_array_equal(result.numpy(), X - column)


def test_one_partition_repeats_with_a_note(core):
    row, column = X[3:4], X[:, 2:3]
    with pytest.warns(NkiNote, match="broadcast"):
        np.testing.assert_array_equal(nl.add(tile(X), tile(row)).numpy(), X + row)
    with pytest.warns(NkiNote, match="broadcast"):
        np.testing.assert_array_equal(nl.multiply(tile(column), tile(row)).numpy(), column * row)


@pytest.mark.parametrize("other", [X[:, :5], X.reshape(8, 12, 1), X[:4]])
def test_shapes_that_do_not_fit(core, other):
    with pytest.raises(ConstraintFault, match="shapes"):
        nl.add(tile(X), tile(other))


def test_two_numbers_are_for_python(core):
    with pytest.raises(ConstraintFault, match="tile"):
        nl.add(1, 2)


def test_psum_operands(core):
    identity = nl.shared_identity_matrix(8, nl.float32)
    product = nl.matmul(identity, tile(X), transpose_x=True)
    np.testing.assert_array_equal(nl.add(product, tile(Y)).numpy(), X + Y)
    np.testing.assert_array_equal(nl.copy(product).numpy(), X)


# --- where, dropout ---------------------------------------------------------------------------------


def test_where(core):
    condition = (X > 0).astype(np.float32)
    np.testing.assert_array_equal(nl.where(tile(condition), tile(X), tile(Y)).numpy(), np.where(X > 0, X, Y))
    np.testing.assert_array_equal(nl.where(tile(condition), 1.0, tile(Y)).numpy(), np.where(X > 0, 1, Y))
    np.testing.assert_array_equal(nl.where(tile(condition), tile(X), 0.0).numpy(), np.where(X > 0, X, 0))
    mixed = nl.where(tile(condition), tile(X.astype(ml_dtypes.bfloat16)), tile(Y))
    assert mixed.dtype == nl.float32
    np.testing.assert_array_equal(mixed.numpy(), np.where(X > 0, X.astype(ml_dtypes.bfloat16).astype(np.float32), Y))


def test_where_does_not_spread_nan(core):
    poison = np.full_like(X, np.nan)
    kept = nl.where(tile((X > 9).astype(np.float32)), tile(poison), tile(Y))
    np.testing.assert_array_equal(kept.numpy(), Y)


def test_dropout(core):
    ones = nl.ones((128, 512), nl.float32)
    np.testing.assert_array_equal(nl.dropout(ones, 0.0).numpy(), 1)
    np.testing.assert_array_equal(nl.dropout(ones, 1.0).numpy(), 0)
    half = nl.dropout(ones, 0.25).numpy()
    assert set(np.unique(half)) == {0, 1}
    assert abs(half.mean() - 0.75) < 0.02


# --- operators --------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [nl.add, np.add])
def test_names_are_operators_too(core, op):
    out = nl.ndarray((8, 12), nl.float32)
    nisa.tensor_tensor(out, tile(X), tile(Y), op)
    np.testing.assert_array_equal(out.numpy(), X + Y)


@pytest.mark.parametrize(
    ("op", "reference"),
    [(nl.max, np.max), (np.max, np.max), (nl.maximum, np.max), (np.maximum, np.max), (nl.sum, np.sum),
     (np.sum, np.sum), (nl.add, np.sum), (nl.min, np.min), (np.min, np.min), (np.minimum, np.min)],
)  # fmt: skip
def test_reduction_operators(core, op, reference):
    out = nl.ndarray((8, 1), nl.float32)
    nisa.tensor_reduce(out, op, tile(X), axis=1)
    np.testing.assert_allclose(out.numpy()[:, 0], reference(X, axis=1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("op", "reference"), [(nl.exp, np.exp), (np.exp, np.exp), (nl.copy, np.array),
                                               (np.copy, np.array), (np.square, np.square)])  # fmt: skip
def test_activation_operators(core, op, reference):
    out = nl.ndarray((8, 12), nl.float32)
    nisa.activation(out, op, tile(X))
    np.testing.assert_allclose(out.numpy(), reference(X), rtol=1e-6)


def test_wrong_operators_are_explained(core):
    out = nl.ndarray((8, 12), nl.float32)
    with pytest.raises(ConstraintFault, match="activation"):
        nisa.tensor_tensor(out, tile(X), tile(Y), nl.exp)
    with pytest.raises(ConstraintFault, match="Scalar Engine"):
        nisa.activation(out, nl.add, tile(X))
    with pytest.raises(ConstraintFault, match="no arithmetic operator"):
        nisa.tensor_tensor(out, tile(X), tile(Y), "add")
    for name in ("bypass", "average", "prelu"):
        with pytest.raises(ConstraintFault, match="operator for instructions"):
            getattr(nl, name)(tile(X))


def test_operators_look_like_functions():
    assert repr(nl.add) == "nl.add"
    assert str(inspect.signature(nl.add)).startswith("(x: 'Any', y: 'Any', dtype: 'Any' = None)")
    assert nl.add == nl.add
    assert nl.add != nl.subtract
    assert {nl.add: 1}[nl.add] == 1
    assert nl.exp.__doc__.startswith("e to the power")


def test_plain_use_gives_no_notes(core):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nl.add(tile(X), tile(Y))
        nl.softmax(tile(X))
        nl.where(tile(X), tile(X), tile(Y))
