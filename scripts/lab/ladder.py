"""The rungs of steps/ladder.txt, as the operator reads them, and the lab's errors."""

import functools
import itertools
import sys
from collections.abc import Sequence

from flash_steps import ladder as of_the_operator
from flash_steps.ladder import DRAFT, ROOT, Rung, find, parse, unknown

__all__ = ["DRAFT", "ROOT", "Rung", "find", "parse", "unknown"]


class LabError(Exception):
    """One line (or a few) that says what is wrong and what would work."""

    code = 2  # the program's


class WrongResult(LabError):
    """A program computed something wrong."""

    code = 1


@functools.cache
def ladder() -> list[Rung]:
    """The rungs in order. Raises LabError."""
    try:
        return of_the_operator.ladder()
    except ValueError as error:
        raise LabError(str(error)) from None


def finished() -> list[Rung]:
    """The rungs that are no drafts: those of chapters and tables."""
    return [rung for rung in ladder() if not rung.draft]


def pieces(text: str) -> list[str]:
    """A text in pieces: its words, with _ and digits in them, and what stands between."""
    found = itertools.groupby(text, lambda one: one.isalnum() or one == "_")
    return ["".join(piece) for _, piece in found]


def cuda_rungs(wanted: Sequence[str] = ()) -> list[Rung]:
    """The CUDA rungs; only those named, if any are, as lab.ladder.find reads a name."""
    known = [rung for rung in ladder() if rung.cuda]
    try:
        found = [find(text, ladder()) for text in wanted] or known
    except ValueError as error:
        raise LabError(str(error)) from None
    for rung in found:
        if not rung.cuda:
            raise LabError(
                f"{rung.name} is for the CPU, and a CUDA rung is wanted, as {known[0].name}"
            )
    return found


if __name__ == "__main__":  # scripts/step asks what to say of a name that it does not know
    try:
        find(sys.argv[1], ladder())
    except ValueError as error:
        print(error)
