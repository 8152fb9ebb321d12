"""The picture of chapter 04 shows the recurrence on the data of reference/data."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "diagrams/online_softmax.py"


def test_the_picture_is_what_the_data_say():
    result = subprocess.run([sys.executable, PROGRAM, "--check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
