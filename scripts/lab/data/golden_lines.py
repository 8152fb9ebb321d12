"""Makes reference/golden/lines/*.safetensors: sequences on a line, with answers in float64.

They pin what a line is, and the oracle on each of its sequences. Each file holds q (total_q, H, d),
k and v (total_kv, H_kv, d) in fp32 or fp16, o (total_q, H, d) and lse (H, total_q) in fp64, and in
its metadata `scale`, `causal`, `lengths` and `kv_lengths`. The answers are computed from the
definition, token by token, over the whole line: no sequence is cut out, and a key counts if it
belongs to the query's sequence and is not hidden there. Sums are Python's math.fsum, so they are
exact but for one rounding; nothing but the standard library is needed.
"""

import argparse
import math
import random
import struct
import zlib
from typing import NamedTuple

from lab import safetensors
from lab.ladder import ROOT

GOLDEN = ROOT / "reference/golden/lines"


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


def normal(name: str, size: int, dtype: str) -> tuple[bytes, list[float]]:
    """N(0, 1) in the type, as bytes and as numbers. The seed is the name's."""
    numbers = random.Random(zlib.crc32(name.encode()))
    code = f"<{size}{safetensors.FORMATS[dtype]}"
    data = struct.pack(code, *(numbers.gauss(0, 1) for _ in range(size)))
    return data, list(struct.unpack(code, data))


def places(lengths: tuple[int, ...]) -> list[tuple[int, int]]:
    """Of each token on the line its sequence, and its place there."""
    return [(b, i) for b, length in enumerate(lengths) for i in range(length)]


def attention(
    case: Case, scale: float, q: list[float], k: list[float], v: list[float]
) -> tuple[list[float], list[float]]:
    """O and LSE."""
    d, group = case.head_dim, case.heads // case.kv_heads
    queries, keys = places(case.lengths), places(case.kv_lengths)
    o = [0.0] * len(q)
    lse = []
    for h in range(case.heads):
        for row, (b, i) in enumerate(queries):
            own = i + case.kv_lengths[b] - case.lengths[b]
            at = (row * case.heads + h) * d
            seen = []
            for column, (of, j) in enumerate(keys):
                if of == b and (not case.causal or j <= own):
                    begin = (column * case.kv_heads + h // group) * d
                    score = math.fsum(q[at + x] * k[begin + x] for x in range(d))
                    seen.append((scale * score, begin))
            if not seen:
                lse.append(-math.inf)
                continue
            m = max(score for score, _ in seen)
            weights = [math.exp(score - m) for score, _ in seen]
            total = math.fsum(weights)
            lse.append(m + math.log(total))
            for x in range(d):
                values = (w * v[begin + x] for w, (_, begin) in zip(weights, seen))
                o[at + x] = math.fsum(values) / total
    return o, lse


def add_arguments(_: argparse.ArgumentParser) -> None:
    pass


def main(_: argparse.Namespace) -> int:
    GOLDEN.mkdir(exist_ok=True)
    for case in CASES:
        q_shape = (sum(case.lengths), case.heads, case.head_dim)
        kv_shape = (sum(case.kv_lengths), case.kv_heads, case.head_dim)
        shapes = {"q": q_shape, "k": kv_shape, "v": kv_shape}
        tensors: dict[str, safetensors.Tensor] = {}
        values = []
        for name, shape in shapes.items():
            data, numbers = normal(f"{case.name} {name}", math.prod(shape), case.dtype)
            tensors[name] = (case.dtype, shape, data)
            values.append(numbers)
        # as fp32 and back: the problem's scale is an fp32 number
        scale = struct.unpack("<f", struct.pack("<f", 1 / math.sqrt(case.head_dim)))[0]
        o, lse = attention(case, scale, *values)
        tensors["o"] = ("F64", q_shape, struct.pack(f"<{len(o)}d", *o))
        tensors["lse"] = ("F64", (case.heads, q_shape[0]), struct.pack(f"<{len(lse)}d", *lse))
        metadata = {
            "about": case.about,
            "scale": repr(scale),
            "causal": "yes" if case.causal else "no",
            "lengths": ",".join(map(str, case.lengths)),
            "kv_lengths": ",".join(map(str, case.kv_lengths)),
        }
        safetensors.write(GOLDEN / f"{case.name}.safetensors", tensors, metadata)
    print(f"{len(CASES)} cases written")
    return 0
