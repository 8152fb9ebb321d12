"""What a CUDA rung does to memory and to the tensor cores: counted by ncu on a GPU, and by the SIMT backend on the CPU.

    ./scripts/profile 11
    ./scripts/profile 09 --heads 4 --q-len 512 --head-dim 128 --causal

Without a GPU, or without ncu, the SIMT backend's counts stand alone. The two count the same where both have a number,
but for plain accesses to shared memory: SIMT counts those of the source, and nvcc keeps values in registers.
For counts of each source line: ./scripts/step --preset simt RUNG --profile. Build first:
    cmake --preset simt && cmake --build --preset simt --target rungs
    cmake --preset cuda && cmake --build --preset cuda --target rungs
"""

import argparse
import os
import shutil
import sys
from pathlib import Path

from lab import counters, records
from lab.ladder import LabError, ROOT, cuda_rungs

PROBLEM = ("--heads", "2", "--q-len", "200", "--head-dim", "64")  # the SIMT backend executes thread by thread


def shared(counts):
    """What both sides have: {label: text}."""
    labels = {f"global {access} {what}": counts[f"global {access} {what}"]
              for access in ("load", "store") for what in ("requests", "sectors")}
    per = {f"sectors per {access} request": f"{counts[f'global {access} sectors'] / requests:.2f}"
           for access in ("load", "store") if (requests := counts[f"global {access} requests"])}
    return {**{label: f"{number:,}" for label, number in labels.items()}, **per,
            "shared wavefronts, loads": f"{counts['shared load wavefronts']:,}",
            "shared wavefronts, stores": f"{counts['shared store wavefronts']:,}",
            "mma instructions": f"{counts['mma']:,}", "ldmatrix instructions": f"{counts['ldmatrix']:,}"}


def over_ideal(ways):
    return {"shared wavefronts over the ideal": f"{ways:.2f}" if ways else ""}


def on_gpu(kernel):
    """{label: text} from ncu's counts of a kernel."""
    return {**shared(counters.of_gpu(kernel)), **over_ideal(counters.ways_of_gpu(kernel)),
            "DRAM bytes read": f"{kernel['dram_read_bytes']:,.0f}", "DRAM bytes written": f"{kernel['dram_write_bytes']:,.0f}",
            "achieved occupancy": f"{kernel['occupancy_percent']:.1f}%",
            "tensor pipe at work": f"{kernel['tensor_active_percent']:.1f}%",
            "registers per thread": f"{kernel['registers']:.0f}",
            "sectors of spilled registers": f"{kernel['local_load_sectors'] + kernel['local_store_sectors']:,.0f}"}


def on_simt(total):
    """{label: text} from the SIMT backend's counts of a kernel."""
    return {**shared(counters.of_simt(total)), **over_ideal(counters.ways_of_simt(total)),
            "barriers": f"{total['barriers']:,}", "warp collectives": f"{total['collectives']:,}"}


def gpu_missing(path):
    """Why the GPU's side is left out, or ""."""
    if not records.has_gpu():
        return "nvidia-smi finds no GPU"
    if not shutil.which("ncu"):
        return "there is no ncu (it comes with the CUDA Toolkit)"
    return "" if os.access(path, os.X_OK) else f"{path} is not there; cmake --preset cuda && cmake --build --preset cuda"


def lines(columns):
    """The table: `columns` is {side: {kernel: {label: text}}}."""
    for kernel in next(iter(columns.values())):
        sides = [side.get(kernel, {}) for side in columns.values()]
        labels = [label for label in dict.fromkeys(label for side in sides for label in side)
                  if any(side.get(label) not in (None, "", "0") for side in sides)]
        yield f"\n{kernel:<34}" + "".join(f"{name:>16}" for name in columns)
        for label in labels:
            yield f"{label:<34}" + "".join(f"{side.get(label, ''):>16}" for side in sides)


def add_arguments(parser):
    parser.add_argument("--programs", type=Path, default=ROOT / "build-cuda", metavar="DIR",
                        help="build folder for the GPU (build-cuda)")
    parser.add_argument("--simt-programs", type=Path, default=ROOT / "build-simt", metavar="DIR",
                        help="build folder for the SIMT backend (build-simt)")
    parser.add_argument("rung", metavar="RUNG", help="its number or name")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT",
                        help=f"for the rung, as in scripts/step ({' '.join(PROBLEM)})")


def main(options):
    rung, = cuda_rungs([options.rung])
    arguments, columns = options.arguments or list(PROBLEM), {}
    gpu, simt = (folder / "steps" / rung.name for folder in (options.programs, options.simt_programs))
    if missing := gpu_missing(gpu):
        print(f"GPU left out: {missing}", file=sys.stderr)
    else:
        print(f"ncu: {rung.name}", file=sys.stderr)
        columns["GPU"] = {kernel: on_gpu(counts) for kernel, counts in counters.count(gpu.resolve(), *arguments).items()}
    if os.access(simt, os.X_OK):
        columns["SIMT"] = {kernel: on_simt(total) for kernel, total in counters.profile(simt.resolve(), arguments).items()}
    elif not columns:
        raise LabError(f"{simt} is not there; cmake --preset simt && cmake --build --preset simt --target {rung.name}")
    print(f"{rung.name} {' '.join(arguments)}", *lines(columns), sep="\n")
    return 0
