"""attention() and its gradients as operators of PyTorch: what autograd and torch.compile have to know of them."""

import contextlib
import ctypes
import math
import threading

import torch
from torch import Tensor

from flash_steps.ladder import choose
from flash_steps.library import functions_of

if not hasattr(torch.library, "custom_op"):
    raise ImportError(f"PyTorch 2.4 or later is needed; this is {torch.__version__}")

TYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}

# Kernels on the SIMT backend take turns.
one_kernel = threading.Lock()


def attention(q, k, v, causal=False, scale=None, rung=None, return_lse=False, backward_rung=None):
    """O = softmax(scale Q K^T) V, computed by a rung of the ladder.

    q (B, H, N_q, d), k and v (B, H_kv, N_kv, d), contiguous; head h reads head h / (H / H_kv) of k and v. `causal`:
    query i sees key j if j <= i + N_kv - N_q. `scale`: 1 / sqrt(d) unless given. Tensors on a GPU go to the rung as
    nvcc builds it, tensors on the CPU to a CPU rung or to a CUDA rung on the SIMT backend.
    `rung` and `backward_rung`: number or name; the highest that fits unless given. `return_lse`: also LSE (B, H, N_q),
    the logarithm of each row's sum of exp(scores), which has no gradient. Raises ValueError or TypeError.
    """
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1])
    o, lse = torch.ops.flash_steps.attention(q, k, v, bool(causal), float(scale), "" if rung is None else str(rung),
                                             "" if backward_rung is None else str(backward_rung))
    return (o, lse) if return_lse else o


def check(q, k, v):
    """Raises ValueError or TypeError unless these are Q, K and V of a problem."""
    named = {"q": q, "k": k, "v": v}
    for name, tensor in named.items():
        if tensor.dtype not in TYPES:
            raise TypeError(f"{name} is {tensor.dtype}; the rungs compute in float32, float16 or bfloat16")
        if tensor.dtype != q.dtype:
            raise TypeError(f"q is {q.dtype} and {name} is {tensor.dtype}; they must be the same")
        if tensor.device != q.device:
            raise ValueError(f"q is on {q.device} and {name} is on {tensor.device}; they must be on the same device")
        if tensor.device.type not in ("cpu", "cuda"):
            raise ValueError(f"{name} is on {tensor.device}; the rungs run on cuda and cpu")
        if tensor.dim() != 4:
            raise ValueError(f"{name} has {tensor.dim()} dimensions; (batch, heads, length, head dim) is expected")
        if 0 in tensor.shape:
            raise ValueError(f"{name} is empty: its shape is {tuple(tensor.shape)}")
    if k.shape != v.shape:
        raise ValueError(f"k is {tuple(k.shape)} and v is {tuple(v.shape)}; they must have the same shape")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"q is {tuple(q.shape)} and k is {tuple(k.shape)}; batch and head dim must be the same")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"q has {q.shape[1]} heads and k has {k.shape[1]}; the first must be a multiple of the second")
    for name, tensor in named.items():
        if not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous; a rung reads rows that lie one after the other: "
                             f"pass {name}.contiguous()")
        if tensor.data_ptr() % 16:
            raise ValueError(f"{name} does not begin at a multiple of 16 bytes; pass {name}.clone()")


def run(wanted, backward, q, k, causal, scale, tensors):
    """Runs a rung on these tensors, inputs and outputs in the order of its C entry."""
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale is {scale}; it must be finite and > 0")
    on_gpu = q.device.type == "cuda"
    gpu = torch.cuda.get_device_capability(q.device) if on_gpu else None
    rung = choose(wanted, backward, TYPES[q.dtype], q.shape[3], gpu)
    functions = functions_of(rung, gpu)
    sizes = (ctypes.c_int64 * 6)(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3])
    workspace = q.new_empty(functions.rung_workspace_bytes(sizes, causal), dtype=torch.uint8)
    pointers = (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
    message = ctypes.create_string_buffer(1000)
    with torch.cuda.device(q.device) if on_gpu else one_kernel if rung.capability else contextlib.nullcontext():
        stream = torch.cuda.current_stream().cuda_stream if on_gpu else None
        failed = functions.rung_attention(q.dtype == torch.bfloat16, sizes, scale, causal, pointers,
                                          workspace.data_ptr(), q.device.index or 0, stream, message, len(message))
    if failed:
        raise RuntimeError(f"{rung.name}: {message.value.decode(errors='replace')}")


@torch.library.custom_op("flash_steps::attention", mutates_args=())
def forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, rung: str,
            backward_rung: str) -> tuple[Tensor, Tensor]:
    check(q, k, v)
    o, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
    run(rung, False, q, k, causal, scale, (q, k, v, o, lse))
    return o, lse


@forward.register_fake
def _(q, k, v, causal, scale, rung, backward_rung):
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("flash_steps::attention_backward", mutates_args=())
def backward(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor, causal: bool, scale: float,
             rung: str) -> tuple[Tensor, Tensor, Tensor]:
    do = do.contiguous()  # autograd's, and often a view of one number
    if do.data_ptr() % 16:
        do = do.clone()
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    run(rung, True, q, k, causal, scale, (q, k, v, o, lse, do, dq, dk, dv))
    return dq, dk, dv


@backward.register_fake
def _(q, k, v, o, lse, do, causal, scale, rung):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def remember(ctx, inputs, output):
    q, k, v, ctx.causal, ctx.scale, _, ctx.rung = inputs
    o, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(q, k, v, o, lse)


def gradients(ctx, do, _):
    dq, dk, dv = torch.ops.flash_steps.attention_backward(*ctx.saved_tensors, do, ctx.causal, ctx.scale, ctx.rung)
    return dq, dk, dv, None, None, None, None


forward.register_autograd(gradients, setup_context=remember)
