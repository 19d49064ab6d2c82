"""``trn-sim doctor``: healthy here; each thing that can be wrong is found."""

import json
import sys
import types

import pytest

from trn_sim import doctor


def finding(diagnosis, check):
    (found,) = [item for item in diagnosis.findings if item.check == check]
    return found


def test_this_installation(cli, monkeypatch):
    monkeypatch.setattr(doctor.importlib.metadata, "version", lambda name: f"1.0 of {name}")
    result = cli("doctor", "--json")
    report = json.loads(result.out)
    assert result.code == 0
    assert report["healthy"] is True
    assert {item["check"] for item in report["findings"]} >= {
        "python",
        "trn-sim",
        "numba",
        "package isa",
        "numba cache",
        "nki",
        "torch",
        "target trn1",
        "default target",
    }
    text = cli("doctor")
    assert text.code == 0
    assert "NeuronCore-v3" in text.out
    assert "WRONG" not in text.out


def test_advice_is_printed_as_it_is(monkeypatch):
    def version(name):
        raise doctor.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.importlib.metadata, "version", version)
    text = doctor.diagnose().text()
    assert "pip install 'trn-sim[torch]'" in text
    assert "WRONG  trn-sim " in text


def test_a_package_in_front_of_ours(tmp_path, monkeypatch):
    assert finding(doctor.diagnose(), "package isa").status == "ok"
    (tmp_path / "isa").mkdir()
    (tmp_path / "isa" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "isa")
    found = finding(doctor.diagnose(), "package isa")
    assert found.status == "wrong"
    assert str(tmp_path) in found.detail


def test_wrong_default_target(cli, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn9")
    result = cli("doctor")
    assert result.code == 1
    assert "unknown target 'trn9'" in result.out


def test_missing_dependency(monkeypatch):
    def version(name):
        if name == "simpy":
            raise doctor.importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(doctor.importlib.metadata, "version", version)
    found = finding(doctor.diagnose(), "simpy")
    assert (found.status, found.advice) == ("wrong", "pip install simpy")
    assert finding(doctor.diagnose(), "numpy").status == "ok"


@pytest.mark.parametrize(("real", "words"), [(False, "placeholder"), (True, "AWS's own package")])
def test_another_nki(tmp_path, monkeypatch, real, words):
    package = tmp_path / "nki"
    package.mkdir()
    (package / "__init__.py").write_text("")
    if real:
        (package / "language.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = finding(doctor.diagnose(), "nki")
    assert found.status == "note"
    assert words in found.detail


def test_a_check_that_fails_is_a_finding(monkeypatch):
    def check_moon():
        raise OSError("no moon")

    check_moon.__name__ = "_check_moon"
    monkeypatch.setattr(doctor, "_CHECKS", (check_moon,))
    diagnosis = doctor.diagnose()
    assert finding(diagnosis, "moon").detail == "OSError: no moon"
    assert not diagnosis.healthy


def test_numba_cache_that_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "new" / "cache"))
    assert finding(doctor.diagnose(), "numba cache").status == "ok"
    monkeypatch.setattr(doctor, "os", types.SimpleNamespace(access=lambda *_: False, W_OK=2, environ=doctor.os.environ))
    assert finding(doctor.diagnose(), "numba cache").status == "note"
