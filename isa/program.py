"""The instruction stream: one row of integers per issued instruction, and the tables the rows point into.

A kernel issues the same few hundred shapes of instruction over and over, so everything that depends only on the shape
(engine, cost class, work, read and write sets) is stored once, as a :class:`Template`; a row holds the number of its
template, its source line and where its words start.  The words hold the operands' access patterns and numbers, so that
the stream is complete: it can be printed, checked for hazards and timed again without the kernel.

Stored format (version 1): an ``.npz`` with the arrays ``rows`` (int32, columns template, source, words), ``words``
(int32), ``edges`` (int32 pairs consumer, producer, from ``depends_on``) and ``meta`` (JSON text as bytes: target,
templates, sources, names, buffers).  No pickle.
"""

from __future__ import annotations

import json
import os
import zipfile
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isa.engine import Engine
from isa.instruction import INSTRUCTIONS, Instruction
from isa.operands import AccessPattern, decode_words
from isa.target import TARGETS, Target
from isa.work import Work, WorkKind

__all__ = ["FORMAT_VERSION", "Buffer", "Program", "Source", "Template"]

FORMAT_VERSION = 1
ROW_COLUMNS = ("template", "source", "words")


@dataclass(slots=True, frozen=True, kw_only=True)
class Template:
    """What all instructions of one shape share.

    Attributes:
        opcode: instruction class.
        engine: engine that executes it.
        queue: DMA: which issuing queue (the engine that triggers it); 0 otherwise.
        work: neutral quantities.
        operands: number of access patterns at the front of the words.
        reads, writes: bit i is set where operand i is read, written.
        constants: keyed immediates by field name, as text, for printing.
        fields: operand field names in the order of the words (index operands as ``name@index``).
        numbers: names and kinds ("f" or "i") of the numbers after the patterns.
    """

    opcode: int
    engine: Engine
    queue: int
    work: Work
    operands: int
    reads: int
    writes: int
    constants: tuple[tuple[str, str], ...]
    fields: tuple[str, ...]
    numbers: tuple[tuple[str, str], ...]

    @property
    def mnemonic(self) -> str:
        """Name of the instruction."""
        return INSTRUCTIONS[self.opcode].mnemonic


@dataclass(slots=True, frozen=True)
class Source:
    """A line of the user's code."""

    file: str
    line: int
    function: str


@dataclass(slots=True, frozen=True)
class Buffer:
    """An HBM tensor: its number is its place in :attr:`Program.buffers`."""

    name: str
    address: int
    nbytes: int
    kind: str  # input, output, internal


class Program:
    """A recorded stream.  Append-only; readers take :meth:`rows` and the tables."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.templates: list[Template] = []
        self.sources: list[Source] = []
        self.buffers: list[Buffer] = []
        self.names: dict[int, str] = {}
        self.edges: list[tuple[int, int]] = []
        self.barriers: list[int] = []
        self._rows = array("i")
        self._words = array("i")
        self._sources: dict[Source, int] = {}

    def __len__(self) -> int:
        return len(self._rows) // len(ROW_COLUMNS)

    # --- recording --------------------------------------------------------------------------------

    def add_template(self, ins: Instruction, engine: Engine, queue: int, work: Work) -> int:
        """Register a shape; returns its number."""
        reads = writes = position = 0
        fields: list[str] = []
        indices: list[str] = []
        numbers: list[tuple[str, str]] = []
        for name, spec in ins.operands:
            value = getattr(ins, name)
            if isinstance(value, AccessPattern) or spec.many:
                for place, pattern in enumerate(value if spec.many else (value,)):
                    reads |= spec.reads << position
                    writes |= spec.writes << position
                    fields.append(f"{name}[{place}]" if spec.many else name)
                    position += 1
                    if pattern.dynamic is not None:
                        indices.append(f"{fields[-1]}@index")
            elif spec.scalar and value is not None:
                numbers.append((name, "f"))
        for name in indices:
            reads |= 1 << position
            position += 1
            fields.append(name)
        for name, keyed in ins.immediates:
            value = getattr(ins, name)
            if not keyed and value is not None:
                numbers.append((name, "f" if isinstance(value, float) else "i"))
        self.templates.append(
            Template(
                opcode=ins.opcode,
                engine=engine,
                queue=queue,
                work=work,
                operands=position,
                reads=reads,
                writes=writes,
                constants=ins.constants(),
                fields=tuple(fields),
                numbers=tuple(numbers),
            )
        )
        return len(self.templates) - 1

    def source_id(self, file: str, line: int, function: str) -> int:
        """Number of a source line, registered on first use."""
        source = Source(file, line, function)
        number = self._sources.get(source)
        if number is None:
            number = self._sources[source] = len(self.sources)
            self.sources.append(source)
        return number

    def append(self, template: int, source: int, ins: Instruction) -> int:
        """Record one instruction; returns its position."""
        words = self._words
        self._rows.extend((template, source, len(words)))
        ins.encode(words)
        return len(self._rows) // 3 - 1

    # --- reading ----------------------------------------------------------------------------------

    def rows(self) -> npt.NDArray[np.int32]:
        """A copy of the rows, (instructions, 3): template, source, start of words."""
        return np.frombuffer(self._rows, dtype=np.int32).reshape(-1, len(ROW_COLUMNS)).copy()

    def words(self) -> npt.NDArray[np.int32]:
        """A copy of all words."""
        return np.frombuffer(self._words, dtype=np.int32).copy()

    @property
    def nbytes(self) -> int:
        """Bytes that rows and words take."""
        return len(self._rows) * self._rows.itemsize + len(self._words) * self._words.itemsize

    def source_of(self, index: int) -> Source:
        """Source line of instruction ``index``."""
        return self.sources[self._rows[3 * index + 1]]

    def operands(self, index: int) -> list[tuple[str, AccessPattern]]:
        """Named access patterns of instruction ``index``."""
        template = self.templates[self._rows[3 * index]]
        at = self._rows[3 * index + 2]
        found = []
        for name in template.fields:
            pattern, at = decode_words(self._words, at)
            found.append((name, pattern))
        return found

    def disassemble(self, start: int = 0, stop: int | None = None) -> Iterator[str]:
        """One line of text per instruction: number, engine, mnemonic, operands, constants, source line."""
        end = len(self) if stop is None else min(stop, len(self))
        for index in range(start, end):
            template = self.templates[self._rows[3 * index]]
            at = self._rows[3 * index + 2]
            parts = []
            for name in template.fields:
                pattern, at = decode_words(self._words, at)
                parts.append(f"{name}={pattern}")
            for name, kind in template.numbers:
                pair = self._words[at : at + 2].tobytes()
                at += 2
                value = np.frombuffer(pair, dtype=np.float64 if kind == "f" else np.int64)[0]
                parts.append(f"{name}={value}")
            parts += [f"{name}={value}" for name, value in template.constants]
            source = self.source_of(index)
            label = f" name={self.names[index]!r}" if index in self.names else ""
            yield (
                f"{index:6d} {template.engine.name:<7} {template.mnemonic} {', '.join(parts)}{label}"
                f"  ; {os.path.basename(source.file)}:{source.line}"
            )

    # --- storage ----------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the stored format; the file appears whole or not at all."""
        meta = {
            "version": FORMAT_VERSION,
            "target": self.target.name,
            "overflow": [self.target.sbuf_overflow, self.target.psum_overflow],
            "templates": [asdict(template) for template in self.templates],
            "sources": [(s.file, s.line, s.function) for s in self.sources],
            "buffers": [asdict(buffer) for buffer in self.buffers],
            "names": sorted(self.names.items()),
            "barriers": self.barriers,
        }
        path = Path(path)
        partial = path.with_name(path.name + ".partial")
        try:
            with partial.open("wb") as file:
                np.savez_compressed(
                    file,
                    rows=self.rows(),
                    words=self.words(),
                    edges=np.array(self.edges, dtype=np.int32).reshape(-1, 2),
                    meta=np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8),
                )
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Program:
        """Read the stored format.

        Raises:
            ValueError: not a program, or of another version.
        """
        import isa.catalogue  # noqa: F401  # a program refers to instructions by opcode: all of them are known now

        try:
            stored = np.load(path, allow_pickle=False)
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is not a trn-sim program: {error}") from error
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise ValueError(f"{path} is not a trn-sim program: it is a single array")
        with stored:
            if "meta" not in stored:
                raise ValueError(f"{path} is not a trn-sim program: it has no 'meta' entry")
            meta: dict[str, Any] = json.loads(stored["meta"].tobytes().decode())
            if meta.get("version") != FORMAT_VERSION:
                raise ValueError(f"{path} has format version {meta.get('version')}; this build reads {FORMAT_VERSION}")
            target, (sbuf, psum) = TARGETS[meta["target"]], meta["overflow"]
            program = cls(replace(target, sbuf_overflow=sbuf, psum_overflow=psum) if sbuf or psum else target)
            program._rows = array("i", stored["rows"].astype(np.int32).ravel().tobytes())
            program._words = array("i", stored["words"].astype(np.int32).tobytes())
            program.edges = [(int(a), int(b)) for a, b in stored["edges"]]
        for item in meta["templates"]:
            work = item["work"]
            work["kind"] = WorkKind(work["kind"])
            work["row_tile"] = tuple(work["row_tile"])
            item["work"] = Work(**work)
            item["engine"] = Engine(item["engine"])
            for name in ("constants", "numbers"):
                item[name] = tuple((a, b) for a, b in item[name])
            item["fields"] = tuple(item["fields"])
            program.templates.append(Template(**item))
        for file, line, function in meta["sources"]:
            program.source_id(file, line, function)
        program.buffers = [Buffer(**buffer) for buffer in meta["buffers"]]
        program.names = {int(index): name for index, name in meta["names"]}
        program.barriers = [int(index) for index in meta["barriers"]]
        return program
