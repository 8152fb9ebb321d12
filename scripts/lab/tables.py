"""Makes the tables of the pages from the records.

    <!-- table: mean_tflops(gpu_bf16, swizzle, FA2) -->      the lines of the table below it

is the function of that name in scripts/lab/results.py, with these words as its arguments: first the
record. A table of what nobody has measured yet says so, with the command that would. Sentences are
written by hand. With --write the tables are written, and where no page is named docs/figures are
drawn anew; else what differs from the records is listed.
"""

import argparse
import re
import sys
from pathlib import Path

from lab import records, results
from lab.ladder import unknown
from lab.record_tables import NotMeasured, order_of_rungs
from lab.records import ROOT

TABLE = re.compile(
    r"^(<!-- table: (\w+)\(([^()\n]*)\) -->\n)((?:\|[^\n]*\n)*(?:Not measured yet: [^\n]*\n)?)",
    re.M,
)
MARK = "<!-- table:"


def made(name: str, arguments: list[str]) -> list[str]:
    """The lines of a table. Raises ValueError where there is none of that name, or not of these
    arguments."""
    if name not in results.TABLES:
        raise ValueError(unknown("table", name, list(results.TABLES)))
    try:
        return results.TABLES[name](*arguments)
    except NotMeasured:
        rungs = [word for word in arguments if word in order_of_rungs()]
        return [f"Not measured yet: `{records.measured_by(arguments[0], rungs)}`"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def renewed(text: str, wrong: list[str], differs: list[str]) -> str:
    """A page with its tables made anew. What differs, and what is no table, is noted as
    "LINE: ..."."""

    def new_table(match: re.Match[str]) -> str:
        mark, name, words, old = match.groups()
        place = text.count("\n", 0, match.start()) + 1
        try:
            new = "\n".join(made(name, [word.strip() for word in words.split(",") if word])) + "\n"
        except ValueError as error:
            wrong.append(f"{place}: {name}({words}): {error}")
            return match[0]
        if new != old:
            differs.append(f"{place}: the records give another table: {name}({words})")
        return mark + new

    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(MARK) and not TABLE.match(f"{line}\n"):
            wrong.append(f"{number}: a mark of a table is {MARK} NAME(RECORD, WORD, ...) -->")
    return TABLE.sub(new_table, text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--write", action="store_true", help="write what differs")
    parser.add_argument(
        "pages", nargs="*", type=Path, metavar="PAGE", help="default: README.md docs/*.md"
    )


def main(options: argparse.Namespace) -> int:
    failed, tables = False, 0
    for path in options.pages or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        name = path.resolve().relative_to(ROOT) if path.resolve().is_relative_to(ROOT) else path
        text = path.read_text(encoding="utf-8")
        wrong: list[str] = []
        differs: list[str] = []
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

        return figures.main(argparse.Namespace(check=False, names=[])) or int(failed)
    if not failed and not options.write:
        print(f"{tables} tables agree with the records")
    return int(failed)
