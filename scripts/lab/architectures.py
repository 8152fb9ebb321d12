"""Compiles the CUDA rungs for every GPU of the ladder, and shows what ptxas made of them.

A kernel file is compiled to machine code of one architecture at a time; a warning is an error. No
GPU is needed, and nothing is run. The table names, for each rung and architecture, the most
registers a thread of its kernels has and the bytes that ptxas spills in all of them. A compute
capability that this nvcc does not know, or that is older than the rung asks for, is left out.
Shared memory that a kernel asks for when it is launched: ./scripts/step --preset simt RUNG
--profile.
"""

import argparse
import re
import subprocess

from lab import build, cli
from lab.ladder import LabError, Rung, cuda_rungs
from lab.record_tables import most_registers

ARCHITECTURES = "80,86,89,90,100,120"


def suits(rung: Rung, architecture: str) -> bool:
    """Whether a rung is compiled for it: wgmma exists in Hopper's code alone."""
    asked = int(rung.capability.replace(".", ""))
    return int(architecture) == asked if asked == 90 else int(architecture) >= asked


def variant(architecture: str, rung: Rung, library: bool) -> build.Variant:
    """The rung as it is, for that GPU; a warning is an error."""
    code = "90a" if rung.capability == "9.0" else architecture
    name = f"{rung.name}-sm_{code}"
    return build.Variant(name, rung, architecture=f"{code}-real", werror=True, library=library)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cli.add(parser, "rungs", "--jobs", "--record")
    parser.add_argument(
        "--arch", default=ARCHITECTURES, metavar="A,A", help=f"without the point ({ARCHITECTURES})"
    )
    own = "each kernel once, for the GPU that its rung is written for: 8.0 or 9.0"
    parser.add_argument("--own", action="store_true", help=own)
    parser.add_argument("--kernels", action="store_true", help="also a line for each kernel")


def main(options: argparse.Namespace) -> int:
    wanted = ["80", "90"] if options.own else options.arch.split(",")
    rungs = cuda_rungs(options.rungs)
    if not all(re.fullmatch(r"\d{2,3}", one) for one in wanted):
        raise LabError(f"--arch {options.arch}: numbers like 86 or 120, with commas between them")
    build.require("nvcc", "the CUDA Toolkit, and needs no GPU")
    known = subprocess.run(
        ["nvcc", "--list-gpu-code"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split()
    for one in wanted:
        if f"sm_{one}" not in known:
            print(f"left out: sm_{one}, which this nvcc does not know")
    work = [
        (one, rung) for one in wanted if f"sm_{one}" in known for rung in rungs if suits(rung, one)
    ]
    if options.own:
        work = [(one, rung) for one, rung in work if rung.capability == f"{int(one) / 10}"]
    if not work:
        raise LabError(
            f"nothing to compile: this nvcc knows none of {options.arch}, or no rung is for them"
        )
    variants, kinds = {}, set()
    for one in work:  # the entry is the same for all of a kind, and takes as long as a small kernel
        kind = one[0], tuple(one[1].types), one[1].name.startswith("backward_")
        variants[one] = variant(*one, library=kind not in kinds)
        kinds.add(kind)
    built, wrong = build.try_all(list(variants.values()), max(1, options.jobs))
    rows, failed = {}, 0
    for one in work:
        architecture, rung = one
        said = built.get(variants[one].name, ("", ""))[1]
        about = {"program": rung.name, "kind": "rung", "architecture": architecture}
        rows[one] = [about | row for row in build.ptxas_rows(said)]
        if not rows[one]:
            failed += 1
            why = wrong.get(variants[one], "ptxas said nothing of a kernel")
            cli.say(f"sm_{architecture} {rung.name} FAILED:\n{why}")
    found = [row for one in work for row in rows[one]]
    if options.kernels:
        names = ("registers", "stack", "spill_stores", "spill_loads", "static_shared")
        lines = [
            [f"sm_{row['architecture']} {row['kernel']}", *(row[name] for name in names)]
            for row in found
        ]
        cli.print_table(["kernel", *names], lines)
    columns = list(dict.fromkeys(one for one, _ in work))
    cli.print_table(
        ["most registers", *(f"sm_{one}" for one in columns)],
        [
            [rung.name, *(most_registers(rows.get((one, rung), [])) for one in columns)]
            for rung in rungs
        ],
    )
    print(f"{len(work) - failed} of {len(work)} compile without a warning")
    if not failed:
        cli.save(options, found, gpu=False, flags="as common/torch/CMakeLists.txt builds a library")
    return 1 if failed else 0
