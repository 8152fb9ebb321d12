"""Times packed_sequences on texts of many lengths, beside FlashAttention, and checks each first.

A batch is a line of 16,384 tokens. Its lengths are lognormal: Python's random.Random(1),
lognormvariate(log(mean), 0.8), cut to 16 to 8,192 tokens, until the line is full. FLOPs are 4 H d
for each pair of a query and a key that it sees. Beside it stand PyTorch's FlashAttention-2, and
FlashAttention-4 where Python finds the wheel flash-attn-4. Of each batch the first, the last and
the longest text are held to the suite's rule.

    lab texts                        means of 512 and 2,048, d = 64 and 128, full and causal
    lab texts --means 256 --bound 8192    the rung knows no better bound of the lengths

What equal lengths cost, `lab compare overlap packed_sequences` says. Needs a GPU, nvcc and a
python3 with PyTorch.
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
RUNG = "packed_sequences"
# f(q, k, v, ends, longest, causal) -> O, and LSE or nothing
Packed = Callable[..., tuple[Any, Any]]


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


def flash_attention_2(torch: ModuleType) -> Packed:
    """Of PyTorch; K and V are repeated for the heads of a group when it meets them."""
    kept: dict[str, Any] = {}

    def attention(
        q: Tensor, k: Tensor, v: Tensor, ends: Tensor, longest: int, causal: bool
    ) -> tuple[Tensor, None]:
        if kept.get("k") is not k:
            group = q.shape[1] // k.shape[1]
            kept.update(k=k, own=[x.repeat_interleave(group, 1) for x in (k, v)])
        o, *_ = torch.ops.aten._flash_attention_forward(
            q, *kept["own"], ends, ends, longest, longest, 0.0, causal, False
        )
        return o, None

    return attention


def flash_attention_4() -> tuple[dict[str, Packed], dict[str, str]]:
    """{"FA4": f} of the wheel flash-attn-4, and {"fa4": its version}; both are empty without it."""
    try:
        from flash_attn.cute.interface import flash_attn_varlen_func

        version = importlib.metadata.version("flash-attn-4")
    except ImportError as error:
        cli.say(f"FA4 left out: {error}; pip install flash-attn-4")
        return {}, {}

    def attention(
        q: Tensor, k: Tensor, v: Tensor, ends: Tensor, longest: int, causal: bool
    ) -> tuple[Tensor, None]:
        found = flash_attn_varlen_func(
            q,
            k,
            v,
            cu_seqlens_q=ends,
            cu_seqlens_k=ends,
            max_seqlen_q=longest,
            max_seqlen_k=longest,
            causal=causal,
        )
        return (found[0] if isinstance(found, tuple) else found), None

    return {"FA4": attention}, {"fa4": version}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--means", type=cli.numbers, default=(512, 2048), metavar="M,M", help="(512,2048)")
    add("--head-dims", type=cli.numbers, default=(64, 128), metavar="D,D", help="(64,128)")
    add("--bound", type=int, default=0, metavar="N", help="that the rung knows (the longest text)")
    add("--rounds", type=int, default=30, help="runs of each in each case, at least 20 (30)")
    cli.add(parser, "--record", "--commit")


def errors_of(
    torch: ModuleType,
    results: dict[str, tuple[Any, Any]],
    tensors: Sequence[Tensor],
    lengths: Sequence[int],
    causal: bool,
) -> dict[str, float]:
    """{program: its largest error, as a part of the bound}, over three of the texts."""
    worst = dict.fromkeys(results, 0.0)
    for b in {0, len(lengths) - 1, max(range(len(lengths)), key=lengths.__getitem__)}:
        begin = sum(lengths[:b])
        rows = slice(begin, begin + lengths[b])
        q, k, v = (x[rows].transpose(0, 1)[None].contiguous() for x in tensors)
        found = {}
        for name, (o, lse) in results.items():
            parts = {"o": o[rows].transpose(0, 1)[None]}
            parts |= {} if lse is None else {"lse": lse[None, :, rows]}
            found[name] = timing.looked_at(k, parts)
        rest = [torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)]
        for name, share in timing.largest_errors(torch, found, q, k, v, causal, rest).items():
            worst[name] = max(worst[name], share)
    return worst


def measure(
    torch: ModuleType,
    programs: dict[str, Packed],
    case: tuple[int, int, bool],
    rounds: int,
    device: str = "cuda",
) -> list[Row]:
    """Rows of one batch: every program checked, then timed."""
    d, mean, causal = case
    lengths, (heads, kv_heads) = lengths_of(mean), HEADS[d]
    drawn = torch.Generator(device=device).manual_seed(1)
    shapes = [(TOKENS, one, d) for one in (heads, kv_heads, kv_heads)]
    tensors = [torch.randn(shape, generator=drawn, device=device).bfloat16() for shape in shapes]
    ends = timing.ends_of(torch, lengths, device)
    calls = {
        name: partial(one, *tensors, ends, max(lengths), causal) for name, one in programs.items()
    }
    results = {name: call() for name, call in calls.items()}
    errors = errors_of(torch, results, tensors, lengths, causal)
    for name, share in errors.items():
        if not share <= 1:
            said = f"{name} is wrong: its error is {share:.2f} times the bound"
            if name == RUNG:
                raise WrongResult(said)
            cli.say(f"  {said}")
    milliseconds, state = timing.interleaved(torch, calls, rounds)
    flops, rows = flops_of(lengths, heads, d, causal), []
    for name, values in milliseconds.items():
        rows.append(
            {
                "program": name,
                "kind": "rung" if name == RUNG else "library",
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
    (rung,) = cuda_rungs([RUNG])
    path, _ = build.build_all([build.Variant(rung.name, rung)])[rung.name]
    attention = timing.packed(rung.name, path)

    def own(
        q: Tensor, k: Tensor, v: Tensor, ends: Tensor, longest: int, causal: bool
    ) -> tuple[Tensor, Tensor]:
        bound = max(longest, options.bound)
        return attention(q, k, v, ends, ends, bound, bound, causal)

    fa4, versions = flash_attention_4()
    programs = {RUNG: own, "FA2": flash_attention_2(torch)} | fa4
    versions |= {"torch": torch.__version__}
    rows: list[Row] = []
    for case in itertools.product(options.head_dims, options.means, (False, True)):
        d, mean, causal = case
        rows += (found := measure(torch, programs, case, options.rounds))
        shown = "  ".join(f"{row['program']} {row['tflops']:.4g}" for row in found)
        mask = "causal" if causal else "full"
        print(f"d {d}, texts of {mean}, {mask}: {shown}  ({rows[-1]['clock']} MHz)", flush=True)
        # after each case: what was measured stays when it is interrupted
        cli.save(options, rows, **versions, rounds=options.rounds)
    return 0
