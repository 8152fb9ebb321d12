"""What a CUDA rung does to memory and to the tensor cores: counted by ncu on a GPU, and by the SIMT
backend on the CPU.

    ./scripts/profile swizzle
    ./scripts/profile double_buffer --heads 4 --q-len 512 --head-dim 128 --causal

Without a GPU, or without ncu, the SIMT backend's counts stand alone. The two count the same where
both have a number, but for plain accesses to shared memory: SIMT counts those of the source, and
nvcc keeps values in registers. Counts of each source line, as text and as a page, are left in
NAME.profile.txt and .html; ./scripts/profile NAME.profile.json makes them again. Build first:
./scripts/step --preset simt RUNG, and --preset cuda for a GPU.
"""

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from cuda_on_cpu import profile_report

from lab import cli, counters, harness, records
from lab.ladder import LabError, cuda_rungs

# The SIMT backend executes thread by thread.
PROBLEM = ("--heads", "2", "--q-len", "200")


def common(counts: dict[str, float]) -> dict[str, float]:
    """{label: number} of what both sides count."""
    found = {name: count for name, count in counts.items() if name != counters.WAYS}
    for access in ("load", "store"):
        if requests := counts[f"global {access} requests"]:
            found[f"sectors per {access} request"] = counts[f"global {access} sectors"] / requests
    return found | {"shared wavefronts over the ideal": counts[counters.WAYS]}


def on_gpu(kernel: dict[str, float]) -> dict[str, float]:
    return common(counters.of_gpu(kernel)) | {
        "DRAM bytes read": int(kernel["dram_read_bytes"]),
        "DRAM bytes written": int(kernel["dram_write_bytes"]),
        "achieved occupancy, %": kernel["occupancy_percent"],
        "tensor pipe at work, %": kernel["tensor_active_percent"],
        "registers per thread": int(kernel["registers"]),
        "sectors of spilled registers": int(
            kernel["local_load_sectors"] + kernel["local_store_sectors"]
        ),
    }


def lines(columns: dict[str, dict[str, dict[str, float]]]) -> Iterator[str]:
    """A table for each kernel: `columns` is {side: {kernel: {label: number}}}. What is 0 on all
    sides is left out."""

    def cell(side: dict[str, float], label: str) -> str:
        number = side.get(label, "")
        if isinstance(number, float):
            return f"{number:.2f}"
        return f"{number:,}" if number != "" else ""

    for kernel in next(iter(columns.values())):
        sides = [side.get(kernel, {}) for side in columns.values()]
        every = dict.fromkeys(label for side in sides for label in side)
        labels = [label for label in every if any(side.get(label) for side in sides)]
        yield ""
        yield from cli.table(
            [kernel, *columns],
            [[label, *(cell(side, label) for side in sides)] for label in labels],
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cli.add(parser, "--programs", "--simt-programs")
    parser.add_argument("rung", metavar="RUNG", help="its name; or a file NAME.profile.json")
    parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="ARGUMENT",
        help=f"for the rung, as in scripts/step ({' '.join(PROBLEM)})",
    )


def show_again(path: str) -> None:
    try:
        profile_report.show(profile_report.load(path), path.removesuffix(".json"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"{path} cannot be shown: {error}") from None


def main(options: argparse.Namespace) -> int:
    if options.rung.endswith(".json"):
        show_again(options.rung)
        return 0
    (rung,) = cuda_rungs([options.rung])
    arguments, columns = options.arguments or list(PROBLEM), {}
    gpu = harness.program(options.programs, rung.name)
    simt = harness.program(options.simt_programs, rung.name)
    if not records.has_gpu():
        cli.say("GPU left out: nvidia-smi finds no GPU")
    elif not shutil.which("ncu"):
        cli.say("GPU left out: there is no ncu (it comes with the CUDA Toolkit)")
    elif not gpu:
        cli.say(f"GPU left out: {rung.name} is not in {options.programs}")
    else:
        found = counters.count(gpu, *arguments, metrics=records.METRICS | counters.metrics_of(rung))
        columns["GPU"] = {kernel: on_gpu(counts) for kernel, counts in found.items()}
    if simt or not columns:
        simt = harness.need(options.simt_programs, rung.name)
        document = counters.simt_document(simt, arguments)
        columns["SIMT"] = {
            kernel: common(counters.of_simt(total))
            | {"barriers": total["barriers"], "warp collectives": total["collectives"]}
            for kernel, total in counters.totals(document).items()
        }
    print(f"{rung.name} {' '.join(arguments)}", *lines(columns), sep="\n")
    if "SIMT" in columns:
        Path(f"{rung.name}.profile.json").write_text(
            json.dumps(document, indent=2) + "\n", encoding="utf-8"
        )
        print()
        profile_report.show(document, f"{rung.name}.profile")
    return 0
