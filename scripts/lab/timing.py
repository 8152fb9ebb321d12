"""The one timing loop for programs on a GPU, and what they must compute. Needs PyTorch.

A program is a function f(q, k, v, causal, o, lse) on tensors of PyTorch; a library leaves o and lse
alone and returns O. A backward one is f(q, k, v, causal, o, lse, do, dq, dk, dv), and returns the
gradients.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import importlib.util
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lab import build, cli, record_tables, safetensors
from lab.ladder import ROOT, LabError
from lab.records import Record, Row, clock_and_power

if TYPE_CHECKING:
    from torch import Tensor

Program = Callable[..., Any]

LIBRARIES = {
    "fp32": {"memory-efficient": "EFFICIENT_ATTENTION", "unfused": "MATH"},
    "bf16": {"FA2": "FLASH_ATTENTION", "cuDNN": "CUDNN_ATTENTION"},
}
LIBRARIES["fp16"] = LIBRARIES["bf16"]


def torch_2() -> ModuleType:
    """PyTorch, of a version that has scaled_dot_product_attention."""
    try:
        import torch
        from torch.nn.functional import scaled_dot_product_attention  # noqa: F401
    except ImportError:
        raise LabError(
            f"{sys.executable} has no PyTorch 2; FLASH_PYTHON=/path/to/python3 names one that has"
        ) from None
    return torch


def prefer_newer_cudnn() -> None:
    """Where Python finds the wheel nvidia-cudnn-jit-cu13, starts this program again with its cuDNN
    before PyTorch's, which the loader alone can put there. Records have cudnn.version()."""
    try:
        found = importlib.util.find_spec("nvidia.cudnn_jit")
    except ModuleNotFoundError:
        return
    folders = found.submodule_search_locations if found else None
    library = Path(folders[0]) / "lib/libcudnn.so.9" if folders else None
    if not library or not library.is_file():
        return
    if os.environ.get("LAB_CUDNN") == str(library):  # it is loaded
        os.environ.pop("LD_PRELOAD", None)  # compilers that run from here can do without
        return
    paths = [str(library.parent), os.environ.get("LD_LIBRARY_PATH", "")]
    os.environ |= {"LAB_CUDNN": str(library), "LD_PRELOAD": str(library)}
    os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def torch_with_gpu() -> ModuleType:
    prefer_newer_cudnn()
    torch = torch_2()
    if not torch.cuda.is_available():
        raise LabError("there is no GPU that PyTorch can use")
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def row_of(milliseconds: Sequence[float], flops: float) -> Row:
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


def flops_of(case: Row, backward: bool = False) -> float:
    """By the field's convention, half under a causal mask; with a window of the visible pairs."""
    N_q, N_kv = case["N_q"], case["N_kv"]
    pairs = N_q * N_kv / (2 if case["causal"] else 1)
    if window := case.get("window"):
        pairs = sum(min(max(i + 1 + N_kv - N_q, 0), window) for i in range(N_q))
    dims = case["d"] + case.get("d_v", case["d"])
    return (5 if backward else 2) * case["B"] * case["H"] * pairs * dims


def summary(rows: list[Row]) -> list[str]:
    """Geometric mean and least ratio of each rung and library, for each sigma and pattern."""
    lines, record = [], Record(provenance={}, rows=rows)
    for sigma, pattern in dict.fromkeys((row.get("sigma"), row.get("pattern")) for row in rows):
        where: dict[str, Any] = {"sigma": sigma, "pattern": pattern}
        found = record_tables.rows(record, **where)
        lines.append(f"sigma {sigma:g}, {pattern}" if sigma else "")
        for name in dict.fromkeys(row["program"] for row in found if row["kind"] != "library"):
            parts = []
            for other in dict.fromkeys(row["program"] for row in found if row["kind"] == "library"):
                with contextlib.suppress(ValueError):  # no problem of both
                    of = record_tables.ratios(record, name, other, **where)
                    mean, least = geometric_mean(of), min(of)
                    parts.append(f"{mean:.3f} x {other} (least {least:.2f}, {len(of)} cases)")
            lines.append(f"  {name}: {', '.join(parts) or 'no library on the same problems'}")
    return lines


def library(name: str, dtype: str) -> Program:
    """f(q, k, v, causal, o, lse) -> O of a backend of PyTorch's scaled_dot_product_attention."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    backend = getattr(SDPBackend, LIBRARIES[dtype][name])

    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        causal: bool,
        o: Tensor | None = None,
        lse: Tensor | None = None,
    ) -> Tensor:
        with sdpa_kernel(backend):
            grouped = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
            return scaled_dot_product_attention(q, k, v, is_causal=causal, **grouped)

    return attention


def rows_before_heads() -> Callable[..., list[Tensor]]:
    """f(q, ...) -> the same tensors as (B, N, H, d), which FA3 and FA4 want. They are made when it
    meets q, so not in the timed rounds."""
    kept: dict[str, Any] = {}

    def own(q: Tensor, *others: Tensor) -> list[Tensor]:
        if kept.get("q") is not q:
            kept.update(q=q, own=[x.transpose(1, 2).contiguous() for x in (q, *others)])
        return kept["own"]

    return own


def flash_attention_3(splits: int = 1) -> tuple[dict[str, Program], dict[str, str]]:
    """{"FA3": f(q, k, v, causal, o, lse) -> O} of the wheel fa3-fwd, and {"fa3": its version}.
    `splits`: into how many parts it cuts the keys; 0 leaves that to it.

    Both are empty where Python has no such wheel. It has the forward pass, in bf16.
    """
    try:
        from fa3_fwd_interface import flash_attn_func

        version = importlib.metadata.version("fa3-fwd")
    except ImportError as error:
        cli.say(f"FA3 left out: {error}; pip install --no-deps fa3-fwd")
        return {}, {}
    own = rows_before_heads()

    def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, *_: Tensor) -> Tensor:
        o = flash_attn_func(*own(q, k, v), causal=causal, num_splits=splits)
        return o.transpose(1, 2)

    return {"FA3": attention}, {"fa3": version}


def flash_attention_4(
    gradients: bool = False, window: int = 0
) -> tuple[dict[str, Program], dict[str, str]]:
    """{"FA4": f(q, k, v, causal, o, lse) -> O} of the wheel flash-attn-4, and {"fa4": its version}.
    With `gradients` the programs are backward ones: "FA4", and "FA4 deterministic", whose gradients
    have the same bits in every run. `window`: of so many keys, 0 for none.

    Both are empty where Python has no such wheel. The first call with each new kind of problem
    compiles for seconds.
    """
    try:
        from flash_attn.cute.interface import _flash_attn_bwd, flash_attn_func

        version = importlib.metadata.version("flash-attn-4")
    except ImportError as error:
        cli.say(f"FA4 left out: {error}; pip install flash-attn-4")
        return {}, {}
    quieten_flash_attention_4()
    own = rows_before_heads()
    # it counts the keys before and behind a query's own
    reach: dict[str, Any] = {"window_size": (window - 1, 0)} if window else {}
    sides: dict[str, Any] = {"window_size_left": window - 1, "window_size_right": 0}

    def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, *_: Tensor) -> Tensor:
        with what_it_cannot():
            o = flash_attn_func(*own(q, k, v), causal=causal, **reach)
        return (o[0] if isinstance(o, tuple) else o).transpose(1, 2)

    def backward(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        causal: bool,
        o: Tensor,
        lse: Tensor,
        do: Tensor,
        *_: Tensor,
        deterministic: bool = False,
    ) -> list[Tensor]:
        with what_it_cannot():
            found = _flash_attn_bwd(
                *own(q, k, v, o, do),
                lse,
                softmax_scale=1 / math.sqrt(q.shape[-1]),
                causal=causal,
                deterministic=deterministic,
                **(sides if window else {}),
            )
        return [gradient.transpose(1, 2) for gradient in found[:3]]

    if not gradients:
        return {"FA4": attention}, {"fa4": version}
    ordered = functools.partial(backward, deterministic=True)
    return {"FA4": backward, "FA4 deterministic": ordered}, {"fa4": version}


def quieten_flash_attention_4() -> None:
    """Whenever it compiles, its compiler warns of a default argument of that name."""
    warnings.filterwarnings("ignore", message=".*aux_data", category=UserWarning)


@contextlib.contextmanager
def what_it_cannot() -> Iterator[None]:
    """A library refuses a case by errors of many types, FA4's compiler's among them. They become
    the one that leaves it out."""
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def triton_kernel() -> tuple[dict[str, Program], dict[str, str]]:
    """{"Triton": f(q, k, v, causal, o, lse) -> O} of docs/examples, and {"triton": its version}.

    Both are empty where Python has no Triton; PyTorch for CUDA brings one.
    """
    try:
        version = importlib.metadata.version("triton")
        path = ROOT / "docs/examples/triton_attention.py"
        spec = importlib.util.spec_from_file_location("triton_attention", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        cli.say(f"Triton left out: {error}")
        return {}, {}

    def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, *_: Tensor) -> Tensor:
        try:
            return module.attention(q, k, v, causal)[0]
        except (KeyError, module.triton.TritonError) as error:  # no tiles for this d, or no room
            raise RuntimeError(f"no such case: {error}") from None

    return {"Triton": attention}, {"triton": version}


def backward_library(name: str, dtype: str) -> Program:
    """f(q, k, v, causal, o, lse, do, dq, dk, dv) -> gradients of a backend. Its own forward pass
    runs when it meets q."""
    attention = library(name, dtype)
    kept: dict[str, Any] = {}

    def backward(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        causal: bool,
        o: Tensor,
        lse: Tensor,
        do: Tensor,
        *_: Tensor,
    ) -> tuple[Tensor, ...]:
        from torch.autograd import grad

        if kept.get("q") is not q:
            inputs = [x.detach().requires_grad_() for x in (q, k, v)]
            kept.update(q=q, inputs=inputs, o=attention(*inputs, causal))
        return grad(kept["o"], kept["inputs"], do, retain_graph=True)

    return backward


def entry(name: str, path: Path, function_name: str) -> Callable[..., None]:
    """f(sizes, causal, tensors, *more) of a library of lab.build: starts one of its functions on
    the default stream, which is PyTorch's too. `more` stands before the tensors, of which the first
    is Q, and others may be None."""
    import torch

    functions = ctypes.CDLL(str(path))
    function = getattr(functions, function_name)
    on_a_line = function_name == "rung_attention_packed"  # where `more` are the totals
    bytes_name = "rung_workspace_bytes" + ("_packed" if on_a_line else "")
    # Rungs of earlier commits may take no workspace.
    if workspace_bytes := getattr(functions, bytes_name, None):
        workspace_bytes.restype = ctypes.c_int64
    message = ctypes.create_string_buffer(1000)

    def start(sizes: Sequence[int], causal: bool, tensors: Sequence[Any], *more: Any) -> None:
        q, own_sizes = tensors[0], (ctypes.c_int64 * 7)(*sizes)
        workspace = []
        if workspace_bytes:
            size = workspace_bytes(own_sizes, *(more if on_a_line else (int(causal),)))
            room = q.new_empty(size, dtype=torch.uint8)
            workspace = [ctypes.c_void_p(room.data_ptr())]
        code = function(
            int("bfloat16" in str(q.dtype)),
            own_sizes,
            ctypes.c_float(1 / math.sqrt(sizes[5])),
            int(causal),
            *more,
            (ctypes.c_void_p * len(tensors))(*(x if x is None else x.data_ptr() for x in tensors)),
            *workspace,
            q.device.index or 0,
            None,
            message,
            ctypes.c_size_t(len(message)),
        )
        if code:
            raise LabError(f"{name}: {message.value.decode()}")

    return start


def rung(name: str, path: Path, window: int = 0) -> Program:
    """f of a library of lab.build. `window`: of so many keys, 0 for none."""
    if name.partition("@")[0] in ON_A_LINE:
        return rung_on_a_line(name, path)
    start = entry(name, path, "rung_attention_window" if window else "rung_attention")

    def attention(
        q: Tensor, k: Tensor, v: Tensor, causal: bool, *rest: Tensor
    ) -> Tensor | tuple[Tensor, ...]:
        batch, heads, N_q, d = q.shape
        sizes = (batch, heads, k.shape[1], N_q, k.shape[2], d, v.shape[-1])
        if window:  # neither sink nor dsink
            no_sinks = (q, k, v, None, *rest) if len(rest) == 2 else (q, k, v, None, *rest, None)
            start(sizes, causal, no_sinks, ctypes.c_int64(window))
        else:
            start(sizes, causal, (q, k, v, *rest))
        return rest[0] if len(rest) == 2 else rest[3:]

    return attention


# they take lines of tokens in place of tensors (B, H, N, d)
ON_A_LINE = ("packed_sequences", "backward_packed")


def ends_of(torch: ModuleType, lengths: Sequence[int], device: Any) -> Tensor:
    """cu_seqlens."""
    ends = [sum(lengths[:b]) for b in range(len(lengths) + 1)]
    return torch.tensor(ends, dtype=torch.int32, device=device)


def packed(name: str, path: Path) -> Callable[..., tuple[Tensor, ...]]:
    """f(q, k, v, q_ends, kv_ends, max_q, max_kv, causal) -> O, LSE on lines of tokens; of a
    backward rung f(.., causal, o, lse, do) -> dQ, dK, dV."""
    start = entry(name, path, "rung_attention_packed")

    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        q_ends: Tensor,
        kv_ends: Tensor,
        max_q: int,
        max_kv: int,
        causal: bool,
        *rest: Tensor,
    ) -> tuple[Tensor, ...]:
        total, heads, d = q.shape
        if rest:
            results = tuple(x.new_empty(x.shape) for x in (q, k, v))
        else:
            o, lse = q.new_empty(q.shape), q.new_empty((heads, total), dtype=torch_2().float32)
            results = o, lse
        sizes = (len(q_ends) - 1, heads, k.shape[1], max_q, max_kv, d)
        totals = (ctypes.c_int64 * 2)(total, k.shape[0])
        start(sizes, causal, (q, k, v, q_ends, kv_ends, *rest, *results), totals)
        return results

    return attention


def rung_on_a_line(name: str, path: Path) -> Program:
    """f of such a rung: a batch is a line of equal lengths. Its tensors are made when it meets q,
    and LSE is filled then alone, so neither is in the timed rounds."""
    attention_packed = packed(name, path)
    kept: dict[str, Any] = {}

    def line_of(x: Tensor) -> Tensor:
        return x.transpose(1, 2).reshape(-1, x.shape[1], x.shape[3]).contiguous()

    def attention(
        q: Tensor, k: Tensor, v: Tensor, causal: bool, o: Tensor, lse: Tensor, *rest: Tensor
    ) -> Tensor | list[Tensor]:
        (B, H, N_q, d), N_kv = q.shape, k.shape[2]
        met = kept.get("q") is q
        if not met:
            ends = [ends_of(torch_2(), [N] * B, q.device) for N in (N_q, N_kv)]
            kept.update(q=q, own=[*map(line_of, (q, k, v)), *ends], rest=[])
            if rest:
                lse_line = lse.transpose(0, 1).reshape(H, -1).contiguous()
                kept.update(rest=[line_of(o), lse_line, line_of(rest[0])])
        found = attention_packed(*kept["own"], N_q, N_kv, causal, *kept["rest"])
        if rest:
            return [x.view(B, -1, *x.shape[1:]).transpose(1, 2) for x in found]
        o_line, lse_line = found
        if not met:
            lse.copy_(lse_line.view(H, B, N_q).transpose(0, 1))
        return o_line.view(B, N_q, H, d).transpose(1, 2)

    return attention


PATTERNS = "random, outliers, real, rising:R, low:R, sink:first, sink:middle, sink:last, \
sink:empty (sink:first:H)"


def parse_pattern(text: str) -> tuple[str, float]:
    """The kind of a pattern and its number: "sink:first:50" is ("sink:first", 50.0)."""
    kinds = r"(random|outliers|real|sink:(?:first|middle|last|empty))(?::([\d.]+))?"
    found = re.fullmatch(kinds, text)
    found = found or re.fullmatch(r"(rising|low):([\d.]+)", text)
    if not found:
        raise LabError(f"pattern '{text}': {PATTERNS}")
    return found[1], float(found[2] or 50)


def real_tensors(torch: ModuleType) -> list[Tensor]:
    """Q, K and V of the real layer, (H, N, d), fp32."""
    file = safetensors.SafetensorsFile(ROOT / "reference/data/minilm_layer1.safetensors")

    def tensor(name: str) -> Tensor:
        flat = torch.frombuffer(bytearray(file.data(name)), dtype=torch.float32)
        return flat.reshape(file.shape(name))[0]

    return [tensor(name).cuda() for name in "qkv"]


def tensors(torch: ModuleType, generator: Any, dtype: Any, case: Row) -> tuple[Tensor, ...]:
    """Q, K and V by the standard deviation of their scores and the pattern, in units of it."""
    B, H, H_kv, N_q, N_kv, d = (case[name] for name in ("B", "H", "H_kv", "N_q", "N_kv", "d"))
    sigma, pattern = case.get("sigma", 1.0), case.get("pattern", "random")
    q, k, v = (
        torch.randn(shape, generator=generator, device="cuda")
        for shape in ((B, H, N_q, d), (B, H_kv, N_kv, d), (B, H_kv, N_kv, case.get("d_v", d)))
    )
    kind, height = parse_pattern(pattern)
    if kind == "real":  # repeated along heads, rows and columns; the scores stay those of the layer
        real_q, real_k, real_v = real_tensors(torch)
        for tensor, source in ((q, real_q), (k, real_k), (v, real_v)):
            for n, size in enumerate(tensor.shape[1:]):
                source = source.index_select(n, torch.arange(size, device="cuda") % source.shape[n])
            tensor.copy_(source)
        q *= math.sqrt(real_q.shape[-1] / d)
    q *= sigma
    if kind == "outliers":  # N(0, 10) on top of one value in a thousand, as in the suite
        for x in (q, k, v):
            chosen = torch.rand(x.shape, generator=generator, device="cuda") < 0.001
            x += 10 * chosen * torch.randn(x.shape, generator=generator, device="cuda")
    if kind not in ("random", "outliers", "real"):
        # One column of Q is 1, so that of K is what it adds to the score, times sqrt(d).
        q[..., 0], k[..., 0] = 1, 0
        height *= math.sqrt(d)
        if kind == "rising":
            k[..., 0] = torch.arange(N_kv, device="cuda") * (height / N_kv)
        elif kind == "low":
            k[..., 0] = -height
        else:
            places = {"first": 0, "empty": 0, "middle": N_kv // 2, "last": -1}
            k[..., places[kind.split(":")[1]], 0] = height
        if kind == "sink:empty":  # as models learn it
            v[..., 0, :] = 0
    return tuple(tensor.to(dtype) for tensor in (q, k, v))


@functools.cache
def checker() -> Path:
    """The program that knows the suite's rule."""
    for name in ("build-cuda", "build-simt", "build-cpu"):
        if found := build.program(ROOT / name, "check_tensors"):
            return found
    raise LabError("check_tensors does not build: cmake --preset cpu makes a folder for it")


def looked_at(k: Tensor, tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Of the first and of the last head of K and V: {name: what the query heads that read it, or
    it alone, have of a tensor}."""
    parts = []
    for b, h in sorted({(0, 0), (len(k) - 1, k.shape[1] - 1)}):
        of_head = {}
        for name, x in tensors.items():
            group = x.shape[1] // k.shape[1]
            part = x[b : b + 1, h * group : (h + 1) * group]
            of_head[name] = part.detach().cpu().contiguous()
        parts.append(of_head)
    return parts


def result_of(
    program: Program,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    rest: Sequence[Tensor],
    with_lse: bool,
) -> list[dict[str, Tensor]]:
    """What a program gives, for largest_errors(). `rest`: O and LSE, or what with_gradient() gives;
    `with_lse`: whether it fills LSE."""
    gradients = len(rest) > 2
    for out in rest[3:] if gradients else rest:
        out.fill_(math.nan)
    found = program(q, k, v, causal, *rest)
    found = dict(zip(("dq", "dk", "dv"), found)) if gradients else {"o": found}
    if with_lse and not gradients:
        found["lse"] = rest[1]
    return looked_at(k, found)


def largest_errors(
    torch: ModuleType,
    results: Mapping[str, list[dict[str, Tensor]]],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    rest: Sequence[Tensor],
    window: int = 0,
    more: Mapping[str, Tensor] | None = None,
) -> dict[str, float]:
    """{program: its largest error, as a part of the bound that the suite's rule gives} of
    {program: what result_of() gives}; above 1 is wrong. Looks at 256 rows of the query heads that
    read the first and the last head of K and V, and at all gradients of these heads. `more`: what
    else the rule asks for."""
    inputs = {"q": q, "k": k, "v": v} | dict(more or {})
    if len(rest) > 2:  # gradients, of this O and LSE
        inputs |= dict(zip(("o", "lse", "do"), rest))
    names, shares = list(results), dict.fromkeys(results, 0.0)
    for n, of_head in enumerate(looked_at(k, inputs) if results else ()):
        with tempfile.TemporaryDirectory() as folder:

            def write(name: str, tensors: Mapping[str, Tensor], folder: str = folder) -> str:
                path = f"{folder}/{name}.safetensors"
                safetensors.write(path, {one: as_bytes(torch, x) for one, x in tensors.items()})
                return path

            mask = str(window) if window else "causal" if causal else "full"
            command = [str(checker()), write("input", of_head), mask, "256"]
            command += [write(f"result-{i}", parts[n]) for i, parts in enumerate(results.values())]
            said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        for line in said.splitlines():
            program, _, error, bound = line.split()
            share = float(error) / float(bound) if float(error) >= 0 else math.inf  # NaN is not
            shares[names[int(program)]] = max(shares[names[int(program)]], share)
    return shares


def as_bytes(torch: ModuleType, x: Tensor) -> safetensors.Tensor:
    """(type, shape, bytes) of a tensor, as safetensors.write() wants it."""
    types = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    return types[x.dtype], x.shape, x.view(torch.uint8).numpy().tobytes()


def in_window(
    torch: ModuleType, q: Tensor, k: Tensor, v: Tensor, window: int
) -> tuple[Tensor, Tensor]:
    """O and LSE, computed in fp32, 1,024 queries at a time. There are as many keys as queries."""
    o, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
    for begin in range(0, q.shape[2], 1024):
        end, first = min(begin + 1024, q.shape[2]), max(begin - window + 1, 0)
        some_k, some_v = (x[:, :, first:end].float() for x in (k, v))
        S = q[:, :, begin:end].float() @ some_k.mT / math.sqrt(q.shape[-1])
        own = torch.arange(begin, end, device=q.device)[:, None]
        j = torch.arange(first, end, device=q.device)
        S.masked_fill_((j > own) | (j <= own - window), -math.inf)
        lse[:, :, begin:end] = S.logsumexp(-1)
        o[:, :, begin:end] = (S.softmax(-1) @ some_v).to(o.dtype)
    return o, lse


def with_gradient(
    torch: ModuleType, q: Tensor, k: Tensor, v: Tensor, causal: bool, window: int = 0
) -> list[Tensor]:
    """O, LSE and dO for a backward pass, and room for dQ, dK and dV."""
    group = q.shape[1] // k.shape[1]
    every_k, every_v = (x.repeat_interleave(group, 1) for x in (k, v))
    if window:
        o, lse = in_window(torch, q, every_k, every_v, window)
    else:
        forward = torch.ops.aten._scaled_dot_product_flash_attention
        o, lse, *_ = forward(q, every_k, every_v, 0.0, causal)
    return [
        o.contiguous(),
        lse.contiguous(),
        torch.randn_like(q),
        *(torch.full_like(x, math.nan) for x in (q, k, v)),
    ]


SPIN = 100_000  # of the SM's clocks, about 50 us


def clock_now(torch: ModuleType) -> Callable[[], float]:
    """Queues a measurement of the SM's clock behind all that the GPU has been given; what is
    returned tells MHz once the GPU has come that far.

    When nvidia-smi answers, the rounds are over and the clock may have risen again. So a kernel
    spins until clock64 has counted on by a known number, while events take the time by the GPU's
    own timer. It does so twice: in the difference the time of a launch cancels out.
    """
    before, between, after = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    before.record()
    torch.cuda._sleep(SPIN)
    between.record()
    torch.cuda._sleep(3 * SPIN)
    after.record()

    def megahertz() -> float:
        milliseconds = between.elapsed_time(after) - before.elapsed_time(between)
        return 2 * SPIN / milliseconds / 1e3

    return megahertz


def interleaved(
    torch: ModuleType, programs: Mapping[str, Program], rounds: int
) -> tuple[dict[str, list[float]], dict[str, float | None]]:
    """{name: milliseconds of each round}, the median of the clocks at the end of each round, and
    the power after the last. In each round every program runs once.

    The order is drawn by lot, because in a fixed one the clocks that one program leaves are always
    the same other's. The first round is not timed. The GPU sleeps at the start of each round, while
    the launches queue up behind it: else a figure would contain the time in which the host prepares
    a launch. L2 is flushed before each run by reading: after writing, the run would pay for the
    lines that go back to DRAM.
    """
    beyond_L2, total = torch.zeros(64 << 20, device="cuda"), torch.empty((), device="cuda")
    events: dict[str, list[tuple[Any, Any]]] = {name: [] for name in programs}
    order, shuffle = list(programs.items()), random.Random(1).shuffle
    clocks = []
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
        megahertz = clock_now(torch)
        torch.cuda.synchronize()
        if number:
            clocks.append(megahertz())
    return {
        name: [start.elapsed_time(end) for start, end in pairs] for name, pairs in events.items()
    }, clock_and_power() | {"clock": round(statistics.median(clocks))}
