"""Makes reference/golden/*.safetensors: small problems with answers from PyTorch in float64.

--backward makes reference/golden/backward/*.safetensors instead: dO (fp32, fp16 or bf16) of some of
these problems, and dQ, dK and dV (fp64), with a sink also dsink, by PyTorch's autograd, through the
same definition. Q, K, V and the sink are those of the file above.

They pin the oracle of reference/oracle.cpp. Each file holds q, k, v (fp32, fp16 or bf16), o and lse
(fp64), with a sink also sink (fp32), and in its metadata `scale`, `causal` and, with a window,
`window`. The answers are computed from the definition: an explicit bottom-right mask, softmax and
logsumexp. PyTorch's own is_causal is not used, because it aligns the mask top-left when
N_q != N_kv. Each answer is compared with scaled_dot_product_attention's math path before it is
written. Needs torch and safetensors. Nothing else needs this: its output is committed.
"""

import argparse
import math
import zlib
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file

from lab.ladder import ROOT

GOLDEN = ROOT / "reference/golden"
TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Case(NamedTuple):
    name: str
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    causal: bool
    scale: float  # 0 for the default, 1 / sqrt(d)
    dtype: str
    inputs: str  # "-" for N(0, 1)
    gradients: bool
    about: str
    window: int = 0
    sink: str = "-"  # "normal", or numbers
    head_dim_v: int = 0  # 0: as head_dim


# Gradients: of small ones, of which each has something that the others have not.
TABLE = """
name                  B  H  H_kv  N_q  N_kv  d    causal  scale  dtype  inputs        gradients  about
smallest              1  1  1     1    1     1    -       -      fp32   -             yes        every size is 1
one_query             1  1  1     1    37    64   -       -      fp32   -             yes        N_q = 1
one_key               1  1  1     37   1     64   -       -      fp32   -             yes        N_kv = 1: O = V, LSE = S
square_32             1  2  2     33   33    32   -       -      fp32   -             -          d = 32, two heads
long_keys_64          1  2  2     17   71    64   -       -      fp32   -             yes        d = 64, N_q < N_kv, no mask
long_queries_64       1  1  1     70   19    64   -       -      fp32   -             -          d = 64, N_q > N_kv, no mask
square_128            1  1  1     31   31    128  -       -      fp32   -             -          d = 128
square_256            1  1  1     19   19    256  -       -      fp32   -             -          d = 256
odd_head_dim          1  2  2     29   43    5    -       -      fp32   -             yes        d = 5
head_dim_1            1  1  1     40   50    1    -       -      fp32   -             yes        d = 1
batch                 3  2  2     13   15    32   -       -      fp32   -             yes        B = 3
grouped               1  6  2     15   18    32   -       -      fp32   -             yes        H = 6, H_kv = 2
multi_query           1  6  1     15   18    32   -       -      fp32   -             yes        H = 6, H_kv = 1
grouped_batch_causal  2  6  2     11   14    32   yes     -      fp32   -             yes        B = 2, H = 6, H_kv = 2, causal, N_q < N_kv
causal_square         1  2  2     35   35    32   yes     -      fp32   -             -          causal, N_q = N_kv
causal_short          1  1  1     9    50    64   yes     -      fp32   -             yes        causal, N_q < N_kv
causal_decode         1  1  1     1    41    64   yes     -      fp32   -             -          causal, N_q = 1: the one query sees every key
causal_long           1  1  1     53   23    32   yes     -      fp32   -             yes        causal, N_q > N_kv: the first 30 queries see nothing
causal_one_key        1  1  1     6    1     32   yes     -      fp32   -             yes        causal, N_kv = 1: only the last query sees it
causal_across_tiles   1  1  1     150  600   8    yes     -      fp32   -             -          causal, more rows and keys than the oracle's tiles have
causal_masked_tiles   1  1  1     300  40    8    yes     -      fp32   -             yes        causal, N_q > N_kv by more rows than a tile has
small_scale           1  1  1     20   24    64   -       0.05   fp32   -             -          scale = 0.05
large_scale           1  1  1     20   24    64   yes     2      fp32   -             yes        scale = 2, causal
huge_logits           1  2  2     21   30    64   -       -      fp32   huge          -          logits of +-1e4
huge_logits_causal    1  1  1     30   21    64   yes     -      fp32   huge          yes        logits of +-1e4, causal, N_q > N_kv
negative_logits       1  1  1     21   30    64   -       -      fp32   negative      -          all logits below -5e4
equal_keys            1  1  1     12   31    32   -       -      fp32   equal_keys    -          all K rows equal: O is the mean of V
equal_keys_causal     1  1  1     27   31    32   yes     -      fp32   equal_keys    yes        all K rows equal, causal: O is the mean of the visible V
zero_queries          1  1  1     7    26    32   -       -      fp32   zero_queries  yes        Q = 0: all scores are 0
outliers              1  1  1     40   40    64   -       -      fp32   outliers      -          N(0,1) with rare values of sd 10
tiny_values           1  1  1     14   22    32   -       -      fp32   tiny_values   -          V around 1e-20
fp16                  1  2  1     18   34    64   -       -      fp16   -             yes        fp16 inputs
bf16_causal           1  2  1     18   34    64   yes     -      bf16   -             yes        bf16 inputs, causal
"""  # noqa: E501


# V and O have the second of two head dims.
TWO_HEAD_DIMS = """
name                  B  H  H_kv  N_q  N_kv  d        causal  scale  dtype  inputs   gradients  about
narrow_v              1  2  1     13   21    192/128  yes     -      fp16   -        -          d = 192, d_v = 128, fp16 inputs, causal
narrow_v_across_tiles 2  1  1     150  160   8/3      -       -      fp32   -        -          d_v < d, more rows than the oracle's tiles have
wide_v_long           1  4  2     30   11    8/20     yes     0.5    fp32   -        -          d_v > d, causal, N_q > N_kv: the first 19 queries see nothing
"""  # noqa: E501


# With a window (- : none), whose mask is causal, or a sink: normal, or a number for each head.
WINDOWS = """
name                  B  H  H_kv  N_q  N_kv  d    causal  scale  dtype  inputs        gradients  window  sink               about
window_square         1  2  2     37   37    32   yes     -      fp32   -             -          9       -                  a window, N_q = N_kv
window_short          2  2  1     13   50    64   yes     -      fp32   -             yes        16      -                  a window, N_q < N_kv
window_long           1  1  1     53   23    32   yes     -      fp32   -             yes        8       -                  a window, N_q > N_kv: the first 30 queries see nothing
window_one            1  2  2     19   21    32   yes     -      fp32   -             yes        1       -                  a window of one key: O is V
window_all            1  1  1     15   15    32   yes     -      fp32   -             -          40      -                  a window of more keys than there are
window_across_tiles   1  1  1     300  310   8    yes     -      fp32   -             yes        100     -                  a window, more rows than the oracle's tiles have
window_sink           2  6  2     21   24    32   yes     -      fp32   -             yes        7       normal             a window and a sink, H = 6, H_kv = 2
window_sink_long      1  2  2     30   11    32   yes     -      fp32   -             yes        4       normal             a window, a sink, N_q > N_kv: LSE is the sink where nothing is seen
sink_full             1  4  2     17   29    64   -       -      fp32   -             -          -       normal             a sink, no mask
sink_causal_bf16      1  2  1     18   34    64   yes     -      bf16   -             yes        -       normal             a sink, bf16 inputs, causal
sink_extreme          1  4  4     12   9     32   yes     -      fp32   -             yes        5       1e30,-1e30,-inf,0  sinks of 1e30, -1e30, -inf and 0
sink_equal_keys       1  1  1     12   31    32   -       -      fp32   zero_queries  -          -       0                  a sink that weighs as much as each key
"""  # noqa: E501


def read_window(line: str) -> Case:
    *front, window, sink, about = line.split(None, 14)
    case = read_case(" ".join([*front, about]))
    return case._replace(window=0 if window == "-" else int(window), sink=sink)


def read_case(line: str) -> Case:
    name, *sizes, causal, scale, dtype, inputs, gradients, about = line.split(None, 12)
    *sizes, dims = sizes
    d, _, d_v = dims.partition("/")
    B, H, H_kv, N_q, N_kv = map(int, sizes)
    own_scale = 0.0 if scale == "-" else float(scale)
    more = causal == "yes", own_scale, dtype, inputs, gradients == "yes", about
    return Case(name, B, H, H_kv, N_q, N_kv, int(d), *more, head_dim_v=int(d_v or 0))


CASES = [read_case(line) for line in TABLE.strip().splitlines()[1:]]
CASES += [read_case(line) for line in TWO_HEAD_DIMS.strip().splitlines()[1:]]
CASES += [read_window(line) for line in WINDOWS.strip().splitlines()[1:]]


def scale_of(case: Case) -> float:
    """As fp32 and back: the problem's scale is an fp32 number."""
    scale = case.scale or 1 / math.sqrt(case.head_dim)
    return torch.tensor(scale, dtype=torch.float64).to(torch.float32).item()


def make_inputs(case: Case) -> tuple[torch.Tensor, ...]:
    """q, k, v in the case's type. The seed is the name's, so that a new case changes no other."""
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    q_shape = (case.batch, case.heads, case.q_len, case.head_dim)
    kv_shape = (case.batch, case.kv_heads, case.kv_len, case.head_dim)
    v_shape = (*kv_shape[:3], case.head_dim_v or case.head_dim)
    q, k, v = normal(*q_shape), normal(*kv_shape), normal(*v_shape)
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


def make_sink(case: Case) -> torch.Tensor | None:
    """A logit for each head, in fp32; None if there is no sink."""
    if case.sink == "-":
        return None
    if case.sink != "normal":
        return torch.tensor([float(x) for x in case.sink.split(",")])
    generator = torch.Generator().manual_seed(zlib.crc32(f"{case.name} sink".encode()))
    return torch.randn(case.heads, generator=generator, dtype=torch.float64).float()


def visible(case: Case) -> torch.Tensor:
    """Which query sees which key."""
    i, j = torch.arange(case.q_len)[:, None], torch.arange(case.kv_len)[None, :]
    own = i + (case.kv_len - case.q_len if case.causal else case.kv_len)
    return (j <= own) & (j > own - case.window) if case.window else j <= own


def defined(
    case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sink: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """O and LSE, from the definition, in float64."""
    group = case.heads // case.kv_heads  # head h reads K/V head h // group
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    mask = visible(case)
    S = (scale_of(case) * (q @ k.transpose(-1, -2))).masked_fill(~mask, -math.inf)
    # Rows that see nothing would be NaN, and their gradients, too: their scores are replaced before
    # the softmax.
    blind = ~mask.any(dim=1)[:, None]
    safe = S.masked_fill(blind, 0.0)
    if sink is not None:  # one more column, which owns no row of V
        column = sink[:, None, None].expand(*S.shape[:3], 1)
        S, safe = (torch.cat((x, column), dim=-1) for x in (S, safe))
    P = torch.softmax(safe, dim=-1)[..., : case.kv_len].masked_fill(blind, 0.0)
    return P @ v, torch.logsumexp(S, dim=-1)


def attention(
    case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """O and LSE in float64."""
    q, k, v = (x.double() for x in (q, k, v))
    sink = make_sink(case)
    sink = None if sink is None else sink.double()
    o, lse = defined(case, q, k, v, sink)
    mask = torch.zeros(case.q_len, case.kv_len, dtype=torch.float64)
    mask = mask.masked_fill(~visible(case), -math.inf).expand(case.heads, -1, -1)
    if sink is not None:  # here as a key of zeros, which the mask lifts
        nothing = torch.zeros(*k.shape[:2], 1, case.head_dim, dtype=torch.float64)
        k, v = (torch.cat((x, nothing), dim=2) for x in (k, v))
        mask = torch.cat((mask, sink[:, None, None].expand(-1, case.q_len, 1)), dim=2)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        library = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=scale_of(case), enable_gqa=True
        )
    difference = (library - o)[lse.isfinite()].abs().max().item()
    if not difference <= 1e-11 * o.abs().max().item():
        raise ValueError(f"{case.name}: O and scaled_dot_product_attention differ by {difference}")
    return o, lse


def gradients(
    case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """dO, and dQ, dK and dV in float64, by autograd, and dsink if there is a sink."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{case.name} backward".encode()))
    d_o = torch.randn(*q.shape, generator=generator, dtype=torch.float64).to(TYPES[case.dtype])
    tensors = (q, k, v) if (sink := make_sink(case)) is None else (q, k, v, sink)
    leaves = [x.double().requires_grad_() for x in tensors]
    return d_o, *torch.autograd.grad(defined(case, *leaves)[0], leaves, d_o.double())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    backward = "the gradients, from the q, k and v that are there"
    parser.add_argument("--backward", action="store_true", help=backward)


def main(options: argparse.Namespace) -> int:
    cases = [case for case in CASES if case.gradients or not options.backward]
    for case in cases:
        path = GOLDEN / f"{case.name}.safetensors"
        if options.backward:
            found = load_file(path)
            path = GOLDEN / "backward" / path.name
            made = gradients(case, found["q"], found["k"], found["v"])
            names = "do", "dq", "dk", "dv", "dsink"
            tensors = {name: x.contiguous() for name, x in zip(names, made)}
        else:
            q, k, v = make_inputs(case)
            tensors = dict(zip(("q", "k", "v", "o", "lse"), (q, k, v, *attention(case, q, k, v))))
        causal = "yes" if case.causal else "no"
        metadata = {"about": case.about, "scale": repr(scale_of(case)), "causal": causal}
        if case.window:
            metadata["window"] = str(case.window)
        if not options.backward and (sink := make_sink(case)) is not None:
            tensors["sink"] = sink
        save_file(tensors, path, metadata)
        path.chmod(0o644)  # save_file leaves it to its owner alone
    print(f"{len(cases)} cases written")
    return 0
