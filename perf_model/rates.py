"""Rates: every number the timing model uses, with its unit, its source, how far it can be trusted, and its band.

One file per generation, ``rates/trn1.toml`` to ``rates/trn3.toml``; an entry is called ``section.name`` and looks like

    clock_ghz = { value = 2.4, unit = "GHz", source = "...", confidence = "documented", band = 0 }

``confidence`` is documented (by AWS), measured (read out of public measurements), derived (arithmetic on those two) or
guessed.  ``band`` is the relative half-width of the interval the value is believed to lie in.  ``conflict`` (optional)
says what other sources state.  Sizes and limits are in :mod:`isa.target`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from isa.target import Target, resolve_target

__all__ = ["CONFIDENCES", "Rate", "Rates", "RatesError", "load_rates", "parse_rates"]

CONFIDENCES = ("documented", "measured", "derived", "guessed")
_REQUIRED = {"value", "unit", "source", "confidence", "band"}
_OPTIONAL = {"conflict"}


class RatesError(ValueError):
    """A rates file, or an override, that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """One number of the model.

    Attributes:
        name: ``section.name``.
        value: in ``unit``.
        unit: e.g. ``ns``, ``cycles``, ``GB/s``, ``ratio``.
        source: document or measurement, and the formula where the value is derived.
        confidence: one of :data:`CONFIDENCES`.
        band: relative half-width, 0.1 for plus or minus 10 %.
        conflict: what other sources say, or empty.
    """

    name: str
    value: float
    unit: str
    source: str
    confidence: str
    band: float
    conflict: str = ""

    @property
    def guessed(self) -> bool:
        """Nothing published supports the value."""
        return self.confidence == "guessed"


class Rates(Mapping[str, Rate]):
    """The rates of one generation; immutable."""

    def __init__(self, target: Target, rates: Mapping[str, Rate]) -> None:
        self.target = target
        self._rates = dict(rates)

    def __getitem__(self, name: str) -> Rate:
        try:
            return self._rates[name]
        except KeyError:
            section = name.partition(".")[0]
            near = [known for known in self._rates if known.startswith(f"{section}.")] or list(self._rates)
            raise RatesError(f"no rate {name!r} for {self.target.name}; there are {', '.join(near)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._rates)

    def __len__(self) -> int:
        return len(self._rates)

    def __contains__(self, name: object) -> bool:
        return name in self._rates

    def value(self, name: str) -> float:
        """The number alone, in the rate's unit."""
        return self[name].value

    def override(self, name: str, value: float | str) -> Rates:
        """The same rates with one replaced, for what-if questions.

        Args:
            name: ``section.name``.
            value: the new value in the rate's unit, or a text like ``"x2"`` or ``"x0.5"`` that scales the old one.

        Raises:
            RatesError: no such rate, or not a positive factor or a finite number.
        """
        rate = self[name]
        try:
            factor = isinstance(value, str) and value.startswith("x")
            number = rate.value * float(str(value)[1:]) if factor else float(value)
        except ValueError:
            raise RatesError(f"{name}: {value!r} is neither a number in {rate.unit} nor a factor like 'x2'") from None
        _check_value(name, number, rate.unit)
        source = f"override of {rate.value:g} {rate.unit} ({rate.source})"
        changed = replace(rate, value=number, source=source)
        return Rates(self.target, self._rates | {name: changed})


def _check_value(name: str, value: float, unit: str) -> None:
    if not math.isfinite(value) or value < 0:
        raise RatesError(f"{name} is {value:g} {unit}; rates are finite and not negative")
    if value == 0 and unit not in ("ns", "cycles", "mode"):
        raise RatesError(f"{name} is 0 {unit}; only times may be 0")


def _parse_entry(name: str, entry: object) -> Rate:
    if not isinstance(entry, dict):
        raise RatesError(f"{name} is {entry!r}; a rate is a table with {', '.join(sorted(_REQUIRED))}")
    missing = _REQUIRED - entry.keys()
    if missing:
        raise RatesError(f"{name} lacks {', '.join(sorted(missing))}; no number without them")
    unknown = entry.keys() - _REQUIRED - _OPTIONAL
    if unknown:
        raise RatesError(f"{name} has unknown keys {', '.join(sorted(unknown))}")
    for key in ("unit", "source", "confidence"):
        if not isinstance(entry[key], str) or not entry[key].strip():
            raise RatesError(f"{name}: {key} is {entry[key]!r}, which says nothing")
    if entry["confidence"] not in CONFIDENCES:
        raise RatesError(f"{name}: confidence is {entry['confidence']!r}; use one of {', '.join(CONFIDENCES)}")
    for key in ("value", "band"):
        if isinstance(entry[key], bool) or not isinstance(entry[key], int | float):
            raise RatesError(f"{name}: {key} is {entry[key]!r}, not a number")
    _check_value(name, float(entry["value"]), entry["unit"])
    if not 0 <= entry["band"] <= 1:
        raise RatesError(f"{name}: band is {entry['band']}; it is relative, 0 to 1")
    if entry["confidence"] == "guessed" and entry["band"] < 0.25:
        raise RatesError(f"{name} is guessed with a band of {entry['band']}; guesses have at least 0.25")
    return Rate(
        name=name,
        value=float(entry["value"]),
        unit=entry["unit"],
        source=entry["source"],
        confidence=entry["confidence"],
        band=float(entry["band"]),
        conflict=entry.get("conflict", ""),
    )


def parse_rates(text: str, target: Target) -> Rates:
    """Read rates from TOML text.

    Raises:
        RatesError: an entry lacks value, unit, source, confidence or band, or one of them cannot be used.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RatesError(f"rates of {target.name}: {error}") from error
    rates: dict[str, Rate] = {}
    for section, entries in document.items():
        if not isinstance(entries, dict):
            raise RatesError(f"{section} is {entries!r}; rates stand in sections")
        for key, entry in entries.items():
            name = f"{section}.{key}"
            rates[name] = _parse_entry(name, entry)
    return Rates(target, rates)


@cache
def _load(target: Target) -> Rates:
    file = files("perf_model") / "rates" / f"{target.name}.toml"
    return parse_rates(file.read_text(encoding="utf-8"), target)


def load_rates(target: str | Target | None = None) -> Rates:
    """The rates of a generation; ``target`` as in :func:`isa.target.resolve_target`."""
    return _load(resolve_target(target))
