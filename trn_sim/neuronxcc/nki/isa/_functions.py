"""``nki.isa`` functions of the older namespace, made from those of the present one.

Where the present function has ``dst``, the older one returns the result; ``mask`` and ``dtype`` come in addition.  What
is left to say here is the shape and the dtype of each result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from math import prod
from typing import Any

from isa import dtypes
from isa.catalogue import INSTRUCTIONS
from isa.faults import ConstraintFault
from isa.instruction import Instruction
from trn_sim.neuronxcc.nki._issue import Operands, compute, write
from trn_sim.neuronxcc.nki._tile import Tile
from trn_sim.nki import isa as nisa
from trn_sim.nki._support import located
from trn_sim.nki.language.elementwise import promote
from trn_sim.nki.tensor import dtype_of

__all__ = ["given", "into_destination", "returning", "tile_of"]

Ints = tuple[int, ...]
_classes: dict[str, type[Instruction]] = {cls.mnemonic: cls for cls in INSTRUCTIONS.values()}


def tile_of(value: Any, function: str, operand: str) -> Tile:
    """``value``, which has to be a tile."""
    if isinstance(value, Tile):
        return value
    raise located(
        ConstraintFault(
            f"takes a tile, not {type(value).__name__}",
            instruction=function,
            operand=operand,
            advice="arrays of the host are arguments of the kernel; load them with nl.load",
        )
    )


def given(function: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operands:
    """Arguments by name.

    Raises:
        TypeError: as Python raises it for a function of this signature.
    """
    names = signature.parameters
    places = [name for name, parameter in names.items() if parameter.kind is not inspect.Parameter.KEYWORD_ONLY]
    if len(args) > len(places):
        raise TypeError(f"{function}() takes {len(places)} positional arguments but {len(args)} were given")
    bound = dict(zip(places, args, strict=False))
    for name, value in kwargs.items():
        if name in bound:
            raise TypeError(f"{function}() got multiple values for argument '{name}'")
        if name not in names:
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'")
        bound[name] = value
    return bound


def _signature(cls: type[Instruction], first: tuple[str, ...], added: tuple[str, ...]) -> inspect.Signature:
    """The parameters ``first``, those of the present function without ``dst``, and ``added`` by keyword."""
    present = dict(inspect.signature(getattr(nisa, cls.mnemonic)).parameters)
    kept = [present.pop(name) for name in first]
    present.pop("dst", None)
    present.pop("name")
    extra = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in (*added, "name")]
    return inspect.Signature([*kept, *present.values(), *extra])


def returning(
    mnemonic: str,
    shape: Callable[[Operands], Ints] | None = None,
    dtype: Any = None,
    hints: tuple[str, ...] = (),
) -> Callable[..., Tile]:
    """The function of one instruction that returns its result in SBUF.

    Args:
        mnemonic: name of the present function.
        shape: of the result, from the operands; None where the operands have the shape of the result.
        dtype: of the result where the caller gives none; None for that of the data.
        hints: parameters of the older function that have no effect.
    """
    cls = _classes[mnemonic]
    issue = getattr(nisa, mnemonic)
    signature = _signature(cls, (), ("mask", "dtype", *hints))
    specs = dict(cls.operands)
    names = signature.parameters
    full = [name for name in names if name in specs and not specs[name].vector and not specs[name].optional]
    required = [n for n in names if signature.parameters[n].default is inspect.Parameter.empty]

    def function(*args: Any, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tile:
        bound = given(mnemonic, signature, args, kwargs)
        for name in required:
            if name not in bound:
                raise TypeError(f"{mnemonic}() missing 1 required argument: '{name}'")
        operands = {name: value for name, value in bound.items() if name in specs}
        fixed = {name: value for name, value in bound.items() if name not in specs and name not in hints}
        data = [tile_of(operands[name], mnemonic, name) for name in full if not _is_scalar(operands[name])]
        for value in data:
            value.settle()
        wanted = _result_dtype(data) if dtype is None else dtype_of(dtype)
        if default is not None and dtype is None:
            wanted = default
        if shape is not None:
            return compute(issue, shape(bound), wanted, operands, fixed, mask, domain=data[0].shape)
        size = tuple(max(sizes) for sizes in zip(*(v.shape for v in data if v.ndim == data[0].ndim), strict=True))
        for name in full:
            if isinstance(operands[name], Tile):
                operands[name] = _grown(operands[name], size)
        return compute(issue, size, wanted, operands, fixed, mask)

    default = dtype
    return _finished(function, mnemonic, signature, cls)


def _is_scalar(value: Any) -> bool:
    return not hasattr(value, "shape") or not value.shape


def _result_dtype(data: list[Tile]) -> Any:
    result = data[0].dtype
    for value in data[1:]:
        result = promote(result, value.dtype)
    return result


def _grown(value: Tile, shape: Ints) -> Tile:
    """``value`` with free dimensions of size 1 repeated up to ``shape``."""
    if value.shape == shape or value.ndim != len(shape):
        return value
    for dim in range(1, value.ndim):
        if value.shape[dim] == 1 and shape[dim] != 1:
            value = value.broadcast(dim, shape[dim])
    return value


def into_destination(mnemonic: str, *first: str) -> Callable[..., None]:
    """The function of one instruction that writes into a tile the caller gives; with ``mask``, and with the parameters
    ``first`` in front."""
    cls = _classes[mnemonic]
    issue = getattr(nisa, mnemonic)
    signature = _signature(cls, first, ("mask", "dtype"))
    specs = dict(cls.operands)

    def function(*args: Any, mask: Any = None, dtype: Any = None, **kwargs: Any) -> None:  # noqa: ARG001
        bound = given(mnemonic, signature, args, kwargs)
        dst = tile_of(bound.pop("dst", None), mnemonic, "dst")
        operands = {name: _as_bytes(value) for name, value in bound.items() if name in specs}
        fixed = {name: value for name, value in bound.items() if name not in specs}
        write(issue, dst, operands, fixed, mask)

    return _finished(function, mnemonic, signature, cls)


def _as_bytes(value: Any) -> Any:
    """Predicates of dtype bool are bytes to the instruction."""
    return value.view(dtypes.uint8) if isinstance(value, Tile) and value.dtype == dtypes.bool_ else value


def _finished(function: Callable[..., Any], mnemonic: str, signature: inspect.Signature, cls: Any) -> Any:
    function.__name__ = function.__qualname__ = mnemonic
    function.__module__ = "trn_sim.neuronxcc.nki.isa"
    function.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\nAs in NKI 0.1: with mask= and dtype=."
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def columns(count: int, operand: str = "data") -> Callable[[Operands], Ints]:
    """Shape (partitions of ``operand``, ``count``)."""
    return lambda bound: (bound[operand].shape[0], count)


def gathered(bound: Operands) -> Ints:
    """Shape of ``local_gather``: the indices of 16 partitions, elements per index."""
    elements = bound.get("num_elem_per_idx", 1)
    index = bound["index"]
    each = 16 * prod(index.shape[1:])
    valid = bound.get("num_valid_indices") or each
    inner = (elements,) if elements > 1 else ()
    if valid == each:
        return (bound["src_buffer"].shape[0], *index.shape[1:], 16, *inner)
    return (bound["src_buffer"].shape[0], valid, *inner)


UINT32 = dtypes.uint32
