"""Prints the seconds of PyTorch's fp32 attention on a GPU, for the shape [B, H, N, d, causal] given as JSON.

The memory-efficient kernel is the fastest that PyTorch has for fp32; "unfused" is two products of cuBLAS with a
softmax between them, S and P in memory as in rung 06. Fails when there is no PyTorch or no GPU.
"""

import json
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

REPETITIONS = 20
torch.backends.cuda.matmul.allow_tf32 = False


def seconds(backend, q, k, v, causal):
    flush = torch.empty(32 << 20, device="cuda")  # 128 MiB, beyond the L2 cache
    times = []
    with sdpa_kernel(backend):
        for repetition in range(3 + REPETITIONS):
            flush.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            scaled_dot_product_attention(q, k, v, is_causal=causal)
            end.record()
            end.synchronize()
            if repetition >= 3:  # the first ones warm up
                times.append(start.elapsed_time(end) / 1e3)
    return times


def main():
    batch, heads, N, d, causal = json.loads(sys.argv[1])
    torch.manual_seed(1)
    q, k, v = (torch.randn(batch, heads, N, d, device="cuda") for _ in range(3))
    print(json.dumps({"version": torch.__version__,
                      "seconds": {"memory-efficient": seconds(SDPBackend.EFFICIENT_ATTENTION, q, k, v, causal),
                                  "unfused": seconds(SDPBackend.MATH, q, k, v, causal)}}))


main()
