"""Makes what the pages say of the records: tables, and numbers in sentences.

    <!-- table: speeds('bench_h200', d=64) -->      the lines of the table below it
    It takes <!-- = ms('bench_h200', '06'):.0f -->132<!-- /= --> ms.

An expression is Python's, over the functions of scripts/lab/pages.py. A number's may end in a format; else it has three
digits.
Without --write nothing changes: what differs from the records is listed.
"""

import re
import sys
from pathlib import Path

from lab import pages
from lab.records import ROOT

TABLE = re.compile(r"^<!-- table: (?P<expression>[^\n]*?) -->\n(?P<old>(?:\|[^\n]*\n)*)", re.M)
NUMBER = re.compile(r"<!-- = (?P<expression>(?:(?!-->).)*?) -->(?P<old>[^<]*)<!-- /= -->", re.S)
MARK = re.compile(r"<!-- *(?:table *:|=|/=)")
BEGINNING = re.compile(r"^[ \t>]*(?:[-*+] +|\d+[.)] +)?\Z", re.M)  # of a line, or of a list's item
CODE = re.compile(r"^ *(`{3,})[^\n]*\n.*?^ *\1 *$|`[^`\n]+`", re.M | re.S)
FORM = re.compile(r"(?P<value>.*?)(?::(?P<form>[+,.\d]*[a-z%]?))?", re.S)


class Page:
    """The text of a page with everything made anew; `differs` and `wrong` are lines of the form FILE:LINE: what."""

    def __init__(self, name, text):
        self.name, self.old, self.differs, self.wrong = name, text, [], []
        self.code = [match.span() for match in CODE.finditer(text)]
        tables, numbers = self.found(TABLE), self.found(NUMBER)
        made = {match.span(): self.made(match, self.table) for match in tables}
        made |= {match.span(): self.made(match, self.number) for match in numbers}
        self.tables, self.numbers = len(tables), len(numbers)
        for match in self.found(MARK):
            if not any(first <= match.start() < last for first, last in made):
                self.wrong.append(f"{self.place(match)}: this mark is not one of <!-- table: EXPRESSION -->, "
                                  "<!-- = EXPRESSION -->NUMBER<!-- /= -->")
        self.new, last = "", 0
        for (first, end), new in sorted(made.items()):
            self.new += text[last:first] + new
            last = end
        self.new += text[last:]

    def found(self, pattern):
        """Matches that are no quoted code."""
        return [match for match in pattern.finditer(self.old)
                if not any(first < match.start() < last for first, last in self.code)]

    def place(self, match):
        return f"{self.name}:{self.old.count(chr(10), 0, match.start()) + 1}"

    def made(self, match, make):
        expression = " ".join(match["expression"].split())
        try:
            new = make(expression)
        except Exception as error:  # whatever an expression can do wrong
            self.wrong.append(f"{self.place(match)}: {expression}: {type(error).__name__}: {error}")
            return match[0]
        if make == self.number and BEGINNING.search(self.old, 0, match.start()):
            self.wrong.append(f"{self.place(match)}: {expression}: a line that begins with a comment ends the "
                              "paragraph; let a word stand before it")
        if new != match["old"]:
            old = f"says {match['old']}, " if make == self.number else ""
            now = new.splitlines()[0] if old else "another table"
            self.differs.append(f"{self.place(match)}: {old}the records give {now}: {expression}")
        start, end = (place - match.start() for place in match.span("old"))
        return match[0][:start] + new + match[0][end:]

    @staticmethod
    def table(expression):
        return "\n".join(value(expression)) + "\n"

    @staticmethod
    def number(expression):
        parts = FORM.fullmatch(expression)
        found, form = value(parts["value"]), parts["form"] or ""
        if isinstance(found, float) and found.is_integer() and not form.endswith(("f", "e", "%")):
            found = int(found)
        return pages.shown(found, form)


def value(expression):
    return eval(expression, {"__builtins__": {}, **pages.NAMES})  # the pages are our own


def add_arguments(parser):
    parser.add_argument("--write", action="store_true", help="write what differs into the pages")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="default: README.md docs/*.md")


def main(options):
    wrong, tables, numbers = [], 0, 0
    for path in options.pages or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        name = path.resolve().relative_to(ROOT) if path.resolve().is_relative_to(ROOT) else path
        try:
            page = Page(name, path.read_text(encoding="utf-8"))
        except OSError as error:
            wrong.append(f"{name}: {error.strerror}")
            continue
        tables, numbers, wrong = tables + page.tables, numbers + page.numbers, wrong + page.wrong
        if options.write and page.new != page.old:
            path.write_text(page.new, encoding="utf-8")
            print("\n".join([f"{name}: written; read the sentences around it again", *page.differs]))
        elif not options.write:
            wrong += [f"{line}; lab tables --write puts it right" for line in page.differs]
    print("\n".join(wrong), file=sys.stderr, end="\n" * bool(wrong))
    print("".join(f"{line}\n" for line in pages.older_code()), end="")
    if not wrong and not options.write:
        print(f"{tables} tables and {numbers} numbers agree with the records")
    return 1 if wrong else 0
