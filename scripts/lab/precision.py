"""How precise rungs 02 to 05 are, for growing N, with and without fused multiply-add.

Compiles the rungs three times, runs each on random scores and on scores that rise from the first key to the last, and
compares with the float64 oracle. Prints the root mean square error of O, relative to O. Takes about two minutes.
"""

import collections
import json
import math
import platform
import subprocess
import tempfile
from pathlib import Path

from lab import cli
from lab.ladder import LabError, ROOT, ladder

COMMON = ["g++", "-std=c++20", "-O3", "-fopenmp", "-I.", "-I/usr/include/eigen3"]
VARIANTS = {"fused": ["-march=native"], "contract off": ["-march=native", "-ffp-contract=off"],
            "no FMA": ["-march=x86-64-v2", "-ffp-contract=off"]}


def output_of(label, command):
    cli.say(label)
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise LabError(f"{command[0]} failed:\n{done.stderr.strip()}")
    return done.stdout


def rows_of(lines, names):
    """Root mean squares over the seeds. `lines`: {variant: what the program printed for it}."""
    errors = collections.defaultdict(list)
    for variant, text in lines.items():
        for row in map(json.loads, text.splitlines()):
            errors[variant, row["input"], row["N"], row["rung"]].append((row["o_error"], row["lse_error"]))
    return [{"program": names.get(rung, rung), "kind": "rung", "variant": variant, "input": name, "B": 1, "H": 2, "H_kv": 2,
             "N_q": 128, "N_kv": N, "d": 64, "seeds": len(pairs),
             **{key: float(f"{math.sqrt(sum(v * v for v in values) / len(values)):.4g}")
                for key, values in zip(("o_error", "lse_error"), zip(*pairs))}}
            for (variant, name, N, rung), pairs in errors.items()]


def add_arguments(parser):
    parser.add_argument("--longest", type=int, default=16384, metavar="N", help="the largest N (16384)")
    cli.add(parser, "--record", "--commit")


def main(options):
    if options.longest < 256:
        raise LabError("--longest must be at least 256")
    if platform.machine() != "x86_64":
        raise LabError("needs an x86-64 processor: its variant without FMA is one of that family")
    rungs = [rung for rung in ladder() if not rung.cuda and rung.number >= "02"]
    sources = [ROOT / "scripts/lab/precision.cpp", ROOT / "reference/oracle.cpp", ROOT / "common/harness/random.cpp",
               *(path for rung in rungs for path in sorted(rung.folder.glob("*.cpp")) if path.name != "main.cpp")]
    lines = {}
    with tempfile.TemporaryDirectory() as folder:
        for variant, flags in VARIANTS.items():
            program = Path(folder) / "precision"
            output_of(f"compiling ({variant})", [*COMMON, *flags, *sources, "-o", program])
            lines[variant] = output_of(f"measuring ({variant})", [program, options.longest])
    rows = rows_of(lines, {rung.number: rung.name for rung in rungs})
    print(*cli.table(["", "N", "O", "LSE"], [[f"{row['variant']}, {row['input']}, {row['program']}", row["N_kv"],
                                              f"{row['o_error']:.2e}", f"{row['lse_error']:.2e}"] for row in rows]), sep="\n")
    cli.save(options, rows, gpu=False, flags={variant: " ".join(["-O3", *own]) for variant, own in VARIANTS.items()})
    return 0
