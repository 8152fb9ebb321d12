"""Makes reference/golden/lines/*.safetensors: sequences on a line, PyTorch's answers in float64.

They pin what a line is, and the oracle on each of its sequences. Each file holds q (total_q, H, d),
k and v (total_kv, H_kv, d) in fp32 or fp16, o (total_q, H, d) and lse (H, total_q) in fp64, and in
its metadata `scale`, `causal`, `lengths` and `kv_lengths`. The answers are computed from the
definition over the whole line at once: no sequence is cut out, and a mask of all queries and keys
says who belongs to whom. Each sequence by itself is then compared with scaled_dot_product_attention
before the file is written. Needs torch; nothing else needs this, as its output is committed.

--backward makes reference/golden/backward_lines/*.safetensors instead: dO, of the line's type, and
by autograd through the same mask dQ, dK and dV in fp64, from the q, k and v that are there.
"""

import argparse
import math
import zlib
from pathlib import Path
from typing import NamedTuple

import torch

from lab import safetensors
from lab.ladder import ROOT

GOLDEN = ROOT / "reference/golden/lines"
BACKWARD = ROOT / "reference/golden/backward_lines"


class Case(NamedTuple):
    name: str
    lengths: tuple[int, ...]
    kv_lengths: tuple[int, ...]
    heads: int
    kv_heads: int
    head_dim: int
    causal: bool
    dtype: str
    about: str


CASES = [
    Case("one", (23,), (31,), 2, 1, 64, False, "F32", "a single sequence is the plain problem"),
    Case("ragged", (5, 0, 17, 1), (9, 4, 17, 0), 2, 1, 64, False, "F32", "no queries; no keys"),
    Case(
        "causal",
        (5, 20, 3, 12),
        (9, 11, 3, 12),
        4,
        2,
        64,
        True,
        "F32",
        "a mask for each sequence: fewer, more and as many queries as keys",
    ),
    Case("chunks", (4, 1, 1, 8), (30, 17, 1, 8), 2, 2, 64, True, "F16", "prefill and decoding"),
    Case("ones", (1,) * 6, (1,) * 6, 1, 1, 128, True, "F16", "one token each: O is V"),
]


TYPES = {"F32": torch.float32, "F16": torch.float16}


def scale_of(case: Case) -> float:
    """As fp32 and back: the problem's scale is an fp32 number."""
    return torch.tensor(1 / math.sqrt(case.head_dim), dtype=torch.float32).item()


def make_inputs(case: Case) -> list[torch.Tensor]:
    """q, k and v. The seed is the name's, so that a new case changes no other."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"line {case.name}".encode()))
    q_shape = (sum(case.lengths), case.heads, case.head_dim)
    kv_shape = (sum(case.kv_lengths), case.kv_heads, case.head_dim)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(TYPES[case.dtype])
        for shape in (q_shape, kv_shape, kv_shape)
    ]


def places(lengths: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each token on the line its sequence, and its place there."""
    of = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return of, torch.cat([torch.arange(length) for length in lengths])


def visible(case: Case) -> torch.Tensor:
    """Which query on the line sees which key."""
    (b_q, i), (b_k, j) = places(case.lengths), places(case.kv_lengths)
    more = torch.tensor(case.kv_lengths) - torch.tensor(case.lengths)
    seen = b_q[:, None] == b_k
    return seen & (j <= (i + more[b_q])[:, None]) if case.causal else seen


def defined(
    case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """O (H, total_q, d) and LSE (H, total_q) of tensors in float64, which are (heads, rows, d)."""
    group = case.heads // case.kv_heads
    k, v = k.repeat_interleave(group, dim=0), v.repeat_interleave(group, dim=0)
    mask = visible(case)
    S = (scale_of(case) * (q @ k.mT)).masked_fill(~mask, -math.inf)
    blind = ~mask.any(dim=1)[:, None]  # these rows would be NaN
    P = torch.softmax(S.masked_fill(blind, 0.0), dim=-1).masked_fill(blind, 0.0)
    return P @ v, torch.logsumexp(S, dim=-1)


def attention(
    case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """O (total_q, H, d) and LSE (H, total_q) in float64."""
    q, k, v = (x.double().transpose(0, 1) for x in (q, k, v))
    o, lse = defined(case, q, k, v)
    group = case.heads // case.kv_heads
    check(case, q, k.repeat_interleave(group, dim=0), v.repeat_interleave(group, dim=0), o)
    return o.transpose(0, 1).contiguous(), lse


def gradients(
    case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """dO, and dQ, dK and dV in float64, by autograd."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"line {case.name} backward".encode()))
    d_o = torch.randn(*q.shape, generator=generator, dtype=torch.float64).to(TYPES[case.dtype])
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    o = defined(case, *(x.transpose(0, 1) for x in leaves))[0].transpose(0, 1)
    return d_o, *torch.autograd.grad(o, leaves, d_o.double())


def inputs_of(path: Path, dtype: torch.dtype) -> list[torch.Tensor]:
    """The q, k and v of a file."""
    file = safetensors.SafetensorsFile(path)
    return [
        torch.frombuffer(bytearray(file.data(name)), dtype=dtype).reshape(file.shape(name))
        for name in "qkv"
    ]


def check(case: Case, q: torch.Tensor, *others: torch.Tensor) -> None:
    """Raises ValueError where a sequence by itself gives something else. All are (H, rows, d)."""
    k, v, o = others
    for b, (length, keys) in enumerate(zip(case.lengths, case.kv_lengths)):
        if length == 0 or keys == 0:
            continue
        rows = slice(sum(case.lengths[:b]), sum(case.lengths[: b + 1]))
        columns = slice(sum(case.kv_lengths[:b]), sum(case.kv_lengths[: b + 1]))
        hidden = torch.ones(length, keys, dtype=torch.bool).triu(keys - length + 1)
        mask = ~hidden if case.causal else None
        library = torch.nn.functional.scaled_dot_product_attention(
            q[:, rows], k[:, columns], v[:, columns], attn_mask=mask, scale=scale_of(case)
        )
        seen = ~hidden.all(dim=1) if case.causal else slice(None)
        difference = (library - o[:, rows])[:, seen].abs().max().item()
        if not difference <= 1e-13:
            raise ValueError(f"{case.name}: sequence {b} by itself differs by {difference}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    backward = "the gradients, from the q, k and v that are there"
    parser.add_argument("--backward", action="store_true", help=backward)


def main(options: argparse.Namespace) -> int:
    folder = BACKWARD if options.backward else GOLDEN
    folder.mkdir(exist_ok=True)
    for case in CASES:
        file = f"{case.name}.safetensors"
        if options.backward:
            made = gradients(case, *inputs_of(GOLDEN / file, TYPES[case.dtype]))
            found = dict(zip(("do", "dq", "dk", "dv"), made))
        else:
            q, k, v = make_inputs(case)
            found = dict(zip(("q", "k", "v", "o", "lse"), (q, k, v, *attention(case, q, k, v))))
        tensors: dict[str, safetensors.Tensor] = {}
        for name, x in found.items():
            dtype = "F64" if x.dtype == torch.float64 else case.dtype
            tensors[name] = (dtype, x.shape, x.contiguous().numpy().tobytes())
        metadata = {
            "about": case.about,
            "scale": repr(scale_of(case)),
            "causal": "yes" if case.causal else "no",
            "lengths": ",".join(map(str, case.lengths)),
            "kv_lengths": ",".join(map(str, case.kv_lengths)),
        }
        safetensors.write(folder / file, tensors, metadata)
    print(f"{len(CASES)} cases written")
    return 0
