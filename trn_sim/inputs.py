"""Kernel inputs from text, as the command line takes them: ``name=value``.

    a=bf16[2048,2048]           generated: standard normal for floats, 0..127 for integers, 0/1 for bool
    a=ones:f32[128,512]         zeros, ones, range (0, 1, 2... row-major)
    a=rand:f32[128,512]         uniform in [0, 1)
    a=rand(0,1000):i32[256,1]   uniform in [low, high); integers take whole numbers
    a=randn(0,0.02):bf16[64,64] normal with mean and standard deviation
    a=@weights.npy              a stored array; @file.npz:key for one of several
    a=bf16@weights.npy          stored bits read as a dtype that numpy cannot name
    n=3  scale=0.125  flag=True  shape=(2,4)  mode='causal'   a Python literal

Generated values depend on the seed, the name and the text alone: adding an argument changes no other one.
"""

from __future__ import annotations

import ast
import re
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isa import dtypes
from isa.dtypes import DType

__all__ = ["InputError", "parse_argument", "parse_arguments"]

Array = npt.NDArray[Any]

_SHORT = {
    "bf16": "bfloat16",
    "f16": "float16",
    "fp16": "float16",
    "f32": "float32",
    "fp32": "float32",
    "f8e4m3": "float8_e4m3",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e3m4": "float8_e3m4",
    "fp8": "float8_e4m3",
    **{f"{letter}{bits}": f"{word}{bits}" for letter, word in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32)},
}
_INTEGERS = (0, 128)  # of generated integers where no range is given: fits every integer dtype

_GENERATED = re.compile(
    r"(?:(?P<generator>[a-z]+)(?:\((?P<parameters>[^)]*)\))?:)?(?P<dtype>[a-z][a-z0-9_]*)\[(?P<shape>[^\]]*)\]"
)
_STORED = re.compile(r"(?P<dtype>[a-z][a-z0-9_]*)?@(?P<path>.+)", re.DOTALL)


class InputError(ValueError):
    """An argument that cannot be understood, with the forms that can."""


def parse_arguments(texts: Iterable[str], *, seed: int = 0) -> dict[str, Any]:
    """Values by name from ``name=value`` texts (see the module's list of forms).

    Raises:
        InputError: a text is malformed, names a dtype that the chip has not, or a name comes twice.
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise InputError(f"argument {text!r} is not of the form name=value, as in a=bf16[2048,2048]")
        if name in values:
            raise InputError(f"argument {name!r} is given twice")
        values[name] = parse_argument(value.strip(), name=name, seed=seed)
    return values


def parse_argument(text: str, *, name: str = "argument", seed: int = 0) -> Any:
    """The value that ``text`` describes: an array or a Python literal.

    Raises:
        InputError: nothing that can be understood.
    """
    if stored := _STORED.fullmatch(text):
        return _stored(stored["path"], stored["dtype"], name)
    if described := _GENERATED.fullmatch(text):
        random = np.random.default_rng([seed, zlib.crc32(f"{name}={text}".encode())])
        return _generated(described, name, random)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise InputError(
            f"argument {name!r}: cannot read {text!r}; give dtype[shape] (bf16[2048,2048], rand(0,9):i32[128]), "
            "@file.npy, or a Python literal (3, 0.5, True, 'text')"
        ) from None


def _dtype(text: str, name: str) -> DType:
    try:
        found = dtypes.dtype(_SHORT.get(text, text))
    except TypeError:
        found = None
    # tfloat32 and the packed dtypes share their numpy dtype with another one: an array cannot carry them
    if found is None or dtypes.dtype(found.numpy) != found:
        known = ", ".join(sorted(_SHORT))
        raise InputError(f"argument {name!r}: no array of dtype {text!r}; known: {known}, or the full names")
    return found


def _numbers(text: str, what: str, name: str) -> tuple[Any, ...]:
    try:
        value = ast.literal_eval(f"({text},)" if text.strip() else "()")
        if all(isinstance(number, int | float) for number in value):
            return tuple(value)
    except (ValueError, SyntaxError):
        pass
    raise InputError(f"argument {name!r}: {what} is a list of numbers, not {text!r}")


def _generated(described: re.Match[str], name: str, random: np.random.Generator) -> Array:
    dtype = _dtype(described["dtype"], name)
    shape = _numbers(described["shape"], "the shape", name)
    if not all(isinstance(size, int) and size > 0 for size in shape):
        raise InputError(f"argument {name!r}: the sizes of a shape are positive whole numbers, not {shape}")
    default = "randn" if dtype.is_float else "rand"
    generator = _GENERATORS.get(described["generator"] or default)
    if generator is None:
        known = ", ".join(_GENERATORS)
        raise InputError(f"argument {name!r}: no generator {described['generator']!r}; known: {known}")
    parameters = _numbers(described["parameters"] or "", "what stands in parentheses", name)
    if parameters and generator not in (_rand, _randn):
        raise InputError(f"argument {name!r}: {described['generator']} takes nothing in parentheses")
    try:
        values = generator(random, shape, dtype, *parameters)
    except ValueError as error:
        raise InputError(f"argument {name!r}: {described[0]!r}: {error}") from None
    return values.astype(dtype.numpy)


def _rand(random: np.random.Generator, shape: tuple[int, ...], dtype: DType, *limits: float) -> Array:
    """Uniform values in [low, high)."""
    if limits and len(limits) != 2:
        raise ValueError("rand takes (low, high)")
    if dtype.is_float:
        low, high = limits or (0.0, 1.0)
        return random.random(shape, dtype=np.float32) * np.float32(high - low) + np.float32(low)
    low, high = limits or ((0, 2) if dtype.kind == "b" else _INTEGERS)
    return random.integers(int(low), int(high), shape)


def _randn(random: np.random.Generator, shape: tuple[int, ...], dtype: DType, *moments: float) -> Array:
    """Normal values with mean and standard deviation."""
    if moments and len(moments) != 2:
        raise ValueError("randn takes (mean, standard deviation)")
    if not dtype.is_float:
        raise ValueError(f"normal values are floats, not {dtype}; use rand(low,high)")
    mean, deviation = moments or (0.0, 1.0)
    return random.standard_normal(shape, dtype=np.float32) * np.float32(deviation) + np.float32(mean)


def _range(random: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:  # noqa: ARG001
    """0, 1, 2... in row-major order, as far as the dtype counts exactly."""
    return np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)


_GENERATORS: dict[str, Callable[..., Array]] = {
    "rand": _rand,
    "randn": _randn,
    "range": _range,
    "zeros": lambda _random, shape, _dtype: np.zeros(shape),
    "ones": lambda _random, shape, _dtype: np.ones(shape),
}


def _stored(text: str, dtype: str | None, name: str) -> Array:
    archive, _, key = text.partition(".npz:")
    path = Path(f"{archive}.npz" if key else text)
    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"argument {name!r}: cannot read {path}: {error}") from None
    if isinstance(loaded, np.lib.npyio.NpzFile):
        with loaded:
            if key not in loaded.files:
                raise InputError(f"argument {name!r}: {path} holds {', '.join(loaded.files)}; write @{path}:name")
            array: Array = loaded[key]
    else:
        array = loaded
    if dtype is not None:
        meant = _dtype(dtype, name)
        if array.dtype.itemsize != meant.itemsize:
            raise InputError(
                f"argument {name!r}: {path} holds elements of {array.dtype.itemsize} bytes ({array.dtype}), "
                f"{meant} has {meant.itemsize}"
            )
        return array.view(meant.numpy)
    if array.dtype.kind == "V":  # numpy stores bfloat16 and fp8 as bytes without a name
        raise InputError(
            f"argument {name!r}: {path} holds unnamed elements of {array.dtype.itemsize} bytes; "
            f"say which dtype they are: {name}=bf16@{path}"
        )
    return array
