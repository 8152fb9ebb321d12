"""Makes the tables of the pages from the records.

    <!-- table: speeds('bench_h200', d=64) -->      the lines of the table below it

An expression is Python's, over the functions of scripts/lab/record_tables.py. Sentences are written
by hand. With --write the tables are written, and where no page is named docs/figures are drawn
anew; else what differs from the records is listed.
"""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

from lab import record_tables
from lab.records import ROOT

TABLE = re.compile(r"^<!-- table: (?P<expression>[^\n]*?) -->\n(?P<old>(?:\|[^\n]*\n)*)", re.M)
MARK = re.compile(r"<!-- *(?:table *:|=)")
CODE = re.compile(r"^ *(`{3,})[^\n]*\n.*?^ *\1 *$|`[^`\n]+`", re.M | re.S)


class Page:
    """A page with its tables made anew; `differs` and `wrong` are lines FILE:LINE: what."""

    def __init__(self, name, text):
        self.name, self.old, self.differs, self.wrong = name, text, [], []
        self.code = [match.span() for match in CODE.finditer(text)]
        tables = {match.start(): match for match in self.found(TABLE)}
        self.tables = len(tables)
        for match in self.found(MARK):
            if match.start() not in tables:
                self.wrong.append(
                    f"{self.place(match)}: this mark is not <!-- table: EXPRESSION -->"
                )
        self.new, last = "", 0
        for match in tables.values():
            self.new += text[last : match.start("old")] + self.made(match)
            last = match.end()
        self.new += text[last:]

    def found(self, pattern):
        """Matches that are no quoted code."""
        return [
            match
            for match in pattern.finditer(self.old)
            if not any(first < match.start() < last for first, last in self.code)
        ]

    def place(self, match):
        return f"{self.name}:{self.old.count(chr(10), 0, match.start()) + 1}"

    def made(self, match):
        expression = match["expression"]
        try:
            # The pages are our own.
            new = "\n".join(eval(expression, {"__builtins__": {}, **record_tables.NAMES})) + "\n"
        except Exception as error:  # whatever an expression can do wrong
            self.wrong.append(f"{self.place(match)}: {expression}: {type(error).__name__}: {error}")
            return match["old"]
        if new != match["old"]:
            self.differs.append(
                f"{self.place(match)}: the records give another table: {expression}"
            )
        return new


def add_arguments(parser):
    parser.add_argument("--write", action="store_true", help="write what differs")
    parser.add_argument(
        "pages", nargs="*", type=Path, metavar="PAGE", help="default: README.md docs/*.md"
    )


def main(options):
    wrong, tables = [], 0
    for path in options.pages or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        name = path.resolve().relative_to(ROOT) if path.resolve().is_relative_to(ROOT) else path
        try:
            page = Page(name, path.read_text(encoding="utf-8"))
        except OSError as error:
            wrong.append(f"{name}: {error.strerror}")
            continue
        tables, wrong = tables + page.tables, wrong + page.wrong
        if options.write and page.new != page.old:
            path.write_text(page.new, encoding="utf-8")
            print(
                "\n".join([f"{name}: written; read the sentences around it again", *page.differs])
            )
        elif not options.write:
            wrong += [f"{line}; lab tables --write puts it right" for line in page.differs]
    print("\n".join(wrong), file=sys.stderr, end="\n" * bool(wrong))
    if options.write and not options.pages:
        from lab import figures  # needs matplotlib

        return figures.main(SimpleNamespace(check=False, names=[])) or int(bool(wrong))
    if not wrong and not options.write:
        print(f"{tables} tables agree with the records")
    return 1 if wrong else 0
