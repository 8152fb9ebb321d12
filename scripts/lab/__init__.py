"""The lab: everything that measures, records, compares, tabulates or draws."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# What it stands on: the ladder and the operator, and CUDA programs on the CPU.
sys.path += [str(ROOT / "common/torch"), str(ROOT / "common/simt")]
os.environ.setdefault("CUDA_ON_CPU_DOOR", str(ROOT / "scripts/simt"))
