"""CUDA programs, as they are, on the CPU: `python3 -m cuda_on_cpu run FILE.cu`, in common/simt."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]  # where common/ lies
SIMT = ROOT / "common/simt"

# A command that is in front of this one: messages bear its name. It is asked for what takes more
# than CMake and PyPI: `DOOR --build TARGET`, `DOOR --install PACKAGE`.
DOOR = os.environ.get("CUDA_ON_CPU_DOOR", "")
NAME = "/".join(Path(DOOR).parts[-2:]) or "python3 -m cuda_on_cpu"


class SimtError(Exception):
    """One line (or a few) that says what is wrong and what would work."""

    code = 2  # the program's
