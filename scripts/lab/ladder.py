"""Stand-in: the ladder from the manifest, or from steps/ while there is none."""
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Rung(NamedTuple):
    number: str
    name: str
    types: tuple
    head_dims: tuple
    capability: str
    idea: str
    folder: Path
    kernel_file: Path


def read(path=ROOT / "steps/ladder.txt"):
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, types, dims, capability, idea = (part.strip() for part in line.split("|"))
            folder = ROOT / "steps" / name
            found.append(Rung(name[:2], name, tuple(types.split()), tuple(dims.split()), capability, idea, folder,
                              next(iter(folder.glob("*.cu")), folder / f"{name[3:]}.hpp")))
    return found
