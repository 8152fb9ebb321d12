"""attention(): the Python side of the operators of common/torch/operator, which asks here which
rung it shall run."""

import ctypes
import math
from typing import Any

import torch

from flash_steps.ladder import ROOT, choose, is_ordered
from flash_steps.library import functions_of, operator_library

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 4):
    raise ImportError(f"PyTorch 2.4 or later is needed; this is {torch.__version__}")
if not (ROOT / "steps/ladder.txt").is_file():
    raise ImportError("flash_steps builds the rungs of a clone: in one, pip install -e .")


ENTRIES = ("attention", "attention_paged", "attention_window", "attention_packed")


class Found(ctypes.Structure):
    """A rung, as operator.cpp wants it described."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ENTRIES),
        ("workspace_bytes", ctypes.c_void_p),
        ("emulated", ctypes.c_int),
        ("unordered", ctypes.c_int),
        ("name", ctypes.c_char * 100),
        ("message", ctypes.c_char * 1000),
    ]


@ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.POINTER(Found),
)
def find(
    rung: bytes,
    backward: int,
    ordered: int,
    dtype: bytes,
    head_dim: int,
    head_dim_v: int,
    few_queries: int,
    device: int,
    found: Any,
) -> int:
    """Chooses a rung, builds its library and loads it. Called once for each kind of tensors."""
    found = found.contents
    try:
        gpu = torch.cuda.get_device_capability(device) if device >= 0 else None
        wanted = rung.decode(), bool(backward), dtype.decode(), head_dim
        chosen = choose(*wanted, gpu, bool(ordered), bool(few_queries), head_dim_v)
        functions = functions_of(chosen, gpu)
        for name in (*ENTRIES, "workspace_bytes"):
            function = getattr(functions, f"rung_{name}")
            setattr(found, name, ctypes.cast(function, ctypes.c_void_p).value)
        found.emulated = gpu is None and chosen.cuda
        found.unordered = not is_ordered(chosen)
        found.name = chosen.name.encode()
        return 0
    except BaseException as error:  # an exception cannot pass through C
        found.message = (str(error) or type(error).__name__).encode()[:999]
        return 1 if isinstance(error, ValueError) else 2


library = operator_library()
torch.ops.load_library(library)
ctypes.CDLL(library).flash_steps_find_with(find)
forward = torch.ops.flash_steps.attention.default
forward_paged = torch.ops.flash_steps.attention_paged.default
forward_window = torch.ops.flash_steps.attention_window.default
forward_packed = torch.ops.flash_steps.attention_packed.default


def scale_for(scale: float | None, **tensors: torch.Tensor) -> float:
    """The factor of the scores, `q` being the first tensor. Raises TypeError where one is none;
    what else may be wrong with them the operator says."""
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is {type(x).__name__}; a torch.Tensor is expected")
    d = tensors["q"].shape[-1] if tensors["q"].dim() > 0 else 0
    return 1 / math.sqrt(max(d, 1)) if scale is None else float(scale)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    rung: str | None = None,
    return_lse: bool = False,
    backward_rung: str | None = None,
    window: int | None = None,
    sink: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """O = softmax(scale Q K^T) V, computed by a rung of the ladder.

    q (B, H, N_q, d), k and v (B, H_kv, N_kv, d), contiguous; head h reads head h / (H / H_kv) of k
    and v. With d = 192, v may be (B, H_kv, N_kv, 128): then O is, too, and has no gradients yet.
    `causal`: query i sees key j if j <= i + N_kv - N_q. `scale`: 1 / sqrt(d) unless given.
    Tensors on a GPU go to the rung as nvcc builds it, tensors on the CPU to a CPU rung or to a CUDA
    rung on the SIMT backend. `rung` and `backward_rung`: names, as "overlap". Unless given,
    the highest rung that fits, `split_kv` where a K/V head serves 16 queries or fewer (those of its
    heads together), and for the gradients the fastest one, or, under
    torch.use_deterministic_algorithms(True), one that gives the same bits in every run.
    `return_lse`: also LSE (B, H, N_q), the logarithm of each row's sum of exp(scores), which has no
    gradient. Rungs that sum up rounded weights (lean_softmax to multistage, and those for decoding)
    are off by up to 0.004 there in bf16. Under torch.autocast q, k and v get its type first.
    `window`: query i sees the last W keys up to its own, i + N_kv - N_q, which implies `causal`.
    `sink` (H), float32, finite or -inf: a logit per head that joins the sum, and LSE, and owns no
    key. Both are the rung window's, and their gradients, that of `sink` among them, those of
    backward_window, for head dims 64 and 128. These have no order of their sums, and are refused
    where PyTorch is to be deterministic.
    Raises ValueError or TypeError for wrong arguments, RuntimeError where the rung cannot be built
    or run, and NotImplementedError for forward-mode derivatives.
    """
    scale = scale_for(scale, q=q, k=k, v=v)
    if window is not None and window < 1:
        raise ValueError(f"window must be at least 1, the query's own key, got {window}")
    if window is not None or sink is not None:
        causal = bool(causal) or window is not None
        rungs = str(rung or "window"), str(backward_rung or "backward_window")
        o, lse = forward_window(q, k, v, sink, window or 0, causal, scale, *rungs)
        return (o, lse) if return_lse else o
    names = ("" if name is None else str(name) for name in (rung, backward_rung))
    o, lse = forward(q, k, v, bool(causal), scale, *names)
    return (o, lse) if return_lse else o


def attention_paged(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """The same where K and V lie in pages, and each sequence has a length: for decoding.

    q (B, H, N_q, d), fp16 or bf16; k_pages and v_pages (pages, H_kv, page, d), with any strides of
    which the last is 1, so that pages (pages, page, H_kv, d) are passed as pages.transpose(1, 2).
    A page has a multiple of 16 keys. table (B, most_pages), int32: key j of sequence b is row
    j % page of page table[b, j // page]. lengths (B), int32: the keys of each sequence, 0 to
    most_pages * page, its last queries' own keys among them. A sequence without keys gets O = 0 and
    LSE = -inf. Both tensors stay where they are: the host never reads them, and a CUDA graph may be
    replayed after they have changed. So nobody checks what they hold. There are no gradients. Under
    torch.autocast q gets its type, and the pages must have it. Raises as attention() does.
    """
    scale = scale_for(scale, q=q, k_pages=k_pages, v_pages=v_pages, table=table, lengths=lengths)
    o, lse = forward_paged(q, k_pages, v_pages, table, lengths, bool(causal), scale)
    return (o, lse) if return_lse else o


def attention_packed(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_kv: torch.Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    max_q: int | None = None,
    max_kv: int | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """The same for sequences of any lengths, one after the other on a line of tokens.

    q (total_q, H, d), k and v (total_kv, H_kv, d), contiguous, fp16 or bf16, d 64, 128 or 256.
    cu_seqlens_q and cu_seqlens_kv (B + 1), int32, begin with 0 and never fall: sequence b owns the
    rows cu_seqlens[b] to cu_seqlens[b + 1] - 1. Without cu_seqlens_kv it is cu_seqlens_q. Each
    sequence sees its own keys alone, with a mask of its own. It may have no queries, or no keys:
    O = 0, LSE = -inf. `max_q` and `max_kv`: no sequence is longer; the number of tokens unless
    given. A smaller bound saves the kernel a little work. LSE is (H, total_q). Both tables stay
    where they are: the host never reads them, and a CUDA graph may be replayed after they have
    changed. They may end before the tokens do; of rows behind them O and LSE are undefined. So
    nobody checks what they hold. There are no gradients. Raises as attention() does.
    """
    cu_seqlens_kv = cu_seqlens_q if cu_seqlens_kv is None else cu_seqlens_kv
    scale = scale_for(scale, q=q, k=k, v=v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_kv=cu_seqlens_kv)
    bounds = []
    for name, bound, x in (("max_q", max_q, q), ("max_kv", max_kv, k)):
        if bound is not None and bound < 1:
            raise ValueError(f"{name} must be at least 1, got {bound}")
        tokens = x.shape[0] if x.dim() > 0 else 0  # the operator refuses a scalar
        bounds.append(tokens if bound is None else bound)
    o, lse = forward_packed(q, k, v, cu_seqlens_q, cu_seqlens_kv, *bounds, bool(causal), scale)
    return (o, lse) if return_lse else o
