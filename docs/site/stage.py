"""Lays the repository's pages out for Sphinx, in build-site/pages: the same paths, and the same lines on each page.

What differs from the page on a Git host: an excerpt says where it stands; a link to a source file or a folder leads to
a page that shows it; a picture that adapts to dark pages is there twice, because the reader can choose the theme of
this site; comments are gone.
"""

import json
import re
import sys
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from posixpath import relpath

from markdown import (
    FENCE,
    ROOT,
    SiteError,
    prose,
    replace_links,
    repository_files,
    resolve,
    without_comments,
)

sys.path.append(str(ROOT / "scripts"))
from lab.ladder import ladder
from lab.pages.excerpts import ELLIPSIS, dedent

EXCERPT = re.compile(r"\s*<!--\s*excerpt:\s*(\S+)\s*-->\s*$")
PICTURE = re.compile(r"!\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^\s)]+\.svg)\)")
PICTURE_ELEMENT = re.compile(
    r"<picture>\s*<source\b[^>]*dark[^>]*srcset=\"([^\"]+)\"[^>]*>\s*(<img\b[^>]*?)\s*/?>\s*</picture>"
)
DARK = "@media (prefers-color-scheme: dark)"


def sections(tree, pages, rungs):
    """[(section, [(page, its name in the sidebar or "")])] of docs/site/tree.txt; every page has one place."""
    answer, left = [], set(pages)
    chapters = [f"docs/{rung.name}.md" for rung in rungs]
    for number, line in enumerate(tree.splitlines(), 1):
        line, _, name = line.partition("#")[0].strip().partition(" = ")
        if not line:
            continue
        if line.startswith("["):
            answer.append((line.strip("[]"), []))
            continue
        if not answer:
            raise SiteError(f"docs/site/tree.txt:{number}: '[a section]' is expected first")
        if line.partition(" ")[0] == "rungs":
            last = f"docs/{line.rpartition(' ')[2]}.md" if " " in line else chapters[-1]
            if last not in chapters:
                raise SiteError(
                    f"docs/site/tree.txt:{number}: there is no rung '{line.rpartition(' ')[2]}'"
                )
            wanted = [page for page in chapters[: chapters.index(last) + 1] if page in left]
        else:
            wanted = sorted(page for page in left if fnmatch(page, line))
        answer[-1][1].extend((page, name) for page in wanted)
        left -= set(wanted)
    if left:
        raise SiteError(
            "no place on the site for "
            + ", ".join(sorted(left))
            + "\nadd a line to docs/site/tree.txt; a rung's chapter has the rung's name in steps/ladder.txt"
        )
    return [(title, members) for title, members in answer if members]


class Stage:
    def __init__(self, folder):
        self.folder = folder
        self.pages = [
            page for page in repository_files("*.md") if not page.startswith("docs/site/")
        ]
        self.sections = sections(
            (ROOT / "docs/site/tree.txt").read_text(encoding="utf-8"), self.pages, ladder()
        )
        self.sources = set()  # files and folders that some page links to
        self.problems = []
        self.written = set()

    def write(self, name, content):
        """Writes a file of the stage unless it has this content, so that Sphinx reads again only what has changed."""
        path = self.folder / name
        self.written.add(path)
        content = content if isinstance(content, bytes) else content.encode()
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def run(self):
        for page in self.pages:
            self.write(page, self.page(page, (ROOT / page).read_text(encoding="utf-8")))
        self.write("index.md", self.landing())
        for picture in repository_files("*.svg") + repository_files("*.png"):
            content = (ROOT / picture).read_bytes()
            self.write(picture, content)
            if picture.endswith(".svg"):
                self.write(
                    picture[:-4] + ".light.svg", content.replace(DARK.encode(), b"@media not all")
                )
                self.write(
                    picture[:-4] + ".dark.svg", content.replace(DARK.encode(), b"@media all")
                )
        self.write("sources.json", json.dumps(sorted(self.sources), indent=1))
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_file() and path not in self.written:
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        if self.problems:
            raise SiteError("\n".join(self.problems))

    def page(self, page, text):
        if page.startswith("docs/zh/"):  # a Git host wants this space, Chinese does not
            text = re.sub(r"(?<=[\u2018-\u3002\uff00-\uffef]) (?=\$)", "", text)
        text = replace_links(text, lambda target: self.target(page, target))
        lines = text.split("\n")
        for number, line in enumerate(lines):
            if match := EXCERPT.match(line):
                lines[number] = self.caption(page, number, match[1], lines[number + 1 :])
        text = self.outside_code(PICTURE, self.two_pictures, without_comments("\n".join(lines)))
        return PICTURE_ELEMENT.sub(self.two_elements, text)

    @staticmethod
    def outside_code(pattern, change, text):
        shown = prose(text)
        return pattern.sub(
            lambda match: change(match) if shown[match.start()] == "!" else match[0], text
        )

    @staticmethod
    def two_pictures(match):
        return "".join(
            f"![{match[1]}]({match[2][:-4]}.{theme}.svg){{.only-{theme}}}"
            for theme in ("light", "dark")
        )

    @staticmethod
    def two_elements(match):
        dark = re.sub(r"src=\"[^\"]+\"", f'src="{match[1]}"', match[2])
        return f'{match[2]} class="only-light">{dark} class="only-dark">' + "\n" * match[0].count(
            "\n"
        )

    def target(self, page, target):
        """What a link leads to on the site."""
        where, anchor = resolve(page, target)
        if where in self.pages:
            if (
                where.startswith("docs/zh/") and anchor
            ):  # its headings carry the original's anchors, as HTML
                return f"site:{self.address(page, where[:-3] + '.html')}#{anchor}"
            return target
        if (ROOT / where).suffix in (".svg", ".png"):
            return target
        if (ROOT / where).is_dir() and f"{where}/README.md" in self.pages:
            return self.address(page, f"{where}/README.md") + (f"#{anchor}" if anchor else "")
        if where.startswith("..") or not (ROOT / where).exists():
            self.problems.append(f"{page}: link to {target}: no such file")
            return target
        self.sources.add(where)
        name = where + "/index.html" if (ROOT / where).is_dir() else where + ".html"
        line = re.match(r"L(\d+)", anchor)
        return f"site:{self.address(page, name)}" + (f"#L-{line[1]}" if line else "")

    @staticmethod
    def address(page, name):
        return relpath(name, PurePosixPath(page).parent)

    def caption(self, page, number, source, below):
        """The line above an excerpt: where it stands in the source."""
        fence = FENCE.match(below[0]) if below else None
        if not fence or not (ROOT / source).is_file():
            self.problems.append(
                f"{page}:{number + 1}: an excerpt names a file, and its code stands on the next line"
            )
            return ""
        code = []
        for line in below[1:]:
            if line.strip() == fence[1]:
                break
            code.append(line.rstrip())
        found = lines_of(
            code,
            [line.rstrip() for line in (ROOT / source).read_text(encoding="utf-8").splitlines()],
        )
        if not found:
            self.problems.append(f"{page}:{number + 1}: {source} does not have these lines")
            return ""
        self.sources.add(source)
        first, last = found
        span = f"line {first}" if first == last else f"lines {first} to {last}"
        if page.startswith("docs/zh/"):
            span = f"第 {first} 行" if first == last else f"第 {first} 至 {last} 行"
        indent = below[0][: len(below[0]) - len(below[0].lstrip())]
        return f"{indent}[{source}, {span}](site:{self.address(page, source)}.html#L-{first}){{.excerpt}}"

    def landing(self):
        """docs/site/index.md with the ladder and the site's tree in their places."""
        rungs = ["| rung | the one idea |", "|---|---|"]
        for rung in ladder():
            page = f"docs/{rung.name}.md"
            name = f"[{rung.name}]({page})" if page in self.pages else rung.name
            rungs.append(f"| {name} | {rung.idea} |")
        trees = [
            "\n".join(
                ["```{toctree}", ":hidden:", f":caption: {title}", ""]
                + [f"{name} <{page}>" if name else page for page, name in members]
                + ["```"]
            )
            for title, members in self.sections
        ]
        text = (ROOT / "docs/site/index.md").read_text(encoding="utf-8")
        return text.replace("@LADDER@", "\n".join(rungs)) + "\n" + "\n\n".join(trees) + "\n"


def lines_of(code, source):
    """(first, last) line, from 1, at which an excerpt stands in its source; None if it does not."""
    parts = [[]]
    for line in code:
        if ELLIPSIS.match(line):
            parts.append([])
        elif line or parts[-1]:
            parts[-1].append(line)
    begin = first = None
    for part in filter(None, parts):
        while not part[-1]:
            part.pop()
        part = dedent(part)
        begin = next(
            (
                i
                for i in range(begin or 0, len(source) - len(part) + 1)
                if part[0] in source[i] and dedent(source[i : i + len(part)]) == part
            ),
            None,
        )
        if begin is None:
            return None
        first = begin + 1 if first is None else first
        begin += len(part)
    return (first, begin) if first else None


def main():
    if len(sys.argv) != 2:
        raise SiteError("usage: stage.py FOLDER")
    Stage(Path(sys.argv[1])).run()


if __name__ == "__main__":
    try:
        main()
    except SiteError as problem:
        sys.exit(f"scripts/site: {problem}")
