"""What several verbs share: options, tables for a terminal, saving what was measured."""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cuda_on_cpu.venv import NO_PYPI

from lab import records
from lab.ladder import ROOT
from lab.records import Row


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def problem(text: str) -> tuple[int, ...]:
    shape = numbers(text)
    if len(shape) != 4 or min(shape) < 1:
        raise argparse.ArgumentTypeError("four numbers from 1 on")
    return shape


JOBS = len(os.sched_getaffinity(0))
OPTIONS: dict[str, dict[str, Any]] = {
    "rungs": dict(nargs="*", metavar="RUNG", help="names (all CUDA rungs)"),
    "--programs": dict(default="build-cuda", help="build folder for the GPU (build-cuda)"),
    "--simt-programs": dict(default="build-simt", help="that of SIMT (build-simt)"),
    "--jobs": dict(type=int, default=JOBS, metavar="N", help=f"how many at once ({JOBS})"),
    "--problem": dict(
        type=problem, action="append", metavar="B,H,N,D", help="this in place of the usual; again"
    ),
    "--record": dict(metavar="NAME", help="also write docs/records/NAME.json"),
    "--commit": dict(default="", help="commit of the sources, where git cannot tell"),
}


def folder(text: str) -> Path:
    """A path; one of a build folder's name lies in the root."""
    return ROOT / text if "/" not in text else Path(text)


def add(parser: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        more: dict[str, Any] = {}
        if name.endswith("programs"):
            more = {"type": folder, "metavar": "DIR"}
        parser.add_argument(name, **OPTIONS[name], **more)


def save(options: argparse.Namespace, rows: list[Row], **provenance: Any) -> None:
    """Writes the record, if one was asked for."""
    if options.record:
        command = "lab " + " ".join(sys.argv[1:])
        records.save(
            options.record,
            records.provenance(command, getattr(options, "commit", ""), **provenance),
            rows,
        )


def ran(command: Iterable[object], **more: Any) -> subprocess.CompletedProcess[str]:
    """A command that has ended: `stdout` has what it wrote, stderr among it."""
    return subprocess.run(
        [*map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        **more,
    )


def why_no_simt() -> str:
    """What scripts/simt says where PyPI does not answer, which its grammar comes from; else ""."""
    example = ROOT / "docs/examples/vector_add.cu"
    said = ran([ROOT / "scripts/simt", "run", example, "--show"]).stdout.strip()
    return said if NO_PYPI in said else ""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Lines whose columns stand below each other; the first is text, the others numbers."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for first, *rest in cells:
        yield "  ".join(
            [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:]))]
        ).rstrip()


def print_table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
    print(*table(header, rows), sep="\n")
