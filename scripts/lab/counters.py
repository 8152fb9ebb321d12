"""Compares the counts of the SIMT backend with those of a GPU, kernel by kernel, for every CUDA rung.

Runs each rung on the same problems twice: on the GPU under ncu, and on the CPU with --profile. Equal must be
  - requests and sectors of global loads and stores,
  - mma and ldmatrix instructions,
  - bank conflicts of shared memory: whether there are any, and where the compiler keeps the accesses, how many ways.
Wavefronts of plain shared loads stand beside each other and may differ: SIMT counts the source, and nvcc keeps values in
registers. Build first:
    cmake --preset cuda && cmake --build --preset cuda --target rungs
    cmake --preset simt && cmake --build --preset simt --target rungs
"""

import csv
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from lab import build, harness, records
from lab.ladder import LabError, ROOT, cuda_rungs

PROBLEMS = ("--heads 2 --q-len 200 --kv-len 200 --head-dim 64",
            "--heads 4 --kv-heads 2 --q-len 97 --kv-len 161 --head-dim 32 --causal",
            "--heads 1 --q-len 130 --kv-len 70 --head-dim 128 --causal")
EQUAL = ("global load requests", "global load sectors", "global store requests", "global store sectors", "mma",
         "ldmatrix")
SHOWN = ("shared load wavefronts", "shared store wavefronts")
# KiB of shared memory of a block, by compute capability: rungs may choose their tiles by it.
SHARED_KIB = {"8.0": 163, "8.7": 163, "9.0": 227, "10.0": 227, "10.3": 227, "8.6": 99, "8.9": 99, "12.0": 99, "12.1": 99}


def program(folder, name):
    path = harness.program(folder, name)
    if not path:
        preset = folder.name.removeprefix("build-")
        raise LabError(f"there is no {name} in {folder}; build it: cmake --preset {preset} && "
                       f"cmake --build --preset {preset} --target rungs")
    return path


def parsed(output):
    """[(kernel, its counts)] of each launch, of what ncu --csv --page raw printed."""
    lines = [line for line in output.splitlines() if line.startswith('"')]
    found = []
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        if row["ID"]:  # else the line of units
            name = row["Kernel Name"].split("(")[0].split("::")[-1].split("<")[0]
            counts = {ours: float(row[theirs].replace(",", "")) for ours, theirs in records.METRICS.items() if row.get(theirs)}
            if "seconds" in counts:
                counts["seconds"] /= 1e9
            found.append((name, counts))
    return found


def ncu(command, kernels=""):
    """[(kernel, counts)] of the launches of a command; `kernels`: only those that the regular expression names."""
    build.require("ncu")
    full = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
            *(["-k", f"regex:{kernels}"] if kernels else []), "--metrics", ",".join(records.METRICS.values()),
            *map(str, command)]
    done = subprocess.run(full, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise LabError(f"{' '.join(full)} failed with exit code {done.returncode}:\n{done.stdout[-2000:]}")
    return parsed(done.stdout)


def count(path, *arguments):
    """{kernel: counts} of the first run of a rung's program."""
    found = {}
    for name, counts in ncu([path, *arguments, "--no-check"]):
        found.setdefault(name, counts)  # later runs are left out
    return found


def profile(path, arguments):
    """{kernel: its totals} from a run of the SIMT backend with --profile."""
    capability = records.asked("compute_cap")[0]
    own = {"FLASH_SIMT_SHARED_KIB": str(SHARED_KIB[capability])} if capability in SHARED_KIB else {}
    with tempfile.TemporaryDirectory() as folder:
        command = [str(path), *arguments, "--no-check", "--profile"]
        done = subprocess.run(command, cwd=folder, env={**own, **os.environ}, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise LabError(f"{' '.join(command)} failed with exit code {done.returncode}:\n{done.stderr.strip()}")
        kernels = json.loads((Path(folder) / f"{path.name}.profile.json").read_text(encoding="utf-8"))["kernels"]
    return {re.sub(r"<.*", "", kernel["name"]).split("::")[-1]: kernel["total"] for kernel in kernels}


def of_gpu(counts):
    counts = {**counts, "mma": counts["tensor_pipe"] - counts["tensor_pipe_moves"]}
    return {name: int(counts[name.replace(" ", "_")]) for name in (*EQUAL, *SHOWN)}


def of_simt(total):
    """The same names from the JSON of --profile. cp.async loads global memory, and stores to shared memory apart."""
    return {"global load requests": total["global_load"]["requests"], "global load sectors": total["global_load"]["sectors"],
            "global store requests": total["global_store"]["requests"],
            "global store sectors": total["global_store"]["sectors"], "mma": total["mma"], "ldmatrix": total["ldmatrix"],
            "shared load wavefronts": total["shared_load"]["wavefronts"],
            "shared store wavefronts": total["shared_store"]["wavefronts"]}


def ways_of_simt(total):
    """Wavefronts over wavefronts without conflicts, of all accesses to shared memory; None without any."""
    parts = [total[name] for name in ("shared_load", "shared_store", "async_store")]
    ideal = sum(part["ideal"] for part in parts)
    return sum(part["wavefronts"] for part in parts) / ideal if ideal else None


def ways_of_gpu(counts):
    wavefronts = counts["shared_load_wavefronts"] + counts["shared_store_wavefronts"]
    extra = counts["shared_load_conflicts"] + counts["shared_store_conflicts"]
    return wavefronts / (wavefronts - extra) if wavefronts else None


def compared(name, problem, on_gpu, on_simt):
    """Rows: one per kernel and count."""
    if on_gpu.keys() != on_simt.keys():
        raise LabError(f"{name}: the GPU ran {sorted(on_gpu)}, the SIMT backend {sorted(on_simt)}")
    rows = []
    for kernel, counts in on_gpu.items():
        about = {"program": name, "kind": "rung", "kernel": kernel, "problem": problem}
        gpu, simt = of_gpu(counts), of_simt(on_simt[kernel])
        rows += [{**about, "counter": one, "gpu": gpu[one], "simt": simt[one], "must_be_equal": one in EQUAL}
                 for one in (*EQUAL, *SHOWN) if gpu[one] or simt[one]]
        if ways_of_gpu(counts):
            rows.append({**about, "counter": "ways of bank conflicts", "gpu": round(ways_of_gpu(counts), 2),
                         "simt": round(ways_of_simt(on_simt[kernel]) or 1, 2), "must_be_equal": True})
    return rows


def agrees(row):
    if row["counter"] == "ways of bank conflicts":
        return abs(row["gpu"] - row["simt"]) <= 0.05 * row["simt"]
    return row["gpu"] == row["simt"] or not row["must_be_equal"]


def add_arguments(parser):
    parser.add_argument("rungs", nargs="*", metavar="RUNG", help="numbers or names (all CUDA rungs)")
    parser.add_argument("--programs", type=Path, default=ROOT / "build-cuda", metavar="DIR",
                        help="build folder with the programs for the GPU (build-cuda)")
    parser.add_argument("--simt-programs", type=Path, default=ROOT / "build-simt", metavar="DIR",
                        help="build folder with the programs for the CPU (build-simt)")
    parser.add_argument("--record", metavar="NAME", help="also write docs/records/NAME.json")
    parser.add_argument("--commit", default="", help="commit of the sources, where git cannot tell")


def main(options):
    chosen = cuda_rungs(options.rungs)
    build.require("ncu")
    both = {rung.name: (program(options.programs, rung.name), program(options.simt_programs, rung.name)) for rung in chosen}
    rows = []
    for name, (gpu, simt) in both.items():
        for problem in PROBLEMS:
            print(f"{name} {problem}", file=sys.stderr)
            rows += compared(name, problem, count(gpu, *problem.split()), profile(simt, problem.split()))
    for row in rows:
        word = "DIFFERENT" if not agrees(row) else "equal" if row["gpu"] == row["simt"] else "as written"
        print(f"{row['program'][:2]} {row['kernel']:<20} {row['counter']:<24} {row['gpu']:>14,} {row['simt']:>14,}  {word}")
    different = sum(not agrees(row) for row in rows)
    must = sum(row["must_be_equal"] for row in rows)
    print(f"\n{must - different} of {must} counts that must agree do.")
    if options.record:
        records.save(options.record, records.provenance("lab " + " ".join(sys.argv[1:]), options.commit), rows)
    return 1 if different else 0
