"""Takes statements that synchronise out of the CUDA rungs, one at a time: is it noticed?

One rule finds them in the kernels' syntax trees, so that a new rung needs nothing here: calls that
stand alone and wait, arrive, commit, fence, meet at a barrier or clear. One whose absence changes
nothing says so in its own comment, `// redundant: why`, and stays. All mutants of a rung are in one
program, and FLASH_MUTANT in the environment chooses. Each runs the conformance lists for detectors
on the SIMT backend until a schedule or a policy of cp.async shows a wrong result, a race or another
fault. Build first:
    cmake --preset simt && cmake --build --preset simt --target mutations
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cuda_on_cpu.compiling import use_grammar
from cuda_on_cpu.rewriting import parser

from lab import cli
from lab.ladder import ROOT, LabError, Rung, cuda_rungs

if TYPE_CHECKING:
    from tree_sitter import Node

# Schedule, landing of copies, list. Ordered by how much each finds, so that most mutants need one
# run; what the whole list has not found in one order of the threads, the shorter one may find in
# another.
RUNS = [
    ("in-order", "late", "detect"),
    ("reverse", "early", "schedules"),
    ("ahead:1", "late", "schedules"),
    ("ahead:3", "early", "schedules"),
    ("shuffle:1", "late", "schedules"),
    ("shuffle:2", "early", "schedules"),
]
UNMUTATED = ("in-order", "late", "schedules")  # the tests of the rung run its whole lists
PATIENCE = 300  # seconds

WAITS = "sync commit wait arrive acquire release fence barrier semaphore clear".split()


class Mutant(NamedTuple):
    """A kernel without one statement."""

    start: int
    text: str
    place: str  # FILE:LINE
    comment: str

    def __str__(self) -> str:
        return f"{self.place}: {' '.join(self.text.split())} {self.comment}".rstrip()

    @property
    def redundant(self) -> bool:
        return self.comment.startswith("// redundant: ")


def kernel_of(rung: Rung) -> str:
    """A rung's kernel file, with the parts in place that it shares with other kernels.

    These are the headers of common/cuda/derived that no other of them includes.
    """
    headers = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for path in ROOT.glob("common/cuda/derived/*.hpp")
    }
    shared = {one for one in headers if any(f'"{one}"' in text for text in headers.values())}
    kernel = rung.kernel_file.relative_to(ROOT)
    text = f'#line 1 "{kernel}"\n'
    for number, line in enumerate(rung.kernel_file.read_text(encoding="utf-8").splitlines(), 1):
        name = line.removeprefix('#include "').removesuffix('"')
        if name in headers and name not in shared:
            header = headers[name].replace("#pragma once", "")
            text += f'#line 1 "{name}"\n{header}#line {number + 1} "{kernel}"\n'
        else:
            text += f"{line}\n"
    return text


def statements(node: Node) -> Iterator[Node]:
    """The calls below a node of the syntax tree that stand alone as statements, in their order."""
    for child in node.children:
        if child.type == "expression_statement" and child.children[0].type == "call_expression":
            yield child
        yield from statements(child)


def name_of(called: Node) -> str:
    """A function's name without its namespace, its object and its template arguments."""
    while inner := called.child_by_field_name("name") or called.child_by_field_name("field"):
        called = inner
    return called.text.decode()


def synchronises(call: Node) -> bool:
    name = name_of(call.child_by_field_name("function")).replace("async", "")
    return any(word in name for word in WAITS)


def place_of(before: str) -> str:
    """FILE:LINE of the end of a text, by its last #line."""
    lines = before.split("\n")
    last = max(at for at, line in enumerate(lines) if line.startswith("#line "))
    _, number, file = lines[last].split()
    name = Path(file.strip('"')).name
    return f"{name}:{int(number) + len(lines) - last - 2}"


def mutants(source: str) -> Iterator[Mutant]:
    """All mutants of what kernel_of returned, in the order of its lines."""
    use_grammar()
    text = source.encode()
    for statement in statements(parser().parse(text).root_node):
        if synchronises(statement.children[0]):
            before = text[: statement.start_byte].decode()
            behind = text[statement.end_byte :].decode().partition("\n")[0].strip()
            comment = behind if behind.startswith("//") else ""
            yield Mutant(len(before), statement.text.decode(), place_of(before), comment)


def with_switches(source: str) -> str:
    """The kernel with its mutants, from 1 on. flash_mutant(n) says whether n is the one."""
    text, at = "bool flash_mutant(int number); // of steps/tests/mutations.cpp\n", 0
    for number, one in enumerate(mutants(source), 1):
        text += f"{source[at : one.start]}if (!flash_mutant({number})) {{ {one.text} }}"
        at = one.start + len(one.text)
    return text + source[at:]


def generate(rung: Rung, path: Path) -> None:
    """Writes the kernel with its mutants, unless it is there already: its date decides whether it
    is compiled again."""
    text = with_switches(kernel_of(rung))
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def complaint(output: str) -> str:
    """What the suite said first, in a few words."""
    found = re.search(
        r"it threw: ((?:.|\n)*?)(?:,|\n    in )|\b(O|LSE|dQ|dK|dV) at \([^)]*\)\s+is\s+([^\s,]+)",
        output,
    )
    if not found:
        return "ended with an error"
    return " ".join(found[1].split()) if found[1] else f"{found[2]} is {found[3]}"


def run(program: Path, number: int, schedule: str, landing: str, cases: str) -> str:
    """What the suite said about a mutant; "" when it passed."""
    environment = os.environ | {
        "FLASH_MUTANT": str(number),
        "FLASH_SIMT_DETECT": "1",
        "FLASH_SIMT_STRICT": "1",
        "FLASH_SIMT_SCHEDULE": schedule,
        "FLASH_SIMT_CP_ASYNC": landing,
        "OMP_WAIT_POLICY": "passive",
    }
    command = [str(program), f"[{cases}]", "--abort"]
    try:
        done = cli.ran(command, env=environment, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"did not end in {PATIENCE} seconds"
    return "" if done.returncode == 0 else complaint(done.stdout)


def hunt(program: Path, number: int) -> str | None:
    """By which run a mutant was caught, and what it said; None when by none."""
    for schedule, landing, cases in RUNS:
        if said := run(program, number, schedule, landing, cases):
            return f"{schedule}, {landing}: {said}"
    return None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cli.add(parser, "rungs", "--jobs")
    add, folder = parser.add_argument, ROOT / "build-simt/steps/tests"
    add("--programs", type=Path, default=folder, metavar="DIR", help="(build-simt/steps/tests)")
    add("--list", action="store_true", help="say which mutants there are, and leave")
    add("--generate", type=Path, metavar="FILE", help="write one rung's kernel with its mutants")


def main(options: argparse.Namespace) -> int:
    rungs = cuda_rungs(options.rungs)
    if options.generate:
        if len(rungs) != 1:
            raise LabError("--generate takes one rung")
        generate(rungs[0], options.generate)
        return 0
    survivors = 0
    for rung in rungs:
        every = list(enumerate(mutants(kernel_of(rung)), 1))
        wanted = [(number, one) for number, one in every if not one.redundant]
        print(
            f"{rung.name}: {len(wanted)} mutants; redundant by their comments: "
            f"{len(every) - len(wanted)}"
        )
        if options.list:
            for _, one in every:
                print(f"  {one}")
            continue
        program, start = options.programs / f"mutations_{rung.program}", time.monotonic()
        if not program.is_file():
            raise LabError(
                f"there is no {program}; cmake --preset simt && cmake --build --preset simt "
                "--target mutations"
            )
        if said := run(program, 0, *UNMUTATED):
            raise LabError(f"{rung.name} fails without a mutation: {said}")
        with ThreadPoolExecutor(max(1, options.jobs)) as pool:
            caught_by = pool.map(partial(hunt, program), [number for number, _ in wanted])
            for (_, one), caught in zip(wanted, caught_by):
                survivors += caught is None
                print(f"  {one}: {caught or 'NOT CAUGHT'}", flush=True)
        cli.say(f"{rung.name}: {time.monotonic() - start:.0f} s")
    if not options.list:
        print(f"{survivors} not caught" if survivors else "all caught")
    return 1 if survivors else 0
