"""Runs every CUDA rung on a GPU under compute-sanitizer, whose tools must report nothing.

Each rung runs on ragged, causal and grouped problems in every head dim and type it has, and on rows
that see no key. A run counts as clean when the tool reports nothing and the rung's result is right.
Build the target rungs first, by the preset cuda.

With --unseen the three mistakes of docs/unseen_races.md run instead, and each repaired: what does
each tool report of them? It needs a Hopper GPU, and builds what it runs. Every check that this
version of compute-sanitizer has for Hopper's units is on. --sanitizer names another version than
the toolkit's, such as that of PyPI's nvidia-cuda-sanitizer-api.
"""

import argparse
import itertools
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from lab import build, cli, harness
from lab.ladder import ROOT, LabError, cuda_rungs

TOOLS = {
    "memcheck": ["--leak-check", "full"],
    "racecheck": ["--racecheck-report", "all"],
    "synccheck": [],
}
HOPPER = (
    "--check-bulk-copy",
    "--check-tensor-ops",
    "--check-warpgroup-mma",
    "--racecheck-fence-proxy-async",
)
PROBLEMS = (
    "--batch 2 --heads 2 --q-len 97 --kv-len 161",  # ragged
    "--heads 2 --q-len 200 --kv-len 200 --causal",
    "--heads 4 --kv-heads 2 --q-len 70 --kv-len 300 --causal",  # grouped
    "--heads 1 --q-len 260 --kv-len 70 --causal",  # rows without keys
)


def reported(output: str) -> int | None:
    """What the tool's summary counts; None without one: it did not run."""
    return max(map(int, re.findall(r"SUMMARY: (\d+) (?:errors?|hazards?)", output)), default=None)


def ask(sanitizer: str) -> tuple[str, list[str]]:
    """Its version, and those of its options that check Hopper's units."""
    said = subprocess.run([sanitizer, "--help"], stdout=subprocess.PIPE, text=True).stdout
    version = re.search(r"Version ([\d.]+)", said)
    return version[1] if version else "unknown", [
        word for option in HOPPER if option in said for word in (option, "yes")
    ]


def under(
    sanitizer: str, tool: str, path: Path, arguments: Sequence[str], checks: Sequence[str] = ()
) -> tuple[list[str], subprocess.CompletedProcess[str]]:
    options = [*TOOLS[tool], *checks, "--error-exitcode", "99"]
    command = [sanitizer, "--tool", tool, *options, str(path), *arguments]
    return command, cli.ran(command, cwd=ROOT)


def sanitize(sanitizer: str, tool: str, path: Path, arguments: list[str]) -> str:
    """What a run under a tool said: "" when all is well, else its last lines."""
    command, done = under(sanitizer, tool, path, arguments)
    if done.returncode == 0 and reported(done.stdout) == 0:
        return ""
    return "\n".join([" ".join(command), *done.stdout.splitlines()[-25:]])


def unseen(options: argparse.Namespace) -> int:
    version, checks = ask(options.sanitizer)
    program = build.program(ROOT / "build-cuda", "unseen_races")
    if not program:
        raise LabError("unseen_races is not built: cmake --preset cuda makes the folder for it")
    rows = []
    cases = itertools.product(("slot", "wait", "fence"), ((), ("repaired",)), TOOLS)
    for case, repaired, tool in cases:
        arguments = (case, *repaired)
        name = f"unseen_races {' '.join(arguments)}"
        said = under(options.sanitizer, tool, program, arguments, checks)[1].stdout
        wrong = re.search(r": (\d+) of \d+ numbers are wrong", said)  # the program's own line
        if (reports := reported(said)) is None or not wrong:
            raise LabError(f"{name} did not run under {tool}:\n{said}")
        row = {"program": name, "kind": "example", "tool": tool, "reported": reports}
        rows.append(row | {"value": int(wrong[1])})
        print(f"{name:<30} {tool:<10} reports {reports}; {wrong[1]} numbers are wrong", flush=True)
    cli.save(options, rows, compute_sanitizer=version, checks=" ".join(checks))
    return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cli.add(parser, "rungs", "--programs", "--jobs", "--record", "--commit")
    add, sanitizer = parser.add_argument, "compute-sanitizer"
    add("--sanitizer", default=sanitizer, metavar="PROGRAM", help="(the one in PATH)")
    add("--unseen", action="store_true", help="the mistakes of docs/unseen_races.md instead")


def main(options: argparse.Namespace) -> int:
    build.require(options.sanitizer)
    if options.unseen:
        return unseen(options)
    rungs = cuda_rungs(options.rungs)
    paths = {rung.name: harness.need(options.programs, rung.name) for rung in rungs}
    rows, reports = [], []
    with ThreadPoolExecutor(max(1, min(8, options.jobs // 2))) as pool:
        for rung, tool in itertools.product(rungs, TOOLS):
            of_rung = itertools.product(PROBLEMS, rung.types, rung.head_dims)
            runs = [
                [*problem.split(), "--head-dim", str(d), "--dtype", dtype]
                for problem, dtype, d in of_rung
            ]
            one = partial(sanitize, options.sanitizer, tool, paths[rung.name])
            said = list(filter(None, pool.map(one, runs)))
            row = {"program": rung.name, "kind": "rung", "tool": tool, "runs": len(runs)}
            rows.append(row | {"reported": len(said)})
            clean = len(runs) - len(said)
            print(f"{rung.name:<30} {tool:<10} {clean} of {len(runs)} clean", flush=True)
            reports += said
    for text in reports[:5]:
        cli.say(f"\n{text}")
    cli.save(options, rows, problems=PROBLEMS)
    return 1 if reports else 0
