"""Compares what commands print with what the pages say that they print.

A shell block after the line <!-- prints --> runs in the repository's root. What it writes to stdout
and stderr must be the next text block of the page, word for word. With --profiles it is the blocks
that hold "./scripts/profile RUNG OPTIONS" alone: each line of the text block after one must be
printed, in that order; some may be left out.
--write puts what is printed today into the pages. Of a profile it refreshes lines in which only
numbers have changed.
Exit code: 0 all is as said, 1 not, 4 what could be run is; scripts/simt cannot, without PyPI.
"""

import argparse
import difflib
import os
import re
import sys
import tempfile
from pathlib import Path

from lab import cli
from lab.ladder import ROOT

COMMAND = re.compile(
    r"^<!-- prints -->\n```sh\n(.*?)^```$.*?^```text\n(?P<said>.*?)^```$", re.S | re.M
)
PROFILE = re.compile(
    r"^```sh\n\./scripts/profile ([a-z][^#\n]*)\n```\n\n```text\n(?P<said>.*?)^```$", re.M | re.S
)
NOT_EVERYWHERE = "GPU left out"  # how a line begins that some machines do not print


def profile_of(words: str, build: Path) -> str:
    """What scripts/profile says of a rung with options."""
    command = [sys.executable, "-Bm", "lab", "profile", "--simt-programs", build, *words.split()]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    with tempfile.TemporaryDirectory() as folder:
        done = cli.ran(command, cwd=folder, env=environment)
    return done.stdout.replace(f"{ROOT}/", "")


def without_numbers(line: str) -> str:
    return re.sub(r"\d[\d.,]*", "#", line)


def shown_of_profile(said: str, printed: str) -> str:
    """The page's lines with the numbers printed today. Raises ValueError where one is gone."""
    lines, shown = iter(printed.splitlines()), []
    for line in said.splitlines():
        if not line.startswith(NOT_EVERYWHERE):
            same = line in printed.splitlines()
            wanted = line if same else without_numbers(line)
            found = next(
                (one for one in lines if (one if same else without_numbers(one)) == wanted), None
            )
            if found is None:
                raise ValueError(f"this line is no longer printed, or elsewhere:\n{line}")
            line = found
        shown.append(line)
    return "".join(f"{line}\n" for line in shown)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cli.add(parser, "--simt-programs")
    parser.add_argument("--profiles", action="store_true", help="the profiles that pages show")
    parser.add_argument("--write", action="store_true", help="write what differs")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="default: docs/*.md")


def main(options: argparse.Namespace) -> int:
    count = wrong = left_out = 0
    build = options.simt_programs.resolve()
    no_simt = "" if options.profiles else cli.why_no_simt()
    for path in options.pages or ROOT.glob("docs/*.md"):
        text = path.read_text(encoding="utf-8")
        for block in reversed(list((PROFILE if options.profiles else COMMAND).finditer(text))):
            if no_simt and "scripts/simt" in block[1]:
                left_out += 1
                continue
            count, said = count + 1, block["said"]
            try:
                if options.profiles:
                    shown = shown_of_profile(said, profile_of(block[1], build))
                else:
                    shown = cli.ran(["bash", "-c", block[1]], cwd=ROOT).stdout
            except ValueError as error:
                wrong += 1
                print(f"{path}: scripts/profile {block[1]}: {error}", file=sys.stderr)
                continue
            if shown == said:
                continue
            if options.write:
                text = text[: block.start("said")] + shown + text[block.end("said") :]
                print(f"{path}: written: {block[1].strip()}")
            else:
                wrong += 1
                lines = difflib.unified_diff(
                    said.splitlines(), shown.splitlines(), lineterm="", n=0
                )
                print(f"{path}: {block[1].strip()}", *list(lines)[2:], sep="\n", file=sys.stderr)
        if options.write:
            path.write_text(text, encoding="utf-8")
    print(f"{count} commands were run, {wrong} print something else than the page says")
    if left_out:
        print(f"{left_out} commands were left out: {no_simt}")
    if wrong or count + left_out == 0:
        return 1
    return 4 if left_out else 0
