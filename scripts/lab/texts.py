"""Times a rung on texts of many lengths, beside FlashAttention, and checks each first.

A batch is a line of 16,384 tokens. Its lengths are lognormal: Python's random.Random(1),
lognormvariate(log(mean), 0.8), cut to 16 to 8,192 tokens, until the line is full. FLOPs are 4 H d
for each pair of a query and a key that it sees, and for gradients 2.5 times as many. Beside
packed_sequences, or backward_packed, stand PyTorch's FlashAttention-2, and FlashAttention-4 where
Python finds the wheel flash-attn-4. (FlashAttention-2 has K and V repeated for the heads of a
group, and adds up their gradients.) Of each batch the first, the last and the longest text are held
to the suite's rule.

    lab texts                        means of 512 and 2,048, d = 64 and 128, full and causal
    lab texts --backward             gradients
    lab texts --means 256 --bound 8192    the rung knows no better bound of the lengths

What equal lengths cost, `lab compare overlap packed_sequences` says, and `lab compare
backward_late_dq backward_packed`. Needs a GPU, nvcc and a python3 with PyTorch.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lab import build, cli, timing
from lab.ladder import LabError, WrongResult, cuda_rungs
from lab.records import Row

if TYPE_CHECKING:
    from torch import Tensor

TOKENS, SHORTEST, LONGEST, SIGMA = 16384, 16, 8192, 0.8
HEADS = {64: (64, 8), 128: (16, 16)}  # of Q, and of K and V
RUNGS = "packed_sequences", "backward_packed"
# f(q, k, v, ends, longest, causal) -> {"o": O}, and "lse" if it is known; of a backward program
# f(.., causal, o, lse, do) -> {"dq": dQ, "dk": dK, "dv": dV}
Packed = Callable[..., dict[str, Any]]


def lengths_of(mean: int) -> list[int]:
    drawn = random.Random(1)
    lengths: list[int] = []
    while (room := TOKENS - sum(lengths)) > 0:
        length = int(drawn.lognormvariate(math.log(mean), SIGMA))
        lengths.append(min(max(length, SHORTEST), LONGEST, room))
    return lengths


def flops_of(lengths: Sequence[int], heads: int, d: int, causal: bool) -> int:
    pairs = sum(n * (n + 1) // 2 if causal else n * n for n in lengths)
    return 4 * heads * d * pairs


def gradients_of(found: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(("dq", "dk", "dv"), found))


def flash_attention_2(torch: ModuleType) -> Packed:
    """Of PyTorch; K and V are repeated for the heads of a group when it meets them. For gradients
    its own forward pass runs then, too."""
    kept: dict[str, Any] = {}

    def forward(own: Sequence[Tensor], ends: Tensor, longest: int, causal: bool) -> Tensor:
        o, *_ = torch.ops.aten._flash_attention_forward(
            *own, ends, ends, longest, longest, 0.0, causal, False
        )
        return o

    def attention(
        q: Tensor, k: Tensor, v: Tensor, ends: Tensor, longest: int, causal: bool, *rest: Tensor
    ) -> dict[str, Tensor]:
        group = q.shape[1] // k.shape[1]
        if kept.get("k") is not k:
            leaves = [x.detach().requires_grad_(bool(rest)) for x in (q, k, v)]
            own = [leaves[0], *(x.repeat_interleave(group, 1) for x in leaves[1:])]
            kept.update(k=k, leaves=leaves, own=own)
            if rest:
                kept["o"] = forward(own, ends, longest, causal)
        if not rest:
            return {"o": forward(kept["own"], ends, longest, causal)}
        do = rest[2]
        return gradients_of(torch.autograd.grad(kept["o"], kept["leaves"], do, retain_graph=True))

    return attention


def flash_attention_4() -> tuple[dict[str, Packed], dict[str, str]]:
    """{"FA4": f} of the wheel flash-attn-4, and {"fa4": its version}; both are empty without it."""
    try:
        from flash_attn.cute.interface import _flash_attn_bwd, flash_attn_varlen_func

        version = importlib.metadata.version("flash-attn-4")
    except ImportError as error:
        cli.say(f"FA4 left out: {error}; pip install flash-attn-4")
        return {}, {}
    timing.quieten_flash_attention_4()

    def attention(
        q: Tensor, k: Tensor, v: Tensor, ends: Tensor, longest: int, causal: bool, *rest: Tensor
    ) -> dict[str, Tensor]:
        how: dict[str, Any] = {
            "cu_seqlens_q": ends,
            "cu_seqlens_k": ends,
            "max_seqlen_q": longest,
            "max_seqlen_k": longest,
            "causal": causal,
        }
        if rest:
            o, lse, do = rest
            scale = 1 / math.sqrt(q.shape[-1])
            found = _flash_attn_bwd(q, k, v, o, do, lse, softmax_scale=scale, **how)
            return gradients_of(found[:3])
        found = flash_attn_varlen_func(q, k, v, **how)
        return {"o": found[0] if isinstance(found, tuple) else found}

    return {"FA4": attention}, {"fa4": version}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--means", type=cli.numbers, default=(512, 2048), metavar="M,M", help="(512,2048)")
    add("--head-dims", type=cli.numbers, default=(64, 128), metavar="D,D", help="(64,128)")
    add("--backward", action="store_true", help="gradients: backward_packed")
    add("--bound", type=int, default=0, metavar="N", help="that the rung knows (the longest text)")
    add("--rounds", type=int, default=30, help="runs of each in each case, at least 20 (30)")
    cli.add(parser, "--record", "--commit")


def part_of(name: str, x: Tensor, rows: slice) -> Tensor:
    """One text's rows of a tensor of the line, as the only entry of a batch: (1, heads, N, d), or
    of LSE (1, H, N)."""
    return x[None, :, rows] if name == "lse" else x[rows].transpose(0, 1)[None]


def forward_of(
    torch: ModuleType, tensors: Sequence[Tensor], lengths: Sequence[int], causal: bool
) -> list[Tensor]:
    """O and LSE of the line, text by text, and dO."""
    q, *_ = tensors
    o, lse = torch.empty_like(q), q.new_empty((q.shape[1], len(q)), dtype=torch.float32)
    for b, length in enumerate(lengths):
        rows = slice(sum(lengths[:b]), sum(lengths[:b]) + length)
        own_q, own_k, own_v = (part_of("", x, rows).contiguous() for x in tensors)
        own_o, own_lse, *_ = timing.with_gradient(torch, own_q, own_k, own_v, causal)
        part_of("", o, rows).copy_(own_o)
        part_of("lse", lse, rows).copy_(own_lse)
    return [o, lse, torch.randn_like(q)]


def errors_of(
    torch: ModuleType,
    results: dict[str, dict[str, Any]],
    tensors: Sequence[Tensor],
    rest: Sequence[Tensor],
    lengths: Sequence[int],
    causal: bool,
) -> dict[str, float]:
    """{program: its largest error, as a part of the bound}, over three of the texts. `rest`: O, LSE
    and dO of gradients."""
    worst = dict.fromkeys(results, 0.0)
    for b in {0, len(lengths) - 1, max(range(len(lengths)), key=lengths.__getitem__)}:
        begin = sum(lengths[:b])
        rows = slice(begin, begin + lengths[b])
        q, k, v = (part_of("", x, rows).contiguous() for x in tensors)
        found = {
            program: timing.looked_at(k, {name: part_of(name, x, rows) for name, x in one.items()})
            for program, one in results.items()
        }
        own = [part_of(name, x, rows) for name, x in zip(("o", "lse", "do"), rest)]
        for name, share in timing.largest_errors(torch, found, q, k, v, causal, own).items():
            worst[name] = max(worst[name], share)
    return worst


def results_of(calls: dict[str, Callable[[], dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """{program: what it gives}, without libraries that refuse the case."""
    results = {}
    for name, call in calls.items():
        if name in RUNGS:
            results[name] = call()
            continue
        try:
            with timing.what_it_cannot():
                results[name] = call()
        except RuntimeError as error:
            cli.say(f"  {name} left out: {str(error).splitlines()[0]}")
    return results


def measure(
    torch: ModuleType,
    programs: dict[str, Packed],
    case: tuple[int, int, bool],
    rounds: int,
    backward: bool = False,
    device: str = "cuda",
) -> list[Row]:
    """Rows of one batch: every program checked, then timed."""
    d, mean, causal = case
    lengths, (heads, kv_heads) = lengths_of(mean), HEADS[d]
    drawn = torch.Generator(device=device).manual_seed(1)
    shapes = [(TOKENS, one, d) for one in (heads, kv_heads, kv_heads)]
    tensors = [torch.randn(shape, generator=drawn, device=device).bfloat16() for shape in shapes]
    ends = timing.ends_of(torch, lengths, device)
    rest = forward_of(torch, tensors, lengths, causal) if backward else []
    calls: dict[str, Callable[[], dict[str, Any]]] = {
        name: partial(one, *tensors, ends, max(lengths), causal, *rest)
        for name, one in programs.items()
    }
    results = results_of(calls)
    calls = {name: calls[name] for name in results}
    errors = errors_of(torch, results, tensors, rest, lengths, causal)
    for name, share in errors.items():
        if not share <= 1:
            said = f"{name} is wrong: its error is {share:.2f} times the bound"
            if name in RUNGS:
                raise WrongResult(said)
            cli.say(f"  {said}")
    milliseconds, state = timing.interleaved(torch, calls, rounds)
    flops = flops_of(lengths, heads, d, causal) * (2.5 if backward else 1)
    rows: list[Row] = []
    for name, values in milliseconds.items():
        rows.append(
            {
                "program": name,
                "kind": "rung" if name in RUNGS else "library",
                "dtype": "bf16",
                "B": len(lengths),
                "H": heads,
                "H_kv": kv_heads,
                "d": d,
                "causal": causal,
                "input": f"texts of {mean} tokens",
                **timing.row_of(values, flops),
                "of_allowed_error": round(errors[name], 4),
                **state,
            }
        )
    return rows


def main(options: argparse.Namespace) -> int:
    if options.rounds < 20:
        raise LabError("--rounds must be at least 20: the record is a median")
    if unknown := set(options.head_dims) - set(HEADS):
        raise LabError(f"d is {' or '.join(map(str, HEADS))}, not {min(unknown)}")
    if min(options.means) < 1:
        raise LabError("a mean must be at least 1")
    torch = timing.torch_with_gpu()
    timing.checker()  # before anything that takes long
    (rung,) = cuda_rungs([RUNGS[options.backward]])
    path, _ = build.build_all([build.Variant(rung.name, rung)])[rung.name]
    attention = timing.packed(rung.name, path)

    def own(
        q: Tensor, k: Tensor, v: Tensor, ends: Tensor, longest: int, causal: bool, *rest: Tensor
    ) -> dict[str, Tensor]:
        bound = max(longest, options.bound)
        found = attention(q, k, v, ends, ends, bound, bound, causal, *rest)
        return gradients_of(found) if rest else dict(zip(("o", "lse"), found))

    fa4, versions = flash_attention_4()
    programs = {rung.name: own, "FA2": flash_attention_2(torch)} | fa4
    versions |= {"torch": torch.__version__}
    rows: list[Row] = []
    for case in itertools.product(options.head_dims, options.means, (False, True)):
        d, mean, causal = case
        rows += (found := measure(torch, programs, case, options.rounds, options.backward))
        shown = "  ".join(f"{row['program']} {row['tflops']:.4g}" for row in found)
        mask = "causal" if causal else "full"
        print(f"d {d}, texts of {mean}, {mask}: {shown}  ({rows[-1]['clock']} MHz)", flush=True)
        # after each case: what was measured stays when it is interrupted
        cli.save(options, rows, **versions, rounds=options.rounds)
    return 0
