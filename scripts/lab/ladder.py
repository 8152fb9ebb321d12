"""The ladder, as steps/ladder.txt lists it."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class LabError(Exception):
    """One line (or a few) that says what is wrong and what would work; the exit code is 2."""


@dataclass(frozen=True)
class Rung:
    number: str  # "08"
    name: str  # "08_flash_attention_2"
    types: tuple
    head_dims: tuple  # () for any
    capability: str  # "" for a rung on the CPU
    idea: str
    folder: Path

    @property
    def cuda(self):
        return bool(self.capability)

    @property
    def backward(self):
        """Whether it computes gradients: "22_backward_cpu"."""
        return self.name[3:].startswith("backward_")

    @property
    def kernel_file(self):
        """The .cu file, None for a rung on the CPU."""
        return next(iter(sorted(self.folder.glob("*.cu"))), None)

    @property
    def tensor(self):
        return "fp32" not in self.types

    @property
    def dtype(self):
        """The type that it is timed in."""
        return "bf16" if self.tensor else "fp32"


def parse(text, root=ROOT):
    rungs = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            cells = [cell.strip() for cell in line.split("|", 4)]
            if len(cells) != 5 or not cells[0][:2].isdigit():
                raise LabError(f"steps/ladder.txt:{number}: 'NN_name | types | head dims | capability | idea' is expected")
            name, types, head_dims, capability, idea = cells
            head_dims = () if head_dims == "any" else tuple(map(int, head_dims.split()))
            rungs.append(Rung(name[:2], name, tuple(types.split()), head_dims, "" if capability == "-" else capability, idea,
                              root / "steps" / name))
    return rungs


def ladder():
    return parse((ROOT / "steps/ladder.txt").read_text(encoding="utf-8"))


def cuda_rungs(wanted=()):
    """The CUDA rungs; only those named, if any are: by number, name or folder."""
    known = [rung for rung in ladder() if rung.cuda]
    chosen = []
    for text in wanted:
        key = text.rstrip("/").split("/")[-1]
        found = [rung for rung in known if key in (rung.name, rung.number, rung.number.lstrip("0"))]
        if not found:
            raise LabError(f"there is no CUDA rung '{text}'; there are {' '.join(rung.name for rung in known)}")
        chosen += found
    return chosen if wanted else known
