"""Activation functions that numpy lacks, compiled.  Imported on first use, because numba is slow to load.

float32 in and out, float64 inside: every result is within one unit in the last place of the rounded exact value.  No
branches, so that the loops vectorise: a choice evaluates both sides.  Where a formula would give inf * 0 the limit is
returned (silu(-inf) = -0).  NaN stays NaN.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

__all__ = [
    "erf",
    "erf_dx",
    "gelu",
    "gelu_apprx_sigmoid",
    "gelu_apprx_sigmoid_dx",
    "gelu_apprx_tanh",
    "gelu_dx",
    "mish",
    "sigmoid",
    "silu",
    "silu_dx",
    "sin",
    "softplus",
]

LOG2_E = 1.0 / math.log(2.0)
LN_2 = math.log(2.0)
TO_INTEGER = 1.5 * 2.0**52  # adding it leaves the nearest integer in the low bits
SQRT_HALF = math.sqrt(0.5)
TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
NORMAL_DENSITY = math.sqrt(0.5 / math.pi)
GELU_SLOPE = 1.702  # of the sigmoid approximation
GELU_TANH = 2.0 * math.sqrt(2.0 / math.pi)  # tanh(z) = 2 sigmoid(2 z) - 1
GELU_CUBIC = 0.044715
FAR = 200.0  # beyond it every exponential here rounds to 0 or 1 in float32

# Polynomials, highest power first.
EXP = tuple(1.0 / math.factorial(n) for n in range(8, -1, -1))  # |r| <= ln(2) / 2: 3e-10
ATANH = tuple(2.0 / (2 * n + 1) for n in range(9, -1, -1))  # in s^2, s <= 1/3: log1p(z) = 2 atanh(z / (2 + z))
ERF = tuple((-1.0) ** n * TWO_OVER_SQRT_PI / (math.factorial(n) * (2 * n + 1)) for n in range(6, -1, -1))  # x^2 < 1/4
SIN = tuple((-1.0) ** n / math.factorial(2 * n + 1) for n in range(10, -1, -1))  # in x^2 <= pi^2

# (1 + 2 t) exp(t^2) erfc(t) in (t - 2.5) / (t + 2.5): Chebyshev fit for t >= 0, relative error 3e-9
ERFC_CENTRE = 2.5
ERFC = (
    8.3816329848726e-06,
    -6.190753092138688e-05,
    -8.906276496523503e-05,
    0.0005757346292221676,
    0.0004916255318506885,
    -0.00435049234038507,
    0.000932091772655151,
    0.03275205256861225,
    -0.10296710057711791,
    0.15763099436154535,
    -0.09902453632486759,
    -0.12235680075158797,
    1.264838184330393,
)

inline = numba.njit(inline="always")
elementwise = numba.vectorize(cache=True)


@inline  # type: ignore[untyped-decorator]
def _polynomial(coefficients: tuple[float, ...], x: Any) -> Any:
    value = 0.0
    for coefficient in coefficients:
        value = value * x + coefficient
    return value


@inline  # type: ignore[untyped-decorator]
def _exp(x: Any) -> Any:
    """exp(x) for -700 < x < 700, relative error 3e-10."""
    shifted = x * LOG2_E + TO_INTEGER
    r = x - (shifted - TO_INTEGER) * LN_2
    power = (np.float64(shifted).view(np.int64) + np.int64(1023)) << np.int64(52)
    return _polynomial(EXP, r) * np.int64(power).view(np.float64)


@inline  # type: ignore[untyped-decorator]
def _not_below(x: Any, limit: float) -> Any:
    """The larger one; NaN stays."""
    return limit if x < limit else x


@inline  # type: ignore[untyped-decorator]
def _near(x: Any) -> Any:
    x = _not_below(x, -FAR)
    return FAR if x > FAR else x


@inline  # type: ignore[untyped-decorator]
def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + _exp(-_near(x)))


@inline  # type: ignore[untyped-decorator]
def _size(x: Any) -> Any:
    """|x|, at most 26: beyond it exp(-x^2 / 2) rounds to 0 in float32, and exp(-x^2) leaves the range of _exp."""
    t = abs(x)
    return 26.0 if t > 26.0 else t


@inline  # type: ignore[untyped-decorator]
def _erfc(t: Any, bell: Any) -> Any:
    """Complementary error function for t >= 0, relative error 4e-9; bell = exp(-t^2)."""
    y = (t - ERFC_CENTRE) / (t + ERFC_CENTRE)
    return _polynomial(ERFC, y) / (1.0 + 2.0 * t) * bell


@inline  # type: ignore[untyped-decorator]
def _swish_slope(x: Any) -> Any:
    """s + x s (1 - s) with s = sigmoid(x)."""
    e = _exp(-x)
    s = 1.0 / (1.0 + e)
    return s + x * s * (e * s)


@elementwise  # type: ignore[untyped-decorator]
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return np.float32(_sigmoid(np.float64(x)))


@elementwise  # type: ignore[untyped-decorator]
def silu(x: Any) -> Any:
    """x sigmoid(x)."""
    wide = _not_below(np.float64(x), -FAR)
    return np.float32(wide * _sigmoid(wide))


@elementwise  # type: ignore[untyped-decorator]
def silu_dx(x: Any) -> Any:
    """Derivative of silu: s + x s (1 - s), s = sigmoid(x)."""
    return np.float32(_swish_slope(_near(np.float64(x))))


@elementwise  # type: ignore[untyped-decorator]
def gelu(x: Any) -> Any:
    """x P(x), P the distribution function of the normal distribution."""
    wide = _not_below(np.float64(x), -FAR)
    t = _size(wide)
    tail = 0.5 * _erfc(t * SQRT_HALF, _exp(-0.5 * t * t))
    return np.float32(wide * (tail if wide < 0.0 else 1.0 - tail))


@elementwise  # type: ignore[untyped-decorator]
def gelu_dx(x: Any) -> Any:
    """Derivative of gelu: P(x) + x p(x), p the density of the normal distribution."""
    t = _size(np.float64(x))
    bell = _exp(-0.5 * t * t)
    tail = 0.5 * _erfc(t * SQRT_HALF, bell) - t * NORMAL_DENSITY * bell
    return np.float32(tail if x < 0.0 else 1.0 - tail)


@elementwise  # type: ignore[untyped-decorator]
def gelu_apprx_tanh(x: Any) -> Any:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    wide = _not_below(np.float64(x), -FAR)
    return np.float32(wide * _sigmoid(GELU_TANH * (wide + GELU_CUBIC * wide * wide * wide)))


@elementwise  # type: ignore[untyped-decorator]
def gelu_apprx_sigmoid(x: Any) -> Any:
    """x sigmoid(1.702 x)."""
    wide = _not_below(np.float64(x), -FAR)
    return np.float32(wide * _sigmoid(GELU_SLOPE * wide))


@elementwise  # type: ignore[untyped-decorator]
def gelu_apprx_sigmoid_dx(x: Any) -> Any:
    """Derivative of gelu_apprx_sigmoid."""
    return np.float32(_swish_slope(GELU_SLOPE * _near(np.float64(x))))


@elementwise  # type: ignore[untyped-decorator]
def mish(x: Any) -> Any:
    """x tanh(softplus(x)); with e = exp(x), tanh(log(1 + e)) = n / (n + 2), n = e (e + 2)."""
    wide = _not_below(np.float64(x), -FAR)
    e = _exp(_near(wide))
    n = e * (e + 2.0)
    return np.float32(wide * (n / (n + 2.0)))


@elementwise  # type: ignore[untyped-decorator]
def softplus(x: Any) -> Any:
    """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|))."""
    wide = np.float64(x)
    z = _exp(-_near(abs(wide)))
    s = z / (2.0 + z)
    return np.float32(_not_below(wide, 0.0) + s * _polynomial(ATANH, s * s))


@elementwise  # type: ignore[untyped-decorator]
def erf(x: Any) -> Any:
    """Error function: power series up to 1/2, erfc beyond."""
    t = _size(np.float64(x))
    s = t * t
    # written out: with three inlined loops the outer one does not vectorise
    near = t * ((((((ERF[0] * s + ERF[1]) * s + ERF[2]) * s + ERF[3]) * s + ERF[4]) * s + ERF[5]) * s + ERF[6])
    far = 1.0 - _erfc(t, _exp(-s))
    return np.float32(math.copysign(near if t < 0.5 else far, x))


@elementwise  # type: ignore[untyped-decorator]
def erf_dx(x: Any) -> Any:
    """Derivative of erf: 2 / sqrt(pi) exp(-x^2)."""
    t = _size(np.float64(x))
    return np.float32(TWO_OVER_SQRT_PI * _exp(-t * t))


@elementwise  # type: ignore[untyped-decorator]
def sin(x: Any) -> Any:
    """Sine within [-pi, pi]; outside, the Scalar Engine goes on with the cubic -d + d^3 / 6, d = x -+ pi.

    No range reduction: sin(9) is 27.65 (NKI documentation, activation functions).
    """
    wide = np.float64(x)
    d = wide - math.pi if wide > 0.0 else wide + math.pi
    far = d * d * d / 6.0 - d
    near = wide * _polynomial(SIN, wide * wide)
    return np.float32(near if abs(wide) <= math.pi else far)
