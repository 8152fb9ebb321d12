"""Prints the seconds of PyTorch's attention on a GPU, for the shape [B, H, N, d, causal] given as JSON, and a type.

    torch_attention.py SHAPE [fp32|bf16]

In fp32 the memory-efficient kernel is the fastest that PyTorch has; "unfused" is two products of cuBLAS with a softmax
between them, S and P in memory as in rung 06. In bf16 there are FlashAttention-2 and cuDNN.
Fails when there is no PyTorch or no GPU.
"""

import json
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

REPETITIONS = 20
BACKENDS = {"fp32": {"memory-efficient": SDPBackend.EFFICIENT_ATTENTION, "unfused": SDPBackend.MATH},
            "bf16": {"FlashAttention-2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}}
torch.backends.cuda.matmul.allow_tf32 = False


def seconds(backend, q, k, v, causal):
    """One time a repetition; None when this GPU or shape is not for the backend."""
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")  # beyond the L2 cache
    times = []
    with sdpa_kernel(backend):
        for repetition in range(3 + REPETITIONS):
            flush.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            try:
                scaled_dot_product_attention(q, k, v, is_causal=causal)
            except RuntimeError:
                return None
            end.record()
            end.synchronize()
            if repetition >= 3:  # the first ones warm up
                times.append(start.elapsed_time(end) / 1e3)
    return times


def main():
    batch, heads, N, d, causal = json.loads(sys.argv[1])
    dtype = sys.argv[2] if len(sys.argv) > 2 else "fp32"
    torch.manual_seed(1)
    q, k, v = (torch.randn(batch, heads, N, d, device="cuda").to({"fp32": torch.float32, "bf16": torch.bfloat16}[dtype])
               for _ in range(3))
    times = {name: seconds(backend, q, k, v, causal) for name, backend in BACKENDS[dtype].items()}
    print(json.dumps({"version": torch.__version__,
                      "seconds": {name: values for name, values in times.items() if values}}))


main()
