"""Runs every CUDA rung on a GPU under compute-sanitizer: memcheck, racecheck and synccheck must report nothing.

Each rung runs on ragged, causal and grouped problems in every head dim and type it has, and on rows that see no key.
A run counts as clean when the tool reports nothing and the rung's result is right. Build first:
    cmake --preset cuda && cmake --build --preset cuda --target rungs
"""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

from lab import build, cli, harness
from lab.ladder import ROOT, cuda_rungs

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
    return "" if clean(done.returncode, done.stdout) else "\n".join([" ".join(command), *done.stdout.splitlines()[-25:]])


def add_arguments(parser):
    cli.add(parser, "rungs", "--programs", "--jobs", "--record", "--commit")


def main(options):
    rungs = cuda_rungs(options.rungs)
    build.require("compute-sanitizer")
    paths = {rung.name: harness.need(options.programs, rung.name) for rung in rungs}
    rows, reports = [], []
    with ThreadPoolExecutor(max(1, min(8, options.jobs // 2))) as pool:
        for rung in rungs:
            cli.say(rung.name)
            for tool in TOOLS:
                runs = [[*problem.split(), "--head-dim", str(d), "--dtype", dtype] for problem in PROBLEMS
                        for dtype in rung.types for d in rung.head_dims]
                said = list(filter(None, pool.map(lambda run: sanitize(tool, paths[rung.name], run), runs)))
                rows.append({"program": rung.name, "kind": "rung", "tool": tool, "runs": len(runs), "reported": len(said)})
                print(f"{rung.name:<30} {tool:<10} {len(runs) - len(said)} of {len(runs)} clean", flush=True)
                reports += said
    for text in reports[:5]:
        cli.say(f"\n{text}")
    cli.save(options, rows, problems=PROBLEMS)
    return 1 if reports else 0
