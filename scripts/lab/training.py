"""compare --training: forward and backward as a user runs them, in a loop that looks at the loss.

The operator of common/torch stands beside backends of PyTorch's attention, on the same tensors.
After each step the host waits for the GPU, so the figure contains what the host does: calls,
autograd, memory. The loss is one number of O and its gradient is given, so the step is attention
and nothing else. The host's time of a forward call by itself comes first.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lab import cli, harness, timing
from lab.ladder import LabError, WrongResult, cuda_rungs
from lab.records import Row
from lab.timing import Program

if TYPE_CHECKING:
    from torch import Tensor

CALLS, BURSTS = 100, 30  # of the host's time
SMALL = harness.problem(1, 2, 256, 64)


def operator(numbers: Sequence[str]) -> tuple[str, Program]:
    """(name, attention(q, k, v, causal)) with these rungs, or with those that it chooses."""
    from flash_steps import attention

    rungs = {
        "backward_rung" if one.backward else "rung": one.name
        for one in (cuda_rungs(numbers) if numbers else ())
    }
    return " ".join(["operator", *numbers]), functools.partial(attention, **rungs)


def within(name: str) -> contextlib.AbstractContextManager[Any]:
    """A context in which PyTorch's attention is this backend's."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = timing.LIBRARIES["bf16"].get(name)
    return sdpa_kernel(getattr(SDPBackend, backend)) if backend else contextlib.nullcontext()


def sdpa(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(q, k, v, is_causal=causal)


def step_of(attention: Program) -> Program:
    """f(q, k, v, causal, o, lse, do, ...) -> gradients, of a forward and a backward pass."""
    from torch.autograd import grad

    kept: dict[str, Any] = {}

    def step(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        causal: bool,
        o: Tensor,
        lse: Tensor,
        do: Tensor,
        *_: Tensor,
    ) -> tuple[Tensor, ...]:
        if kept.get("q") is not q:
            kept.update(q=q, inputs=[x.detach().requires_grad_() for x in (q, k, v)])
        o = attention(*kept["inputs"], causal)
        gradients = grad(o, kept["inputs"], do)
        o[0, 0, 0, 0].item()  # waits for the GPU
        return gradients

    return step


def bursts(
    programs: Mapping[str, Program],
    count: int,
    calls: int,
    untimed: int,
    wait: Callable[[], object],
) -> dict[str, list[float]]:
    """{name: seconds of each call}: programs take turns in bursts, in an order drawn by lot.

    The first calls of a burst are not timed; `wait` is called after the last.
    """
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    order, shuffle = list(programs.items()), random.Random(1).shuffle
    for _ in range(count):
        shuffle(order)
        for name, program in order:
            with within(name):
                for number in range(untimed + calls):
                    start = time.perf_counter()
                    program()
                    if number >= untimed:
                        seconds[name].append(time.perf_counter() - start)
            wait()
    return seconds


def host_rows(torch: ModuleType, attentions: Mapping[str, Program]) -> list[Row]:
    """What the host needs for a forward call until it returns; the GPU has less to do than it."""
    rows = []
    for gradients in (False, True):
        how = {"device": "cuda", "dtype": torch.bfloat16, "requires_grad": gradients}
        q, k, v = (
            torch.randn([SMALL[name] for name in ("B", "H", "N_q", "d")], **how) for _ in "qkv"
        )
        calls = {
            name: functools.partial(attention, q, k, v, False)
            for name, attention in attentions.items()
        }
        found = bursts(calls, BURSTS, CALLS, 10, torch.cuda.synchronize)
        about = {"kind": "host", "dtype": "bf16", **SMALL}
        about["what"] = "for training" if gradients else "forward alone"
        for name, of in found.items():
            median = round(1e6 * statistics.median(of), 2)
            rows.append({"program": name, **about, "host_us": median, "repetitions": len(of)})
    return rows


def rows_of(
    torch: ModuleType, steps: Mapping[str, Program], case: Row, rounds: int, generator: Any
) -> list[Row]:
    """Rows of a case: the gradients checked by the suite's rule, then a step by the wall clock."""
    q, k, v = timing.tensors(torch, generator, torch.bfloat16, case)
    rest = timing.with_gradient(torch, q, k, v, case["causal"])
    results = {}
    for name, step in steps.items():
        with within(name):
            results[name] = timing.result_of(step, q, k, v, case["causal"], rest, with_lse=False)
    errors = timing.largest_errors(torch, results, q, k, v, case["causal"], rest)
    for name, share in errors.items():
        if not share <= 1:
            raise WrongResult(
                f"gradients of {name} are wrong at {harness.title(case)}: their "
                f"error is {share:.2f} times the bound"
            )
    calls = {
        name: functools.partial(step, q, k, v, case["causal"], *rest)
        for name, step in steps.items()
    }
    flops = timing.flops_of(case) + timing.flops_of(case, backward=True)
    found, state = bursts(calls, rounds, 1, 1, torch.cuda.synchronize), timing.clock_and_power()
    rows = []
    for name, seconds in found.items():
        kind = "rung" if "operator" in name else "library"
        about = {"program": name, "kind": kind, "dtype": "bf16", **case}
        took = timing.row_of([1e3 * one for one in seconds], flops)
        rows.append(about | took | {"of_allowed_error": round(errors[name], 4)} | state)
    return rows


def main(options: argparse.Namespace, cases: list[Row]) -> int:
    if options.dtype != "bf16" or options.group != 1:
        raise LabError("--training is for bf16, and for heads without groups")
    torch = timing.torch_with_gpu()
    ours, attention = operator(options.rungs)
    attentions = {ours: attention, "cuDNN": sdpa, "FA2": sdpa}
    fa3, version = timing.flash_attention_3()
    rows = host_rows(torch, attentions | fa3)
    for row in rows:
        took = f"{row['host_us']:.1f} us of the host per forward call"
        print(f"{row['program']}: {took}, {row['what']}", flush=True)
    steps = {name: step_of(one) for name, one in attentions.items()}
    generator = torch.Generator(device="cuda").manual_seed(1)
    versions = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), **version}
    for number, case in enumerate(cases, 1):
        rows += (found := rows_of(torch, steps, case, options.rounds, generator))
        shown = "  ".join(f"{row['program']} {row['ms']:.4g}" for row in found)
        factor = f"{found[1]['ms'] / found[0]['ms']:.2f} x cuDNN"
        title = f"{number} of {len(cases)}: {harness.title(case)}"
        print(f"{title}  ms per step: {shown}  ({factor})", flush=True)
        cli.save(options, rows, **versions, rounds=options.rounds)
    timed = [row for row in rows if row["kind"] != "host"]
    for d in sorted({case["d"] for case in cases}):
        long = [row for row in timed if row["d"] == d and row["N_q"] >= 1024]
        print(f"d = {d}, N >= 1024:", *timing.summary(long)[1:], sep="\n")
    return 0
