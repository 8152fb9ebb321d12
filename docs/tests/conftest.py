"""The tests of what checks the pages: pytest docs/tests. scripts/lab/check runs them."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "scripts"), str(ROOT / "scripts/lab/tests")]

from stand_in import stand_in  # noqa: E402, F401
