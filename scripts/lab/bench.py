"""Times every built rung on the same problems, beside this machine's ceilings and PyTorch.

fp32 where a rung has it, bf16 for the rungs that use tensor cores. Problems: (B, H, N, d) = (4, 16,
4096, 64) and (100, 1, 4096, 32), full. Every result is checked against the float64 reference on the
problem that is timed. Medians of at least 20 runs with cold caches; a row whose spread, (longest -
shortest) / median, is beyond 5% is marked "noisy". naive_attention to one_pass_softmax run on all
cores of the processor. Without a GPU PyTorch stands beside them; CUDA rungs are left out. Ceilings
are measured first and last, the better counts, by small programs that g++ and nvcc compile on the
fly.

--series: time against N. 16,384 tokens in sequences of 512 to 16,384, 32 heads, d = 64, as the
papers measure. The rungs on the processor run once, and of each head some 256 rows are checked.

--memory: memory against N, of the rungs on the processor, of cuda_naive, flash_attention_2 and the
last: (1, 8, N, 64), N from 1024 on, until standard attention no longer fits.

Prints a table; the folder `bench` in the build folder gets the record, and a page with pictures
where matplotlib is (apt install python3-matplotlib). Build the target rungs first, by the preset
cuda or cpu.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from lab import build, cli, compare, counters, harness, record_tables, records, results, timing
from lab.cli import say
from lab.ladder import ROOT, LabError, Rung, ladder
from lab.records import Record, Row

FOLDERS = ("build-cuda", "build-simt", "build-cpu")
FLAGS = ("CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS", "CMAKE_CUDA_FLAGS", "CMAKE_CUDA_ARCHITECTURES")
UNITS = tuple(record_tables.UNITS)
LONGEST_ON_CPU = 16384  # of --memory: N^2 grows faster than anybody's patience


Problem = tuple[int, int, int, int]  # B, H, N, d
Timed = tuple[Rung, Path, str]  # a rung, its program, its backend


class Plan(NamedTuple):
    """One kind of record."""

    name: str  # its files begin with it
    problems: tuple[Problem, ...]
    quick: tuple[Problem, ...]  # much smaller problems in their place, for a trial
    rungs: tuple[str, ...] = ()  # those that take part, by name; empty: all
    # backend: how many runs, where it is not as many as a good median takes; 0: one, warm
    runs: dict[str, int] = {}
    check_rows: int = 0  # of each head; 0: all
    libraries: bool = True
    counters: bool = False  # count traffic with ncu, too


BENCH = Plan(
    "bench",
    ((4, 16, 4096, 64), (100, 1, 4096, 32)),
    ((1, 4, 1024, 64), (8, 1, 1024, 32)),
    counters=True,
)
SERIES = Plan(
    "series",
    tuple((16384 // N, 32, N, 64) for N in (512, 1024, 2048, 4096, 8192, 16384)),
    tuple((1024 // N, 4, N, 64) for N in (256, 512, 1024)),
    runs={"cpu": 0},
    check_rows=256,
)
MEMORY = Plan(
    "memory",
    tuple((1, 8, 1024 << i, 64) for i in range(8)),
    tuple((1, 8, 256 << i, 64) for i in range(3)),
    rungs=(
        "naive_attention",
        "safe_softmax",
        "three_pass_softmax",
        "two_pass_softmax",
        "one_pass_softmax",
        "cuda_naive",
        "flash_attention_2",
        "last",
    ),
    runs={"cpu": 1, "cuda": 1},
    check_rows=256,
    libraries=False,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    folders = "build folder (with a GPU build-cuda, else build-simt or build-cpu)"
    add("--programs", type=Path, metavar="DIR", help=folders)
    add("--only", default="", metavar="TEXT", help="only rungs whose name contains TEXT")
    add("--quick", action="store_true", help="much smaller problems: a trial")
    kind = parser.add_mutually_exclusive_group()
    as_plan: dict[str, Any] = {"dest": "plan", "action": "store_const", "default": BENCH}
    kind.add_argument("--series", const=SERIES, help="time against N", **as_plan)
    kind.add_argument("--memory", const=MEMORY, help="memory against N", **as_plan)
    record = "also write docs/records/bench_GPU.json (or series_GPU, memory_GPU)"
    add("--record", action="store_true", help=record)
    cli.add(parser, "--problem", "--commit")
    parser.epilog = (
        "Ctrl-C ends it early; what was measured by then is kept.\n"
        "Exit code: 0; 1 wrong result or interrupted; 2 nothing can be timed."
    )


def checked(options: argparse.Namespace) -> Path:
    """The build folder. Raises LabError when the options do not fit together."""
    if options.record and (options.quick or options.only or options.problem):
        raise LabError(
            "a record is of all rungs on the usual problems: without --quick, --only and --problem"
        )
    if options.programs:
        folders = [options.programs]
    else:  # without a GPU, what build-cuda has of CUDA rungs cannot be timed, nor is it all there
        known = FOLDERS if records.has_gpu() else (*FOLDERS[1:], FOLDERS[0])
        folders = [ROOT / name for name in known]
    for folder in folders:
        if any(harness.program(folder, rung.name) for rung in ladder()):
            return folder
    raise LabError(
        f"there is no built rung in {' or '.join(map(str, folders))}; ./scripts/tour builds all of "
        "them"
    )


def rungs_to_time(
    folder: Path, only: str, plan: Plan, gpu: bool
) -> tuple[list[Timed], list[tuple[str, str]]]:
    """[(rung, program, backend)] and [(name, reason)] of those that are left out."""
    timed, left_out, rungs = [], [], [rung for rung in ladder() if not rung.backward]
    backend_of_kernels = harness.cache(folder).get("FLASH_BACKEND", "cpu")
    for rung in rungs:
        name = "last" if rung is rungs[-1] else rung.name
        if only not in rung.name or plan.rungs and name not in plan.rungs:
            continue
        path, backend = harness.program(folder, rung.name), "cpu"
        reason = "" if path else f"is not built: cmake --build {folder} --target rungs"
        if rung.cuda:
            backend = backend_of_kernels
            reasons = {
                "cpu": "needs the simt or cuda backend",
                "simt": "is emulated by the SIMT backend, whose time says nothing",
                "cuda": "" if gpu else "needs a GPU, and nvidia-smi finds none",
            }
            reason = reasons[backend] or reason
        if reason or not path:
            left_out.append((rung.name, reason))
        else:
            timed.append((rung, path, backend))
    return timed, left_out


def measure_ceilings(gpu: bool, best: dict[str, float]) -> None:
    """Raises what `best` has, {unit: speed}, to what is measured now: heat and other programs can
    only lower it."""
    targets = {"ceilings_cpu": FOLDERS} | ({"ceilings_gpu": ("build-cuda",)} if gpu else {})
    for target, folders in targets.items():
        built = (build.program(ROOT / folder, target) for folder in folders)
        if not (program := next(filter(None, built), None)):
            say(f"  left out: {target} does not compile here")
            continue
        done = subprocess.run([program], stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout) if done.returncode == 0 else {}
        for unit in UNITS:
            if found.get(unit):
                best[unit] = max(found[unit], best.get(unit, 0))


def unit_of(rung: Rung) -> str:
    """The unit that does a rung's products."""
    if not rung.cuda:
        return "cpu_fma_flops"
    if not rung.tensor:
        return "ffma_flops"
    return "wgmma_flops" if rung.capability == "9.0" else "mma_sync_flops"


def compulsory_bytes(case: Row, dtype: str) -> int:
    """Q, K and V read once, O and LSE written once."""
    of_element = {"fp32": 16, "e4m3": 5}.get(dtype, 8)  # of Q, K, V and O
    return case["B"] * case["H"] * case["N_q"] * (of_element * case["d"] + 4)


def time_rung(rung: Rung, path: Path, backend: str, case: Row, plan: Plan) -> Row:
    """A row of the record. Raises Refused."""
    runs = plan.runs.get(backend)
    how_often = ["--bench"] if runs is None else ["--repetitions", runs] if runs else []
    rows = ["--check-rows", plan.check_rows] if plan.check_rows else []
    report = harness.report_of(path, *harness.arguments_of(case, rung.dtype), *how_often, *rows)
    bench = report["benchmark"] or {"seconds": [report["seconds"]], "peak_memory_bytes": None}
    verdict = report["check"]
    return {
        "program": rung.name,
        "kind": "rung",
        "dtype": rung.dtype,
        **case,
        "backend": backend,
        "unit": unit_of(rung),
        **timing.row_of([1e3 * one for one in bench["seconds"]], report["flops"]),
        "compulsory_bytes": compulsory_bytes(case, rung.dtype),
        "extra_bytes": bench["peak_memory_bytes"],
        "of_allowed_error": round(verdict["o_error"] / verdict["o_bound"], 4),
        "checked_rows": verdict["rows"],
        **(records.clock_and_power() if backend == "cuda" else {}),
    }


def time_libraries(torch: ModuleType, case: Row) -> list[Row]:
    """Rows of PyTorch's attention in fp32 and bf16."""
    rows, generator = [], torch.Generator(device="cuda").manual_seed(1)
    for dtype in ("fp32", "bf16"):
        programs = {name: timing.library(name, dtype) for name in timing.LIBRARIES[dtype]}
        kinds = dict.fromkeys(programs, "library")
        more = {"backend": "cuda", "compulsory_bytes": compulsory_bytes(case, dtype)}
        for row in compare.measure(torch, programs, kinds, case, dtype, 20, generator):
            rows.append(row | more)
        torch.cuda.empty_cache()
    return rows


def time_pytorch_on_cpu(torch: ModuleType, case: Row) -> list[Row]:
    """Rows of PyTorch's attention on as many cores as the rungs have."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    q, k, v = (torch.randn(case["B"], case["H"], case["N_q"], case["d"]) for _ in range(3))
    attention = torch.nn.functional.scaled_dot_product_attention
    flush, milliseconds = torch.ones(100 << 20), []  # 400 MiB, beyond the caches
    for number in range(21):
        flush.sum()
        start = time.perf_counter()
        attention(q, k, v, is_causal=case["causal"])
        if number:
            milliseconds.append(1e3 * (time.perf_counter() - start))
    about = {"program": "PyTorch", "kind": "library", "dtype": "fp32", **case, "backend": "cpu"}
    took = timing.row_of(milliseconds, timing.flops_of(case))
    return [about | took | {"compulsory_bytes": compulsory_bytes(case, "fp32")}]


class Bench:
    """One run: its rows so far, and the file that they are kept in."""

    def __init__(
        self,
        options: argparse.Namespace,
        plan: Plan,
        rungs: list[Timed],
        left_out: list[tuple[str, str]],
        folder: Path,
    ) -> None:
        self.options, self.plan, self.rungs = options, plan, rungs
        self.on_gpu = any(backend == "cuda" for *_, backend in rungs)
        cache = harness.cache(folder)
        command = f"scripts/bench --{plan.name}".removesuffix(" --bench")
        self.provenance = records.provenance(
            f"{command} --quick" if options.quick else command,
            options.commit,
            gpu=self.on_gpu,
            plan=plan.name,
            quick=options.quick,
            flags={name: cache[name] for name in FLAGS if cache.get(name)},
        )
        self.path = folder / "bench" / f"{plan.name}.json"
        self.ceilings: dict[str, float] = {}
        self.torch: ModuleType | None = None
        shapes = options.problem or (plan.quick if options.quick else plan.problems)
        self.problems = [harness.problem(*shape) for shape in shapes]
        self.rows = [
            {"program": name, "kind": "left out", "reason": reason} for name, reason in left_out
        ]
        if plan.libraries:
            try:
                self.torch = timing.torch_with_gpu() if self.on_gpu else timing.torch_2()
                self.provenance["torch"] = self.torch.__version__
            except LabError as missing:
                say(f"left out: PyTorch: {missing}")

    def record(self) -> list[Row]:
        """Times, of one problem after the other, then all else and the ceilings."""
        titles = [harness.title(case) for case in self.problems]

        def place(row: Row) -> tuple[bool, int, bool, str]:
            problem = titles.index(harness.title(row)) if "N_q" in row else 0
            counted = row["kind"] not in ("rung", "library")
            return counted, problem, row["kind"] != "rung", row["program"]

        ceilings = self.ceilings.items()
        return sorted(self.rows, key=place) + [
            {"program": unit, "kind": "ceiling", "value": value} for unit, value in ceilings
        ]

    def keep(self) -> None:
        records.write(self.path, self.provenance, self.record())

    def measure_ceilings(self) -> None:
        say("measuring the ceilings of this machine")
        measure_ceilings(self.on_gpu, self.ceilings)

    def measure(self) -> bool:
        """Whether all results were right."""
        right, ended = True, set()
        for case in self.problems:
            for rung, path, backend in self.rungs:
                too_long = self.plan is MEMORY and backend == "cpu" and case["N_q"] > LONGEST_ON_CPU
                if rung.name in ended or too_long:
                    continue
                say(f"{rung.name} on {harness.title(case)}")
                try:
                    row = time_rung(rung, path, backend, case, self.plan)
                    say(f"  {row['ms']:.3g} ms, {row['tflops']:.3g} TFLOP/s")
                except harness.Refused as refused:
                    row = {"program": rung.name, "kind": "left out", **case, "reason": str(refused)}
                    say(f"  left out: {refused}")
                    right = right and not refused.wrong
                    if self.plan is MEMORY:  # longer ones do not fit either
                        ended.add(rung.name)
                self.rows.append(row)
                self.keep()
            if self.torch:
                say(f"PyTorch on {harness.title(case)}")
                time_them = time_libraries if self.on_gpu else time_pytorch_on_cpu
                self.rows += time_them(self.torch, case)
                self.keep()
        return right

    def count(self) -> None:
        """What ncu counts of the CUDA rungs on the first problem."""
        timed = {row["program"] for row in self.rows if "ms" in row}
        for rung, path, backend in self.rungs:
            if backend != "cuda" or rung.name not in timed:
                continue
            say(f"ncu: {rung.name}")
            try:
                arguments = harness.arguments_of(self.problems[0], rung.dtype)
                counts = counters.count(path, *arguments)
            except LabError as failure:  # the times are worth keeping without it
                say(f"  left out: {failure}")
                continue
            about: Row = {"program": rung.name, "kind": "kernel", "dtype": rung.dtype}
            self.rows += [
                about | self.problems[0] | {"kernel": kernel} | found
                for kernel, found in counts.items()
            ]


def write_page(path: Path) -> None:
    """The page with pictures beside the record, where the libraries that draw it are."""
    try:
        from lab import plots

        page = plots.bench_page(records.read(path), path.parent)
        say(f"tables and pictures: {os.path.relpath(page)}")
    except (ImportError, RuntimeError) as missing:
        say(
            f"no pictures: {missing}\napt install python3-matplotlib, or pip install -r "
            "scripts/lab/requirements.txt"
        )


def main(options: argparse.Namespace) -> int:
    folder, plan, start = checked(options), options.plan, time.monotonic()
    rungs, left_out = rungs_to_time(folder, options.only, plan, records.has_gpu())
    for name, reason in left_out:
        say(f"left out: {name} {reason}")
    if not rungs:
        raise LabError("there is no rung to time; see --help for how to build")
    run = Bench(options, plan, rungs, left_out, folder)
    run.measure_ceilings()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does
    try:
        right = run.measure()
        run.measure_ceilings()
    except KeyboardInterrupt:
        right = False
        say(f"interrupted: {sum('ms' in row for row in run.rows)} rows are measured")
    if not any("ms" in row for row in run.rows):
        say("scripts/bench: no rung could be timed")
        return 2 if right else 1
    if run.on_gpu and right and plan.counters and shutil.which("ncu"):
        run.count()
    run.keep()
    record = Record(provenance=run.provenance, rows=run.record())
    for title, lines in results.bench_tables(record).items():
        header, _, *cells = (
            [cell.strip() for cell in line.strip("|").split("|")] for line in lines
        )
        print(f"\n{title}", *cli.table(header, cells), sep="\n")
    if options.quick:
        print("\n--quick: smaller problems than those of the README; compare nothing with it.")
    write_page(run.path)
    if options.record and right:
        path = records.save(f"{plan.name}_{record_tables.machine(record)}", **record)
        say(f"written to {path.relative_to(ROOT)}")
    say(f"took {time.monotonic() - start:.0f} s")
    return 0 if right else 1
