"""What pytest needs here. scripts/lab/check runs these tests."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path += [str(ROOT / "scripts"), str(ROOT / "scripts/lab/tests")]

from stand_in import stand_in  # noqa: E402, F401
