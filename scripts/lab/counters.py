"""Compares what the SIMT backend counts with what a GPU does, kernel by kernel of every CUDA rung.

Runs each rung on the same problems twice: on the GPU under ncu, and on the CPU with --profile.
Equal must be
  - requests and sectors of global loads, stores and atomics,
  - mma, ldmatrix and, by shape, wgmma instructions of warps,
  - requests of TMA to load, to store and to add, and the bytes of each,
  - bank conflicts of shared memory: whether there are any, and where the compiler keeps the
    accesses, how many ways.
Wavefronts of plain shared loads stand beside each other and may differ: SIMT counts the source, and
nvcc keeps values in registers. So may the loads and the bank conflicts of a kernel that polls a
semaphore: they depend on how long it waits. Build the target rungs first, by the presets cuda and
simt.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lab import build, cli, harness, records
from lab.ladder import ROOT, LabError, Rung, cuda_rungs
from lab.records import Row

# So few tiles that of blocks which stay, SIMT's 4 SMs hold as many as a GPU. The head dims are the
# rung's without 64; the first problem has the rung's usual one, which is 64 where it can.
PROBLEMS = (
    "--heads 2 --q-len 200 --kv-len 200",
    "--heads 4 --kv-heads 2 --q-len 97 --kv-len 161 --head-dim {0} --causal",
    "--heads 1 --q-len 130 --kv-len 70 --head-dim {0} --causal",
)
# These cut their work by the number of SMs, of which SIMT's GPU has four. With as many heads as an
# H100 or H200 has SMs, and a block for each, both cut nothing.
CUT_BY_SMS = ("split_kv", "page_table", "paged_kv")
UNCUT = (
    "--batch 66 --heads 2 --q-len 1 --kv-len 256 --head-dim 128",
    "--batch 66 --heads 4 --kv-heads 2 --q-len 3 --kv-len 200 --head-dim 128 --causal",
    "--batch 66 --heads 2 --q-len 7 --kv-len 70 --head-dim 128",
)
# What is counted: requests and these; and where, in the JSON of --profile.
TRAFFIC = {
    "global load": ("sectors", "global_load"),
    "global store": ("sectors", "global_store"),
    "atomic": ("sectors", "global_atomic"),
    "TMA load": ("bytes", "tma_load"),
    "TMA store": ("bytes", "tma_store"),
    "TMA add": ("bytes", "bulk_reduce"),
}
COUNTED = [f"{ours} {what}" for ours, (unit, _) in TRAFFIC.items() for what in ("requests", unit)]
SHOWN = ("shared load wavefronts", "shared store wavefronts")
# wavefronts over wavefronts without conflicts, of all accesses to shared memory
WAYS = "ways of bank conflicts"
# "9 (HGMMA.64x96x16.F32: 8; LDG.E.STRONG.GPU: 1)"
OPCODES = "sass__inst_executed_per_opcode_with_modifier_all"
Counts = dict[str, float]
FLUSHES = "read_all"  # the harness's kernel, which empties L2 before a rung is timed
# ncu's names. An atomic has an answer, or is a reduction. ld, st and red of TMA exist from Hopper
# on.
COMPARED = {
    name: metric
    for name, metric in records.METRICS.items()
    if re.match("global|shared_.*(wavefronts|conflicts)|tensor_pipe|ldmatrix", name)
} | {
    f"{ours}_{what}": f"l1tex__t_{what}_pipe_lsu_mem_global_op_{theirs}.sum"
    for ours, theirs in (("atomic", "red"), ("answered", "atom"))
    for what in ("requests", "sectors")
}
HOPPER = {"instructions": OPCODES}
for ours, theirs in ("load", "ld"), ("store", "st"), ("add", "red"):
    way = "xbar2l1tex_read" if ours == "load" else "l1tex2xbar_write"
    HOPPER |= {
        f"TMA_{ours}_requests": f"smsp__sass_inst_executed_op_tma_{theirs}.sum",
        f"TMA_{ours}_bytes": f"l1tex__m_{way}_bytes_mem_global_op_tma_{theirs}.sum",
    }
# KiB of shared memory of a block, by compute capability: rungs may choose their tiles by it.
SHARED_KIB = (
    dict.fromkeys(("8.0", "8.7"), 163)
    | dict.fromkeys(("9.0", "10.0", "10.3"), 227)
    | dict.fromkeys(("8.6", "8.9", "12.0", "12.1"), 99)
)


def problems_of(rung: Rung) -> list[list[str]]:
    """The words of the command lines."""
    others = [d for d in rung.head_dims if d != 64]
    problems = UNCUT if rung.name in CUT_BY_SMS else PROBLEMS
    dims = (others[0], others[0], others[-1])
    return [one.format(d).split() for one, d in zip(problems, dims, strict=True)]


def metrics_of(rung: Rung) -> dict[str, str]:
    """What ncu is asked about a rung."""
    return COMPARED | (HOPPER if float(rung.capability) >= 9 else {})


def parsed(output: str, metrics: dict[str, str] = records.METRICS) -> list[tuple[str, Counts]]:
    """[(kernel, its counts)] of each launch, of what ncu --csv --page raw printed."""
    lines, found = [line for line in output.splitlines() if line.startswith('"')], []
    for row in csv.DictReader(lines):
        if not row["ID"]:
            continue  # the line of units
        kernel = re.match(r"(?:void )?(?:<?unnamed>::|\w+::)*(\w+)", row["Kernel Name"])
        assert kernel
        counts = {
            ours: float(row[theirs].split(" ")[0].replace(",", ""))
            for ours, theirs in metrics.items()
            if row.get(theirs)
        }
        opcodes = row.get(OPCODES, "")
        for n, executed in re.findall(r"HGMMA\.64x(\d+)x16\S*: ([\d,]+)", opcodes):
            counts[f"wgmma m64n{n}k16"] = int(executed.replace(",", ""))
        if re.search(r"LDG?\.\S*STRONG", opcodes):
            counts["polls"] = 1
        if "seconds" in counts:
            counts["seconds"] /= 1e9
        found.append((kernel[1], counts))
    return found


def ncu(
    command: Iterable[object], kernels: str = "", metrics: dict[str, str] = records.METRICS
) -> list[tuple[str, Counts]]:
    """[(kernel, counts)] of a command's launches; `kernels` is a regular expression."""
    build.require("ncu")
    flags = (
        "--csv --page raw --print-units base --clock-control none --print-metric-instances details"
    )
    only = ["-k", f"regex:{kernels}"] if kernels else []
    full = ["ncu", *flags.split(), *only, "--metrics", ",".join(metrics.values())]
    full += map(str, command)
    done = subprocess.run(full, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        said = done.stdout[-2000:]
        raise LabError(f"{' '.join(full)} failed with exit code {done.returncode}:\n{said}")
    return parsed(done.stdout, metrics)


def count(
    path: Path, *arguments: object, metrics: dict[str, str] = records.METRICS
) -> dict[str, Counts]:
    """{kernel: counts} of the first run of a rung's program; later runs are left out."""
    found: dict[str, Counts] = {}
    for name, counts in ncu([path, *arguments, "--no-check"], metrics=metrics):
        if name != FLUSHES:
            found.setdefault(name, counts)
    return found


def simt_document(path: Path, arguments: list[str]) -> dict[str, Any]:
    """The profile that a run of the SIMT backend writes."""
    capability = records.asked("compute_cap")[0]
    own = {"FLASH_SIMT_SHARED_KIB": str(SHARED_KIB[capability])} if capability in SHARED_KIB else {}
    command = [str(path), *arguments, "--no-check", "--profile"]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**own, **os.environ}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            said = f"exit code {done.returncode}:\n{done.stderr.strip()}"
            raise LabError(f"{' '.join(command)} failed with {said}")
        return json.loads(next(Path(folder).glob("*.profile.json")).read_text(encoding="utf-8"))


def totals(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """{kernel: its totals} of a profile."""
    return {
        re.sub(r"<.*", "", one["name"]).split("::")[-1]: one["total"] for one in document["kernels"]
    }


def of_gpu(of_ncu: Counts) -> Counts:
    """What both sides count, under the same names."""
    # A Counter: all else is 0.
    counts = Counter({name.replace("_", " "): int(number) for name, number in of_ncu.items()})
    wgmma = [name for name in counts if name.startswith("wgmma")]
    in_wgmma = sum(counts[name] for name in wgmma)
    counts["mma"] = counts["tensor pipe"] - counts["tensor pipe moves"] - in_wgmma
    for what in ("requests", "sectors"):
        counts[f"atomic {what}"] += counts[f"answered {what}"]
    wavefronts = sum(counts[name] for name in SHOWN)
    ideal = wavefronts - counts["shared load conflicts"] - counts["shared store conflicts"]
    found = {name: counts[name] for name in (*COUNTED, "mma", "ldmatrix", *wgmma, *SHOWN)}
    return found | {WAYS: round(wavefronts / ideal, 2) if wavefronts else 0}


def of_simt(total: dict[str, Any]) -> Counts:
    """The same of the JSON of --profile, where cp.async stores to shared memory apart."""
    parts = [total[name] for name in ("shared_load", "shared_store", "async_store")]
    ideal = sum(part["ideal"] for part in parts)
    found = {
        f"{ours} {what}": total.get(theirs, {}).get(what, 0)
        for ours, (unit, theirs) in TRAFFIC.items()
        for what in ("requests", unit)
    }
    found |= {"mma": total["mma"], "ldmatrix": total["ldmatrix"]}
    found |= {f"wgmma {shape}": number for shape, number in total.get("wgmma", {}).items()}
    found |= dict(zip(SHOWN, (part["wavefronts"] for part in parts)))
    ways = sum(part["wavefronts"] for part in parts) / ideal if ideal else 0
    return found | {WAYS: round(ways, 2)}


def compared(
    name: str, problem: str, on_gpu: dict[str, Counts], on_simt: dict[str, dict[str, Any]]
) -> list[Row]:
    """Rows: one per kernel and count."""
    if on_gpu.keys() != on_simt.keys():
        raise LabError(f"{name}: the GPU ran {sorted(on_gpu)}, the SIMT backend {sorted(on_simt)}")
    rows = []
    for kernel in on_gpu:
        gpu, simt = of_gpu(on_gpu[kernel]), of_simt(on_simt[kernel])
        simt[WAYS] = simt[WAYS] or int(gpu[WAYS] > 0)
        free = {*SHOWN}
        if "polls" in on_gpu[kernel]:
            free |= {"global load requests", "global load sectors", WAYS}
        about = {"program": name, "kind": "rung", "kernel": kernel, "problem": problem}
        for one in gpu | simt:
            if gpu.get(one) or simt.get(one) and one != WAYS:
                both = {"gpu": gpu.get(one, 0), "simt": simt.get(one, 0)}
                rows.append(about | {"counter": one} | both | {"must_be_equal": one not in free})
    return rows


def agrees(row: Row) -> bool:
    if row["counter"] == WAYS and row["must_be_equal"]:
        return abs(row["gpu"] - row["simt"]) <= 0.0501 * row["simt"]  # rounded to 0.01
    return row["gpu"] == row["simt"] or not row["must_be_equal"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cli.add(parser, "rungs", "--programs", "--simt-programs", "--record", "--commit")


def main(options: argparse.Namespace) -> int:
    chosen, runs, rows = cuda_rungs(options.rungs), [], []
    build.require("ncu")
    for rung in chosen:
        gpu = harness.need(options.programs, rung.name)
        simt = harness.need(options.simt_programs, rung.name)
        runs += [(rung, gpu, simt, problem) for problem in problems_of(rung)]
    with ThreadPoolExecutor(4) as beside:  # the SIMT backend needs no GPU
        documents = [beside.submit(simt_document, simt, problem) for *_, simt, problem in runs]
        for (rung, gpu, _, problem), document in zip(runs, documents):
            cli.say(f"{rung.name} {' '.join(problem)}")
            on_gpu = count(gpu, *problem, metrics=metrics_of(rung))
            on_simt = totals(document.result())
            rows += compared(rung.name, " ".join(problem), on_gpu, on_simt)
    lines = []
    for row in rows:
        verdict = "equal" if row["gpu"] == row["simt"] else "as written"
        verdict = verdict if agrees(row) else "DIFFERENT"
        what = f"{row['program']} {row['kernel']}, {row['counter']}"
        lines.append([what, f"{row['gpu']:,}", f"{row['simt']:,}", verdict])
    cli.print_table(["", "GPU", "SIMT", ""], lines)
    different = sum(not agrees(row) for row in rows)
    must = sum(row["must_be_equal"] for row in rows)
    print(f"\n{must - different} of {must} counts that must agree do.")
    cli.save(options, rows)
    return 1 if different else 0
