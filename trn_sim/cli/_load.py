"""Finding the function that ``SCRIPT_OR_MODULE:FUNCTION`` names, and its inputs."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

import click

__all__ = ["bind", "load_function"]


def load_function(text: str) -> Callable[..., Any]:
    """Import the script or module and take the function from it; ``import nki`` inside is served by trn-sim.

    Raises:
        click.BadParameter: no such file, module or function; whatever the import itself raises passes through.
    """
    from trn_sim.finder import activate

    place, _, path = text.rpartition(":")
    if not place or not path.replace(".", "").isidentifier():
        raise click.BadParameter(f"{text!r} is not of the form SCRIPT_OR_MODULE:FUNCTION, as in kernels.py:softmax")
    activate(override=True)
    module = _load_script(Path(place)) if place.endswith(".py") else _load_module(place)
    found: Any = module
    for name in path.split("."):
        if not hasattr(found, name):
            raise click.BadParameter(_unknown(module, place, path))
        found = getattr(found, name)
    if not callable(found):
        raise click.BadParameter(f"{path!r} of {place} is a {type(found).__name__}, not a function")
    return found


def _load_script(path: Path) -> ModuleType:
    if not path.is_file():
        raise click.BadParameter(f"there is no file {path}")
    sys.path.insert(0, str(path.parent.resolve()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _load_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there; something it imports is not
        raise click.BadParameter(f"there is no module {name} (a script's name ends in .py)") from None


def _unknown(module: ModuleType, place: str, path: str) -> str:
    public = {name: value for name, value in vars(module).items() if callable(value) and name[:1] != "_"}
    own = [name for name, value in public.items() if getattr(value, "__module__", None) == module.__name__]
    close = get_close_matches(path, own, n=1)
    known = f"it has {', '.join(own)}" if own else "it has no functions of its own"
    return f"{place} has no {path!r}; {known}" + (f". Did you mean {close[0]!r}?" if close else "")


def bind(function: Callable[..., Any], texts: Iterable[str], *, seed: int) -> inspect.BoundArguments:
    """The inputs of ``function`` from ``name=value`` texts.

    Raises:
        click.UsageError: a text is not understood, an input is missing or unknown; the message shows the signature.
    """
    from trn_sim.inputs import InputError, parse_arguments

    try:
        values = parse_arguments(texts, seed=seed)
    except InputError as error:
        raise click.UsageError(str(error)) from None
    inner = inspect.unwrap(function)
    signature = inspect.signature(inner)
    parameters = signature.parameters
    shown = f"{getattr(inner, '__name__', 'kernel')}({', '.join(map(str, parameters.values()))})"
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if not open_ended and (unknown := [name for name in values if name not in parameters]):
        raise click.UsageError(f"{shown} has no input {', '.join(map(repr, unknown))}")
    positional_only = [name for name, p in parameters.items() if p.kind is p.POSITIONAL_ONLY and name in values]
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and name not in values
    ]
    if missing:
        examples = " ".join(f"--arg {name}='bf16[128,512]'" for name in missing)
        raise click.UsageError(
            f"{shown} needs {', '.join(map(repr, missing))}; give each as --arg, for example: {examples}"
        )
    return signature.bind(*(values.pop(name) for name in positional_only), **values)
