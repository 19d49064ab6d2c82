"""The project itself: the README's commands, start-up times, the import rule, what is in the wheel."""

import re
import shlex
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
FIRST_SCREEN = 40  # lines
LIMIT_S = 0.4
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def shell_lines(text):
    """The command lines of the fenced ``sh`` blocks, continuation lines joined, comments left out."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


COMMANDS = [line.rpartition("&&")[2].strip() for line in shell_lines(README)]
OURS = [line for line in COMMANDS if line.split()[0] in ("trn-sim", ".venv/bin/trn-sim")]


def test_first_screen_has_exactly_two_commands_each_with_its_set_up():
    first = shell_lines("\n".join(README.splitlines()[:FIRST_SCREEN]))
    assert len(first) == 2
    assert all(line.startswith("python3 -m venv .venv && .venv/bin/pip install -e ") for line in first)
    assert ".venv/bin/trn-sim profile examples/" in first[0]
    assert first[1].endswith("&& .venv/bin/pytest")
    assert "python3 -m venv" not in "".join(shell_lines(README)[2:])


def test_ci_runs_the_commands_of_the_readme():
    runner = (ROOT / ".ci" / "run").read_text()
    assert "readme_command pytest" in runner
    assert "readme_command 'trn-sim profile'" in runner
    assert "pip install" not in runner


def test_readme_shows_every_verb():
    shown = {line.split()[1] for line in OURS}
    assert {"run", "profile", "disasm", "doctor"} <= shown


@pytest.mark.parametrize("line", OURS)
def test_readme_command(line, tmp_path):
    arguments = [sys.executable, "-m", "trn_sim", *shlex.split(line)[1:]]
    files = [name for name in arguments if name.endswith((".npz", ".pftrace"))]
    for name in files:  # written and read back by later commands of the README; here each stands alone
        arguments[arguments.index(name)] = str(tmp_path / name)
    if "disasm" in arguments and files:
        pytest.fail("the README disassembles a file that only another command makes")
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode == 1 and "doctor" in arguments:
        assert "pip install -e ." in done.stdout, done.stdout  # a checkout that was never installed
    else:
        assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr


def test_links_of_the_documents_lead_somewhere():
    for document in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / document).read_text()):
            if "://" not in target:
                assert (ROOT / target).exists(), f"{document} links to {target}"


def best_seconds(code, repeats):
    """The fastest of several processes that run ``code``, from start to exit."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    return min(times)


HEADINGS = ("Time", "Bound", "HBM bandwidth", "Busy", "Bytes", "Instructions", "Source lines", "Critical path")
HELP = "from trn_sim.cli import main\nmain(['--help'])"


@pytest.mark.parametrize("code", ["import trn_sim", HELP], ids=["import", "help"])
def test_start_up_is_not_slow(code):
    """A generous bound that a loaded machine holds too; the benchmark below has the promised one."""
    assert best_seconds(code, 3) < 5 * LIMIT_S


@pytest.mark.benchmark
@pytest.mark.parametrize("code", ["import trn_sim", HELP], ids=["import", "help"])
def test_start_up_time(code, capsys):
    seconds = best_seconds(code, 10)
    with capsys.disabled():
        print(f"\n{code.splitlines()[-1]}: {seconds:.3f} s (limit {LIMIT_S})")
    assert seconds < LIMIT_S


@pytest.mark.parametrize("module", ["trn_sim", "trn_sim.cli"])
def test_nothing_heavy_is_imported_at_start_up(module):
    program = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"numpy", "numba", "simpy", "ml_dtypes", "torch", "rich", "perfetto"}
    assert heavy.isdisjoint(done.stdout.split())


def linted(config):
    """Whether the import rule of ``config`` holds, and what import-linter says."""
    program = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=config,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(config)},
        check=False,
    )
    return done.returncode == 0, done.stdout + done.stderr


def test_import_rule():
    kept, words = linted(ROOT)
    assert kept, words
    assert "isa <- memory_model | perf_model <- trn_sim" in words


@pytest.mark.parametrize(
    ("package", "imported"), [("isa", "perf_model"), ("memory_model", "perf_model"), ("perf_model", "trn_sim")]
)
def test_import_rule_is_broken_by(tmp_path, package, imported):
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    for name in ("isa", "memory_model", "perf_model", "trn_sim"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    assert linted(tmp_path)[0]
    (tmp_path / package / "__init__.py").write_text(f"import {imported}\n")
    kept, words = linted(tmp_path)
    assert not kept
    assert "BROKEN" in words


def test_wheel_is_the_four_packages_with_their_data():
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == ["isa", "memory_model", "perf_model", "trn_sim"]
    for name in packages:
        assert (ROOT / name / "py.typed").is_file()
        assert (ROOT / name / "__init__.py").is_file()
    assert sorted(path.stem for path in (ROOT / "perf_model" / "rates").glob("*.toml")) == ["trn1", "trn2", "trn3"]


def test_one_version():
    import trn_sim

    assert PROJECT["project"]["version"] == trn_sim.__version__


def test_no_file_mentions_this_or_any_machine():
    """Nothing tracked may depend on where it was written."""
    suspicious = re.compile(r"/(?:home|root|Users)/\w+")
    for folder in ("isa", "memory_model", "perf_model", "trn_sim", "examples"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".toml", ".md"):
                found = suspicious.search(path.read_text())
                assert found is None, f"{path.relative_to(ROOT)}: {found[0]}"


def test_readme_shows_the_report_as_it_is():
    """Times may move with the rates; what the report is made of may not without the README."""
    shown = re.search(r"^```text\n(.*?)^```", README, re.DOTALL | re.MULTILINE)[1]
    done = subprocess.run(
        [sys.executable, "-m", "trn_sim", *shlex.split(OURS[0])[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    def labels(text):
        """The first column, without the rows that depend on the rates."""
        first = [re.split(r" {2,}", line)[0] for line in text.splitlines() if line[:1].strip()]
        return [label for label in first if label in HEADINGS or re.fullmatch(r"[a-z_]+|[A-Z]+|matmul.py:\d+", label)]

    assert sorted(labels(done.stdout)) == sorted(labels(shown)), f"show the report of now in the README:\n{done.stdout}"
