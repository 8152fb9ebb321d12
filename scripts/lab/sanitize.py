"""Runs every CUDA rung on a GPU under compute-sanitizer: memcheck, racecheck and synccheck must report nothing.

Each rung runs on ragged, causal and grouped problems in every head dim and type it has, and on rows that see no key.
A run counts as clean when the tool reports nothing and the rung's result is right. Build first:
    cmake --preset cuda && cmake --build --preset cuda --target rungs
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab import build, records
from lab.counters import program
from lab.ladder import LabError, ROOT, cuda_rungs

TOOLS = {"memcheck": ["--leak-check", "full"], "racecheck": ["--racecheck-report", "all"], "synccheck": []}
PROBLEMS = ("--batch 2 --heads 2 --q-len 97 --kv-len 161",  # ragged
            "--heads 2 --q-len 200 --kv-len 200 --causal",
            "--heads 4 --kv-heads 2 --q-len 70 --kv-len 300 --causal",  # grouped
            "--heads 1 --q-len 260 --kv-len 70 --causal")  # rows without keys


def clean(returncode, output):
    """Both summaries, of errors and of hazards, must be there and say 0: a tool that did not run says nothing."""
    found = [int(number) for number in re.findall(r"SUMMARY: (\d+) (?:errors?|hazards?)", output)]
    return returncode == 0 and bool(found) and max(found) == 0


def sanitize(tool, path, arguments):
    """What a run under a tool said: "" when all is well, else its last lines."""
    command = ["compute-sanitizer", "--tool", tool, *TOOLS[tool], "--error-exitcode", "99", str(path), *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if clean(done.returncode, done.stdout):
        return ""
    return f"{' '.join(command)}\n" + "\n".join(done.stdout.splitlines()[-25:])


def runs_of(rung):
    return [(tool, [*problem.split(), "--head-dim", str(d), "--dtype", dtype]) for tool in TOOLS for problem in PROBLEMS
            for dtype in rung.types for d in rung.head_dims]


def add_arguments(parser):
    parser.add_argument("rungs", nargs="*", metavar="RUNG", help="numbers or names (all CUDA rungs)")
    parser.add_argument("--programs", type=Path, default=ROOT / "build-cuda", metavar="DIR",
                        help="build folder with the programs (build-cuda)")
    parser.add_argument("--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 2) // 2)),
                        help="runs side by side (half of the cores, at most 8)")
    parser.add_argument("--record", metavar="NAME", help="also write docs/records/NAME.json")
    parser.add_argument("--commit", default="", help="commit of the sources, where git cannot tell")


def main(options):
    if options.jobs < 1:
        raise LabError("--jobs must be at least 1")
    rungs = cuda_rungs(options.rungs)
    build.require("compute-sanitizer")
    paths = {rung.name: program(options.programs, rung.name) for rung in rungs}
    rows, reports = [], []
    with ThreadPoolExecutor(options.jobs) as pool:
        for rung in rungs:
            runs = runs_of(rung)
            print(f"{rung.name}: {len(runs)} runs", file=sys.stderr)
            said = list(pool.map(lambda run: sanitize(run[0], paths[rung.name], run[1]), runs))
            for tool in TOOLS:
                of_tool = [text for (which, _), text in zip(runs, said) if which == tool]
                rows.append({"program": rung.name, "kind": "rung", "tool": tool, "runs": len(of_tool),
                             "reported": sum(map(bool, of_tool))})
                print(f"{rung.name:<30} {tool:<10} {rows[-1]['runs'] - rows[-1]['reported']} of {len(of_tool)} clean", flush=True)
            reports += filter(None, said)
    for text in reports[:5]:
        print(f"\n{text}", file=sys.stderr)
    if options.record:
        records.save(options.record, records.provenance("lab " + " ".join(sys.argv[1:]), options.commit, problems=PROBLEMS), rows)
    return 1 if reports else 0
