"""The committed instruction reference says what the declarations say, and every declaration is complete."""

from pathlib import Path

import pytest

from isa.catalogue import INSTRUCTIONS
from isa.instruction import Instruction
from isa.reference import instruction_reference

ROOT = Path(__file__).parents[2]


def test_reference_is_up_to_date():
    committed = (ROOT / "docs" / "instructions.md").read_text()
    assert committed == instruction_reference(), "run: python -m isa.reference"


def test_catalogue_imports_every_module_that_declares_instructions():
    declaring = {
        path.stem
        for path in (ROOT / "isa").glob("*.py")
        if "@instruction(" in path.read_text() and path.stem != "instruction"
    }
    assert declaring == {cls.__module__.removeprefix("isa.") for cls in INSTRUCTIONS.values()}


@pytest.mark.parametrize("cls", INSTRUCTIONS.values(), ids=lambda cls: cls.__name__)
def test_declaration_is_complete(cls):
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}("), "a docstring of its own"
    assert cls.source
    assert cls.status in ("verified", "documented", "guessed")
    assert cls.run is not Instruction.run
    assert cls.work is not Instruction.work
    assert any(spec.writes or spec.reads for _, spec in cls.operands) or cls.control
