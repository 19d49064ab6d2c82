"""Index tiles: integers that are an affine function of their position, and masks made by comparing them.

``nl.arange`` and ``nl.mgrid`` give them; additions, and multiplications by constants, keep them affine.  As indices of
a tensor they become an access pattern without ever being written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import index as as_index
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from isa.faults import ConstraintFault
from trn_sim.nki._support import located

__all__ = ["Box", "Index", "Mask", "arange", "boxes", "mgrid", "pieces"]

Ints = tuple[int, ...]
Box = tuple[tuple[int, int], ...]
"""(start, stop) for each dimension."""


def _broadcast(a: Ints, b: Ints) -> Ints:
    """The shape of two index tiles of equal rank together."""
    if any(x != y and 1 not in (x, y) for x, y in zip(a, b, strict=True)):
        raise located(
            ConstraintFault(f"index tiles of shapes {a} and {b}", limit="sizes that are equal, or 1 in one of them")
        )
    return tuple(max(x, y) for x, y in zip(a, b, strict=True))


class Index:
    """``const + sum(coefs[d] * position[d])`` over the positions of ``shape``.

    Attributes:
        shape: number of positions in each dimension.
        coefs: increment per position, by dimension.
        const: value at position (0, 0, ...).
        layout: shape and increments, which indices of one kind share.
    """

    __slots__ = ("coefs", "const", "layout", "shape")
    __array_ufunc__ = None  # numpy's numbers leave the arithmetic to this class

    def __init__(self, shape: Ints, coefs: Ints, const: int) -> None:
        self.shape = shape
        self.coefs = tuple(0 if size == 1 else coef for size, coef in zip(shape, coefs, strict=True))
        self.const = const
        self.layout = self.shape, self.coefs

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __getitem__(self, key: Any) -> Index:
        """``[:, None]`` and its like: every dimension is kept by ``:``, ``None`` makes a new one."""
        keys = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            keys[at : at + 1] = [slice(None)] * (self.ndim - sum(k is not None for k in keys) + 1)
        if any(k is not None and k != slice(None) for k in keys) or sum(k is not None for k in keys) > self.ndim:
            raise located(
                ConstraintFault(f"an index tile is indexed by {key!r}", limit="':' and None, as in [:, None]")
            )
        shape, coefs, at = [], [], 0
        for k in keys:
            shape.append(1 if k is None else self.shape[at])
            coefs.append(0 if k is None else self.coefs[at])
            at += k is not None
        return Index((*shape, *self.shape[at:]), (*coefs, *self.coefs[at:]), self.const)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise located(ConstraintFault("an index tile cannot be assigned to", limit="arithmetic with constants"))

    # --- arithmetic -------------------------------------------------------------------------------

    def _combine(self, other: Any, sign: int) -> Any:
        if isinstance(other, Index):
            a, b = _ranked(self, other)
            coefs = tuple(x + sign * y for x, y in zip(a.coefs, b.coefs, strict=True))
            return Index(_broadcast(a.shape, b.shape), coefs, a.const + sign * b.const)
        number = _integer(other)
        return NotImplemented if number is None else Index(self.shape, self.coefs, self.const + sign * number)

    def __add__(self, other: Any) -> Any:
        return self._combine(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._combine(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return (-self)._combine(other, 1)

    def __neg__(self) -> Index:
        return self * -1

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Index) and not any(other.coefs):
            grown = self + 0 * other
            return grown * other.const
        if isinstance(other, Index) and not any(self.coefs):
            return other * self
        number = _integer(other)
        if number is None:
            return self._not_affine("*", other) if isinstance(other, Index) else NotImplemented
        return Index(self.shape, tuple(c * number for c in self.coefs), self.const * number)

    __rmul__ = __mul__

    def _not_affine(self, operator: str, _: Any = None) -> NoReturn:
        raise located(
            ConstraintFault(
                f"an index tile with operator {operator}",
                limit="additions, and multiplications by constants: addresses are affine functions of positions",
                advice="split the dimension: one nl.arange or nl.mgrid axis for the quotient, one for the remainder",
            )
        )

    def __floordiv__(self, other: Any) -> Index:
        number = _integer(other)
        if not number or any(c % number for c in self.coefs) or self.const % number:
            self._not_affine("//")
        return Index(self.shape, tuple(c // number for c in self.coefs), self.const // number)

    def __mod__(self, other: Any) -> Index:
        number = _integer(other)
        if not number or any(c % number for c in self.coefs):
            self._not_affine("%")
        return Index(self.shape, (0,) * self.ndim, self.const % number)

    # --- comparisons ------------------------------------------------------------------------------

    def _compare(self, other: Any, operator: str) -> Any:
        if not isinstance(other, Index) and _integer(other) is None:
            return NotImplemented
        return Mask(((self - other, operator),))

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, "less")

    def __le__(self, other: Any) -> Any:
        return self._compare(other, "less_equal")

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, "greater")

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, "greater_equal")

    def __eq__(self, other: Any) -> Any:
        return self._compare(other, "equal")

    def __ne__(self, other: Any) -> Any:
        return self._compare(other, "not_equal")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> NoReturn:
        raise located(
            ConstraintFault(
                "the truth value of an index tile",
                limit="it has a value for each position (err_ambiguous_tensor_truth_value)",
            )
        )

    # --- reading ----------------------------------------------------------------------------------

    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value."""
        low = high = self.const
        for size, coef in zip(self.shape, self.coefs, strict=True):
            reach = coef * (size - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high

    def within(self, box: Box) -> Index:
        """The same function on a part of the positions; dimensions of size 1 stay."""
        const, shape = self.const, []
        for size, coef, (start, stop) in zip(self.shape, self.coefs, box, strict=True):
            const += coef * start
            shape.append(1 if size == 1 else stop - start)
        return Index(tuple(shape), self.coefs, const)

    def numpy(self) -> npt.NDArray[np.int64]:
        """All values."""
        values = np.full(self.shape, self.const, np.int64)
        for dim, (size, coef) in enumerate(zip(self.shape, self.coefs, strict=True)):
            if coef:
                values += (coef * np.arange(size)).reshape([-1 if d == dim else 1 for d in range(self.ndim)])
        return values

    def __repr__(self) -> str:
        terms = [f"{coef}*i{dim}" for dim, coef in enumerate(self.coefs) if coef]
        return f"<index tile {self.shape}: {' + '.join([*terms, str(self.const)])}>"


def _integer(value: Any) -> int | None:
    try:
        return as_index(value)
    except TypeError:
        return None


def _ranked(a: Index, b: Index) -> tuple[Index, Index]:
    """Two index tiles of equal rank: missing dimensions come first, as in numpy."""
    rank = max(a.ndim, b.ndim)
    return a[(None,) * (rank - a.ndim)] if a.ndim < rank else a, b[(None,) * (rank - b.ndim)] if b.ndim < rank else b


class Mask:
    """Positions at which every one of ``terms`` holds: (index tile, comparison with 0)."""

    __slots__ = ("terms",)

    def __init__(self, terms: tuple[tuple[Index, str], ...]) -> None:
        self.terms = terms

    def __and__(self, other: Any) -> Any:
        if isinstance(other, Mask):
            return Mask(self.terms + other.terms)
        if isinstance(other, (bool, np.bool_)):
            return self if other else False
        return NotImplemented

    __rand__ = __and__

    def __invert__(self) -> Mask:
        if len(self.terms) != 1:
            self._refuse("~ of several conditions")
        ((index, operator),) = self.terms
        return Mask(((index, _OPPOSITE[operator]),))

    def _refuse(self, what: str) -> NoReturn:
        raise located(
            ConstraintFault(
                f"{what} in a mask",
                limit="comparisons of affine expressions, joined by & (err_unsupported_expression_in_mask)",
            )
        )

    def __or__(self, other: Any) -> NoReturn:
        self._refuse("|")

    __ror__ = __or__

    def __bool__(self) -> NoReturn:
        raise located(
            ConstraintFault(
                "the truth value of a mask",
                limit="it has a value for each position (err_control_flow_condition_depending_on_arange)",
                advice="join masks by '&', not 'and'; pass them as mask=",
            )
        )

    @property
    def shape(self) -> Ints:
        """The positions it is about."""
        shape: Ints = ()
        for index, _ in self.terms:
            pad = len(index.shape) - len(shape)
            shape = _broadcast((1,) * max(pad, 0) + shape, (1,) * max(-pad, 0) + index.shape)
        return shape

    def __repr__(self) -> str:
        return " & ".join(f"({index!r} {operator} 0)" for index, operator in self.terms)


_OPPOSITE = {
    "less": "greater_equal",
    "less_equal": "greater",
    "greater": "less_equal",
    "greater_equal": "less",
    "equal": "not_equal",
    "not_equal": "equal",
}


def boxes(mask: Mask, shape: Ints) -> list[Box]:
    """Disjoint boxes that cover the positions of ``shape`` at which the mask holds.

    A mask of bounds on single dimensions is one box.  Any other is cut into runs of equal slices, from the last
    dimension to the first, so that boxes keep as many partitions as they can.

    Raises:
        ConstraintFault: the mask is about other positions.
    """
    rank = len(shape)
    bounds = [(0, size) for size in shape]
    crooked: list[tuple[Index, str]] = []
    for index, operator in mask.terms:
        index = index[(None,) * (rank - index.ndim)] if index.ndim < rank else index
        if index.ndim > rank or any(a not in (1, b) for a, b in zip(index.shape, shape, strict=True)):
            raise located(
                ConstraintFault(
                    f"a mask over positions {index.shape} for data of shape {shape}",
                    limit="the positions of the data, or 1 where the mask does not depend on a dimension",
                )
            )
        varying = [dim for dim, coef in enumerate(index.coefs) if coef]
        if not varying:
            if not _holds(np.array(index.const), operator):
                return []
            continue
        dim = varying[0]
        values = index.const + index.coefs[dim] * np.arange(index.shape[dim])
        held = np.flatnonzero(_holds(values, operator))
        if len(varying) > 1 or (len(held) and held[-1] - held[0] + 1 != len(held)):
            crooked.append((index, operator))
            continue
        if not len(held):
            return []
        bounds[dim] = max(bounds[dim][0], int(held[0])), min(bounds[dim][1], int(held[-1]) + 1)
    if any(start >= stop for start, stop in bounds):
        return []
    if not crooked:
        return [tuple(bounds)]
    whole = np.ones([stop - start for start, stop in bounds], np.bool_)
    for index, operator in crooked:
        part = tuple((0, 1) if size == 1 else bound for size, bound in zip(index.shape, bounds, strict=True))
        whole &= _holds(index.within(part).numpy(), operator)
    starts = [start for start, _ in bounds]
    return [tuple((start + a, start + b) for start, (a, b) in zip(starts, box, strict=True)) for box in pieces(whole)]


def _holds(values: Any, operator: str) -> Any:
    return getattr(np, operator)(values, 0)


def pieces(held: npt.NDArray[np.bool_]) -> Iterator[Box]:
    if held.all():
        yield tuple((0, size) for size in held.shape)
    elif held.ndim == 1:
        edges = np.flatnonzero(np.diff(held.astype(np.int8), prepend=0, append=0))
        yield from (((int(a), int(b)),) for a, b in zip(edges[::2], edges[1::2], strict=True))
    elif held.any():
        same = (held[..., 1:] == held[..., :-1]).reshape(-1, held.shape[-1] - 1).all(0)
        cuts = [0, *(np.flatnonzero(~same) + 1).tolist(), held.shape[-1]]
        for start, stop in pairwise(cuts):
            for box in pieces(held[..., start]):
                yield (*box, (start, stop))


def arange(*args: int) -> Index:
    """``nl.arange(stop)``, ``(start, stop)`` or ``(start, stop, step)``: a one-dimensional index tile; as an index it
    needs two dimensions and more, e.g. ``nl.arange(128)[:, None]``."""
    span = range(*(as_index(value) for value in args))
    if not len(span):
        raise located(ConstraintFault(f"nl.arange{args} is empty", limit="one position and more"))
    return Index((len(span),), (span.step,), span.start)


class _Grid(tuple[Index, ...]):
    """The axes of ``nl.mgrid``; ``p`` is the first, ``x``, ``y``, ``z`` and ``w`` are the following ones."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Index:
        at = "pxyzw".find(name) if len(name) == 1 else -1
        if not 0 <= at < len(self):
            raise AttributeError(f"nl.mgrid of {len(self)} axes has no axis '{name}'")
        return self[at]


class _MGrid:
    def __getitem__(self, key: slice | Sequence[slice]) -> _Grid:
        spans = [
            range(as_index(part.start or 0), as_index(part.stop), as_index(1 if part.step is None else part.step))
            for part in (key if isinstance(key, tuple) else (key,))
        ]
        shape = tuple(len(span) for span in spans)
        if 0 in shape:
            raise located(ConstraintFault(f"nl.mgrid of shape {shape} is empty", limit="one position and more"))
        return _Grid(
            Index(shape, tuple(span.step if d == dim else 0 for d in range(len(spans))), span.start)
            for dim, span in enumerate(spans)
        )


mgrid = _MGrid()
"""``nl.mgrid[0:128, 0:512]``: one index tile per axis, each of the whole shape."""
