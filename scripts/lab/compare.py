"""Times rungs beside PyTorch's attention: same tensors, same run, interleaved, each program checked first.

The 24 cases have 16,384 tokens and heads x d = 2048: d = 64 and 128, full and causal, N = 512 to 16384. Tensor-core
rungs stand beside FlashAttention-2 and cuDNN; with --dtype fp32 the fp32 rungs from 09 on stand beside the
memory-efficient kernel. Each program is held to the suite's rule, against float64, on the tensors that are timed.

    ./scripts/lab/run compare                                          all tensor-core rungs, 24 cases, bf16
    ./scripts/lab/run compare 14 15 --dtype fp16 --lengths 4096,16384 --sigma 1,2,3,4,6,8,12,16,24
    ./scripts/lab/run compare 15 --pattern random,rising:50,sink:first,sink:middle,sink:last,real
    ./scripts/lab/run compare 15 before/steps/15_lean_softmax          a kernel file of another folder beside today's
    ./scripts/lab/run compare --dtype fp32 06 07 08 09 --problem 4,16,4096,64 --problem 100,1,4096,32
    ./scripts/lab/run compare --cpu                                    rungs 01 to 05 on the cores, beside PyTorch

Needs a GPU, nvcc and a python3 with PyTorch; --cpu needs the programs of a build folder, and PyTorch where it is.
"""

import math
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from lab import build, harness, records, timing
from lab.ladder import LabError, ROOT, cuda_rungs, ladder

TOKENS, HIDDEN = 16384, 2048
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
CPU_LENGTHS = (1024, 2048, 4096, 8192)
PROBLEM = ("B", "H", "H_kv", "N_q", "N_kv", "d", "causal")


def numbers(text):
    return tuple(int(part) for part in text.split(","))


def decimals(text):
    return tuple(float(part) for part in text.split(","))


def add_arguments(parser):
    parser.add_argument("rungs", nargs="*", metavar="RUNG", help="number, name or folder (those of the type)")
    parser.add_argument("--dtype", choices=("bf16", "fp16", "fp32"), default="bf16", help="(bf16)")
    parser.add_argument("--head-dims", type=numbers, default=(64, 128), metavar="D,D", help="(64,128)")
    parser.add_argument("--lengths", type=numbers, metavar="N,N", help="(512 to 16384; with --cpu 1024 to 8192)")
    parser.add_argument("--mask", choices=("full", "causal", "both"), default="both", help="(both)")
    parser.add_argument("--group", type=int, default=1, metavar="G", help="query heads per head of K and V (1)")
    parser.add_argument("--problem", type=numbers, action="append", metavar="B,H,N,D",
                        help="these in place of the cases with 16,384 tokens; may be repeated")
    parser.add_argument("--sigma", type=decimals, default=(1.0,), metavar="S,S", help="spread of the scores (1)")
    parser.add_argument("--pattern", default="random", metavar="P,P",
                        help="random, real, rising:R, sink:first, sink:middle, sink:last (random)")
    parser.add_argument("--rounds", type=int, default=30, help="runs of each program in each case, at least 20 (30)")
    parser.add_argument("--cpu", action="store_true", help="the rungs on the CPU instead")
    parser.add_argument("--programs", type=Path, metavar="DIR", help="build folder for --cpu (build-cpu)")
    parser.add_argument("--record", metavar="NAME", help="also write docs/records/NAME.json")
    parser.add_argument("--commit", default="", help="commit of the sources, where git cannot tell")


def cases(options):
    """[problem with sigma and pattern] in the order in which they are timed. Raises LabError."""
    if options.rounds < 20:
        raise LabError("--rounds must be at least 20: the record is a median")
    masks = {"full": (False,), "causal": (True,), "both": (False, True)}[options.mask]
    shapes = options.problem
    if shapes is None:
        for d in options.head_dims:
            if d < 1 or HIDDEN % d:
                raise LabError(f"head dim {d}: heads x d = {HIDDEN}; give a --problem for others")
        for N in options.lengths or LENGTHS:
            if not 1 <= N <= TOKENS:
                raise LabError(f"length {N}: 1 to {TOKENS}; give a --problem for others")
        shapes = [(TOKENS // N, HIDDEN // d, N, d) for d in options.head_dims for N in options.lengths or LENGTHS]
    found = []
    for shape in shapes:
        if len(shape) != 4 or min(shape) < 1:
            raise LabError("--problem B,H,N,D: four numbers from 1 on")
        B, H, N, d = shape
        if options.group < 1 or H % options.group:
            raise LabError(f"--group {options.group} must divide the {H} heads")
        found += [{**harness.problem(B, H, N, d, causal), "H_kv": H // options.group, "sigma": sigma, "pattern": pattern}
                  for causal in masks for sigma in options.sigma for pattern in options.pattern.split(",")]
    for case in found:
        timing.parse_pattern(case["pattern"])
        if not 0 < case["sigma"] < math.inf:
            raise LabError("--sigma must be above 0")
    return sorted(found, key=lambda case: (case["d"], case["causal"]))


def variants(options):
    """The kernels to time: rungs of the ladder, and rungs of folders elsewhere."""
    tensor = options.dtype != "fp32"
    if not options.rungs:
        return [build.Variant(rung.name, rung) for rung in cuda_rungs()
                if rung.tensor == tensor and (tensor or rung.number >= "09")]
    found = []
    for text in options.rungs:
        folder = Path(text).resolve()
        rung, = cuda_rungs([folder.name if "/" in text else text])
        if rung.tensor != tensor:
            raise LabError(f"{rung.name} has no {options.dtype}; it has {' and '.join(rung.types)}")
        if "/" in text and folder != rung.folder.resolve():
            rung = replace(rung, folder=folder)
            if not rung.kernel_file:
                raise LabError(f"{text} has no kernel file")
        name = rung.name if rung.folder.parent == ROOT / "steps" else f"{rung.name} of {os.path.relpath(folder.parent, ROOT)}"
        found.append(build.Variant(name.replace("/", "_"), rung))
    return found


def title(case):
    return (f"B={case['B']} H={case['H']}" + (f"/{case['H_kv']}" if case["H_kv"] != case["H"] else "")
            + f" N={case['N_q']} d={case['d']} {'causal' if case['causal'] else 'full'}"
            + (f" sigma={case['sigma']:g}" if case.get("sigma", 1) != 1 else "")
            + (f" {case['pattern']}" if case.get("pattern", "random") != "random" else ""))


def measure(torch, programs, kinds, case, dtype, rounds, generator, unchecked=()):
    """Rows of one case: every program checked, then timed. A library that has no such case is left out."""
    types = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    q, k, v = timing.tensors(torch, generator, types[dtype], *(case[name] for name in PROBLEM[:-1]),
                             case.get("sigma", 1.0), case.get("pattern", "random"))
    o, lse, able = torch.empty_like(q), torch.empty(q.shape[:3], device="cuda"), {}
    for name, program in programs.items():
        try:
            program(q, k, v, case["causal"], o, lse)
            able[name] = program
        except RuntimeError as error:
            print(f"  {name} left out: {str(error).splitlines()[0]}", file=sys.stderr)
    checked = {name: program for name, program in able.items() if name not in unchecked}
    errors = timing.largest_errors(torch, checked, {name for name in checked if kinds[name] != "library"}, q, k, v,
                                   case["causal"])
    for name, share in errors.items():
        if not share <= 1 and kinds[name] == "rung":
            raise WrongResult(f"{name} is wrong at {title(case)}: its error is {share:.2f} times the bound")
    milliseconds, state = timing.interleaved(
        torch, {name: (lambda f=f: f(q, k, v, case["causal"], o, lse)) for name, f in able.items()}, rounds)
    flops = timing.flops_of(*(case[name] for name in ("B", "H", "N_q", "N_kv", "d", "causal")))
    return [{"program": name, "kind": kinds[name], "dtype": dtype, **case, **timing.row_of(values, flops),
             "of_allowed_error": round(errors[name], 4) if math.isfinite(errors.get(name, math.nan)) else None, **state}
            for name, values in milliseconds.items()]


class WrongResult(Exception):
    """A program computed something wrong: exit code 1."""


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def ratios(rows, program, library):
    """{problem: how many times as fast as the library} of a program."""
    key = (*PROBLEM, "sigma", "pattern")
    of = {name: {tuple(row.get(part) for part in key): row["ms"] for row in rows if row["program"] == name}
          for name in (program, library)}
    return {case: of[library][case] / ms for case, ms in of[program].items() if case in of[library]}


def summary(rows):
    """Lines: of each rung and library the geometric mean and the least ratio, for each sigma and pattern apart."""
    lines = []
    for sigma, pattern in dict.fromkeys((row.get("sigma"), row.get("pattern")) for row in rows):
        some = [row for row in rows if (row.get("sigma"), row.get("pattern")) == (sigma, pattern)]
        lines.append(f"sigma {sigma:g}, {pattern}" if sigma else "")
        for name in dict.fromkeys(row["program"] for row in some if row["kind"] != "library"):
            parts = []
            for library in dict.fromkeys(row["program"] for row in some if row["kind"] == "library"):
                if found := ratios(some, name, library):
                    parts.append(f"{geometric_mean(found.values()):.3f} x {library} (least {min(found.values()):.2f}, "
                                 f"{len(found)} cases)")
            lines.append(f"  {name}: {', '.join(parts) or 'no library on the same problems'}")
    return lines


def main(options):
    wanted, chosen = cases(options), None if options.cpu else variants(options)
    if options.cpu:
        return on_cpu(options)
    torch = timing.torch_with_gpu()
    built = build.build_all(chosen)
    programs = {name: timing.library(name, options.dtype) for name in timing.LIBRARIES[options.dtype] if name != "unfused"}
    kinds = dict.fromkeys(programs, "library") | dict.fromkeys(built, "rung")
    programs |= {name: timing.rung(name, path) for name, (path, _) in built.items()}
    generator = torch.Generator(device="cuda").manual_seed(1)
    provenance = records.provenance("lab " + " ".join(sys.argv[1:]), options.commit, torch=torch.__version__,
                                    cudnn=torch.backends.cudnn.version(), rounds=options.rounds)
    rows = []
    for number, case in enumerate(wanted, 1):
        try:
            rows += measure(torch, programs, kinds, case, options.dtype, options.rounds, generator)
        except WrongResult as wrong:
            print(f"lab compare: {wrong}", file=sys.stderr)
            return 1
        shown = "  ".join(f"{row['program']} {row['tflops']:.4g}" for row in rows if all(row[key] == case[key] for key in case))
        print(f"{number} of {len(wanted)}: {title(case)}  {shown}  ({rows[-1]['clock']} MHz, {rows[-1]['power']} W)", flush=True)
        if options.record:  # after each case: what was measured stays when it is interrupted
            records.save(options.record, provenance, rows)
    print("\nTFLOP/s above; times as fast as the libraries:", *summary(rows), sep="\n")
    return 0


def on_cpu(options):
    """Rungs on the CPU and PyTorch, in turns; every rung checks itself against float64 first."""
    folder = options.programs or ROOT / "build-cpu"
    names = [rung.name for rung in ladder() if not rung.cuda
             and (not options.rungs or {rung.name, rung.number, rung.number.lstrip("0")} & set(options.rungs))]
    if not names:
        raise LabError("no rung on the CPU is called that")
    programs = {name: harness.program(folder, name) for name in names}
    if None in programs.values():
        raise LabError(f"not all rungs are in {folder}; cmake --preset cpu && cmake --build --preset cpu --target rungs")
    try:
        import torch
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    except ImportError:
        torch = None
        print("PyTorch left out: this python3 has none", file=sys.stderr)
    shapes = options.problem or [(1, 8, N, 64) for N in options.lengths or CPU_LENGTHS]
    provenance = records.provenance("lab " + " ".join(sys.argv[1:]), options.commit, gpu=False,
                                    **({"torch": torch.__version__} if torch else {}))
    rows = []
    for B, H, N, d in shapes:
        for causal in {"full": (False,), "causal": (True,), "both": (False, True)}[options.mask]:
            case, milliseconds, extra, share = harness.problem(B, H, N, d, causal), {}, {}, {}
            for turn in range(2):
                for name, path in programs.items():
                    print(f"{title(case)}: {name}, turn {turn + 1} of 2", file=sys.stderr)
                    report = harness.report_of(path, *harness.arguments_of(case), "--bench", *(["--no-check"] if turn else []))
                    milliseconds.setdefault(name, []).extend(1e3 * one for one in report["benchmark"]["seconds"])
                    extra[name] = report["benchmark"]["peak_memory_bytes"]
                    if not turn:
                        share[name] = round(report["check"]["o_error"] / report["check"]["o_bound"], 4)
                if torch:
                    milliseconds.setdefault("PyTorch", []).extend(pytorch_on_cpu(torch, case))
            rows += [{"program": name, "kind": "rung" if name in programs else "library", "dtype": "fp32", "backend": "cpu",
                      **case, **timing.row_of(values, timing.flops_of(B, H, N, N, d, causal)),
                      "extra_bytes": extra.get(name), "of_allowed_error": share.get(name)}
                     for name, values in milliseconds.items()]
            print(title(case), *(f"{row['program']} {row['ms']:.4g} ms" for row in rows[-len(milliseconds):]), sep="  ")
            if options.record:
                records.save(options.record, provenance, rows)
    if torch:
        print(*summary(rows), sep="\n")
    return 0


def pytorch_on_cpu(torch, case, count=10):
    """Milliseconds of so many runs with cold caches."""
    q, k, v = (torch.randn(case["B"], case["H"], case["N_q"], case["d"]) for _ in range(3))
    flush, found = torch.ones(100 << 20), []  # 400 MiB, beyond the caches
    for number in range(count + 1):
        flush.sum()
        start = time.perf_counter()
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=case["causal"])
        if number:
            found.append(1e3 * (time.perf_counter() - start))
    return found
