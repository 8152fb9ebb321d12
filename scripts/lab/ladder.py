"""The rungs of steps/ladder.txt, and the lab's errors."""

import difflib
import functools
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class LabError(Exception):
    """One line (or a few) that says what is wrong and what would work."""

    code = 2  # the program's


class WrongResult(LabError):
    """A program computed something wrong."""

    code = 1


@dataclass(frozen=True)
class Rung:
    number: str  # "13": where it stands, and nothing else
    name: str  # "flash_attention_2"
    parent: str  # the name of the rung that it changes; "" for a new start
    types: tuple  # of "fp32", "fp16" and "bf16"
    head_dims: tuple  # () for any
    capability: str  # the GPU's, at least: "9.0"; "" for a rung on the CPU
    processes: bool  # whether several of them can share its work, which takes MPI
    idea: str
    folder: Path

    @property
    def cuda(self):
        return bool(self.capability)

    @property
    def backward(self):
        """Whether it computes gradients."""
        return self.name.startswith("backward_")

    @property
    def program(self):
        """Its folder, its chapter and its programs: "13_flash_attention_2"."""
        return f"{self.number}_{self.name}"

    @property
    def kernel_file(self):
        """The .cu file; on the CPU the .cpp file beside main.cpp. None where there is neither."""
        found = sorted(self.folder.glob("*.cu")) or sorted(self.folder.glob("*.cpp"))
        return next((path for path in found if path.name != "main.cpp"), None)

    @property
    def tensor(self):
        return "fp32" not in self.types

    @property
    def dtype(self):
        """The type that it is timed in."""
        return "bf16" if self.tensor else "fp32"


def parse(text, root=ROOT):
    """The rungs in order. Raises LabError."""
    rungs = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split("|", 5)]
        if len(cells) != 6 or not re.match(r"\d\d[a-z]?_", cells[0]):
            raise LabError(
                f"steps/ladder.txt:{number}: a line is NN_name | parent | types | head dims | "
                "capability | idea"
            )
        program, parent, types, head_dims, capability, idea = cells
        capability, *needs = capability.split()
        parent, capability, types = parent.strip("-"), capability.strip("-"), tuple(types.split())
        head_dims = () if head_dims == "any" else tuple(map(int, head_dims.split()))
        about = parent, types, head_dims, capability, "MPI" in needs, idea
        rungs.append(Rung(*program.split("_", 1), *about, root / "steps" / program))
    return rungs


def unknown(what, wanted, names):
    """What to say where none of these names was meant, or one of them was, mistyped."""
    near = difflib.get_close_matches(wanted, names, 1)
    every = ", ".join(names)
    there_are = every if len(every) < 60 else f"{len(names)} of them, {names[0]} to {names[-1]}"
    said = f"did you mean {near[0]}?" if near else f"there are {there_are}"
    return f"there is no {what} '{wanted}'; {said}"


def find(wanted, rungs, what="rung"):
    """The rung that `wanted` names, as overlap, 34_overlap or steps/34_overlap/. Raises
    ValueError."""
    key = wanted.rstrip("/").split("/")[-1]
    for rung in rungs:
        if key in (rung.name, rung.program):
            return rung
    if named := [one.name for one in ladder() if one.number == key.zfill(2)]:
        raise ValueError(f"rungs go by name, not by number: '{wanted}' is {named[0]}")
    raise ValueError(unknown(what, wanted, [rung.name for rung in rungs]))


@functools.cache
def ladder():
    return parse((ROOT / "steps/ladder.txt").read_text(encoding="utf-8"))


def cuda_rungs(wanted=()):
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
