"""The pictures of docs/diagrams show what the kernels, the records and the formulas say."""

import subprocess
import sys

import pytest
from lab.ladder import ROOT

PROGRAMS = sorted((ROOT / "docs/diagrams").glob("*.py"))
PROGRAMS = [program for program in PROGRAMS if program.name != "command.py"]


def run(program, *arguments):
    return subprocess.run(
        [sys.executable, "-B", program, *arguments], capture_output=True, text=True
    )


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_the_pictures_are_as_the_sources_have_them(program):
    result = run(program, "--check")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_picture_that_does_not_exist_is_an_error(program):
    result = run(program, "no_such.svg")
    assert result.returncode == 2 and f"{program.name}: there is no no_such.svg" in result.stderr
