"""Times ring_attention: on one GPU, as P ranks one after the other on it, and on several GPUs.

The ranks on one GPU send nothing: what they take longer is the price of computing in parts and
merging them. The GPUs are the first 2, 4, 8 .. that this computer has, a process for each, started
by mpirun. Each result is checked on a few rows. Needs the rung's program of the preset cuda.

    lab ring                        131,072 rows, 16 heads, d = 128, bf16, with and without a mask
    lab ring --problem 1,8,65536,128 --ranks 8
"""

import argparse
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from lab import cli, harness
from lab.ladder import LabError
from lab.records import Row

PROBLEM = (1, 16, 131072, 128)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    ranks = "ranks on one GPU (2,4,8)"
    parser.add_argument("--ranks", type=cli.numbers, default=(2, 4, 8), metavar="P,P", help=ranks)
    cli.add(parser, "--programs", "--problem", "--record", "--commit")


def gpus() -> int:
    """How many this computer has."""
    try:
        said = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, text=True)
    except OSError:
        return 0
    return sum(line.startswith("GPU ") for line in said.stdout.splitlines())


def commands(options: argparse.Namespace, program: Path) -> dict[tuple[int, int], list[Any]]:
    """{(ranks, processes): how the program is started}"""
    found: dict[tuple[int, int], list[Any]] = {(1, 1): [program]}
    for ranks in options.ranks:
        found[ranks, 1] = [program, "--ranks", ranks]
    several = [n for n in (2, 4, 8, 16) if n <= gpus()]
    if several and not shutil.which("mpirun"):
        cli.say("several GPUs left out: there is no mpirun")
        several = []
    for n in several:  # with its cores, because all of them prepare the problem and check it
        found[n, n] = ["mpirun", "-np", n, "--bind-to", "none", program]
    return found


def row_of(case: Row, ranks: int, processes: int, report: dict[str, Any]) -> Row:
    timed = report["benchmark"]
    return {
        "program": "ring_attention",
        "kind": "rung",
        "dtype": "bf16",
        **case,
        "ranks": ranks,
        "processes": processes,
        "ms": report["seconds"] * 1e3,
        "min_ms": timed["min_s"] * 1e3,
        "max_ms": timed["max_s"] * 1e3,
        "spread": round(timed["spread"], 4),
        "repetitions": timed["repetitions"],
        "tflops": report["gflops_per_s"] / 1e3,
        "o_error": report["check"]["o_error"],
    }


def main(options: argparse.Namespace) -> int:
    if any(ranks < 2 for ranks in options.ranks):
        raise LabError("--ranks: from 2 on")
    program = harness.need(options.programs, "ring_attention")
    if os.geteuid() == 0:  # Open MPI wants to be told
        os.environ |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    rows = []
    for shape in options.problem or [PROBLEM]:
        for causal in (False, True):
            B, H, N, d = shape
            case = harness.problem(B, H, N, d, causal)
            lines: list[list[str]] = []
            arguments = [*harness.arguments_of(case, "bf16"), "--bench", "--check-rows", 2]
            for (ranks, processes), command in commands(options, program).items():
                row = row_of(case, ranks, processes, harness.report_of(*command, *arguments))
                rows.append(row)
                times = rows[-1 - len(lines)]["ms"] / row["ms"]
                what = f"{ranks} ranks on it" if ranks > 1 else "one GPU"
                what = f"{processes} GPUs" if processes > 1 else what
                lines.append([what, f"{row['ms']:.2f}", f"{row['tflops']:.0f}", f"{times:.3f}"])
                cli.save(options, rows)
            print(f"\n{harness.title(case)}")
            cli.print_table(["", "ms", "TFLOP/s", "times as fast as one"], lines)
    return 0
