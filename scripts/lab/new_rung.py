"""Makes a new rung as a copy of its parent, and says what it lacks. ./scripts/step calls it:

./scripts/step --new PARENT NAME    the folder steps/NN_NAME, and a line in steps/ladder.txt
./scripts/step --missing NAME       what NAME lacks: a draft needs none of it
"""

import itertools
import shutil
import string
import subprocess
import sys
from pathlib import Path

from lab import ladder
from lab.ladder import DRAFT, ROOT, LabError, Rung, pieces

IDEA = "what is new, in one line"
HEADER = """\
// {name}: {idea}.
//
// The idea: ...
// Parent: {parent}. New: ...
// Look at: ...
// Gained: ...
"""
KEYWORDS = set(
    """
    alignas alignof and asm auto bool break case catch char class concept const constexpr continue
    decltype default delete do double else enum explicit export extern false final float flash for
    friend goto if import inline int long main module mutable namespace new noexcept not nullptr
    operator or override private protected public register requires return short signed sizeof
    static std struct switch template this throw true try typedef typeid typename union unsigned
    using virtual void volatile while xor
    """.split()
)


# ---------------- making one


def check_name(name: str, rungs: list[Rung]) -> None:
    """Raises LabError where no new rung can be called so."""
    letters = string.ascii_lowercase
    if not name or name[0] not in letters or set(name) - set(f"{letters}{string.digits}_"):
        raise LabError(
            f"'{name}' is no name for a rung: a letter, then letters, digits and _, all lower-case"
        )
    if name in KEYWORDS:
        raise LabError(f"'{name}' is a word of C++ or of ours: it cannot be a rung's namespace")
    if name in [rung.name for rung in rungs]:
        raise LabError(f"there is a rung {name} already; steps/ladder.txt has all of them")


def number_behind(parent: Rung, rungs: list[Rung]) -> str:
    """22a behind 22, or 22b where there is a 22a."""
    taken = {rung.number for rung in rungs}
    for letter in string.ascii_lowercase:
        if (number := f"{parent.number[:2]}{letter}") not in taken:
            return number
    raise LabError(f"there is no letter left behind {parent.number[:2]}")


def renamed(text: str, parent: Rung, number: str, name: str) -> str:
    """The code of a file with the parent's names replaced, word by word; comments are left alone,
    and so are files of other folders."""
    lines = []
    for line in text.splitlines():
        code, slashes, comment = line.partition("//")
        words = pieces(code)
        for at, word in enumerate(words):
            elsewhere = at >= 2 and words[at - 1] == "/" and words[at - 2] != f"{number}_{name}"
            if word == parent.program:
                words[at] = f"{number}_{name}"
            elif word == parent.name and not elsewhere:
                words[at] = name
        lines.append("".join(words) + slashes + comment)
    return "\n".join(lines) + "\n"


def files_of(parent: Rung, number: str, name: str) -> dict[str, str]:
    """{file: text} of the new folder."""
    files = {}
    for path in sorted(parent.folder.iterdir()):
        text = renamed(path.read_text(encoding="utf-8"), parent, number, name)
        if path == parent.kernel_file:
            lines = text.splitlines(keepends=True)
            body = list(itertools.dropwhile(lambda line: line.startswith("//"), lines))
            text = HEADER.format(name=name, idea=IDEA, parent=parent.name) + "".join(body)
        stem = name if path.stem == parent.name else path.stem
        files[f"{stem}{path.suffix}"] = text
    return files


def create(wanted: str, name: str, root: Path = ROOT) -> Rung:
    """Writes the rung's folder and its line in the ladder. Raises LabError, and writes nothing
    then. The new Rung."""
    manifest = root / "steps/ladder.txt"
    rungs = ladder.parse(manifest.read_text(encoding="utf-8"), root)
    try:
        parent = ladder.find(wanted, rungs)
    except ValueError as error:
        raise LabError(str(error)) from None
    check_name(name, rungs)
    if name.startswith("backward_") != parent.backward:
        kind = "a backward" if parent.backward else "no backward"
        raise LabError(f"{parent.name} is {kind} rung, and only their names begin with backward_")
    number = number_behind(parent, rungs)
    folder = root / f"steps/{number}_{name}"
    if folder.exists():
        raise LabError(f"{folder.relative_to(root)} is there already")
    files = files_of(parent, number, name)

    lines = manifest.read_text(encoding="utf-8").splitlines()
    (of_parent,) = [line for line in lines if line.split("|")[0].strip() == parent.program]
    first, second, *middle, _ = of_parent.split("|", 5)
    cells = [f"{number}_{name}".ljust(len(first) - 1) + " "]
    cells += [f" {parent.name}".ljust(len(second) - 1) + " ", *middle, f" {DRAFT} {IDEA}"]
    last = max(at for at, line in enumerate(lines) if line.startswith(parent.number[:2]))
    lines.insert(last + 1, "|".join(cells))

    folder.mkdir()
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    if formatter := shutil.which("clang-format"):
        subprocess.run([formatter, "-i", *(folder / file for file in files)], cwd=root, check=False)
    manifest.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ladder.find(name, ladder.parse(manifest.read_text(encoding="utf-8"), root))


# ---------------- what it lacks


def leads_on(page: Path, rung: Rung) -> bool:
    """Whether the page's Next link is the rung's chapter."""
    _, found, rest = page.read_text(encoding="utf-8").rpartition("\nNext: ")
    return bool(found) and f"]({rung.program}.md)" in rest


def missing(rung: Rung, root: Path = ROOT) -> list[str]:
    """What a rung still lacks before it may lose its mark, a line each."""

    def text_of(name: str) -> str:
        return (root / name).read_text(encoding="utf-8")

    exercises = f"docs/exercises/{rung.name}"
    found = []
    if rung.idea.removeprefix(DRAFT).strip() in ("", IDEA):
        found.append("steps/ladder.txt: its idea, in one line")
    blank = HEADER.format(name=rung.name, idea=IDEA, parent=rung.parent).splitlines()
    if set(blank) & set(rung.kernel_file.read_text(encoding="utf-8").splitlines()) - {"//"}:
        found.append(f"{rung.kernel_file.relative_to(root)}: its header is still to be filled in")
    if not rung.chapter.is_file():
        found.append(f"docs/{rung.program}.md: its chapter")
    if f"]({rung.program}.md)" not in text_of("docs/README.md"):
        found.append("docs/README.md: its line among the chapters, with its minutes")
    if not any(leads_on(page, rung) for page in (root / "docs").glob("*.md")):
        found.append(f"docs: a page whose Next leads to {rung.program}.md")
    if len(list((root / exercises).glob("*/exercise.toml"))) < 2:
        found.append(f"{exercises}: two exercises")
    if rung.name not in pieces(text_of("CHANGELOG.md")):
        found.append("CHANGELOG.md: an entry that names it")
    return found


def complaints(root: Path = ROOT) -> list[str]:
    """What rungs lack that are no drafts, as lines of a check."""
    rungs = ladder.parse((root / "steps/ladder.txt").read_text(encoding="utf-8"), root)
    return [
        f"{line} (of {rung.name}, which is no draft)"
        for rung in rungs
        if not rung.draft
        for line in missing(rung, root)
    ]


def say_missing(rung: Rung) -> None:
    found = missing(rung)
    if found:
        print(f"{rung.name} is a draft, as `{DRAFT}` in steps/ladder.txt says. It lacks")
    elif rung.draft:
        print(f"{rung.name} lacks nothing: take `{DRAFT}` out of steps/ladder.txt")
    else:
        print(f"{rung.name} is no draft, and lacks nothing")
    for line in found:
        print(f"  {line}")


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["--new", parent, name]:
                rung = create(parent, name)
                print(f"steps/{rung.program} is a copy of {rung.parent}, and a draft. Now:")
                print(
                    f"  ./scripts/step {name}             the rung, checked against the reference"
                )
                print(f"  ./scripts/step {name} --diff      what it changes: only names so far")
                print(f"  ./scripts/test --only {name}      its tests")
                say_missing(rung)
            case ["--missing", name]:
                say_missing(ladder.find(name, ladder.ladder()))
            case ["--new", *_]:
                raise LabError(
                    "--new needs a parent and a name: scripts/step --new swizzle my_rung"
                )
            case _:
                raise LabError("--missing needs a rung's name")
    except (LabError, OSError, ValueError) as error:
        print(f"scripts/step: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
