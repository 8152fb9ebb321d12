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
import tempfile
from pathlib import Path

from lab import build, cli, harness, records
from lab.ladder import LabError, ROOT, cuda_rungs

PROBLEMS = ("--heads 2 --q-len 200 --kv-len 200 --head-dim 64",
            "--heads 4 --kv-heads 2 --q-len 97 --kv-len 161 --head-dim 32 --causal",
            "--heads 1 --q-len 130 --kv-len 70 --head-dim 128 --causal")
EQUAL = ("global load requests", "global load sectors", "global store requests", "global store sectors", "mma", "ldmatrix")
SHOWN = ("shared load wavefronts", "shared store wavefronts")
WAYS = "ways of bank conflicts"  # wavefronts over wavefronts without conflicts, of all accesses to shared memory
# KiB of shared memory of a block, by compute capability: rungs may choose their tiles by it.
SHARED_KIB = {"8.0": 163, "8.7": 163, "9.0": 227, "10.0": 227, "10.3": 227, "8.6": 99, "8.9": 99, "12.0": 99, "12.1": 99}


def parsed(output):
    """[(kernel, its counts)] of each launch, of what ncu --csv --page raw printed."""
    lines = [line for line in output.splitlines() if line.startswith('"')]
    found = []
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        if row["ID"]:  # else the line of units
            name = row["Kernel Name"].split("(")[0].split("::")[-1].split("<")[0]
            counts = {ours: float(row[theirs].replace(",", "")) for ours, theirs in records.METRICS.items()
                      if row.get(theirs)}
            found.append((name, counts | ({"seconds": counts["seconds"] / 1e9} if "seconds" in counts else {})))
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
    """{kernel: counts} of the first run of a rung's program; later runs are left out."""
    found = {}
    for name, counts in ncu([path, *arguments, "--no-check"]):
        found.setdefault(name, counts)
    return found


def simt_document(path, arguments):
    """The profile that a run of the SIMT backend writes."""
    capability = records.asked("compute_cap")[0]
    own = {"FLASH_SIMT_SHARED_KIB": str(SHARED_KIB[capability])} if capability in SHARED_KIB else {}
    with tempfile.TemporaryDirectory() as folder:
        command = [str(path), *arguments, "--no-check", "--profile"]
        done = subprocess.run(command, cwd=folder, env={**own, **os.environ}, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise LabError(f"{' '.join(command)} failed with exit code {done.returncode}:\n{done.stderr.strip()}")
        return json.loads((Path(folder) / f"{path.name}.profile.json").read_text(encoding="utf-8"))


def totals(document):
    """{kernel: its totals} of a profile."""
    kernels = document["kernels"]
    return {re.sub(r"<.*", "", kernel["name"]).split("::")[-1]: kernel["total"] for kernel in kernels}


def of_gpu(counts):
    """What both sides count, under the same names."""
    counts = {**counts, "mma": counts["tensor_pipe"] - counts["tensor_pipe_moves"]}
    wavefronts = counts["shared_load_wavefronts"] + counts["shared_store_wavefronts"]
    extra = counts["shared_load_conflicts"] + counts["shared_store_conflicts"]
    return {**{name: int(counts[name.replace(" ", "_")]) for name in (*EQUAL, *SHOWN)},
            WAYS: round(wavefronts / (wavefronts - extra), 2) if wavefronts else 0}


def of_simt(total):
    """The same of the JSON of --profile. cp.async loads global memory, and stores to shared memory apart."""
    parts = [total[name] for name in ("shared_load", "shared_store", "async_store")]
    ideal = sum(part["ideal"] for part in parts)
    return {**{f"global {access} {what}": total[f"global_{access}"][what] for access in ("load", "store")
               for what in ("requests", "sectors")}, "mma": total["mma"], "ldmatrix": total["ldmatrix"],
            **{f"shared {access} wavefronts": total[f"shared_{access}"]["wavefronts"] for access in ("load", "store")},
            WAYS: round(sum(part["wavefronts"] for part in parts) / ideal, 2) if ideal else 0}


def compared(name, problem, on_gpu, on_simt):
    """Rows: one per kernel and count."""
    if on_gpu.keys() != on_simt.keys():
        raise LabError(f"{name}: the GPU ran {sorted(on_gpu)}, the SIMT backend {sorted(on_simt)}")
    rows = []
    for kernel in on_gpu:
        gpu, simt = of_gpu(on_gpu[kernel]), of_simt(on_simt[kernel])
        if gpu[WAYS] and not simt[WAYS]:
            simt[WAYS] = 1
        rows += [{"program": name, "kind": "rung", "kernel": kernel, "problem": problem, "counter": one, "gpu": gpu[one],
                  "simt": simt[one], "must_be_equal": one not in SHOWN}
                 for one in gpu if (gpu[one] or simt[one]) and (one != WAYS or gpu[one])]
    return rows


def agrees(row):
    if row["counter"] == WAYS:
        return abs(row["gpu"] - row["simt"]) <= 0.05 * row["simt"]
    return row["gpu"] == row["simt"] or not row["must_be_equal"]


def add_arguments(parser):
    cli.add(parser, "rungs", "--programs", "--simt-programs", "--record", "--commit")


def main(options):
    chosen, rows = cuda_rungs(options.rungs), []
    build.require("ncu")
    both = {rung.name: (harness.need(options.programs, rung.name), harness.need(options.simt_programs, rung.name))
            for rung in chosen}
    for name, (gpu, simt) in both.items():
        for problem in PROBLEMS:
            cli.say(f"{name} {problem}")
            rows += compared(name, problem, count(gpu, *problem.split()), totals(simt_document(simt, problem.split())))
    print(*cli.table(["", "GPU", "SIMT", ""], [
        [f"{row['program'][:2]} {row['kernel']}, {row['counter']}", f"{row['gpu']:,}", f"{row['simt']:,}",
         "DIFFERENT" if not agrees(row) else "equal" if row["gpu"] == row["simt"] else "as written"]
        for row in rows]), sep="\n")
    different, must = sum(not agrees(row) for row in rows), sum(row["must_be_equal"] for row in rows)
    print(f"\n{must - different} of {must} counts that must agree do.")
    cli.save(options, rows)
    return 1 if different else 0
