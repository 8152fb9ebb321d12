"""The ladder, as ladder.txt beside this file lists it. The lab, the exercises' grader and common/torch read it here."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class LadderError(Exception):
    """Which line of the file is wrong."""


@dataclass(frozen=True)
class Rung:
    number: str  # "08"
    name: str  # "13_flash_attention_2"
    types: tuple  # of "fp32", "fp16" and "bf16"
    head_dims: tuple  # () for any
    capability: str  # the GPU's, at least: "9.0"; "" for a rung on the CPU
    idea: str
    folder: Path

    @property
    def cuda(self):
        return bool(self.capability)

    @property
    def backward(self):
        """Whether it computes gradients: "41_backward_cpu"."""
        return self.name[3:].startswith("backward_")

    @property
    def kernel_file(self):
        """The .cu file; of a rung on the CPU the .cpp file beside main.cpp. None where there is neither."""
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
    """The rungs in order. Raises LadderError."""
    rungs = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            cells = [cell.strip() for cell in line.split("|", 4)]
            if len(cells) != 5 or not cells[0][:2].isdigit():
                raise LadderError(
                    f"steps/ladder.txt:{number}: 'NN_name | types | head dims | capability | idea' is expected"
                )
            name, types, head_dims, capability, idea = cells
            head_dims = () if head_dims == "any" else tuple(map(int, head_dims.split()))
            rungs.append(
                Rung(
                    name[:2],
                    name,
                    tuple(types.split()),
                    head_dims,
                    "" if capability == "-" else capability,
                    idea,
                    root / "steps" / name,
                )
            )
    return rungs


def ladder():
    return parse((ROOT / "steps/ladder.txt").read_text(encoding="utf-8"))
