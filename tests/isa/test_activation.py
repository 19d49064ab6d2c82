"""The functions of the Scalar Engine against exact references computed in float64 with the math module."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from isa.activation import ACTIVATIONS, activation_function


def phi(x: float) -> float:
    """Distribution function of the normal distribution."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def swish_slope(x: float) -> float:
    return sigmoid(x) + x * sigmoid(x) * sigmoid(-x)


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def sign(x: float) -> float:
    return math.copysign(1.0, x) if x else 0.0


REFERENCES: dict[str, Callable[[float], float]] = {
    "copy": lambda x: x,
    "square": lambda x: x * x,
    "sigmoid": sigmoid,
    "relu": lambda x: max(x, 0.0),
    "prelu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * phi(x),
    "gelu_dx": lambda x: phi(x) + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "gelu_apprx_tanh": lambda x: x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": lambda x: swish_slope(1.702 * x),
    "silu": lambda x: x * sigmoid(x),
    "silu_dx": swish_slope,
    "tanh": math.tanh,
    "softplus": softplus,
    "mish": lambda x: x * math.tanh(softplus(x)),
    "erf": math.erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x),
    "exp": math.exp,
    "log": math.log,
    "sin": math.sin,
    "arctan": math.atan,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sign": sign,
    "abs": abs,
}
ULPS = {"tanh": 2.0, "exp": 3.0, "log": 4.0, "arctan": 3.0, "rsqrt": 2.0}
"""Allowed distance in units of the last place; what is compiled here is held to one."""


def grid(low: float, high: float) -> np.ndarray:
    """A dense grid inside the documented range, with small numbers of both signs."""
    low, high = max(low, -12.0), min(high, 12.0)
    small = np.logspace(-6, 0, 500)
    points = np.concatenate([np.linspace(low, high, 20001), small, -small])
    return points[(points >= low) & (points <= high)].astype(np.float32)


def units(values: np.ndarray, exact: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Distance in float32 units of the last place at the magnitude ``scale``."""
    return np.abs(values.astype(np.float64) - exact) / np.spacing(np.abs(scale).astype(np.float32))


def test_every_function_has_a_reference() -> None:
    assert list(REFERENCES) == list(ACTIVATIONS)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_against_float64(name: str) -> None:
    function = ACTIVATIONS[name]
    x = grid(*function.valid)
    exact = np.array([REFERENCES[name](float(value)) for value in x])
    # the derivatives cross zero, and sin ends at it: there the scale is that of their terms
    crossing = name.endswith("_dx") or name == "sin"
    scale = np.maximum(np.abs(exact), 0.05) if crossing else exact
    normal = np.abs(scale) > 2.0**-120
    worst = units(function(x), exact, scale)[normal].max()
    assert worst <= ULPS.get(name, 1.0), f"{name} is {worst:.2f} units off"


@pytest.mark.parametrize("name", ["log", "sqrt", "rsqrt", "reciprocal"])
def test_the_whole_valid_range(name: str) -> None:
    function = ACTIVATIONS[name]
    low, high = (math.log2(bound) for bound in function.valid)
    x = (2.0 ** np.linspace(low, high, 4001)).astype(np.float32)
    exact = np.array([REFERENCES[name](float(value)) for value in x])
    assert units(function(x), exact, exact).max() <= ULPS.get(name, 1.0)
    assert function.magnitude is (name == "reciprocal")


@pytest.mark.parametrize(
    ("name", "at_minus_infinity", "at_infinity"),
    [
        ("sigmoid", 0, 1), ("gelu", 0, math.inf), ("gelu_dx", 0, 1), ("gelu_apprx_tanh", 0, math.inf),
        ("gelu_apprx_sigmoid", 0, math.inf), ("gelu_apprx_sigmoid_dx", 0, 1), ("silu", 0, math.inf),
        ("silu_dx", 0, 1), ("tanh", -1, 1), ("softplus", 0, math.inf), ("mish", 0, math.inf), ("erf", -1, 1),
        ("erf_dx", 0, 0), ("exp", 0, math.inf), ("relu", 0, math.inf),
    ],
)  # fmt: skip
def test_limits_at_infinity(name: str, at_minus_infinity: float, at_infinity: float) -> None:
    big = np.float32(3e38)
    result = ACTIVATIONS[name](np.array([-np.inf, -big, -1e4, 1e4, big, np.inf], np.float32))
    assert result[:3].tolist() == [at_minus_infinity] * 3
    assert result[5] == at_infinity
    if at_infinity != math.inf:
        assert result[3:5].tolist() == [at_infinity] * 2
    elif name != "exp":
        assert result[3:5].tolist() == [1e4, big]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nan_stays_nan_and_shapes_stay(name: str) -> None:
    result = ACTIVATIONS[name](np.full((3, 5), np.nan, np.float32))
    assert result.shape == (3, 5)
    assert result.dtype == np.float32
    assert np.isnan(result).all()


def test_sin_goes_on_with_a_cubic() -> None:
    """The documentation gives sin(9) as about 27.65."""
    sin = ACTIVATIONS["sin"]
    assert sin(np.float32(9)) == pytest.approx(27.65, abs=0.01)
    assert sin(np.float32(-9)) == -sin(np.float32(9))
    just_inside, just_outside = np.float32(np.pi) - np.float32(1e-6), np.float32(np.pi) + np.float32(1e-6)
    assert sin(just_inside) == pytest.approx(0, abs=2e-6)
    assert sin(just_outside) == pytest.approx(0, abs=2e-6)


def test_signed_zeros() -> None:
    zero = np.array([-0.0], np.float32)
    for name in ("copy", "gelu", "silu", "mish", "erf", "tanh", "sin", "arctan"):
        assert np.signbit(ACTIVATIONS[name](zero)).all(), name


def test_strided_input() -> None:
    x = np.linspace(-3, 3, 64, dtype=np.float32).reshape(4, 16)
    assert np.array_equal(ACTIVATIONS["gelu"](x[:, ::2]), ACTIVATIONS["gelu"](x)[:, ::2])


def test_the_table() -> None:
    codes = [function.code for function in ACTIVATIONS.values()]
    assert codes == list(range(len(codes)))  # part of the stored format
    without = {name for name, function in ACTIVATIONS.items() if function.table == 0}
    assert without == {"copy", "square", "relu", "prelu", "sign", "abs"}
    tables = [function.table for function in ACTIVATIONS.values() if function.table]
    assert len(set(tables)) == len(tables)
    assert {name for name, function in ACTIVATIONS.items() if function.parameter} == {"prelu"}


def test_look_up() -> None:
    assert activation_function("gelu") is ACTIVATIONS["gelu"]
    assert repr(activation_function("gelu")) == "gelu"
    with pytest.raises(KeyError):
        activation_function("swish")


def test_numba_is_not_loaded_with_the_table() -> None:
    code = "import sys, isa.scalar, isa.tensor; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
