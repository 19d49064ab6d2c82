"""Rates: every number has a unit, a source and a confidence, and the three generations have the same numbers."""

import pytest

from isa.target import TRN2
from perf_model.rates import CONFIDENCES, RatesError, load_rates, parse_rates

ENTRY = 'clock_ghz = { value = 2.4, unit = "GHz", source = "a guide", confidence = "documented", band = 0 }'
GENERATIONS = ("trn1", "trn2", "trn3")


def parsed(entry):
    return parse_rates(f"[tensor]\n{entry}\n", TRN2)


@pytest.mark.parametrize("target", GENERATIONS)
def test_every_shipped_rate_is_complete(target):
    rates = load_rates(target)
    assert rates.target.name == target
    for rate in rates.values():
        assert rate.source
        assert rate.unit
        assert rate.confidence in CONFIDENCES


def test_generations_have_the_same_rates_in_the_same_units():
    first, *others = (load_rates(target) for target in GENERATIONS)
    for other in others:
        assert {name: rate.unit for name, rate in first.items()} == {name: rate.unit for name, rate in other.items()}


def test_trn3_engine_overheads_are_never_called_measured():
    assert not [name for name, rate in load_rates("trn3").items() if rate.confidence == "measured"]


def test_a_complete_entry_is_read():
    rate = parsed(ENTRY)["tensor.clock_ghz"]
    assert (rate.value, rate.unit, rate.confidence, rate.guessed) == (2.4, "GHz", "documented", False)


@pytest.mark.parametrize("key", ["value", "unit", "source", "confidence", "band"])
def test_an_entry_without_one_of_its_keys_is_refused(key):
    pieces = [piece for piece in ENTRY[len("clock_ghz = { ") : -2].split(", ") if not piece.startswith(key)]
    with pytest.raises(RatesError, match=f"tensor.clock_ghz lacks {key}"):
        parsed("clock_ghz = { " + ", ".join(pieces) + " }")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"a guide"', '" "', "source"),
        ('"documented"', '"certain"', "confidence is 'certain'"),
        ("2.4", "-1", "not negative"),
        ("2.4", "0", "only times may be 0"),
        ("2.4", "nan", "finite"),
        ("2.4", '"fast"', "not a number"),
        ("band = 0", "band = 1.5", "relative, 0 to 1"),
        ('confidence = "documented", band = 0', 'confidence = "guessed", band = 0.1', "guesses have at least"),
        ("band = 0", "band = 0, note = 1", "unknown keys note"),
    ],
)
def test_an_entry_that_cannot_be_used_is_refused(old, new, message):
    with pytest.raises(RatesError, match=message):
        parsed(ENTRY.replace(old, new))


@pytest.mark.parametrize("text", ["tensor = 1", "[tensor]\nclock_ghz = 2.4", "[tensor"])
def test_text_that_is_not_a_rates_file_is_refused(text):
    with pytest.raises(RatesError):
        parse_rates(text, TRN2)


def test_an_unknown_rate_names_its_neighbours():
    with pytest.raises(RatesError, match=r"no rate 'tensor\.clock'.*tensor\.clock_ghz"):
        load_rates("trn2")["tensor.clock"]


@pytest.mark.parametrize(("asked", "value"), [("x2", 54.4), ("x0.5", 13.6), (30, 30.0), ("30", 30.0)])
def test_override(asked, value):
    rates = load_rates("trn2")
    changed = rates.override("dma.engine_gb_s", asked)
    assert changed.value("dma.engine_gb_s") == pytest.approx(value)
    assert rates.value("dma.engine_gb_s") == 27.2
    assert "override of 27.2" in changed["dma.engine_gb_s"].source


@pytest.mark.parametrize(("name", "value"), [("dma.engine", 1), ("dma.engine_gb_s", "xfast"), ("dma.engine_gb_s", 0),
                                             ("dma.engine_gb_s", -1)])  # fmt: skip
def test_an_override_that_cannot_be_used_is_refused(name, value):
    with pytest.raises(RatesError):
        load_rates("trn2").override(name, value)
