"""Which test uses which documented name, found in the syntax trees of the tests.

A test covers a name if it, or something of its file that it refers to (a kernel, a helper, a fixture, a table), uses
the name: as an attribute of an imported module (``nl.exp``), as an imported name, as a string behind ``getattr(nl,
...)``, or through what stands for it in ``isa`` (an instruction class, an enumeration, an operator).  Members of
tensors and handles are recognised by their own name alone, in files that import the namespace; so of common words,
such as ``shape``, this says little.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["HOLDERS", "Stand", "covering_tests"]

HOLDERS = ("NkiTensor", "NkiInstruction", "jit", "tensor")
"""Objects whose members are recognised by name."""

FOLDERS = ("nki", "neuronxcc", "cases", "machine", "isa")
"""Where the test that is shown is taken from first."""

Stand = Mapping[str, str]
"""Dotted names outside of the NKI modules, and the documented names they stand for."""


@dataclass(slots=True)
class _Uses:
    """What one definition of a file refers to."""

    dotted: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=set)
    local: set[str] = field(default_factory=set)
    text: set[str] = field(default_factory=set)
    looked_up: set[str] = field(default_factory=set)  # modules of which names are taken by getattr

    def update(self, other: _Uses) -> None:
        for name in self.__slots__:
            getattr(self, name).update(getattr(other, name))


def covering_tests(folder: Path, documented: Iterable[str], stand: Stand) -> dict[str, str]:
    """For each documented full name that a test covers, the test: ``tests/nki/test_isa.py::test_name``.

    Of several tests, one that is named after the name; then one of what works rather than of what is refused; then in
    the order of FOLDERS; then the one that uses the fewest names.
    """
    known = set(documented)
    found: dict[str, tuple[tuple[object, ...], str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        for test, names in _tests(path, known, stand):
            where = f"{folder.name}/{path.relative_to(folder).as_posix()}::{test}"
            top = path.relative_to(folder).parts[0]
            rank = FOLDERS.index(top) if top in FOLDERS else len(FOLDERS)
            refusals = any(word in test for word in ("refuse", "limit", "explained"))
            for name in names:
                named = f"_{name.rpartition('.')[2]}_" in f"_{test}_"
                order = (not named, refusals, rank, len(names), where)
                if name not in found or order < found[name][0]:
                    found[name] = order, where
    return {name: where for name, (_, where) in found.items()}


def _tests(path: Path, known: set[str], stand: Stand) -> list[tuple[str, set[str]]]:
    """Each test of a file with the documented names it covers."""
    tree = ast.parse(path.read_text())
    imported = _imports(tree)
    definitions: dict[str, _Uses] = {}
    tests: dict[str, _Uses] = {}
    for node in tree.body:
        uses = _uses(node, imported)
        for name in _defined(node):
            definitions.setdefault(name, _Uses()).update(uses)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            tests[node.name] = uses
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name.startswith("test"):
                    tests[f"{node.name}::{inner.name}"] = _uses(inner, imported)
    spaces = {"neuronxcc.nki" if name.startswith("neuronxcc") else "nki" for name in imported.values()
              if name.split(".")[0] in ("nki", "neuronxcc")}  # fmt: skip
    return [(test, _names(_closure(uses, definitions), known, stand, spaces)) for test, uses in tests.items()]


def _imports(tree: ast.Module) -> dict[str, str]:
    """Local name -> dotted name, for imports anywhere in the file; ``trn_sim.nki`` is ``nki``."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.asname:
                    found[item.asname] = item.name
                else:
                    found[item.name.split(".")[0]] = item.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for item in node.names:
                found[item.asname or item.name] = f"{node.module}.{item.name}"
    return {name: dotted.removeprefix("trn_sim.") for name, dotted in found.items()}


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)]


def _uses(node: ast.AST, imported: dict[str, str]) -> _Uses:
    uses = _Uses()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute):
            dotted = _dotted(inner, imported)
            if dotted is None:
                uses.members.add(inner.attr)
            else:
                uses.dotted.add(dotted)
        elif isinstance(inner, ast.Name):
            uses.local.add(inner.id)
            if inner.id in imported:
                uses.dotted.add(imported[inner.id])
        elif isinstance(inner, ast.arg):
            uses.local.add(inner.arg)  # a fixture
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            uses.text.add(inner.value)
        elif isinstance(inner, ast.Subscript):
            uses.members.add("__setitem__" if isinstance(inner.ctx, ast.Store) else "__getitem__")
            table = _dotted(inner.value, imported)
            if table and isinstance(inner.slice, ast.Constant):
                uses.dotted.add(f"{table}.{inner.slice.value!s}")
            elif table:
                uses.looked_up.add(table)
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "getattr":
            module = _dotted(inner.args[0], imported)
            if module:
                uses.looked_up.add(module)
    return uses


def _dotted(node: ast.AST, imported: dict[str, str]) -> str | None:
    """The dotted name of ``a.b.c`` where ``a`` is imported."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in imported:
        return None
    return ".".join([imported[node.id], *reversed(parts)])


def _closure(uses: _Uses, definitions: dict[str, _Uses]) -> _Uses:
    """``uses`` with those of all definitions of the file that it refers to, and so on."""
    total, seen = _Uses(), set[str]()
    total.update(uses)
    waiting = list(uses.local)
    while waiting:
        name = waiting.pop()
        if name in seen or name not in definitions:
            continue
        seen.add(name)
        total.update(definitions[name])
        waiting.extend(definitions[name].local)
    return total


def _names(uses: _Uses, known: set[str], stand: Stand, spaces: set[str]) -> set[str]:
    """The documented names among uses."""
    dotted = set(uses.dotted)
    dotted |= {f"{table}.{text}" for table in uses.looked_up for text in uses.text}
    for name in list(dotted):
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            meant = stand.get(".".join(parts[:end]))
            if meant is not None:
                dotted.add(".".join([meant, *parts[end:]]))
                break
    found = {
        ".".join(parts[:end]) for parts in (name.split(".") for name in dotted) for end in range(1, len(parts) + 1)
    }
    for name in known:
        holder, _, member = name.rpartition(".")
        module, _, holder = holder.rpartition(".")
        space = "neuronxcc.nki" if module.startswith("neuronxcc") else "nki"
        if holder in HOLDERS and space in spaces and member in uses.members:
            found.add(name)
    return found & known
