"""The rungs of steps/ladder.txt, and the lab's errors."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "steps"))
from ladder import ROOT, LadderError, Rung, find, former_names, ladder, parse  # noqa: E402, F401  (its own folder has no package)


class LabError(Exception):
    """One line (or a few) that says what is wrong and what would work."""

    code = 2  # the program's


class WrongResult(LabError):
    """A program computed something wrong."""

    code = 1


def cuda_rungs(wanted=()):
    """The CUDA rungs; only those named, if any are, as lab.ladder.find reads a name."""
    known = [rung for rung in ladder() if rung.cuda]
    try:
        return [find(text, known) for text in wanted] or known
    except ValueError as error:
        raise LabError(str(error)) from None
