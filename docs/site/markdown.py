"""What the site and the translations need to know of a page: which of its lines are code, and where its links are."""

import html
import re
import subprocess
from pathlib import Path, PurePosixPath
from posixpath import normpath
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"\s*(`{3,}|~{3,})")
CODE_OR_COMMENT = re.compile(r"<!--.*?-->|(`+)(?:(?!\n\s*\n).)*?\1", re.DOTALL)
LINK = re.compile(
    r"(?<=\]\()<?([^\s)>]+)>?(?=(?:\s+\"[^\"]*\")?\s*\))"  # [text](target) and ![picture](target)
    r"|(?<=href=\")([^\"]+)(?=\")|(?<=src=\")([^\"]+)(?=\")|(?<=srcset=\")([^\"]+)(?=\")"
)
SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.I)  # https:, mailto:, data:


class SiteError(Exception):
    """One line, or a few, that say what is wrong and what would work; the exit code is 2."""


def repository_files(pattern):
    """The files, relative to the root, that git tracks or would track; without git all that are no build's."""
    found = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", pattern],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if found.returncode == 0:
        names = found.stdout.split("\0")
    else:
        names = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob(pattern)]
        names = [name for name in names if not re.match(r"build|\.venv|exercises/", name)]
    return sorted(name for name in set(names) if name and (ROOT / name).is_file())


def fenced_lines(lines):
    """For each line, whether it is in a fenced block or is one of its fences."""
    closing, answer = None, []
    for line in lines:
        fence = FENCE.match(line)
        answer.append(bool(closing or fence))
        if closing:
            if line.strip().startswith(closing) and not line.strip().strip(closing[0]):
                closing = None
        elif fence:
            closing = fence[1]
    return answer


def without_fences(text):
    """The text with blanks in place of fenced blocks; every character keeps its place."""
    lines = text.split("\n")
    return "\n".join(
        " " * len(line) if fenced else line for line, fenced in zip(lines, fenced_lines(lines))
    )


def prose(text):
    """The text with blanks in place of fenced blocks, `code` and comments; every character keeps its place."""
    return CODE_OR_COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), without_fences(text))


def without_comments(text):
    """The text without its comments; a comment leaves its line ends behind, so that lines keep their numbers."""
    parts, end = [], 0
    for match in CODE_OR_COMMENT.finditer(without_fences(text)):
        if match[0].startswith("<!--"):
            parts += [text[end : match.start()], "\n" * match[0].count("\n")]
            end = match.end()
    return "".join(parts) + text[end:]


def replace_links(text, change):
    """The text with every relative link's target replaced by change(target)."""
    parts, end = [], 0
    for match in LINK.finditer(prose(text)):
        target = text[match.start() : match.end()].strip("<>")
        if not SCHEME.match(target):
            parts += [text[end : match.start()], change(html.unescape(target))]
            end = match.end()
    return "".join(parts) + text[end:]


def resolve(page, target):
    """(file or folder relative to the root, anchor) of a relative link on a page."""
    path, _, anchor = target.partition("#")
    where = normpath(PurePosixPath(page).parent / unquote(path)) if path else page
    return where, unquote(anchor)
