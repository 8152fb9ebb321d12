"""How precise rungs 02 to 05 are, for growing N, with and without fused multiply-add.

Compiles the rungs three times, runs each on random scores and on scores that rise from the first key to the last, and
compares with the float64 oracle. Prints the root mean square error of O, relative to O. Takes about two minutes.
"""

import json
import math
import platform
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from lab import records
from lab.ladder import LabError, ROOT, ladder

COMMON = ["g++", "-std=c++20", "-O3", "-fopenmp", "-I.", "-I/usr/include/eigen3"]
VARIANTS = {"fused": ["-march=native"], "contract off": ["-march=native", "-ffp-contract=off"],
            "no FMA": ["-march=x86-64-v2", "-ffp-contract=off"]}


def sources():
    rungs = [path for rung in ladder() if not rung.cuda and rung.number >= "02"
             for path in sorted(rung.folder.glob("*.cpp")) if path.name != "main.cpp"]
    return [ROOT / "scripts/lab/precision.cpp", *rungs, ROOT / "reference/oracle.cpp", ROOT / "common/harness/random.cpp"]


def output_of(label, command):
    print(label, file=sys.stderr, flush=True)
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise LabError(f"{command[0]} failed:\n{done.stderr.strip()}")
    return done.stdout


def rows_of(lines, names):
    """Root mean squares over the seeds. `lines`: {variant: what the program printed for it}."""
    errors = defaultdict(list)
    for variant, text in lines.items():
        for row in map(json.loads, text.splitlines()):
            errors[variant, row["input"], row["N"], row["rung"]].append((row["o_error"], row["lse_error"]))

    def rms(values):
        return float(f"{math.sqrt(sum(v * v for v in values) / len(values)):.4g}")
    return [{"program": names.get(rung, rung), "kind": "rung", "variant": variant, "input": name, "B": 1, "H": 2, "H_kv": 2,
             "N_q": 128, "N_kv": N, "d": 64, "seeds": len(pairs), "o_error": rms([o for o, _ in pairs]),
             "lse_error": rms([lse for _, lse in pairs])} for (variant, name, N, rung), pairs in errors.items()]


def add_arguments(parser):
    parser.add_argument("--longest", type=int, default=16384, metavar="N", help="the largest N (16384)")
    parser.add_argument("--record", metavar="NAME", help="also write docs/records/NAME.json")
    parser.add_argument("--commit", default="", help="commit of the sources, where git cannot tell")


def main(options):
    if options.longest < 256:
        raise LabError("--longest must be at least 256")
    if platform.machine() != "x86_64":
        raise LabError("needs an x86-64 processor: its variant without FMA is one of that family")
    lines = {}
    with tempfile.TemporaryDirectory() as folder:
        for variant, flags in VARIANTS.items():
            program = Path(folder) / "precision"
            output_of(f"compiling ({variant})", [*COMMON, *flags, *sources(), "-o", program])
            lines[variant] = output_of(f"measuring ({variant})", [program, options.longest])
    rows = rows_of(lines, {rung.number: rung.name for rung in ladder()})
    for row in rows:
        print(f"{row['variant']:<14}{row['input']:<8}N={row['N_kv']:<7}{row['program']:<24}{row['o_error']:.2e}  {row['lse_error']:.2e}")
    if options.record:
        flags = {variant: " ".join(["-O3", *own]) for variant, own in VARIANTS.items()}
        records.save(options.record, records.provenance("lab " + " ".join(sys.argv[1:]), options.commit, gpu=False, flags=flags),
                     rows)
    return 0
