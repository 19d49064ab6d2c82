"""What of NKI works here: each documented name with its status, generations, source of its semantics, and test.

``python -m trn_sim.conformance`` writes ``docs/conformance.md`` from the catalogue of documented names
(``trn_sim/_names.toml``), the modules themselves, the declarations of instructions, and the tests; run it at the root
of a checkout.  Nothing about a name is written down twice: the catalogue says what AWS documents, the rest is looked
up.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from isa.activation import ACTIVATIONS
from isa.alu import ALU_OPS
from isa.catalogue import INSTRUCTIONS
from isa.dtypes import ALL
from isa.target import TARGETS
from trn_sim._coverage import Stand, covering_tests

__all__ = ["NAMESPACES", "Entry", "Name", "Status", "conformance_page", "documented_names", "examine"]

NAMESPACES = {"new": "nki (NKI 0.6)", "old": "neuronxcc.nki (NKI 0.1)"}
GENERATIONS = tuple(target.generation for target in TARGETS.values())
HERE = Path(__file__).parent


class Status(StrEnum):
    """How far a name goes."""

    WORKS = "works"
    DIFFERS = "differs"  # takes other parameters than documented
    UNBUILT = "not built"  # exists, and says that it is not built
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """One documented name.

    Attributes:
        namespace: ``new`` or ``old``.
        module: dotted name of its module.
        name: in the module; members as ``NkiTensor.reshape``.
        documents: where it is documented.
        parameters: of a function, as in the catalogue; None of other names.
    """

    namespace: str
    module: str
    name: str
    documents: str
    parameters: str | None = None

    @property
    def full(self) -> str:
        """Dotted name, module included."""
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is known about a documented name."""

    name: Name
    status: Status
    note: str
    generations: tuple[int, ...]
    source: str
    test: str | None


@cache
def _catalogue() -> Mapping[str, Any]:
    return tomllib.loads((HERE / "_names.toml").read_text())


def documented_names(namespace: str | None = None) -> list[Name]:
    """Every documented name, of one namespace or of both."""
    found = []
    for space in NAMESPACES if namespace is None else (namespace,):
        for module, section in _catalogue()[space].items():
            common = {"namespace": space, "module": module, "documents": section["documents"]}
            for name, parameters in section.get("functions", {}).items():
                found.append(Name(name=name, parameters=parameters, **common))
            found += [Name(name=name, **common) for name in section.get("values", ())]
            for holder, members in section.get("members", {}).items():
                found += [Name(name=f"{holder}.{member}", **common) for member in members]
    return found


# --- the name itself ------------------------------------------------------------------------------


def _resolve(name: Name) -> Any:
    """The object; AttributeError or ImportError if there is none."""
    value: Any = importlib.import_module(f"trn_sim.{name.module}")
    for part in name.name.split("."):
        if isinstance(value, FunctionType):
            value = value(lambda: None)  # members of a decorator are those of what it makes
        value = getattr(value, part)
    return value


def _status(name: Name) -> tuple[Status, str]:
    try:
        value = _resolve(name)
    except (AttributeError, ImportError):
        return Status.MISSING, ""
    if (getattr(value, "__doc__", None) or "").rstrip().endswith("not built yet."):
        return Status.UNBUILT, _catalogue()["gaps"].get(name.full, "")
    if name.parameters is not None:
        difference = _difference(name.parameters, value)
        if difference:
            return Status.DIFFERS, difference
    return Status.WORKS, _catalogue()["limits"].get(name.full, "")


def _difference(documented: str, value: Any) -> str:
    """In words, how the parameters of ``value`` differ from the documented ones; "" if they do not.

    More parameters behind the documented ones, and defaults where none is documented, are no difference; nor is the
    order of parameters that can be given by name only.
    """
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    ours = [item for item in inspect.signature(value).parameters.values() if item.kind not in variable]
    named = {item.name: item for item in ours if item.kind is inspect.Parameter.KEYWORD_ONLY}
    placed = iter([item for item in ours if item.name not in named])
    for text in filter(None, documented.split(", ")):
        wanted, has_default, default = text.partition("=")
        found = named.get(wanted) or next(placed, None)
        if found is None:
            return f"{wanted} is missing"
        if found.name != wanted:
            return f"{found.name} where {wanted} is documented"
        if has_default and found.default is inspect.Parameter.empty:
            return f"{wanted} has no default"
        if default not in ("", "...") and _text(found.default) != default:
            return f"{wanted}={_text(found.default)} where {default} is documented"
    return ""


def _text(default: Any) -> str:
    """A default as the catalogue writes it."""
    if isinstance(default, Enum):
        return default.name
    if default is None or isinstance(default, int | float):
        return str(default)
    if isinstance(default, list | tuple):  # ours are tuples where AWS has lists: nobody can change them
        return str(list(default)) if default else "()"
    if isinstance(default, str):
        return str(default) if default in map(str, ALL) else f"'{default}'"
    return str(getattr(default, "name", default))


# --- where its semantics come from ----------------------------------------------------------------

_BY_MNEMONIC = {
    cls.mnemonic: [one for one in INSTRUCTIONS.values() if one.mnemonic == cls.mnemonic]
    for cls in INSTRUCTIONS.values()
}


def _generations(name: Name) -> tuple[int, ...]:
    written = _catalogue()["generations"].get(name.full)
    if written is not None:
        return tuple(written)
    short = name.name
    if name.module.endswith(".isa"):
        declared = {generation for cls in _BY_MNEMONIC.get(short, ()) for generation in cls.generations}
        return tuple(sorted(declared)) or GENERATIONS
    if name.module.endswith(".language"):
        known: set[int] = set()
        if short in ALU_OPS:
            known |= {g for g in GENERATIONS if g >= ALU_OPS[short].minimum_generation}
        if short in ACTIVATIONS:
            known |= set(ACTIVATIONS[short].generations)
        if known:
            return tuple(sorted(known))
    return GENERATIONS


def _source(name: Name) -> str:
    short = name.name
    if name.module.endswith(".isa") and short in _BY_MNEMONIC:
        sources = [
            cls.source + ("" if cls.status == "documented" else f", {cls.status}") for cls in _BY_MNEMONIC[short]
        ]
        return f"[{short}](instructions.md#{short}): {'; '.join(sources)}"
    parts = []
    if name.module.endswith(".language"):
        issued = _issued().get(short, ()) if name.namespace == "new" else ()
        links = [f"[{mnemonic}](instructions.md#{mnemonic})" for mnemonic in sorted(issued)]
        parts += [", ".join(links)] if links else []
        parts += ["operator in `isa/alu.py`"] if short in ALU_OPS else []
        parts += ["function in `isa/activation.py`"] if short in ACTIVATIONS else []
    return "; ".join(parts) or name.documents


@cache
def _issued() -> Mapping[str, set[str]]:
    """Instructions that each function of ``nki.language`` issues, by itself or through helpers that are not public."""
    direct: dict[str, set[str]] = {}
    helpers: dict[str, set[str]] = {}
    for path in sorted((HERE / "nki" / "language").glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                defined = node.name
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                defined = node.targets[0].id
            else:
                continue
            for inner in ast.walk(node):
                if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
                    if inner.value.id == "nisa" and inner.attr in _BY_MNEMONIC:
                        direct.setdefault(defined, set()).add(inner.attr)
                elif isinstance(inner, ast.Name):
                    helpers.setdefault(defined, set()).add(inner.id)
    public = {name.name for name in documented_names("new") if name.module == "nki.language"}
    result = {}
    for name in public:
        seen, waiting = {name}, [name]
        while waiting:
            for helper in helpers.get(waiting.pop(), ()):
                if helper not in seen and helper not in public:
                    seen.add(helper)
                    waiting.append(helper)
        result[name] = set().union(*(direct.get(one, set()) for one in seen))
    return result


def _stand() -> Stand:
    """What stands for a documented name in ``isa``: the tests of ``isa`` know no other names."""
    stand = {f"{cls.__module__}.{cls.__name__}": f"nki.isa.{cls.mnemonic}" for cls in INSTRUCTIONS.values()}
    constants = importlib.import_module("trn_sim.nki.isa.constants")
    for name in constants.__all__:
        member = getattr(constants, name)
        stand[f"{member.__module__}.{member.__name__}"] = f"nki.isa.{name}"
    stand |= {f"isa.dtypes.{kind}": f"nki.language.{kind}" for kind in map(str, ALL)}
    stand |= {"isa.alu.ALU_OPS": "nki.language", "isa.activation.ACTIVATIONS": "nki.language"}
    return stand


# --- the page -------------------------------------------------------------------------------------


def examine(tests: Path, namespace: str | None = None) -> list[Entry]:
    """Every documented name with what is known about it; ``tests`` is the folder of the tests."""
    names = documented_names(namespace)
    covered = covering_tests(tests, [name.full for name in documented_names()], _stand())
    found = []
    for name in names:
        status, note = _status(name)
        found.append(
            Entry(
                name=name,
                status=status,
                note=note,
                generations=_generations(name),
                source=_source(name),
                test=covered.get(name.full) if status in (Status.WORKS, Status.DIFFERS) else None,
            )
        )
    return found


HEADER = """# Conformance

Generated by `python -m trn_sim.conformance` from the catalogue of documented names, the declarations and the tests; a
test keeps it up to date.

Every name that AWS documents for the two namespaces of NKI: whether it works here; the generations of the NeuronCore
that have it, which is not asked of the old namespace; where its semantics come from; and one test that uses it. What a
generation does not have is refused there. *Differs*: it takes other parameters than documented. *Not built*: it exists
and says so when it is called.
"""


def conformance_page(tests: Path) -> str:
    """The page as Markdown."""
    return "\n".join(_lines(examine(tests)))


def _lines(entries: list[Entry]) -> Iterator[str]:
    yield HEADER
    yield "| namespace | " + " | ".join(("documented", *Status, "tested")) + " |"
    yield "|---" * (3 + len(Status)) + "|"
    for namespace, title in NAMESPACES.items():
        chosen = [entry for entry in entries if entry.name.namespace == namespace]
        counts = Counter(entry.status for entry in chosen)
        tested = sum(entry.test is not None for entry in chosen)
        yield f"| {title} | {' | '.join(str(n) for n in (len(chosen), *(counts[s] for s in Status), tested))} |"
    modules = dict.fromkeys(entry.name.module for entry in entries)
    for module in modules:
        yield f"\n## {module}\n"
        yield "| name | status | generations | semantics | test |"
        yield "|---|---|---|---|---|"
        for entry in sorted((e for e in entries if e.name.module == module), key=lambda e: e.name.name.lower()):
            yield _row(entry)
    yield ""


def _row(entry: Entry) -> str:
    shown = entry.generations
    text = f"v{shown[0]}" if len(shown) == 1 else f"v{shown[0]} to v{shown[-1]}"
    status = entry.status.value + (f": {entry.note}" if entry.note else "")
    test = f"`{entry.test.removeprefix('tests/')}`" if entry.test else ""
    return f"| `{entry.name.name}` | {status} | {text} | {entry.source} | {test} |"


if __name__ == "__main__":
    Path("docs/conformance.md").write_text(conformance_page(Path("tests")))
