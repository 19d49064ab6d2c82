"""``import nki``: the same objects under both names, and who wins where another ``nki`` is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def python(code, *paths, cwd=ROOT):
    """Run code in a fresh interpreter with ``paths`` in front of everything installed; returns its output."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def placeholder(tmp_path):
    """What AWS has on PyPI under that name: an empty package that raises."""
    package = tmp_path / "nki"
    package.mkdir()
    (package / "__init__.py").write_text('raise ImportError("wrong package, see the installation guide")\n')
    return tmp_path


@pytest.fixture
def real(tmp_path):
    """A stand-in of AWS's wheel."""
    package = tmp_path / "nki"
    (package / "language").mkdir(parents=True)
    (package / "__init__.py").write_text("REAL = True\ndef jit(f): return f\n")
    (package / "language" / "__init__.py").write_text("REAL = True\n")
    return tmp_path


def test_the_same_modules_under_both_names():
    names = ["", ".language", ".isa", ".isa.constants", ".typing", ".dtype", ".compiler"]
    code = f"""
import trn_sim; trn_sim.activate()
import importlib
for name in {names!r}:
    a, b = importlib.import_module("nki" + name), importlib.import_module("trn_sim.nki" + name)
    assert a is b, name
    assert a.__name__ == "trn_sim.nki" + name and a.__spec__.name == a.__name__, a.__spec__
import nki.language as nl, trn_sim.nki.language as ours
assert nl is ours
from nki.isa import constants, dma_engine, oob_mode
from nki.isa.constants import dge_mode
import nki
print(nki.isa.dge_mode is dge_mode, nki.__version__)
"""
    assert python(code) == "True 0.6.0"


def test_the_other_order_of_imports():
    code = """
import trn_sim.nki.isa
import trn_sim; trn_sim.activate()
import nki.isa
print(nki.isa is trn_sim.nki.isa)
"""
    assert python(code) == "True"


def test_not_there_without_activation_nor_after_deactivation():
    code = """
import importlib.util, sys
import trn_sim
assert importlib.util.find_spec("nki") is None
trn_sim.activate(); trn_sim.activate()
assert sum(type(f).__name__ == "NkiFinder" for f in sys.meta_path) == 1
import nki.language
trn_sim.deactivate()
assert not [name for name in sys.modules if name.split(".")[0] == "nki"]
assert "trn_sim.nki.language" in sys.modules
try:
    import nki
except ModuleNotFoundError:
    print("gone")
trn_sim.deactivate()
"""
    assert python(code) == "gone"


def test_yields_to_a_real_nki(real):
    code = """
import trn_sim; trn_sim.activate()
import nki, nki.language
print(nki.REAL, nki.language.REAL, nki.__file__)
"""
    assert python(code, real) == f"True True {real / 'nki' / '__init__.py'}"


def test_submodules_of_a_real_nki_are_not_mixed_with_ours(real):
    code = """
import trn_sim; trn_sim.activate()
import nki
try:
    import nki.isa
except ModuleNotFoundError:
    print("missing")
"""
    assert python(code, real) == "missing"


def test_override_wins_even_after_import(real):
    code = """
import nki
assert nki.REAL
import trn_sim; trn_sim.activate(override=True)
import nki, nki.language
print(nki.__name__, nki.language.__name__)
"""
    assert python(code, real) == "trn_sim.nki trn_sim.nki.language"


def test_steps_over_the_placeholder(placeholder):
    code = """
import trn_sim; trn_sim.activate()
import nki, nki.language
print(nki.__name__)
"""
    assert python(code, placeholder) == "trn_sim.nki"
    with pytest.raises(AssertionError, match="wrong package"):
        python("import nki", placeholder)


def test_steps_over_a_folder_of_that_name(tmp_path):
    (tmp_path / "nki" / "kernels").mkdir(parents=True)
    code = "import trn_sim; trn_sim.activate()\nimport nki\nprint(nki.__name__)"
    assert python(code, tmp_path, cwd=tmp_path) == "trn_sim.nki"


def test_import_is_light():
    code = """
import sys
import trn_sim; trn_sim.activate()
import nki, nki.language, nki.isa
print([name for name in ("numba", "torch", "simpy", "rich") if name in sys.modules])
"""
    assert python(code) == "[]"


def test_other_names_are_not_touched():
    code = """
import trn_sim; trn_sim.activate()
import importlib.util
print(importlib.util.find_spec("nkilib"), importlib.util.find_spec("nki_cpu_simulator"))
"""
    assert python(code) == "None None"
