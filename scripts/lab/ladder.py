"""The rungs of steps/ladder.txt, and the lab's errors."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "steps"))
from ladder import ROOT, LadderError, Rung, ladder, parse  # noqa: E402, F401  (its own folder has no package)


class LabError(Exception):
    """One line (or a few) that says what is wrong and what would work."""

    code = 2  # the program's


class WrongResult(LabError):
    """A program computed something wrong."""

    code = 1


def cuda_rungs(wanted=()):
    """The CUDA rungs; only those named, if any are: by number, name or folder."""
    known = [rung for rung in ladder() if rung.cuda]
    chosen = []
    for text in wanted:
        key = text.rstrip("/").split("/")[-1]
        found = [rung for rung in known if key in (rung.name, rung.number, rung.number.lstrip("0"))]
        if not found:
            raise LabError(
                f"there is no CUDA rung '{text}'; there are {' '.join(rung.name for rung in known)}"
            )
        chosen += found
    return chosen if wanted else known
