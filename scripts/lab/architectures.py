"""Compiles the kernels of the CUDA rungs for every GPU that the ladder is meant for, and shows what ptxas made of them.

A kernel file is compiled to machine code of one architecture at a time; a warning is an error. No GPU is needed, and
nothing is run. The table names, for each rung and architecture, the most registers a thread of its kernels has and the
bytes that ptxas spills in all of them. A compute capability that this nvcc does not know, or that is older than the rung
asks for, is left out. Shared memory that a kernel asks for when it is launched: ./scripts/step --preset simt RUNG --profile.
"""

import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import time

from lab import build, records
from lab.ladder import LabError, ROOT, cuda_rungs

ARCHITECTURES = ("80", "86", "89", "90", "100", "120")
OPTIONS = ("-std=c++20", "-O3", "-I.", "-cubin", "-Xptxas=-v", "--Werror=all-warnings",
           "-Xcompiler=-Wall,-Wextra,-Wshadow,-Werror")


def suits(rung, architecture):
    """Whether a rung is compiled for it: wgmma exists in Hopper's code alone, all else from the capability on."""
    asked = int(rung.capability.replace(".", ""))
    return int(architecture) == asked if asked == 90 else int(architecture) >= asked


def compile_for(architecture, rung):
    """(seconds, what was wrong or "", rows)"""
    start, code = time.monotonic(), "90a" if rung.capability == "9.0" else architecture
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["nvcc", *OPTIONS, f"--generate-code=arch=compute_{code},code=sm_{code}",
                               str(rung.kernel_file.relative_to(ROOT)), "-o", f"{folder}/kernel.cubin"], cwd=ROOT,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace")
    rows = [{"program": rung.name, "kind": "rung", "architecture": architecture, **row} for row in build.ptxas_rows(done.stdout)]
    wrong = "" if done.returncode == 0 else done.stdout.strip()
    if not wrong and not rows:
        wrong = f"ptxas said nothing of a kernel:\n{done.stdout.strip()}"
    return time.monotonic() - start, wrong, rows


def table(rows):
    architectures = list(dict.fromkeys(row["architecture"] for row in rows))
    yield f"{'most registers, bytes spilled':<30}" + "".join(f"{'sm_' + one:>12}" for one in architectures)
    for rung in dict.fromkeys(row["program"] for row in rows):
        cells = []
        for one in architectures:
            of = [row for row in rows if (row["program"], row["architecture"]) == (rung, one)]
            spilled = sum(row["spill_stores"] for row in of)
            cells.append(f"{max(row['registers'] for row in of)}" + f", {spilled} B" * bool(spilled) if of else "")
        yield f"{rung:<30}" + "".join(f"{cell:>12}" for cell in cells)


def add_arguments(parser):
    parser.add_argument("rungs", nargs="*", metavar="RUNG", help="numbers or names (all CUDA rungs)")
    parser.add_argument("--arch", default=",".join(ARCHITECTURES), metavar="A,A",
                        help=f"compute capabilities without the point ({','.join(ARCHITECTURES)})")
    parser.add_argument("--kernels", action="store_true", help="also a line for each kernel")
    parser.add_argument("--jobs", type=int, metavar="N", default=len(os.sched_getaffinity(0)),
                        help="how many files are compiled at once (default: one per processor)")
    parser.add_argument("--record", metavar="NAME", help="also write docs/records/NAME.json")


def main(options):
    wanted = options.arch.split(",")
    if not all(re.fullmatch(r"\d{2,3}", one) for one in wanted):
        raise LabError(f"--arch {options.arch}: numbers like 86 or 120, with commas between them")
    rungs = cuda_rungs(options.rungs)
    build.require("nvcc", "the CUDA Toolkit, and needs no GPU")
    known = subprocess.run(["nvcc", "--list-gpu-code"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    for one in wanted:
        if f"sm_{one}" not in known:
            print(f"left out: sm_{one}, which this nvcc does not know")
    work = [(one, rung) for one in wanted if f"sm_{one}" in known for rung in rungs if suits(rung, one)]
    if not work:
        raise LabError(f"nothing to compile: this nvcc knows none of {options.arch}, or no rung is for them")
    rows, failed = {}, 0
    with concurrent.futures.ThreadPoolExecutor(max(1, options.jobs)) as pool:
        running = {pool.submit(compile_for, *one): one for one in work}
        for number, done in enumerate(concurrent.futures.as_completed(running), 1):
            (architecture, rung), (seconds, wrong, found) = running[done], done.result()
            rows[architecture, rung] = found
            print(f"{number} of {len(work)}: sm_{architecture} {rung.name} {'FAILED' if wrong else 'compiles'} "
                  f"({seconds:.0f} s)", file=sys.stderr)
            if wrong:
                failed += 1
                print(wrong, file=sys.stderr)
    found = [row for one in work for row in rows[one]]
    if options.kernels:
        for row in found:
            print(f"sm_{row['architecture']} {row['kernel']}: {row['registers']} registers, {row['stack']} bytes of stack, "
                  f"{row['spill_stores']} and {row['spill_loads']} bytes spilled and fetched, "
                  f"{row['static_shared']} bytes of static shared memory")
    print(*table(found), f"{len(work) - failed} of {len(work)} compile without a warning", sep="\n")
    if options.record and not failed:
        records.save(options.record, records.provenance("lab " + " ".join(sys.argv[1:]), gpu=False, flags=" ".join(OPTIONS)),
                     found)
    return 1 if failed else 0
