"""Functions of ``nki.language`` that are also operators of instructions: ``nl.add(a, b)`` and ``op=nl.add``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from isa.activation import ACTIVATIONS, ActivationFunction
from isa.alu import ALU_OPS, AluOp
from isa.faults import ConstraintFault
from trn_sim.nki._support import located, unexpected

__all__ = ["Op", "activation_of", "alu_of", "constant", "operator"]


class Op:
    """One name of ``nki.language``: callable on tiles, and the operator of instructions.

    Attributes:
        name: NKI's name.
        alu: what it means to the Vector and GpSimd Engines' arithmetic units; None where they cannot do it.
        activation: the function of the Scalar Engine; None where there is none.
    """

    def __init__(self, function: Callable[..., Any], alu: AluOp | None, activation: ActivationFunction | None) -> None:
        functools.update_wrapper(self, function)
        self.name = function.__name__
        self.alu = alu
        self.activation = activation
        self._function = function
        self._masks = "mask" in inspect.signature(function).parameters

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if "mask" in kwargs and not self._masks:
            unexpected(f"nl.{self.name}", {"mask": kwargs["mask"]})
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"nl.{self.name}"


def operator(function: Callable[..., Any] | None = None, *, alu: str | None = None) -> Any:
    """Decorator: the function of that name as an :class:`Op`.

    Args:
        alu: name of the arithmetic operator where it differs (``nl.max`` reduces with ``maximum``).
    """
    if function is None:
        return functools.partial(operator, alu=alu)
    name = function.__name__
    return Op(function, ALU_OPS.get(alu or name), ACTIVATIONS.get(name))


def constant(name: str) -> Op:
    """An operator that cannot be called."""

    def function(*_: Any, **__: Any) -> Any:
        raise located(
            ConstraintFault(
                f"nl.{name} is an operator for instructions, not a function", advice=f"pass it as op=nl.{name}"
            )
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The operator {name} of instructions; it cannot be called."
    return operator(function)


_NUMPY_NAMES = {
    "amax": "maximum",
    "max": "maximum",
    "amin": "minimum",
    "min": "minimum",
    "sum": "add",
    "prod": "multiply",
    "power": "power",
    "absolute": "abs",
}


def _numpy_name(value: Any) -> str | None:
    """NKI's name of a numpy function that kernels pass as an operator."""
    if isinstance(value, np.ufunc) or getattr(value, "__module__", None) == "numpy":
        return _NUMPY_NAMES.get(value.__name__, value.__name__)
    return None


def alu_of(value: Any, instruction: str, operand: str) -> AluOp:
    """The arithmetic operator behind ``op=nl.add``, ``op=np.add``, ...

    Raises:
        ConstraintFault: it is no operator of the arithmetic units.
    """
    if value.__class__ is Op:
        alu = value.alu
        if alu is not None:
            return alu
    elif value.__class__ is AluOp:
        return value
    else:
        alu = ALU_OPS.get(_numpy_name(value) or "")
        if alu is not None:
            return alu
    raise located(
        ConstraintFault(
            f"{value!r} is no arithmetic operator",
            instruction=instruction,
            operand=operand,
            limit=f"one of nl.{', nl.'.join(ALU_OPS)}",
            advice="functions such as nl.exp belong to nisa.activation",
        )
    )


def activation_of(value: Any, instruction: str, operand: str) -> ActivationFunction:
    """The Scalar Engine's function behind ``op=nl.exp``, ``op=np.exp``, ...

    Raises:
        ConstraintFault: the Scalar Engine has no such function.
    """
    if value.__class__ is Op:
        activation = value.activation
    elif isinstance(value, ActivationFunction):
        activation = value
    else:
        activation = ACTIVATIONS.get(_numpy_name(value) or "")
    if activation is None:
        raise located(
            ConstraintFault(
                f"{value!r} is no function of the Scalar Engine",
                instruction=instruction,
                operand=operand,
                limit=f"one of nl.{', nl.'.join(ACTIVATIONS)}",
            )
        )
    return activation
