"""CUDA programs, as they are, on the CPU. In a checkout `./scripts/simt run FILE.cu`, or
`python3 -m cuda_on_cpu run FILE.cu` in common/simt; where pip has installed it, `simt-cuda`.
"""

import os
import sys
from pathlib import Path

__version__ = "0.1.0"  # of the wheel, too (pyproject.toml)

HERE = Path(__file__).resolve().parent
# By pip, from a wheel: it has the emulator in this folder, where a checkout has it the other way.
IS_INSTALLED = (HERE / "common/simt").is_dir()
ROOT = HERE if IS_INSTALLED else HERE.parents[2]  # where common/ lies
SIMT = ROOT / "common/simt"

# A command that is in front of this one: messages bear its name. It is asked for what takes more
# than CMake and PyPI: `DOOR --configure`, `DOOR --install PACKAGE`.
DOOR = os.environ.get("CUDA_ON_CPU_DOOR", "")
CALLED = Path(sys.argv[0]).name
NAME = "/".join(Path(DOOR).parts[-2:]) or (
    CALLED if CALLED == "simt-cuda" else "python3 -m cuda_on_cpu"
)


class SimtError(Exception):
    """One line (or a few) that says what is wrong and what would work."""

    code = 2  # the program's
