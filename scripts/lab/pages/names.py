"""Names of code that pages and exercises mention must be in a source: those like O_place and
key_rows, on a page in backticks, in an exercise anywhere. They are looked for in the files of the
rungs that the text is about or names, and in all that belongs to no rung.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from lab.ladder import ladder, pieces

SOURCES = "common", "reference", "scripts", "docs/examples", "steps/tests"
SUFFIXES = {".cu", ".cpp", ".hpp", ".h", ".py", ".cmake", ""}
# Of other people's programs: CuTe, Triton, nvcc, PyTorch, and kernels that others have tested.
OF_OTHERS = set(
    """
    half_t num_stages pack_gqa compute_90a custom_op
    fence_raw blkfence_raw atom_hrd interblock_blkatom interblock_blklock
    """.split()
)
NOT_PROSE = {"find", "replace", "run", "count", "per", "expect"}  # keys of exercises


def is_name(word: str) -> bool:
    """Whether a word is like our names: O_place, key_rows."""
    first, _, rest = word.partition("_")
    ours = first.islower() or len(first) <= 2 and first.isalpha()
    return ours and rest.islower() and "__" not in word and word not in OF_OTHERS


def words_below(folder: Path) -> set[str]:
    """All words of the sources in a folder, and of the names of its files."""
    found = set()
    for path in folder.rglob("*"):
        found |= set(pieces(path.name))
        if path.is_file() and path.suffix in SUFFIXES and path.parent.name != "tests":
            found |= set(pieces(path.read_text(encoding="utf-8", errors="ignore")))
    return found


def quoted(line: str) -> str:
    """What stands in backticks; of a row of a table in its first cell, since others may be about
    other people's code. File names are left out."""
    if line.startswith("|"):
        line = line.split("|")[1]
    return " ".join(one for one in line.split("`")[1::2] if not one.endswith((".cu", ".h")))


def strings(value: object, key: str = "") -> Iterator[str]:
    """The texts of an exercise's file."""
    if isinstance(value, str):
        if key not in NOT_PROSE:
            yield value
    elif isinstance(value, list):
        for one in value:
            yield from strings(one, key)
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from strings(one, name)


class Sources:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.shared = set().union(*(words_below(root / folder) for folder in SOURCES))
        self.rungs = {rung: words_below(rung.folder) for rung in ladder()}

    def known(self, about: set[str]) -> set[str] | None:
        """All names that may stand in a text that names these rungs; None where it names none."""
        rungs = [rung for rung in self.rungs if {rung.name, rung.program} & about]
        return self.shared.union(*(self.rungs[rung] for rung in rungs)) if rungs else None

    def problems_of_page(self, path: Path, prose: str) -> list[tuple[int, str]]:
        """[(line, what is wrong)] of a page, by its text without fenced blocks."""
        programs = {rung.program for rung in self.rungs}
        of_links = programs & {path.stem, *pieces(prose)}
        known = self.known(of_links.union(pieces(" ".join(prose.split("`")[1::2]))))
        return [
            (number, f"{word}: no source of the rungs that this page names has it")
            for number, line in enumerate(prose.splitlines(), 1)
            for word in sorted(set(pieces(quoted(line))))
            if known and is_name(word) and word not in known
        ]

    def problems_of_exercises(self) -> Iterator[str]:
        """A line each."""
        for path in sorted(self.root.glob("docs/exercises/*/*/exercise.toml")):
            words = pieces(" ".join(strings(tomllib.loads(path.read_text("utf-8")))))
            known = self.known({path.parts[-3], *words}) or self.shared
            for word in sorted(word for word in {*words} if is_name(word) and word not in known):
                where = path.relative_to(self.root)
                yield f"{where}: {word}: no source of the rungs that this exercise names has it"
