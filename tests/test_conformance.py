"""Every documented name works and has a test, and the page that says so is up to date."""

import textwrap
from pathlib import Path

import pytest

from trn_sim import conformance
from trn_sim._coverage import covering_tests
from trn_sim.conformance import NAMESPACES, Status, conformance_page, documented_names, examine

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
CHECKED = ("new", "old")
"""Namespaces of which every name has to be there and tested."""

ENTRIES = examine(TESTS)
HELD = [entry for entry in ENTRIES if entry.name.namespace in CHECKED]
GAPS = conformance._catalogue()["gaps"]


def test_page_is_up_to_date():
    committed = (ROOT / "docs" / "conformance.md").read_text()
    assert committed == conformance_page(TESTS), "run: python -m trn_sim.conformance"


@pytest.mark.parametrize("entry", HELD, ids=lambda entry: entry.name.full)
def test_name_works_and_is_tested(entry):
    if entry.name.full in GAPS:
        assert entry.status is Status.UNBUILT, "it is built: take it off the list of gaps in trn_sim/_names.toml"
        return
    assert entry.status is Status.WORKS, entry.note or f"{entry.name.full} is {entry.status.value}"
    assert entry.test, f"no test uses {entry.name.full}"
    path, _, test = entry.test.partition("::")
    assert f"def {test.rpartition('::')[2]}(" in (ROOT / path).read_text()


def test_gaps_are_documented_names():
    assert set(GAPS) <= {name.full for name in documented_names()}


def test_names_are_listed_once():
    names = [(name.namespace, name.full) for name in documented_names()]
    assert len(names) == len(set(names))
    assert {namespace for namespace, _ in names} == set(NAMESPACES)


def test_generations_and_limits_are_of_documented_names():
    known = {name.full for name in documented_names()}
    for table in ("generations", "limits"):
        assert set(conformance._catalogue()[table]) <= known, table


def test_public_names_of_nki_are_documented():
    """Nothing is public in the modules of NKI that no document of AWS names."""
    import trn_sim.nki.collectives
    import trn_sim.nki.isa
    import trn_sim.nki.language

    documented = {name.full for name in documented_names("new")}
    for module in (trn_sim.nki.isa, trn_sim.nki.language, trn_sim.nki.collectives):
        short = module.__name__.removeprefix("trn_sim.")
        assert {f"{short}.{name}" for name in module.__all__} <= documented


# --- parameters -------------------------------------------------------------------------------------


def function(a, b=1, *, c=None, **more):
    return a, b, c, more


@pytest.mark.parametrize(
    ("documented", "difference"),
    [
        ("a", ""),
        ("a, b=1, c=None", ""),
        ("a, c=, b=1", ""),
        ("a, b=", ""),
        ("a, b", ""),
        ("a, b=..., c=None", ""),
        ("a=", "a has no default"),
        ("a, b=2", "b=1 where 2 is documented"),
        ("a, x", "b where x is documented"),
        ("a, b=1, c=None, d=", "d is missing"),
    ],
)
def test_differences_of_parameters(documented, difference):
    assert conformance._difference(documented, function) == difference


# --- finding tests ----------------------------------------------------------------------------------


def covered(tmp_path, source, documented):
    (tmp_path / "nki").mkdir(exist_ok=True)
    (tmp_path / "nki" / "test_it.py").write_text(textwrap.dedent(source))
    found = covering_tests(tmp_path, documented, {"isa.vector.Add": "nki.isa.add"})
    return {name: test.partition("::")[2] for name, test in found.items()}


def test_attributes_helpers_and_fixtures(tmp_path):
    source = """
        import nki.isa as nisa
        import nki.language as nl
        from nki.language import exp as e
        from isa.vector import Add

        def helper():
            nisa.copy(engine=nisa.engine.vector)

        def fixture():
            return nl.load

        def test_one():
            helper()

        def test_two(fixture):
            e(nl.other)
            Add()

        def not_a_test():
            nl.unused
        """
    names = ["nki.isa.copy", "nki.isa.engine", "nki.isa.engine.vector", "nki.language.load", "nki.language.exp",
             "nki.isa.add", "nki.language.unused"]  # fmt: skip
    assert covered(tmp_path, source, names) == {
        "nki.isa.copy": "test_one",
        "nki.isa.engine": "test_one",
        "nki.isa.engine.vector": "test_one",
        "nki.language.load": "test_two",
        "nki.language.exp": "test_two",
        "nki.isa.add": "test_two",
    }


def test_names_taken_by_getattr(tmp_path):
    source = """
        import nki.language as nl

        TABLE = {"add": 1, "subtract": 2}

        def test_table():
            for name in TABLE:
                getattr(nl, name)

        def test_without():
            assert "multiply"
        """
    documented = ["nki.language.add", "nki.language.subtract", "nki.language.multiply"]
    assert covered(tmp_path, source, documented) == dict.fromkeys(documented[:2], "test_table")


def test_members_belong_to_the_namespace_of_the_file(tmp_path):
    source = """
        import neuronxcc.nki as nki

        def test_member(x):
            x.reshape((1, 2))
            x[0] = 1
        """
    documented = [
        "nki.language.NkiTensor.reshape",
        "neuronxcc.nki.tensor.reshape",
        "nki.language.NkiTensor.__setitem__",
    ]
    assert covered(tmp_path, source, documented) == {"neuronxcc.nki.tensor.reshape": "test_member"}


def test_a_test_named_after_the_name_is_shown(tmp_path):
    source = """
        import nki.language as nl

        def test_a():
            nl.exp

        def test_exp():
            nl.exp
        """
    assert covered(tmp_path, source, ["nki.language.exp"]) == {"nki.language.exp": "test_exp"}
