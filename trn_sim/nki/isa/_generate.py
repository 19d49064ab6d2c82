"""``nki.isa`` functions, written from the instruction classes.

A function has the fields of its class as parameters (names, order and defaults), and ``name`` behind them.  It
converts the arguments, issues the instruction on the current core and returns an :class:`NkiInstruction`.  The code is
straight-line and made once: it runs for every instruction of every kernel.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from isa.engine import Engine
from isa.faults import ConstraintFault
from isa.indirect import for_tensor_engine
from isa.instruction import Instruction
from trn_sim.machine import Core, current_core
from trn_sim.nki._support import located, unexpected
from trn_sim.nki.isa._convert import (
    Converter,
    immediate_converter,
    optional_operand,
    scalar_operand,
    tensor_operand,
    tensor_operands,
)
from trn_sim.nki.tensor import NkiTensor

__all__ = ["NkiInstruction", "function"]


class NkiInstruction:
    """An issued instruction.

    Attributes:
        position: its place in the program.
    """

    __slots__ = ("_core", "position")

    def __init__(self, core: Core, position: int) -> None:
        self._core = core
        self.position = position

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        """Make this instruction wait until ``producers``, issued before, have finished; returns itself."""
        for producer in producers:
            if not isinstance(producer, NkiInstruction) or producer._core is not self._core:
                raise located(ConstraintFault(f"depends_on takes instructions of the same core, not {producer!r}"))
            self._core.add_edge(self.position, producer.position)
        return self

    def __repr__(self) -> str:
        return f"<NkiInstruction {self.position}>"


def function(
    cls: type[Instruction],
    *,
    summary: str | None = None,
    converters: Mapping[str, Converter] | None = None,
    module: str = "trn_sim.nki.isa",
) -> Callable[..., NkiInstruction]:
    """The function of one instruction class.

    Args:
        cls: the class.
        summary: the docstring's text; None for that of the class.
        converters: how to convert arguments of which the declaration does not say it, by name.
        module: where the function is found.
    """
    mnemonic = cls.mnemonic
    hints = get_type_hints(cls)
    specs = dict(cls.operands)
    namespace: dict[str, Any] = {
        "NkiInstruction": NkiInstruction,
        "NkiTensor": NkiTensor,
        "cls": cls,
        "current_core": current_core,
        "for_tensor_engine": for_tensor_engine,
        "optional_operand": optional_operand,
        "scalar_operand": scalar_operand,
        "tensor_operand": tensor_operand,
        "tensor_operands": tensor_operands,
        "unexpected": unexpected,
    }
    header: list[str] = []
    arguments: list[str] = []
    parameters: list[inspect.Parameter] = []
    for item in fields(cls):  # type: ignore[arg-type]
        name = item.name
        default = inspect.Parameter.empty if item.default is MISSING else item.default
        parameters.append(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default))
        namespace[f"default_{name}"] = default
        header.append(name if default is inspect.Parameter.empty else f"{name}=default_{name}")
        spec = specs.get(name)
        where = f"{name}, {mnemonic!r}, {name!r}"
        if converters and name in converters:
            namespace[f"convert_{name}"] = converters[name]
            arguments.append(f"convert_{name}({where})")
        elif spec is None:
            converter = immediate_converter(hints[name])
            if converter is None:
                arguments.append(name)
            else:
                namespace[f"convert_{name}"] = converter
                shortcut = "" if default is inspect.Parameter.empty else f"{name} if {name} is default_{name} else "
                arguments.append(f"{shortcut}convert_{name}({where})")
        elif spec.many:
            arguments.append(f"tensor_operands({where})")
        else:
            convert = "scalar_operand" if spec.scalar else "optional_operand" if spec.optional else "tensor_operand"
            argument = f"({name}._operand or {name}.operand()) if isinstance({name}, NkiTensor) else {convert}({where})"
            if spec.indirect and cls.engines == (Engine.tensor,):
                argument = f"for_tensor_engine({argument})"
            arguments.append(argument)
    parameters.append(inspect.Parameter("name", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None))
    source = "\n".join(
        [
            f"def {mnemonic}({', '.join(header)}, name=None, **extra):",
            "    if extra:",
            f"        unexpected({mnemonic!r}, extra)",
            "    core = current_core()",
            "    position = core.issue(cls(",
            *(f"        {argument}," for argument in arguments),
            "    ), name=name)",
            "    return NkiInstruction(core, position)",
        ]
    )
    exec(compile(source, f"<generated nki.isa.{mnemonic}>", "exec"), namespace)
    made: Callable[..., NkiInstruction] = namespace[mnemonic]
    made.__module__ = module
    made.__qualname__ = mnemonic
    made.__doc__ = _documentation(cls, summary)
    made.__signature__ = inspect.Signature(parameters, return_annotation=NkiInstruction)  # type: ignore[attr-defined]
    return made


def _documentation(cls: type[Instruction], summary: str | None) -> str:
    engines = " or ".join(engine.title for engine in cls.engines)
    generations = ", ".join(f"v{generation}" for generation in cls.generations)
    lines = [summary or inspect.cleandoc(cls.__doc__ or ""), "", f"Runs on: {engines}; NeuronCore-{generations}."]
    for name, spec in cls.operands:
        limits = [" or ".join(space.name for space in spec.spaces)]
        limits += ["shape (P, 1)"] if spec.vector else []
        limits += ["or a number"] if spec.scalar else []
        limits += [f"partitions and elements as {spec.match}"] if spec.match else []
        role = "written" if not spec.reads else "read and written" if spec.writes else "read"
        lines.append(f"    {name}: {role}; {', '.join(limits)}.")
    return "\n".join(lines)
