"""From what kernels pass to what instructions hold: tensors to access patterns, names to operators, numbers."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, get_args

import numpy as np

from isa.activation import ActivationFunction
from isa.alu import AluOp
from isa.faults import ConstraintFault
from isa.operands import AccessPattern
from trn_sim.nki._support import located, note
from trn_sim.nki.operator import activation_of, alu_of
from trn_sim.nki.register import VirtualRegister
from trn_sim.nki.tensor import NkiTensor

__all__ = [
    "Converter",
    "immediate_converter",
    "optional_operand",
    "scalar_operand",
    "tensor_operand",
    "tensor_operands",
]

Converter = Callable[[Any, str, str], Any]


def tensor_operand(value: Any, instruction: str, operand: str) -> Any:
    """The access pattern of a tensor or register."""
    if value.__class__ is AccessPattern:
        return value
    if isinstance(value, (NkiTensor, VirtualRegister)):
        return value.operand()
    advice = "make tiles with nl.ndarray and fill them with nisa.dma_copy"
    if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
        advice = "arrays of the host become tensors as arguments of the kernel; inside, use nl.shared_constant"
    elif isinstance(value, (int, float)):
        advice = "numbers go into scalar operands, or into a tile by nisa.memset"
    raise located(
        ConstraintFault(
            "is missing" if value is None else f"takes a tensor, not {type(value).__name__} {_short(value)}",
            instruction=instruction,
            operand=operand,
            advice=advice,
        )
    )


def optional_operand(value: Any, instruction: str, operand: str) -> Any:
    """The access pattern of a tensor or register; None stays."""
    return None if value is None else tensor_operand(value, instruction, operand)


def scalar_operand(value: Any, instruction: str, operand: str) -> Any:
    """A Python number, or the access pattern of a tensor or register; None stays."""
    if value is None or value.__class__ is float or value.__class__ is int:
        return value
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, (float, np.floating)) or (np.isscalar(value) and hasattr(value, "__float__")):
        return float(value)
    return tensor_operand(value, instruction, operand)


def tensor_operands(values: Any, instruction: str, operand: str) -> tuple[Any, ...]:
    """Access patterns of a sequence of tensors; one tensor counts as a sequence of one."""
    if isinstance(values, NkiTensor):
        values = (values,)
    if not isinstance(values, (tuple, list)):
        raise located(
            ConstraintFault(f"takes a list of tensors, not {_short(values)}", instruction=instruction, operand=operand)
        )
    return tuple(tensor_operand(value, instruction, f"{operand}[{i}]") for i, value in enumerate(values))


def immediate_converter(annotation: Any) -> Converter | None:
    """How to convert an immediate declared as ``annotation``; None where values pass as they are."""
    choices = [choice for choice in (get_args(annotation) or (annotation,)) if choice is not type(None)]
    optional = type(None) in get_args(annotation)
    converter: Converter | None = None
    if getattr(annotation, "__origin__", None) is tuple or any(
        getattr(choice, "__origin__", None) is tuple for choice in choices
    ):
        converter = _frozen
    elif AluOp in choices and ActivationFunction in choices:
        converter = _either
    elif AluOp in choices:
        converter = alu_of
    elif ActivationFunction in choices:
        converter = activation_of
    elif len(choices) == 1 and isinstance(choices[0], type):
        kind = choices[0]
        if issubclass(kind, Enum):
            converter = _enum(kind)
        elif kind in (int, float, bool):
            converter = _number(kind)
        elif kind is tuple:
            converter = _frozen
    elif set(choices) == {int, float}:
        converter = scalar_operand
    if converter is None or not optional:
        return converter
    inner = converter
    return lambda value, instruction, operand: None if value is None else inner(value, instruction, operand)


def _either(value: Any, instruction: str, operand: str) -> Any:
    try:
        return activation_of(value, instruction, operand)
    except ConstraintFault:
        return alu_of(value, instruction, operand)


def _enum(kind: type[Enum]) -> Converter:
    def convert(value: Any, instruction: str, operand: str) -> Any:
        if value.__class__ is kind:
            return value
        if isinstance(value, str) and value in kind.__members__:
            return kind[value]
        if value.__class__ is int and value in kind._value2member_map_:
            member = kind(value)
            note(f"{operand}={value}: {kind.__name__}.{member.name} is meant, a number as in NKI 0.2; 0.3 refuses it")
            return member
        names = ", ".join(kind.__members__)
        raise located(
            ConstraintFault(
                f"{operand}={value!r} is not a member of {kind.__name__}",
                instruction=instruction,
                limit=f"members: {names}",
            )
        )

    return convert


def _number(kind: type) -> Converter:
    def convert(value: Any, instruction: str, operand: str) -> Any:
        if value.__class__ is kind:
            return value
        if isinstance(value, (bool, np.bool_, int, np.integer)) or (
            kind is float and (isinstance(value, (float, np.floating)) or np.isscalar(value))
        ):
            return kind(value)
        if kind is int and isinstance(value, (float, np.floating)) and value == int(value):
            return int(value)
        raise located(
            ConstraintFault(
                f"{operand}={_short(value)} is no {kind.__name__}",
                instruction=instruction,
                advice="this is a compile-time constant, not a tensor" if isinstance(value, NkiTensor) else None,
            )
        )

    return convert


def _frozen(value: Any, instruction: str, operand: str) -> Any:
    """Lists (of lists) as tuples of Python numbers: immediates are part of a key."""
    if value is None:
        return None
    if isinstance(value, (tuple, list, np.ndarray)):
        return tuple(_frozen(item, instruction, operand) for item in value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (int, float)):
        return value
    raise located(ConstraintFault(f"{operand} holds {_short(value)} where numbers belong", instruction=instruction))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
