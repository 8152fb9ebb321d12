"""The pictures of chapters 06 to 09 show what the kernels do: docs/diagrams/pictures.py draws them from the sources."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "diagrams/pictures.py"


def test_the_pictures_are_as_the_sources_have_them():
    result = subprocess.run([sys.executable, PROGRAM, "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_a_picture_that_does_not_exist_is_an_error():
    result = subprocess.run([sys.executable, PROGRAM, "no_such.svg"], capture_output=True, text=True)
    assert result.returncode == 2 and "no_such.svg" in result.stderr
