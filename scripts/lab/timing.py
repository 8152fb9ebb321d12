"""The one timing loop for programs on a GPU, and the suite's rule for what they compute. Needs
PyTorch.

A program is a function f(q, k, v, causal, o, lse) on tensors of PyTorch; a library leaves o and lse
alone and returns O. A backward one is f(q, k, v, causal, o, lse, do, dq, dk, dv), and returns the
gradients.
"""

import ctypes
import importlib.metadata
import importlib.util
import math
import random
import re
import statistics
import sys
from statistics import geometric_mean

from lab import cli
from lab.ladder import ROOT, LabError
from lab.records import clock_and_power
from lab.safetensors import SafetensorsFile

LIBRARIES = {
    "fp32": {"memory-efficient": "EFFICIENT_ATTENTION", "unfused": "MATH"},
    "bf16": {"FA2": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION"},
}
LIBRARIES["fp16"] = LIBRARIES["bf16"]


CASE = ("B", "H", "H_kv", "N_q", "N_kv", "d", "causal", "sigma", "pattern")


def torch_2():
    """PyTorch, of a version that has scaled_dot_product_attention."""
    try:
        import torch
        from torch.nn.functional import scaled_dot_product_attention  # noqa: F401
    except ImportError:
        raise LabError(
            f"{sys.executable} has no PyTorch 2; FLASH_PYTHON=/path/to/python3 names one that has"
        ) from None
    return torch


def torch_with_gpu():
    torch = torch_2()
    if not torch.cuda.is_available():
        raise LabError("there is no GPU that PyTorch can use")
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def row_of(milliseconds, flops):
    """Columns of a row: what a program took."""
    median = statistics.median(milliseconds)
    return {
        "ms": median,
        "min_ms": min(milliseconds),
        "max_ms": max(milliseconds),
        "spread": round((max(milliseconds) - min(milliseconds)) / median, 4),
        "repetitions": len(milliseconds),
        "tflops": flops / median / 1e9,
    }


def flops_of(case, backward=False):
    return (
        (10 if backward else 4)
        * case["B"]
        * case["H"]
        * case["N_q"]
        * case["N_kv"]
        * case["d"]
        / (2 if case["causal"] else 1)
    )


def ratios(rows, program, library):
    """{problem: how many times as fast as the library} of a program."""
    of = {
        name: {
            tuple(row.get(part) for part in CASE): row["ms"]
            for row in rows
            if row["program"] == name
        }
        for name in (program, library)
    }
    return {case: of[library][case] / ms for case, ms in of[program].items() if case in of[library]}


def summary(rows):
    """Geometric mean and least ratio of each rung and library, for each sigma and pattern."""
    lines = []
    for sigma, pattern in dict.fromkeys((row.get("sigma"), row.get("pattern")) for row in rows):
        some = [row for row in rows if (row.get("sigma"), row.get("pattern")) == (sigma, pattern)]
        lines.append(f"sigma {sigma:g}, {pattern}" if sigma else "")
        for name in dict.fromkeys(row["program"] for row in some if row["kind"] != "library"):
            parts = []
            for library in dict.fromkeys(
                row["program"] for row in some if row["kind"] == "library"
            ):
                if found := ratios(some, name, library):
                    parts.append(
                        f"{geometric_mean(found.values()):.3f} x {library} (least "
                        f"{min(found.values()):.2f}, "
                        f"{len(found)} cases)"
                    )
            lines.append(f"  {name}: {', '.join(parts) or 'no library on the same problems'}")
    return lines


def library(name, dtype):
    """f(q, k, v, causal, o, lse) -> O of a backend of PyTorch's scaled_dot_product_attention."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    backend = getattr(SDPBackend, LIBRARIES[dtype][name])

    def attention(q, k, v, causal, o=None, lse=None):
        with sdpa_kernel(backend):
            grouped = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
            return scaled_dot_product_attention(q, k, v, is_causal=causal, **grouped)

    return attention


def flash_attention_3():
    """{"FA3": f(q, k, v, causal, o, lse) -> O} of the wheel fa3-fwd, and {"fa3": its version}.

    Both are empty where Python has no such wheel. It has the forward pass, in bf16. Its tensors are
    (B, N, H, d); they are made when it meets q, so not in the timed rounds.
    """
    try:
        from fa3_fwd_interface import flash_attn_func

        version = importlib.metadata.version("fa3-fwd")
    except ImportError as error:
        cli.say(f"FA3 left out: {error}; pip install --no-deps fa3-fwd")
        return {}, {}
    kept = {}

    def attention(q, k, v, causal, *_):
        if kept.get("q") is not q:
            kept.update(q=q, own=[x.transpose(1, 2).contiguous() for x in (q, k, v)])
        return flash_attn_func(*kept["own"], causal=causal).transpose(1, 2)

    return {"FA3": attention}, {"fa3": version}


def triton_kernel():
    """{"Triton": f(q, k, v, causal, o, lse) -> O} of docs/examples, and {"triton": its version}.

    Both are empty where Python has no Triton; PyTorch for CUDA brings one.
    """
    try:
        version = importlib.metadata.version("triton")
        path = ROOT / "docs/examples/triton_attention.py"
        spec = importlib.util.spec_from_file_location("triton_attention", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        cli.say(f"Triton left out: {error}")
        return {}, {}

    def attention(q, k, v, causal, *_):
        try:
            return module.attention(q, k, v, causal)[0]
        except (KeyError, module.triton.TritonError) as error:  # no tiles for this d, or no room
            raise RuntimeError(f"no such case: {error}") from None

    return {"Triton": attention}, {"triton": version}


def backward_library(name, dtype):
    """f(q, k, v, causal, o, lse, do, dq, dk, dv) -> gradients of a backend. Its own forward pass
    runs when it meets q."""
    attention, kept = library(name, dtype), {}

    def backward(q, k, v, causal, o, lse, do, *_):
        from torch.autograd import grad

        if kept.get("q") is not q:
            inputs = [x.detach().requires_grad_() for x in (q, k, v)]
            kept.update(q=q, inputs=inputs, o=attention(*inputs, causal))
        return grad(kept["o"], kept["inputs"], do, retain_graph=True)

    return backward


def rung(name, path):
    """f of a library of lab.build, on the default stream, which is PyTorch's too."""
    import torch

    functions = ctypes.CDLL(str(path))
    function = functions.rung_attention
    # Earlier commits, which experiments may be of, have rungs that take no workspace.
    if workspace_bytes := getattr(functions, "rung_workspace_bytes", None):
        workspace_bytes.restype = ctypes.c_int64
    message = ctypes.create_string_buffer(1000)

    def attention(q, k, v, causal, *rest):
        batch, heads, N_q, d = q.shape
        sizes = (ctypes.c_int64 * 6)(batch, heads, k.shape[1], N_q, k.shape[2], d)
        tensors = (ctypes.c_void_p * (3 + len(rest)))(
            *(tensor.data_ptr() for tensor in (q, k, v, *rest))
        )
        workspace = (
            [q.new_empty(workspace_bytes(sizes, int(causal)), dtype=torch.uint8)]
            if workspace_bytes
            else []
        )
        if (
            function(
                int("bfloat16" in str(q.dtype)),
                sizes,
                ctypes.c_float(1 / math.sqrt(d)),
                int(causal),
                tensors,
                *(ctypes.c_void_p(one.data_ptr()) for one in workspace),
                q.device.index,
                None,
                message,
                ctypes.c_size_t(len(message)),
            )
            != 0
        ):
            raise LabError(f"{name}: {message.value.decode()}")
        return rest[0] if len(rest) == 2 else rest[3:]

    return attention


def parse_pattern(text):
    """The kind of a pattern and its numbers: "sink:first:50" is ("sink", "first", 50.0)."""
    number = r"(\d+(?:\.\d+)?)"
    if text in ("random", "real"):
        return (text,)
    if found := re.fullmatch(rf"(rising|low):{number}", text):
        return found[1], float(found[2])
    if found := re.fullmatch(rf"sink:(first|middle|last)(?::{number})?", text):
        return "sink", found[1], float(found[2] or 50)
    raise LabError(
        f"pattern '{text}': random, real, rising:R, low:R or sink:first, sink:middle, sink:last "
        "(sink:first:H)"
    )


def real_tensors(torch):
    """Q, K and V of the real layer, (H, N, d), fp32."""
    file = SafetensorsFile(ROOT / "reference/data/minilm_layer1.safetensors")

    def tensor(name):
        flat = torch.frombuffer(bytearray(file.data(name)), dtype=torch.float32)
        return flat.reshape(file.shape(name))[0]

    return [tensor(name).cuda() for name in "qkv"]


def tensors(torch, generator, dtype, B, H, H_kv, N_q, N_kv, d, sigma=1.0, pattern="random"):
    """Q, K and V by the standard deviation of their scores and the pattern, in units of it."""
    q, k, v = (
        torch.randn(shape, generator=generator, device="cuda")
        for shape in ((B, H, N_q, d), (B, H_kv, N_kv, d), (B, H_kv, N_kv, d))
    )
    kind, *details = parse_pattern(pattern)
    if kind == "real":  # repeated along heads, rows and columns; the scores stay those of the layer
        real_q, real_k, real_v = real_tensors(torch)
        for tensor, source in ((q, real_q), (k, real_k), (v, real_v)):
            index = [
                torch.arange(tensor.shape[n + 1], device="cuda") % source.shape[n] for n in range(3)
            ]
            tensor.copy_(source[index[0]][:, index[1]][:, :, index[2]])
        q *= math.sqrt(real_q.shape[-1] / d)
    q *= sigma
    # One column of Q is 1, so that of K is what it adds to the score, times sqrt(d).
    if kind in ("rising", "low", "sink"):
        q[..., 0] = 1
        k[..., 0] = 0
        if kind == "rising":
            k[..., 0] = torch.arange(N_kv, device="cuda") * (details[0] * math.sqrt(d) / N_kv)
        elif kind == "low":
            k[..., 0] = -details[0] * math.sqrt(d)
        else:
            k[..., {"first": 0, "middle": N_kv // 2, "last": -1}[details[0]], 0] = details[
                1
            ] * math.sqrt(d)
    return tuple(tensor.to(dtype) for tensor in (q, k, v))


def expected(torch, q, k, v, causal):
    """What one head should give and how far from it a result may lie: O, bound, LSE, bounds of its
    rows.

    The rule of reference/check.hpp, on the GPU: O and LSE in float64, and a bound that is twice the
    error of unfused attention in float32 that rounds P and O, with terms for rounding that no
    kernel avoids (docs/00_attention.md).
    """
    roundoff, tau = {
        torch.float16: (2**-11, 1e-3),
        torch.bfloat16: (2**-8, 4e-3),
        torch.float32: (0, 2e-5),
    }[q.dtype]
    scale = 1 / math.sqrt(q.shape[1])
    hidden = (
        torch.ones(len(q), len(k), dtype=torch.bool, device=q.device).triu(1 + len(k) - len(q))
        if causal
        else None
    )

    def unfused(kind, round_to=None):
        S = q.to(kind) @ k.to(kind).T * scale
        if causal:
            S.masked_fill_(hidden, -math.inf)
        LSE = torch.logsumexp(S, 1)
        P = torch.softmax(S, 1)
        O = (P if round_to is None else P.to(round_to).to(kind)) @ v.to(kind)
        return (O if round_to is None else O.to(round_to)).double(), LSE

    O, LSE = unfused(torch.float64)
    naive, _ = unfused(torch.float32, q.dtype)
    products = q.abs().float() @ k.abs().float().T * scale
    if causal:
        products.masked_fill_(hidden, 0)
    largest = products.amax(1).double()  # A_i of the rule
    bound = (
        2 * (naive - O).abs().max()
        + 2 * roundoff * O.abs().max()
        + 2**-20 * largest.max() * v.abs().max().double()
        + 1e-5
    )
    return O, bound, LSE, tau + 2**-19 * largest


def largest_errors(torch, programs, with_lse, q, k, v, causal):
    """{name: largest error as a part of its bound}; above 1 or NaN is wrong. `with_lse`: names of
    those that fill lse.

    Against float64 over the first and the last head; in the others all programs within the same
    bound of the first one.
    """

    def worse(a, b):
        return max(a, b, key=lambda x: math.inf if math.isnan(x) else x)

    share = dict.fromkeys(programs, 0.0)
    heads = {(0, 0), (q.shape[0] - 1, q.shape[1] - 1)}
    group = q.shape[1] // k.shape[1]
    rules = {
        (b, h): expected(torch, q[b, h], k[b, h // group], v[b, h // group], causal)
        for b, h in heads
    }
    first = None
    for name, program in programs.items():
        own_o, own_lse = (
            torch.full_like(q, math.nan),
            torch.full(q.shape[:3], math.nan, device="cuda"),
        )
        o = program(q, k, v, causal, own_o, own_lse)
        for (b, h), (O, bound, LSE, LSE_bounds) in rules.items():
            share[name] = worse(share[name], ((o[b, h].double() - O).abs().max() / bound).item())
            if name in with_lse:
                share[name] = worse(
                    share[name], ((own_lse[b, h].double() - LSE).abs() / LSE_bounds).max().item()
                )
        first = o if first is None else first
        share[name] = worse(
            share[name], ((o.float() - first.float()).abs().max() / (2 * bound)).item()
        )
    return share


def with_gradient(torch, q, k, v, causal):
    """O, LSE and dO for a backward pass, and room for dQ, dK and dV."""
    group = q.shape[1] // k.shape[1]
    o, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
        q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), 0.0, causal
    )
    return [
        o.contiguous(),
        lse.contiguous(),
        torch.randn_like(q),
        *(torch.full_like(x, math.nan) for x in (q, k, v)),
    ]


def expected_gradients(torch, q, k, v, do, causal):
    """[(dX, bound)] of dQ, dK and dV of a K/V head; q and do are (group, N, d)."""
    scale = 1 / math.sqrt(q.shape[2])
    hidden = torch.ones(q.shape[1], len(k), dtype=torch.bool, device=q.device).triu(
        1 + len(k) - q.shape[1]
    )

    def unfused(kind, rounded):
        K, V, dQ, dK, dV = k.to(kind), v.to(kind), [], 0, 0
        for Q, dO in zip(q.to(kind), do.to(kind)):
            S = Q @ K.T * scale
            P = torch.softmax(S.masked_fill_(hidden, -math.inf) if causal else S, 1)
            dP = dO @ V.T
            dS = rounded(P * (dP - (P * dP).sum(1, keepdim=True)))
            dQ, dK, dV = dQ + [dS @ K * scale], dK + dS.T @ Q * scale, dV + rounded(P).T @ dO
        return [rounded(x).double() for x in (torch.stack(dQ), dK, dV)]

    exact = unfused(torch.float64, lambda x: x)
    naive = unfused(torch.float32, lambda x: x.to(q.dtype).float())
    roundoff = 2**-11 if q.dtype == torch.float16 else 2**-8
    return [
        (x, 3 * (n - x).abs().max() + 2 * roundoff * x.abs().max() + 1e-5)
        for x, n in zip(exact, naive)
    ]


def largest_gradient_errors(torch, programs, q, k, v, causal, rest):
    """As `largest_errors`, of the first and the last K/V head."""
    group, share = q.shape[1] // k.shape[1], dict.fromkeys(programs, 0.0)
    for b, h in {(0, 0), (k.shape[0] - 1, k.shape[1] - 1)}:
        heads = slice(h * group, (h + 1) * group)
        rules = expected_gradients(torch, q[b, heads], k[b, h], v[b, h], rest[2][b, heads], causal)
        for name, program in programs.items():
            dq, dk, dv = program(q, k, v, causal, *rest)
            for found, (dX, bound) in zip((dq[b, heads], dk[b, h], dv[b, h]), rules):
                error = ((found.double() - dX).abs().max() / bound).item()
                share[name] = max(share[name], math.inf if math.isnan(error) else error)
    return share


def interleaved(torch, programs, rounds):
    """{name: milliseconds of each round}, and clock and power after them. In each round every
    program runs once.

    The order is drawn by lot, because in a fixed one the clocks that one program leaves are always
    the same other's. The first round is not timed. The GPU sleeps at the start of each round, while
    the launches queue up behind it: else a figure would contain the time in which the host prepares
    a launch. L2 is flushed before each run by reading: after writing, the run would pay for the
    lines that go back to DRAM.
    """
    beyond_L2, total = torch.zeros(64 << 20, device="cuda"), torch.empty((), device="cuda")
    events = {name: [] for name in programs}
    order, shuffle = list(programs.items()), random.Random(1).shuffle
    for number in range(rounds + 1):
        torch.cuda._sleep(500_000 * len(order))  # clocks: 0.25 ms for each program
        shuffle(order)
        for name, program in order:
            torch.sum(beyond_L2, 0, out=total)
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            program()
            end.record()
            if number:
                events[name].append((start, end))
        torch.cuda.synchronize()
    return {
        name: [start.elapsed_time(end) for start, end in pairs] for name, pairs in events.items()
    }, clock_and_power()
