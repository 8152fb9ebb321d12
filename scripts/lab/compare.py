"""Times rungs beside PyTorch's attention: same tensors, same run, interleaved, each checked first.

The 24 cases have 16,384 tokens and heads x d = 2048: d = 64 and 128, full and causal, N = 512 to
16384. Tensor-core rungs stand beside FlashAttention-2, cuDNN and, where Python finds Triton, the
kernel of docs/examples/triton_attention.py; with --dtype fp32 the fp32 rungs from micro_tiles on
stand beside the memory-efficient kernel. Where Python finds the wheels, two more libraries are
among the programs: FlashAttention-3's forward pass (fa3-fwd, bf16 and e4m3), and FlashAttention-4
(flash-attn-4), whose backward pass is there twice, as it is and with `deterministic`. FA4 is not in
--decode, because it does not split keys on Hopper. Of cuDNN, a wheel of its own
(nvidia-cudnn-jit-cu13) comes before PyTorch's. Each program is held to the suite's rule, against
float64, on the tensors that are timed.

    lab compare                      all tensor-core rungs, 24 cases, bf16
    lab compare block_order lean_softmax --dtype fp16 --lengths 4096,16384 --sigma 1,2,4,8,16
    lab compare lean_softmax --pattern random,rising:50,sink:first,sink:middle,sink:last,real
    lab compare lean_softmax overlap    beside the libraries, and Triton as a row `Triton`
    lab compare lean_softmax before/steps/26_lean_softmax    a kernel of another folder beside it
    lab compare backward_one_kernel backward_roles --group 8    gradients: 2.5 times the FLOPs
    lab compare backward_window --window 128    FLOPs of the visible pairs, beside FlashAttention-4
    lab compare --dtype fp32 flash_attention_2 double_buffer --problem 4,16,4096,64
    lab compare two_head_dims --problem 1,16,16384,192 --head-dim-v 128    V narrower than Q and K
    lab compare fp8 --dtype e4m3 --pattern random,outliers,sink:empty:16    and a table of errors
    lab compare packed_heads split_kv --decode    one query per head: GB/s of K and V, and a copy's
    lab compare --training           a loop of PyTorch, by the wall clock

Needs a GPU, nvcc and a python3 with PyTorch. ./scripts/bench times rungs on the CPU.
"""

import argparse
import itertools
import os
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from lab import build, cli, e4m3, harness, timing, training
from lab.ladder import ROOT, LabError, Rung, WrongResult, cuda_rungs
from lab.records import Row
from lab.timing import Program

TOKENS, HIDDEN = 16384, 2048
IN_WINDOWS = "window", "backward_window"
SLOW = ("cuda_naive", "flash_attention_1", "flash_attention_2")  # and left out in fp32
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
DECODE = (  # B, H, H_kv, N_kv, d
    (1, 32, 8, 16384, 128),
    (1, 32, 8, 131072, 128),
    (16, 32, 8, 4096, 128),
    (32, 32, 8, 8192, 128),
    (64, 64, 8, 4096, 128),
    (64, 32, 32, 4096, 128),
)


def decimals(text: str) -> tuple[float, ...]:
    """Spreads: all of them finite and above 0."""
    found = tuple(float(part) for part in text.split(","))
    if not all(0 < one < float("inf") for one in found):
        raise ValueError
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("rungs", nargs="*", metavar="RUNG", help="name or folder (those of the type)")
    add("--dtype", choices=("bf16", "fp16", "fp32", "e4m3"), default="bf16", help="(bf16)")
    add("--head-dims", type=cli.numbers, default=(64, 128), metavar="D,D", help="(64,128)")
    add("--head-dim-v", type=int, metavar="D", help="of V and O (as Q and K)")
    add("--lengths", type=cli.numbers, default=LENGTHS, metavar="N,N", help="(512 to 16384)")
    add("--group", type=int, default=1, metavar="G", help="query heads per head of K and V (1)")
    window = "the last W keys up to a query's own: window, or backward_window"
    add("--window", type=int, default=0, metavar="W", help=window)
    add("--sigma", type=decimals, default=(1.0,), metavar="S,S", help="spread of scores (1)")
    add("--pattern", default="random", metavar="P,P", help=timing.PATTERNS)
    add("--rounds", type=int, default=30, help="runs of each in each case, at least 20 (30)")
    decode = "one query per head, and N keys: six caches of d = 128, or --problem and --group"
    add("--decode", action="store_true", help=decode)
    training = "the operator in a loop that looks at the loss; RUNG: those it takes"
    add("--training", action="store_true", help=training)
    cli.add(parser, "--problem", "--record", "--commit")


def cases(options: argparse.Namespace) -> list[Row]:
    """[problem with sigma and pattern] in the order in which they are timed. Raises LabError."""
    if options.rounds < 20:
        raise LabError("--rounds must be at least 20: the record is a median")
    shapes = options.problem or []
    for d, N in itertools.product(options.head_dims, options.lengths) if not shapes else ():
        if d < 1 or HIDDEN % d or not 1 <= N <= TOKENS:
            raise LabError(
                f"d = {d}, N = {N}: heads x d = {HIDDEN}, and N is 1 to {TOKENS}; give a "
                "--problem for others"
            )
        shapes = [*shapes, (TOKENS // N, HIDDEN // d, N, d)]
    patterns = options.pattern.split(",")
    for pattern in patterns:
        timing.parse_pattern(pattern)
    if any(options.group < 1 or shape[1] % options.group for shape in shapes):
        raise LabError("--group must divide the heads")
    grouped = [(B, H, H // options.group, N, d) for B, H, N, d in shapes]
    of_v = {} if options.head_dim_v is None else {"d_v": options.head_dim_v}
    if of_v and (options.head_dim_v < 1 or options.decode or options.training):
        raise LabError("--head-dim-v is at least 1, and for forward rungs without --decode")
    if options.window < 0 or (options.window and (options.decode or options.training)):
        raise LabError("--window must be at least 1, and is for neither --decode nor --training")
    masks: tuple[bool, ...] = (True,) if options.window else (False, True)
    queries = {"window": options.window} if options.window else {}
    if options.decode:
        grouped = grouped if options.problem else list(DECODE)
        queries, masks = {"N_q": 1}, (False,)  # the last query sees all keys
    found = []
    every = itertools.product(grouped, masks, options.sigma, patterns)
    for (B, H, H_kv, N, d), causal, sigma, pattern in every:
        case = harness.problem(B, H, N, d, causal) | queries
        found.append(case | of_v | {"H_kv": H_kv, "sigma": sigma, "pattern": pattern})
    return sorted(found, key=lambda case: (case["d"], case["causal"]))


def copy_of_K() -> Program:
    """f(q, k, v, causal, o, lse) that moves as many bytes as attention reads of K and V: K is read,
    and K is written.

    What it writes to is made when it meets k, so not in the timed rounds.
    """
    kept: dict[str, Any] = {}

    def copy(q: Any, k: Any, *_: object) -> None:
        if kept.get("k") is not k:
            kept.update(k=k, to=k.clone())
        kept["to"].copy_(k)

    return copy


def variants(options: argparse.Namespace) -> list[build.Variant]:
    """The kernels to time: rungs of the ladder, and rungs of folders elsewhere."""
    tensor = options.dtype in ("bf16", "fp16")
    if not options.rungs and not options.window:
        return [
            build.Variant(rung.name, rung)
            for rung in cuda_rungs()
            if options.dtype in rung.types and not rung.backward
            if tensor or rung.name not in SLOW
            if bool(rung.head_dims_v) == (options.head_dim_v is not None)
        ]
    found = []
    for text in options.rungs or IN_WINDOWS[:1]:
        folder = Path(text).resolve()
        if "/" in text and folder.parent != ROOT / "steps":  # of another checkout, or of a study
            types = ("fp16", "bf16") if tensor else (options.dtype,)
            number, _, name = folder.name.partition("_")
            rung = Rung(number, name, "", types, (), "8.0", False, "", folder)
            for like in (one for one in cuda_rungs() if one.name == name):
                rung = replace(
                    rung,
                    capability=like.capability,  # wgmma needs code of its own
                    head_dims=like.head_dims,
                    head_dims_v=like.head_dims_v,
                )
            if not name or not any(folder.glob("*.cu")):
                raise LabError(f"{text} is no folder NN_name with a kernel file")
            of = "@" + os.path.relpath(folder.parent, ROOT).replace("/", "_")
        else:
            (rung,), of = cuda_rungs([text]), ""
        if options.dtype not in rung.types:
            raise LabError(f"{rung.name} has no {options.dtype}; it has {' and '.join(rung.types)}")
        found.append(build.Variant(rung.name + of, rung))
    if options.window and any(one.rung.name not in IN_WINDOWS for one in found):
        raise LabError(f"--window is for {' and '.join(IN_WINDOWS)}")
    if options.decode and any(one.rung.backward for one in found):
        raise LabError("--decode is for forward rungs")
    if len({one.rung.backward for one in found}) > 1:
        raise LabError("forward and backward rungs cannot be compared: name rungs of one kind")
    return found


def require_head_dims(chosen: Sequence[build.Variant], wanted: Sequence[Row]) -> None:
    """Raises LabError where V has a width of its own and a kernel does not ask for it."""
    for rung, case in itertools.product((one.rung for one in chosen), wanted):
        if "d_v" in case and not rung.takes(case["d"], case["d_v"]):
            raise LabError(f"{rung.name} does not take d = {case['d']} beside d_v = {case['d_v']}")


def measure(
    torch: ModuleType,
    programs: dict[str, Program],
    kinds: dict[str, str],
    case: Row,
    dtype: str,
    rounds: int,
    generator: Any,
    unchecked: Sequence[str] = (),
    backward: bool = False,
) -> list[Row]:
    """Rows of one case: every program checked, then timed.

    A library that has no such case, or is wrong, is left out.
    """
    types = {"fp16": torch.float16, "bf16": torch.bfloat16}
    q, k, v = timing.tensors(torch, generator, types.get(dtype, torch.float32), case)
    window = case.get("window", 0)
    of_O = torch.bfloat16 if dtype == "e4m3" else q.dtype
    O = q.new_empty((*q.shape[:3], v.shape[3]), dtype=of_O)
    rest = [O, torch.empty(q.shape[:3], device="cuda")]
    if backward:
        rest = timing.with_gradient(torch, q, k, v, case["causal"], window)
    able, results = {}, {}
    for name, program in programs.items():
        with_lse = kinds[name] != "library"
        try:
            if name in unchecked:
                program(q, k, v, case["causal"], *rest)
            else:
                results[name] = timing.result_of(program, q, k, v, case["causal"], rest, with_lse)
            able[name] = program
        except RuntimeError as error:
            cli.say(f"  {name} left out: {str(error).splitlines()[0]}")
    rms: dict[str, float] = {}
    if dtype == "e4m3":  # only a rung computes from these numbers
        rms = e4m3.rms_errors(torch, results, q, k, v, case["causal"])
        own = {name: found for name, found in results.items() if kinds[name] == "rung"}
        inputs = e4m3.checked_on(torch, q, k, v)
        Q, K, V = (inputs.pop(name) for name in "qkv")
        errors = timing.largest_errors(torch, own, Q, K, V, case["causal"], rest, more=inputs)
    else:
        errors = timing.largest_errors(torch, results, q, k, v, case["causal"], rest, window)
    for name, share in errors.items():
        if not share <= 1:
            said = f"is wrong at {harness.title(case)}: its error is {share:.2f} times the bound"
            if kinds[name] == "rung":
                raise WrongResult(f"{name} {said}")
            cli.say(f"  {name} left out: it {said}")
            del able[name]
    calls = {name: partial(one, q, k, v, case["causal"], *rest) for name, one in able.items()}
    milliseconds, state = timing.interleaved(torch, calls, rounds)
    flops, rows = timing.flops_of(case, backward), []
    for name, values in milliseconds.items():
        about = {"program": name, "kind": kinds[name], "dtype": dtype, **case}
        if case["N_q"] == 1 and not backward:
            cache = 2 * case["B"] * case["H_kv"] * case["N_kv"] * case["d"] * k.element_size()
            about["gb_per_s"] = cache / statistics.median(values) / 1e6
        row = about | timing.row_of(values, flops)
        row["of_allowed_error"] = round(errors[name], 4) if name in errors else None
        row |= {"rms_error": rms[name]} if name in rms else {}
        rows.append(row | state)
    return rows


def main(options: argparse.Namespace) -> int:
    wanted = cases(options)
    if options.training:
        return training.main(options, wanted)
    chosen = variants(options)
    require_head_dims(chosen, wanted)
    torch = timing.torch_with_gpu()
    timing.checker()  # before anything that takes long
    built = build.build_all(chosen)
    backward = chosen[0].rung.backward
    of_library = timing.backward_library if backward else timing.library
    libraries = () if options.window else timing.LIBRARIES.get(options.dtype, ())
    programs = {name: of_library(name, options.dtype) for name in libraries}
    versions = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    alone = options.window or options.head_dim_v is not None  # Triton's kernel knows neither
    if options.dtype in ("bf16", "fp16") and not backward and not alone:
        triton, version = timing.triton_kernel()
        programs, versions = programs | triton, versions | version
    if options.dtype == "bf16" and not backward and not options.window:
        fa3, version = timing.flash_attention_3(splits=0 if options.decode else 1)
        programs, versions = programs | fa3, versions | version
    if options.dtype == "e4m3":
        fa3, version = e4m3.libraries()
        programs, versions = programs | fa3, versions | version
    if options.dtype in ("bf16", "fp16") and not options.decode:
        fa4, version = timing.flash_attention_4(gradients=backward, window=options.window)
        programs, versions = programs | fa4, versions | version
    unchecked: tuple[str, ...] = ()
    if options.decode:
        programs, unchecked = programs | {"copy": copy_of_K()}, ("copy",)
    kinds = dict.fromkeys(programs, "library") | dict.fromkeys(built, "rung")
    for name, (path, _) in built.items():
        of_rung = e4m3.rung(name, path) if options.dtype == "e4m3" else None
        programs[name] = of_rung or timing.rung(name, path, options.window)
    generator, rows = torch.Generator(device="cuda").manual_seed(1), []
    how = options.dtype, options.rounds, generator, unchecked
    unit = "gb_per_s" if options.decode else "tflops"
    for number, case in enumerate(wanted, 1):
        rows += (found := measure(torch, programs, kinds, case, *how, backward=backward))
        shown = "  ".join(f"{row['program']} {row[unit]:.4g}" for row in found)
        print(
            f"{number} of {len(wanted)}: {harness.title(case)}  {shown}  ({rows[-1]['clock']} MHz)",
            flush=True,
        )
        # after each case: what was measured stays when it is interrupted
        cli.save(options, rows, **versions, rounds=options.rounds)
    said = "GB/s of K and V" if options.decode else "TFLOP/s"
    print(f"\n{said} above; times as fast as the libraries:", *timing.summary(rows), sep="\n")
    if options.dtype == "e4m3":
        print()
        e4m3.print_errors(rows)
    return 0
