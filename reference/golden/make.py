"""Makes reference/golden/*.safetensors: small attention problems with answers from PyTorch in float64.

--backward makes reference/golden/backward/*.safetensors instead: dO (fp32, fp16 or bf16) of some of these problems, and
dQ, dK and dV (fp64) by PyTorch's autograd, through the same definition. Q, K and V are those of the file above.

They pin the oracle of reference/oracle.cpp. Each file holds q, k, v (fp32, fp16 or bf16), o and lse (fp64), and in its
metadata `scale` and `causal`. The answers are computed from the definition: an explicit bottom-right mask, softmax and
logsumexp. PyTorch's own is_causal is not used, because it aligns the mask top-left when N_q != N_kv.
Each answer is compared with scaled_dot_product_attention's math path before it is written.
Needs torch and safetensors. Nothing else needs this: its output is committed.
"""

import argparse
import math
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

GOLDEN = Path(__file__).resolve().parent
TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass
class Case:
    name: str
    about: str
    batch: int = 1
    heads: int = 1
    kv_heads: int = 1
    q_len: int = 16
    kv_len: int = 16
    head_dim: int = 32
    causal: bool = False
    scale: float = 0.0  # 0: the default, 1 / sqrt(d)
    dtype: str = "fp32"
    inputs: str = "normal"


CASES = [
    Case("smallest", "every size is 1", q_len=1, kv_len=1, head_dim=1),
    Case("one_query", "N_q = 1", q_len=1, kv_len=37, head_dim=64),
    Case("one_key", "N_kv = 1: O = V, LSE = S", q_len=37, kv_len=1, head_dim=64),
    Case("square_32", "d = 32, two heads", heads=2, kv_heads=2, q_len=33, kv_len=33),
    Case(
        "long_keys_64",
        "d = 64, N_q < N_kv, no mask",
        heads=2,
        kv_heads=2,
        q_len=17,
        kv_len=71,
        head_dim=64,
    ),
    Case("long_queries_64", "d = 64, N_q > N_kv, no mask", q_len=70, kv_len=19, head_dim=64),
    Case("square_128", "d = 128", q_len=31, kv_len=31, head_dim=128),
    Case("square_256", "d = 256", q_len=19, kv_len=19, head_dim=256),
    Case("odd_head_dim", "d = 5", heads=2, kv_heads=2, q_len=29, kv_len=43, head_dim=5),
    Case("head_dim_1", "d = 1", q_len=40, kv_len=50, head_dim=1),
    Case("batch", "B = 3", batch=3, heads=2, kv_heads=2, q_len=13, kv_len=15),
    Case("grouped", "H = 6, H_kv = 2", heads=6, kv_heads=2, q_len=15, kv_len=18),
    Case("multi_query", "H = 6, H_kv = 1", heads=6, kv_heads=1, q_len=15, kv_len=18),
    Case(
        "grouped_batch_causal",
        "B = 2, H = 6, H_kv = 2, causal, N_q < N_kv",
        batch=2,
        heads=6,
        kv_heads=2,
        q_len=11,
        kv_len=14,
        causal=True,
    ),
    Case(
        "causal_square", "causal, N_q = N_kv", heads=2, kv_heads=2, q_len=35, kv_len=35, causal=True
    ),
    Case("causal_short", "causal, N_q < N_kv", q_len=9, kv_len=50, head_dim=64, causal=True),
    Case(
        "causal_decode",
        "causal, N_q = 1: the one query sees every key",
        q_len=1,
        kv_len=41,
        head_dim=64,
        causal=True,
    ),
    Case(
        "causal_long",
        "causal, N_q > N_kv: the first 30 queries see nothing",
        q_len=53,
        kv_len=23,
        causal=True,
    ),
    Case(
        "causal_one_key",
        "causal, N_kv = 1: only the last query sees it",
        q_len=6,
        kv_len=1,
        causal=True,
    ),
    Case(
        "causal_across_tiles",
        "causal, more rows and keys than the oracle's tiles have",
        q_len=150,
        kv_len=600,
        head_dim=8,
        causal=True,
    ),
    Case(
        "causal_masked_tiles",
        "causal, N_q > N_kv by more rows than a tile has",
        q_len=300,
        kv_len=40,
        head_dim=8,
        causal=True,
    ),
    Case("small_scale", "scale = 0.05", q_len=20, kv_len=24, head_dim=64, scale=0.05),
    Case(
        "large_scale", "scale = 2, causal", q_len=20, kv_len=24, head_dim=64, scale=2.0, causal=True
    ),
    Case(
        "huge_logits",
        "logits of +-1e4",
        heads=2,
        kv_heads=2,
        q_len=21,
        kv_len=30,
        head_dim=64,
        inputs="huge",
    ),
    Case(
        "huge_logits_causal",
        "logits of +-1e4, causal, N_q > N_kv",
        q_len=30,
        kv_len=21,
        head_dim=64,
        causal=True,
        inputs="huge",
    ),
    Case(
        "negative_logits",
        "all logits below -5e4",
        q_len=21,
        kv_len=30,
        head_dim=64,
        inputs="negative",
    ),
    Case(
        "equal_keys",
        "all K rows equal: O is the mean of V",
        q_len=12,
        kv_len=31,
        inputs="equal_keys",
    ),
    Case(
        "equal_keys_causal",
        "all K rows equal, causal: O is the mean of the visible V",
        q_len=27,
        kv_len=31,
        causal=True,
        inputs="equal_keys",
    ),
    Case("zero_queries", "Q = 0: all scores are 0", q_len=7, kv_len=26, inputs="zero_queries"),
    Case(
        "outliers",
        "N(0,1) with rare values of sd 10",
        q_len=40,
        kv_len=40,
        head_dim=64,
        inputs="outliers",
    ),
    Case("tiny_values", "V around 1e-20", q_len=14, kv_len=22, inputs="tiny_values"),
    Case(
        "fp16", "fp16 inputs", heads=2, kv_heads=1, q_len=18, kv_len=34, head_dim=64, dtype="fp16"
    ),
    Case(
        "bf16_causal",
        "bf16 inputs, causal",
        heads=2,
        kv_heads=1,
        q_len=18,
        kv_len=34,
        head_dim=64,
        causal=True,
        dtype="bf16",
    ),
]

# Small ones, of which each has something that the others have not.
BACKWARD = (
    "smallest",
    "one_query",
    "one_key",
    "long_keys_64",
    "odd_head_dim",
    "head_dim_1",
    "batch",
    "grouped",
    "multi_query",
    "grouped_batch_causal",
    "causal_short",
    "causal_long",
    "causal_one_key",
    "causal_masked_tiles",
    "large_scale",
    "huge_logits_causal",
    "equal_keys_causal",
    "zero_queries",
    "fp16",
    "bf16_causal",
)


def scale_of(case):
    """As fp32 and back: the problem's scale is an fp32 number."""
    scale = case.scale or 1 / math.sqrt(case.head_dim)
    return torch.tensor(scale, dtype=torch.float64).to(torch.float32).item()


def make_inputs(case):
    """q, k, v in the case's type. The seed is the name's checksum, so that a new case changes no other."""
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    q_shape = (case.batch, case.heads, case.q_len, case.head_dim)
    kv_shape = (case.batch, case.kv_heads, case.kv_len, case.head_dim)
    q, k, v = normal(*q_shape), normal(*kv_shape), normal(*kv_shape)
    if case.inputs == "huge":  # both grow, so that the largest |score| is 1e4
        k_for_q = k.repeat_interleave(case.heads // case.kv_heads, dim=1)
        growth = math.sqrt(
            1e4 / (scale_of(case) * (q @ k_for_q.transpose(-1, -2)).abs().max().item())
        )
        q, k = q * growth, k * growth
    elif case.inputs == "negative":  # every score near -55000, 0.5% apart
        size = math.sqrt(55000 / (scale_of(case) * case.head_dim))
        q, k = size * (1 + 0.02 * q), -size * (1 + 0.02 * k)
    elif case.inputs == "equal_keys":
        k = k[:, :, :1].expand(kv_shape).contiguous()
    elif case.inputs == "zero_queries":
        q = torch.zeros(q_shape, dtype=torch.float64)
    elif case.inputs == "outliers":
        q, k, v = (
            x + 10 * normal(*x.shape) * (torch.rand(x.shape, generator=generator) < 0.01)
            for x in (q, k, v)
        )
    elif case.inputs == "tiny_values":
        v = v * 1e-20
    return tuple(x.to(TYPES[case.dtype]) for x in (q, k, v))


def visible(case):
    """Which query sees which key."""
    i, j = torch.arange(case.q_len)[:, None], torch.arange(case.kv_len)[None, :]
    return (
        j <= i + case.kv_len - case.q_len
        if case.causal
        else torch.ones(case.q_len, case.kv_len, dtype=torch.bool)
    )


def attention(case, q, k, v):
    """O and LSE in float64, from the definition."""
    q, k, v = (x.double() for x in (q, k, v))
    group = case.heads // case.kv_heads  # head h reads K/V head h // group
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    mask = visible(case)
    sees_a_key = mask.any(dim=1)[:, None]

    S = (scale_of(case) * (q @ k.transpose(-1, -2))).masked_fill(~mask, -math.inf)
    lse = torch.logsumexp(S, dim=-1)
    o = torch.where(sees_a_key, torch.softmax(S, dim=-1), 0.0) @ v

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        library = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=scale_of(case)
        )
    difference = torch.where(sees_a_key, library - o, 0.0).abs().max().item()
    if not difference <= 1e-11 * o.abs().max().item():
        raise ValueError(f"{case.name}: O and scaled_dot_product_attention differ by {difference}")
    return o, lse


def gradients(case, q, k, v):
    """dO, and dQ, dK and dV in float64, by autograd."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{case.name} backward".encode()))
    d_o = torch.randn(*q.shape, generator=generator, dtype=torch.float64).to(TYPES[case.dtype])
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    group = case.heads // case.kv_heads
    k_for_q, v_for_q = (x.repeat_interleave(group, dim=1) for x in leaves[1:])
    mask = visible(case)
    S = (scale_of(case) * (leaves[0] @ k_for_q.transpose(-1, -2))).masked_fill(~mask, -math.inf)
    # Rows that see nothing would be NaN, and stay so through `where`: their scores are replaced before the softmax.
    blind = ~mask.any(dim=1)[:, None]
    P = torch.softmax(S.masked_fill(blind, 0.0), dim=-1).masked_fill(blind, 0.0)
    return d_o, *torch.autograd.grad(P @ v_for_q, leaves, d_o.double())


def same(committed, made):
    """Whether two files hold the same tensors, up to what another version of PyTorch may round otherwise."""

    def close(a, b):
        largest = b.double()[b.isfinite()].abs().max().item() if b.isfinite().any() else 0.0
        return (
            a.dtype == b.dtype
            and a.shape == b.shape
            and torch.allclose(a, b, rtol=0, atol=1e-11 * largest)
        )

    return committed.keys() == made.keys() and all(
        close(committed[name], made[name]) for name in made
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; compare with the files that are there"
    )
    parser.add_argument(
        "--backward", action="store_true", help="the gradients, from the q, k and v that are there"
    )
    options = parser.parse_args()
    cases = [case for case in CASES if case.name in BACKWARD or not options.backward]
    for case in cases:
        if options.backward:
            found = load_file(GOLDEN / f"{case.name}.safetensors")
            path = GOLDEN / "backward" / f"{case.name}.safetensors"
            tensors = dict(
                zip(("do", "dq", "dk", "dv"), gradients(case, found["q"], found["k"], found["v"]))
            )
        else:
            q, k, v = make_inputs(case)
            o, lse = attention(case, q, k, v)
            path = GOLDEN / f"{case.name}.safetensors"
            tensors = {"q": q, "k": k, "v": v, "o": o, "lse": lse}
        if not options.check:
            metadata = {
                "about": case.about,
                "scale": repr(scale_of(case)),
                "causal": "yes" if case.causal else "no",
            }
            save_file(tensors, path, metadata)
            path.chmod(0o644)  # save_file leaves it to its owner alone
        elif not path.exists() or not same(load_file(path), tensors):
            print(f"{path} is not what this makes; without --check it is written")
            return 1
    print(f"{len(cases)} cases {'agree' if options.check else 'written'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
