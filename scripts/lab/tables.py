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

TABLE = re.compile(r"^(<!-- table: ([^\n]*?) -->\n)((?:\|[^\n]*\n)*)", re.M)


def renewed(text, wrong, differs):
    """A page with its tables made anew. What differs, and what is no table, is noted as
    "LINE: ..."."""

    def made(match):
        mark, expression, old = match.groups()
        place = text.count("\n", 0, match.start()) + 1
        try:
            # The pages are our own.
            new = "\n".join(eval(expression, {"__builtins__": {}, **record_tables.NAMES})) + "\n"
        except Exception as error:  # whatever an expression can do wrong
            wrong.append(f"{place}: {expression}: {type(error).__name__}: {error}")
            return match[0]
        if new != old:
            differs.append(f"{place}: the records give another table: {expression}")
        return mark + new

    return TABLE.sub(made, text)


def add_arguments(parser):
    parser.add_argument("--write", action="store_true", help="write what differs")
    parser.add_argument(
        "pages", nargs="*", type=Path, metavar="PAGE", help="default: README.md docs/*.md"
    )


def main(options):
    failed, tables = False, 0
    for path in options.pages or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        name = path.resolve().relative_to(ROOT) if path.resolve().is_relative_to(ROOT) else path
        text, wrong, differs = path.read_text(encoding="utf-8"), [], []
        new = renewed(text, wrong, differs)
        tables += len(TABLE.findall(text))
        if differs and options.write:
            path.write_text(new, encoding="utf-8")
            print(f"{name}: written; read the sentences around it again", *differs, sep="\n")
        elif differs:
            wrong += [f"{line}; lab tables --write puts it right" for line in differs]
        for line in wrong:
            failed = True
            print(f"{name}:{line}", file=sys.stderr)
    if options.write and not options.pages:
        from lab import figures  # needs matplotlib

        return figures.main(SimpleNamespace(check=False, names=[])) or int(failed)
    if not failed and not options.write:
        print(f"{tables} tables agree with the records")
    return int(failed)
