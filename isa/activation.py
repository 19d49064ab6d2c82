"""The functions of the Scalar Engine.

The engine approximates each function with piecewise polynomials whose coefficients are not public.  Here a function
has its exact value, rounded once to float32 (those of numpy are within a few units in the last place); approximation
error is left out.  Outside the documented input range the engine's result is wrong by design.  The one such result
that is documented, the cubic of ``sin``, is reproduced; the other functions keep their mathematical value there, as in
AWS's simulator.

Sources: NKI documentation (0.6), supported activation functions.  Which functions share a table is not documented:
``table`` gives each function its own, and none to those that need no approximation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ACTIVATIONS", "ActivationFunction", "activation_function"]

Floats = npt.NDArray[np.float32]
Evaluate = Callable[[Floats, Floats], Any]


@dataclass(frozen=True, slots=True, eq=False)
class ActivationFunction:
    """One function.

    Attributes:
        name: NKI's name.
        code: number in the stored format.
        evaluate: writes the function of its first argument into its second, another array of its shape.
        valid: documented input range; of the magnitude where ``magnitude`` is set.
        magnitude: the range holds for the absolute value.
        table: function table that the engine has to load first, 0 for none.
        parameter: takes a parameter (the slope of prelu).
        generations: NeuronCore generations that have it.
    """

    name: str
    code: int
    evaluate: Evaluate
    valid: tuple[float, float] = (-np.inf, np.inf)
    magnitude: bool = False
    table: int = 0
    parameter: bool = False
    generations: tuple[int, ...] = (2, 3, 4)

    def __call__(self, x: Any) -> Floats:
        """The function of float32 values, as a new array."""
        values = np.asarray(x, dtype=np.float32)
        out = np.empty_like(values)
        with np.errstate(all="ignore"):
            self.evaluate(values, out)
        return out

    def __repr__(self) -> str:
        return self.name


def _copy(x: Floats, out: Floats) -> None:
    out[...] = x


def _relu(x: Floats, out: Floats) -> None:
    np.maximum(x, np.float32(0), out=out)


def _rsqrt(x: Floats, out: Floats) -> None:
    np.sqrt(x, out=out)
    np.divide(np.float32(1), out, out=out)


def _reciprocal(x: Floats, out: Floats) -> None:
    np.divide(np.float32(1), x, out=out)


def _compiled(name: str) -> Evaluate:
    def evaluate(x: Floats, out: Floats) -> None:
        from isa import _activation  # numba: not at import time

        getattr(_activation, name)(x, out)

    return evaluate


def _function(name: str, code: int, evaluate: Evaluate | None = None, **rest: Any) -> ActivationFunction:
    """A function with a table of its own."""
    return ActivationFunction(name, code, evaluate or _compiled(name), table=code, **rest)


ACTIVATIONS: dict[str, ActivationFunction] = {
    function.name: function
    for function in (
        ActivationFunction("copy", 0, _copy),
        ActivationFunction("square", 1, np.square),
        _function("sigmoid", 2),
        ActivationFunction("relu", 3, _relu),
        ActivationFunction("prelu", 4, _relu, parameter=True),
        _function("gelu", 5),
        _function("gelu_dx", 6),
        _function("gelu_apprx_tanh", 7),
        _function("gelu_apprx_sigmoid", 8),
        _function("gelu_apprx_sigmoid_dx", 9),
        _function("silu", 10),
        _function("silu_dx", 11),
        _function("tanh", 12, np.tanh),
        _function("softplus", 13),
        _function("mish", 14),
        _function("erf", 15),
        _function("erf_dx", 16),
        _function("exp", 17, np.exp),
        _function("log", 18, np.log, valid=(2.0**-64, 2.0**64)),
        _function("sin", 19, valid=(-np.pi, np.pi)),
        _function("arctan", 20, np.arctan, valid=(-np.pi / 2, np.pi / 2)),
        _function("sqrt", 21, np.sqrt, valid=(2.0**-116, 2.0**118)),
        _function("rsqrt", 22, _rsqrt, valid=(2.0**-87, 2.0**97)),
        _function("reciprocal", 23, _reciprocal, valid=(2.0**-42, 2.0**42), magnitude=True),
        ActivationFunction("sign", 24, np.sign),
        ActivationFunction("abs", 25, np.abs),
    )
}
"""Every function by NKI name.  ``prelu`` has the slope 0 unless an instruction has a field for it."""


def activation_function(name: str) -> ActivationFunction:
    """The function called ``name``.

    Raises:
        KeyError: no such function.
    """
    return ACTIVATIONS[name]
