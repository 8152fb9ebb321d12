"""What `lab compare --dtype e4m3` times: tensors in e4m3 with scales, beside FlashAttention-3 with
one scale for each tensor, and beside bf16. Needs PyTorch.

Programs get tensors in fp32, and each makes its own of them when it meets them, so not in the timed
rounds. Their errors are against float64 on the tensors in fp32: what a type loses counts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lab import cli, timing

if TYPE_CHECKING:
    from torch import Tensor

BLOCK, LARGEST = 128, 448  # rows that share a scale; the largest number


def quantised(torch: ModuleType, x: Tensor) -> tuple[Tensor, Tensor]:
    """(numbers, scales of blocks of rows) of a tensor (B, H, N, d), as the harness makes them."""
    B, H, N, d = x.shape
    blocks = -(-N // BLOCK)
    padded = torch.nn.functional.pad(x, (0, 0, 0, blocks * BLOCK - N)).view(B, H, blocks, -1)
    largest = padded.abs().amax(-1)
    wanted = (largest / LARGEST).clamp_min(2.0**-117)
    up = ((wanted.view(torch.int32) + 0xFFFF) & ~0xFFFF).view(torch.float32)
    scale = torch.where(largest > 0, up, torch.ones_like(up))
    numbers = (padded / scale[..., None]).to(torch.float8_e4m3fn)
    return numbers.view(B, H, -1, d)[:, :, :N].contiguous(), scale


def numbers_of(numbers: Tensor, scale: Tensor) -> Tensor:
    """The tensor in fp32 that they stand for."""
    return numbers.float() * scale.repeat_interleave(BLOCK, 2)[:, :, : numbers.shape[2], None]


def met(make: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """`make`, called once for each q."""
    kept: dict[str, Any] = {}

    def once(q: Tensor, *others: Tensor) -> list[Any]:
        if kept.get("q") is not q:
            kept.update(q=q, made=make(q, *others))
        return kept["made"]

    return once


def rung(name: str, path: Path) -> timing.Program:
    """f(q, k, v, causal, o, lse) of a library of lab.build."""
    start = timing.entry(name, path, "rung_attention")
    torch = timing.torch_2()

    @met
    def own(*tensors: Tensor) -> list[Any]:
        numbers, scales = zip(*(quantised(torch, x) for x in tensors))
        return [*numbers, *scales]

    def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, o: Tensor, lse: Tensor) -> Tensor:
        batch, heads, N_q, d = q.shape
        sizes = (batch, heads, k.shape[1], N_q, k.shape[2], d, 0)
        start(sizes, causal, (*own(q, k, v), o, lse))
        return o

    return attention


def in_bf16(program: timing.Program) -> timing.Program:
    """The same on tensors in fp32."""
    own = met(lambda *tensors: [x.bfloat16() for x in tensors])
    return lambda q, k, v, causal, *rest: program(*own(q, k, v), causal, *rest)


def libraries() -> tuple[dict[str, timing.Program], dict[str, str]]:
    """FlashAttention-3 in e4m3 with a scale for each tensor, and in bf16, where Python has its
    wheel; else PyTorch's cuDNN in bf16 alone. And the wheel's version."""
    torch = timing.torch_2()
    programs = {"cuDNN bf16": in_bf16(timing.library("cuDNN", "bf16"))}
    in_16_bits, version = timing.flash_attention_3()
    if not version:
        return programs, {}
    from fa3_fwd_interface import flash_attn_func

    @met
    def own(*tensors: Tensor) -> list[Any]:
        scales = [x.abs().amax() / LARGEST for x in tensors]
        per_head = (len(tensors[0]), tensors[1].shape[1])  # FA3 wants one for each head
        return [
            *(
                (x / scale).to(torch.float8_e4m3fn).transpose(1, 2).contiguous()
                for x, scale in zip(tensors, scales)
            ),
            *(scale.expand(per_head).contiguous() for scale in scales),
        ]

    def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, *_: Tensor) -> Tensor:
        *numbers, q_scale, k_scale, v_scale = own(q, k, v)
        o = flash_attn_func(
            *numbers,
            causal=causal,
            q_descale=q_scale,
            k_descale=k_scale,
            v_descale=v_scale,
            num_splits=1,
        )
        return o.transpose(1, 2)

    return {"FA3": attention, "FA3 bf16": in_bf16(in_16_bits["FA3"])} | programs, version


def checked_on(torch: ModuleType, q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
    """What the suite's rule is asked about: the tensors that the numbers stand for."""
    inputs: dict[str, Tensor] = {}
    for name, x in (("q", q), ("k", k), ("v", v)):
        numbers, scale = quantised(torch, x)
        inputs |= {name: numbers_of(numbers, scale), f"{name}_scale": scale}
    return inputs


def rms_errors(
    torch: ModuleType,
    results: Mapping[str, Sequence[Mapping[str, Tensor]]],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
) -> dict[str, float]:
    """{program: the root mean square of its errors in O} on 256 rows of the heads that timing looks
    at, spread over all of them."""
    squares: dict[str, list[Tensor]] = {name: [] for name in results}
    for n, part in enumerate(timing.looked_at(k, {"q": q, "k": k, "v": v})):
        K, V = part["k"][0, 0].double(), part["v"][0, 0].double()
        N_q, N_kv = q.shape[2], k.shape[2]
        rows = torch.linspace(0, N_q - 1, min(256, N_q)).long()
        S = part["q"][0, 0, rows].double() @ K.T / math.sqrt(q.shape[-1])
        if causal:
            S.masked_fill_(torch.arange(N_kv) > rows[:, None] + N_kv - N_q, -math.inf)
        exact = S.softmax(-1) @ V
        for name, parts in results.items():
            squares[name].append((parts[n]["o"][0, 0, rows].double() - exact).square().mean())
    return {name: torch.stack(found).mean().sqrt().item() for name, found in squares.items()}


def print_errors(rows: Sequence[Mapping[str, Any]]) -> None:
    """A table: for each pattern and mask the error of each program, the mean over its problems."""
    names = list(dict.fromkeys(row["program"] for row in rows))
    lines = []
    for pattern, causal in dict.fromkeys((row["pattern"], row["causal"]) for row in rows):
        found = [row for row in rows if (row["pattern"], row["causal"]) == (pattern, causal)]
        of = functools.partial(mean_of, found)
        lines.append([f"{pattern}, {'causal' if causal else 'full'}", *map(of, names)])
    cli.print_table(["rms error of O", *names], lines)


def mean_of(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    errors = [row["rms_error"] for row in rows if row["program"] == name]
    return f"{sum(errors) / len(errors):.2e}" if errors else "-"
