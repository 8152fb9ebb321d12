"""The pictures of chapter 04 and of docs/recomputation.md show what the data and the formulas say."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "diagrams/softmax_and_traffic.py"


def test_the_pictures_are_what_data_and_formulas_say():
    result = subprocess.run([sys.executable, PROGRAM, "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
