"""The instruction reference, generated from the declarations."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from typing import Any

from isa.catalogue import INSTRUCTIONS
from isa.indirect import FIRST_GENERATION
from isa.instruction import Instruction, OperandSpec
from isa.target import TARGETS

__all__ = ["instruction_reference"]

HEADER = """\
# Instruction reference

Generated from the declarations in `isa/` by `python -m isa.reference`; a test keeps it up to date.

Status: *verified* against hardware data, *documented* by AWS, or *guessed*. Every on-chip operand of a compute
instruction uses 1 to 128 partitions and starts at partition 0; or 64 with at most 64 partitions; or 32 or 96 with at
most 32. It has at most four free dimensions.
"""


def instruction_reference() -> str:
    """The whole reference as Markdown, by opcode."""
    parts = [HEADER]
    for _, cls in sorted(INSTRUCTIONS.items()):
        parts.append(_entry(cls))
    return "\n".join(parts)


def _entry(cls: type[Instruction]) -> str:
    targets = [target.name for target in TARGETS.values() if target.generation in cls.generations]
    lines = [
        f"## {cls.mnemonic}",
        "",
        f"`{cls.__name__}`, opcode {cls.opcode} · {' or '.join(engine.title for engine in cls.engines)} · "
        f"{', '.join(targets)} · {cls.status} ({cls.source})",
        "",
        inspect.cleandoc(cls.__doc__ or ""),
        "",
        "| field | role | limits |",
        "|---|---|---|",
    ]
    specs = dict(cls.operands)
    for item in fields(cls):  # type: ignore[arg-type]
        spec = specs.get(item.name)
        if spec is not None:
            lines.append(f"| {item.name} | {_role(spec)} | {_limits(spec)} |")
        else:
            lines.append(f"| {item.name} | immediate | {_default(item.default)} |")
    return "\n".join([*lines, ""])


def _role(spec: OperandSpec) -> str:
    role = {(True, False): "read", (False, True): "written", (True, True): "read and written"}[spec.reads, spec.writes]
    return role + (", or a number" if spec.scalar else "") + (", optional" if spec.optional else "")


def _limits(spec: OperandSpec) -> str:
    limits = [" or ".join(space.name for space in spec.spaces)]
    if spec.dtypes is not None and not callable(spec.dtypes):
        limits.append("dtypes " + ", ".join(sorted(spec.dtypes)))
    elif callable(spec.dtypes):
        per_target = {target.name: ", ".join(sorted(spec.dtypes(target))) for target in TARGETS.values()}
        limits += [f"{name}: {dtypes}" for name, dtypes in per_target.items()]
    if spec.vector:
        limits.append("shape (P, 1)")
    if spec.indirect:
        limits.append(f"indirect from v{FIRST_GENERATION} on")
    if spec.max_elements is not None:
        limits.append(f"at most {spec.max_elements} elements per partition")
    if spec.match is not None:
        limits.append(f"as many partitions {'' if spec.vector else 'and elements per partition '}as {spec.match}")
    return "; ".join(limits)


def _default(default: Any) -> str:
    if default is MISSING:
        return "required"
    return f"default {getattr(default, 'name', default)}"


if __name__ == "__main__":
    from pathlib import Path

    Path("docs/instructions.md").write_text(instruction_reference())
