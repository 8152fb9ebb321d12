"""The pictures of chapters 10 to 14 show what the kernels do: docs/diagrams/tensor_cores.py draws them from the sources."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "diagrams/tensor_cores.py"


def run(*arguments):
    return subprocess.run([sys.executable, "-B", PROGRAM, *arguments], capture_output=True, text=True)


def test_the_pictures_are_as_the_sources_have_them():
    result = run("--check")
    assert result.returncode == 0, result.stderr


def test_a_picture_that_does_not_exist_is_an_error():
    result = run("no_such.svg")
    assert result.returncode == 2 and "no_such.svg" in result.stderr
