"""The disassembly of a program: one line per instruction, as :meth:`isa.program.Program.disassemble` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trn_sim.view.report import Report

if TYPE_CHECKING:
    from rich.console import Console

    from isa.program import Program

__all__ = ["Listing"]


class Listing(Report):
    """Instructions ``start`` to ``stop`` of ``program``, where ``engine`` is given those of that engine only."""

    def __init__(self, program: Program, *, start: int = 0, stop: int | None = None, engine: str | None = None) -> None:
        self.program = program
        self.start = start
        self.stop = len(program) if stop is None else min(stop, len(program))
        self.engine = engine

    def _positions(self) -> Iterator[int]:
        templates = self.program.templates
        rows = self.program.rows()
        for position in range(self.start, self.stop):
            if self.engine is None or templates[rows[position, 0]].engine.name == self.engine:
                yield position

    def lines(self) -> Iterator[str]:
        """The listing line by line, without holding all of it."""
        if self.engine is None:
            yield from self.program.disassemble(self.start, self.stop)
            return
        for position in self._positions():
            yield from self.program.disassemble(position, position + 1)

    def render(self, console: Console) -> None:
        """Print the lines, never wrapped: a listing is for grep."""
        for line in self.lines():
            console.print(line, markup=False, soft_wrap=True)

    def json(self) -> dict[str, Any]:
        """Target and instructions with operands as text, constants and source lines."""
        program = self.program
        rows = program.rows()
        instructions = []
        for position in self._positions():
            template = program.templates[rows[position, 0]]
            source = program.source_of(position)
            instructions.append(
                {
                    "index": position,
                    "name": program.names.get(position),
                    "engine": template.engine.name,
                    "instruction": template.mnemonic,
                    "operands": {name: str(pattern) for name, pattern in program.operands(position)},
                    "constants": dict(template.constants),
                    "file": source.file,
                    "line": source.line,
                    "function": source.function,
                }
            )
        return {"target": program.target.name, "instructions": instructions}
