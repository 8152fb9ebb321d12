"""Checks what the pages of this repository quote and what they link to.

Excerpts: in docs/*.md every fenced block in cpp or cuda says, on the line above, where it is from:
    <!-- excerpt: steps/05_one_pass_softmax/one_pass_softmax.hpp -->
Its lines must stand in that file as they are, one after the other, apart from indentation that they
all share. A line "// ..." leaves some lines out. A block that is no excerpt says so, by
<!-- illustration -->.

--write takes what has changed over from the source: of each part between two "// ..." it looks for
the part's first and last line. Where one of these has changed, or the text between them is quite
another, a hand must do it.

Changes: a diff block after <!-- changes: swizzle --> shows what this rung changes in its parent.
Lines with - are the parent kernel's, lines with + the rung's, and at most 20; indentation and
comments may differ. A line "@@ place" says where the next ones are.

Output: a python block after <!-- run --> runs, and the next text block must be what it prints.

Names: those like O_place, in backticks or in an exercise, must be in a source (names.py).

Links: every relative link or image must exist, its #anchor too, and every page of docs/ is linked
from docs/README.md, every figure of docs/figures from a page.

Rungs: one that is no draft has a chapter, exercises and so on (lab/new_rung.py).
The pages of docs/zh are translations of earlier versions: of them only links and formulas are
checked.

Formulas: in $...$ no backslash before punctuation, as in "\\,", which GitHub's Markdown drops.
"""

import argparse
import difflib
import html
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NotRequired, TypedDict
from urllib.parse import unquote

from lab import new_rung
from lab.ladder import ROOT, find, ladder
from lab.pages import names

CODE = {"cpp", "c++", "cc", "cuda", "cu"}  # languages that need an excerpt or illustration comment
COMMENT = re.compile(r"\s*<!--\s*(excerpt|illustration|changes|build|run)\b\s*:?\s*(.*?)\s*-->\s*$")
FENCE = re.compile(r"\s*(`{3,})\s*(\S*)")
ELLIPSIS = re.compile(r"\s*//\s*(\.\.\.|\u2026)\s*$")
# Comments, and `code` in one paragraph.
VERBATIM = re.compile(r"<!--.*?-->|(`+)(?:(?!\n\s*\n).)*?\1", re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^\s)>]+)>?\s*\)")  # [text](target), also ![image](target)
PICTURE = re.compile(r'<(?:img|source)\b[^>]*?\bsrc(?:set)?="([^"\s]+)"')


class Block(TypedDict):
    """A fenced block, and what the comment on the line before it says."""

    line: int
    fence: str
    language: str
    lines: list[str]
    kind: str | None  # "excerpt", "illustration" ...
    source: str
    changed: NotRequired[bool]  # it has been taken over from the source


class Page:
    """A Markdown file: fenced blocks and prose. `problems` are (line, what is wrong)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.blocks: list[Block] = []
        self.problems: list[tuple[int, str]] = []
        prose: list[str] = []
        block: Block | None = None
        comment: tuple[int, str, str] | None = None
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            prose.append("")
            if block:
                end = line.strip()
                if end.startswith(block["fence"]) and not end.strip(end[0]):
                    block = None
                else:
                    block["lines"].append(line.rstrip())
                continue
            if fence := FENCE.match(line):
                block = {
                    "line": number,
                    "fence": fence[1],
                    "language": fence[2].lower(),
                    "lines": [],
                    "kind": comment[1] if comment else None,
                    "source": comment[2] if comment else "",
                }
                self.blocks.append(block)
                comment = None
                continue
            self.without_block(comment)
            found = COMMENT.match(line)
            comment = (number, found[1], found[2]) if found else None
            prose[-1] = line
        if block:
            self.problems.append((block["line"], "this fenced block is never closed"))
        self.without_block(comment)
        self.prose = "\n".join(prose)
        self.text = VERBATIM.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), self.prose)

    def without_block(self, comment: tuple[int, str, str] | None) -> None:
        if comment:
            said = f"<!-- {comment[1]} --> is not followed by a fenced block"
            self.problems.append((comment[0], said))

    def line_of(self, place: int) -> int:
        return self.text.count("\n", 0, place) + 1

    def links(self) -> list[tuple[int, str]]:
        """(line, target) of every link and image, also of those that run over a line's end."""
        found = [*LINK.finditer(self.text), *PICTURE.finditer(self.text)]
        return [(self.line_of(match.start(1)), html.unescape(match[1])) for match in found]

    def broken_formulas(self) -> Iterator[tuple[int, str]]:
        for formula in re.finditer(r"(?<![\\$])\$(?!\$)(?:(?!\n\s*\n)[^$])+\$", self.text):
            if eaten := re.search(r"\\[^\w\s]", formula[0]):
                yield (
                    self.line_of(formula.start() + eaten.start()),
                    f"Markdown drops the backslash of {eaten[0]} in a formula between dollar signs",
                )

    def anchors(self) -> set[str]:
        """What a link's #part can be: headings as GitHub names them."""
        names: set[str] = set()
        seen: dict[str, int] = {}
        for heading in re.findall(r"^\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$", self.prose, re.M):
            # A link counts as its text.
            text = re.sub(r"<[^>]*>", "", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading))
            name = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
            seen[name] = seen.get(name, -1) + 1
            names.add(f"{name}-{seen[name]}" if seen[name] else name)
        return names


def refresh(root: Path) -> None:
    """Takes changed excerpts over from the sources, and says which."""
    for path in sorted(root.glob("docs/*.md")):
        page, lines = Page(path), path.read_text(encoding="utf-8").splitlines()
        for block in reversed(page.blocks):
            length = len(block["lines"])
            if block["kind"] == "excerpt" and not excerpt_problem(block, root, write=True):
                lines[block["line"] : block["line"] + length] = block["lines"]
                if block.get("changed"):
                    print(f"{path.relative_to(root)}:{block['line']}: written")
        text = "\n".join(lines) + "\n"
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")


def block_problem(block: Block, following: Block | None, root: Path) -> str | None:
    """What is wrong with a fenced block, or nothing."""
    if block["kind"] == "excerpt":
        return excerpt_problem(block, root)
    if block["kind"] == "changes":
        return changes_problem(block)
    if block["kind"] == "run":
        return output_problem(block, following)
    if not block["kind"] and block["language"] in CODE:
        return (
            f"this {block['language']} block says neither <!-- excerpt: path --> nor "
            "<!-- illustration --> on the line before it"
        )
    return None


def parts_of(block: Block) -> list[tuple[int, list[str]]]:
    """[(its first line in the block, its lines)] of the parts between the lines "// ..."."""
    parts, fresh = [], True
    for number, line in enumerate(block["lines"]):
        if ELLIPSIS.match(line):
            fresh = True
        elif line and fresh:
            parts.append((number, [line]))
            fresh = False
        elif not fresh:
            parts[-1][1].append(line)
    for _, lines in parts:
        while not lines[-1]:
            lines.pop()
    return parts


def place_of(part: list[str], source: list[str], begin: int) -> tuple[int, int] | None:
    """(first, end) of a part's lines in a source, from `begin` on; None where they are not."""
    wanted, length = dedent(part), len(part)
    for first in range(begin, len(source) - length + 1):
        lines = source[first : first + length]
        if wanted[0] in lines[0] and dedent(lines) == wanted:
            return first, first + length
    return None


def changed_place_of(part: list[str], source: list[str], begin: int) -> tuple[int, int] | None:
    """The same by the part's first and last line; None where that is unclear."""
    bare, wanted = [line.strip() for line in source], [line.strip() for line in part]
    ends = [end for end in range(begin, len(bare)) if bare[end] == wanted[-1]]

    def likeness(place: tuple[int, int]) -> float:
        return difflib.SequenceMatcher(None, wanted, bare[slice(*place)], autojunk=False).ratio()

    places = [
        (first, end + 1)
        for first in range(begin, len(bare))
        if bare[first] == wanted[0]
        for end in ends
        if len(part) > 1 and 0 < end - first <= 2 * len(part) + 10
    ]
    best = max(places, key=likeness, default=None)
    return best if best and likeness(best) >= 0.5 else None


def excerpt_problem(block: Block, root: Path, write: bool = False) -> str | None:
    """What is wrong with an excerpt, or nothing; with `write` the block gets the source's lines,
    where they are found."""
    path = root / block["source"]
    if not block["source"] or not path.is_file():
        return f"there is no file '{block['source']}' to quote from"
    source = [line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()]
    parts, begin, changes = parts_of(block), 0, []
    if not parts:
        return "this excerpt is empty"
    for number, part in parts:
        place = place_of(part, source, begin)
        if not place and write and (place := changed_place_of(part, source, begin)):
            indent = " " * min(len(line) - len(line.lstrip()) for line in part if line)
            lines = [(indent + line).rstrip() for line in dedent(source[slice(*place)])]
            changes.append((number, len(part), lines))
        if not place:
            have = {line.strip() for line in source}
            missing = next((line.strip() for line in part if line.strip() not in have), None)
            return f"{block['source']} does not have these lines" + (
                f"; this one first: {missing}" if missing else " one after the other"
            )
        begin = place[1]
    for number, length, lines in reversed(changes):
        block["lines"][number : number + length] = lines
        block["changed"] = True
    return None


def dedent(lines: list[str]) -> list[str]:
    """The lines without the indentation that all of them share."""
    return textwrap.dedent("\n".join(lines)).split("\n")


def code_of(line: str) -> str:
    """A line of a kernel without indentation and comment."""
    return line.split("//")[0].strip()


def changes_problem(block: Block) -> str | None:
    """What is wrong with a diff block that shows what a rung changes, or nothing."""
    try:
        rung = find(block["source"], ladder())
        of_sign = {"+": rung, "-": find(rung.parent, ladder())}
    except ValueError as error:
        return f"<!-- changes: {block['source']} -->: {error}"
    if len(block["lines"]) > 20:
        return "a diff block has at most 20 lines"
    for line in block["lines"]:
        if line.startswith("@@ "):
            continue
        kernel = of_sign.get(line[:1])
        if not kernel:
            return f"a line of a diff block begins with + or -: {line}"
        text = kernel.kernel_file.read_text(encoding="utf-8")
        if code_of(line[1:]) not in map(code_of, text.splitlines()):
            return f"{kernel.name} does not have this line: {line[1:].strip()}"
    return None


def output_problem(block: Block, following: Block | None) -> str | None:
    if block["language"] != "python" or not following or following["language"] != "text":
        return "<!-- run --> wants a python block, and then a text block with what it prints"
    command = [sys.executable, "-c", "\n".join(block["lines"])]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        return f"this program fails: {result.stderr.strip().splitlines()[-1]}"
    if [line.rstrip() for line in result.stdout.splitlines()] != following["lines"]:
        return "this program prints something else:\n" + result.stdout.rstrip()
    return None


def link_problem(page: Page, target: str, root: Path, pages: dict[Path, Page]) -> str | None:
    path, _, anchor = target.partition("#")
    file = (page.path.parent / unquote(path)).resolve() if path else page.path.resolve()
    if path.startswith("/") or not file.is_relative_to(root):
        return "write it relative to the page, and to a file of the repository"
    if not file.exists():
        return "no such file"
    if not anchor:
        return None
    if file.suffix != ".md":
        return "link the file as a whole: its lines move"
    pages[file] = pages.get(file) or Page(file)
    return None if unquote(anchor) in pages[file].anchors() else "the page has no such heading"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    write = "take over what has changed in the sources"
    parser.add_argument("--write", action="store_true", help=write)


def main(options: argparse.Namespace) -> int:
    root = ROOT
    if options.write:
        refresh(root)
    chapters = sorted((root / "docs").glob("*.md"))
    others = [path for path in (root / "README.md", root / "CONTRIBUTING.md") if path.is_file()]
    translated = sorted((root / "docs/zh").glob("*.md"))
    pages = {path.resolve(): Page(path) for path in chapters + translated + others}
    counts: Counter[str | None] = Counter()
    linked: dict[Path, set[Path]] = {}
    failed = 0
    sources = names.Sources(root)
    for page in list(pages.values()):
        problems = page.problems + list(page.broken_formulas())
        if page.path in chapters:
            problems += sources.problems_of_page(page.path, page.prose)
        if page.path not in others + translated:
            for block, following in zip(page.blocks, page.blocks[1:] + [None]):
                counts[block["kind"]] += 1
                if problem := block_problem(block, following, root):
                    problems.append((block["line"], problem))
        linked[page.path] = set()
        for number, target in page.links():
            if re.match(r"[a-z][a-z0-9+.-]*:", target, re.I):
                continue  # http:, https:, mailto:, data:
            counts["link"] += 1
            file = page.path.parent / unquote(target.partition("#")[0])
            linked[page.path].add(file.resolve())
            if problem := link_problem(page, target, root, pages):
                problems.append((number, f"link to {target}: {problem}"))
        if page.path == root / "docs/README.md":
            for path in chapters:
                if path.resolve() not in linked[page.path] and path != page.path:
                    problems.append((1, f"there is no link to {path.name}"))
        failed += len(problems)
        for line, problem in sorted(problems):
            print(f"{page.path.relative_to(root)}:{line}: {problem}", file=sys.stderr)
    for complaint in [*sources.problems_of_exercises(), *new_rung.complaints(root)]:
        failed += 1
        print(complaint, file=sys.stderr)
    shown = set().union(*linked.values())
    for figure in sorted((root / "docs/figures").glob("*")):
        if figure.resolve() not in shown:
            failed += 1
            print(f"{figure.relative_to(root)}:1: no page shows this figure", file=sys.stderr)
    print(
        f"{len(linked)} pages: {counts['excerpt']} excerpts, {counts['illustration']} "
        f"illustrations, {counts['run']} programs run, {counts['link']} relative links; "
        f"{failed or 'no'} problem{'' if failed == 1 else 's'}"
    )
    return 1 if failed else 0
