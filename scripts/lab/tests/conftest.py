"""The lab's tests: pytest scripts/lab/tests. They need no GPU, no nvcc and no PyTorch."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

from stand_in import stand_in  # noqa: E402, F401
