"""`flash_attention_2` once more, in Triton: what docs/cute_names.md sets beside the CUDA C++.

On a GPU Triton compiles it. With TRITON_INTERPRET=1 it runs on the CPU, slowly. Needs PyTorch and
Triton. `./scripts/lab/run compare` times it as `Triton`.
"""

import math

import torch
import triton
import triton.language as tl


@triton.jit  # which reads annotations itself
def kernel(  # type: ignore[no-untyped-def]
    Q, K, V, O, LSE, Tr, group, N_q, N_kv, scale_log2,
    causal: tl.constexpr, d: tl.constexpr, Br: tl.constexpr, Bc: tl.constexpr,
):  # fmt: skip
    head = (tl.program_id(0) // Tr).to(tl.int64)
    i0 = tl.program_id(0) % Tr * Br
    i, x = i0 + tl.arange(0, Br), tl.arange(0, d)
    in_Q = (head * N_q + i[:, None]) * d + x
    in_tensor = i[:, None] < N_q
    q = tl.load(Q + in_Q, mask=in_tensor, other=0)

    # the keys that the first and the last row of the tile see; `whole`: tiles that all rows see
    first_row_keys = i0 + N_kv - N_q + 1 if causal else N_kv
    keys = tl.minimum(first_row_keys + Br - 1, N_kv)
    whole = tl.maximum(tl.minimum(first_row_keys, N_kv), 0) // Bc * Bc

    m = tl.full([Br], -math.inf, tl.float32)
    l = tl.zeros([Br], tl.float32)
    o = tl.zeros([Br, d], tl.float32)
    for edge in tl.static_range(2):
        for j0 in range(whole if edge else 0, keys if edge else whole, Bc):
            j = j0 + tl.arange(0, Bc)
            in_K = (head // group * N_kv + j[:, None]) * d + x
            k = tl.load(K + in_K, mask=j[:, None] < N_kv, other=0)
            s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
            if edge:
                seen = i[:, None] + (N_kv - N_q) if causal else N_kv - 1
                s = tl.where(j <= tl.minimum(seen, N_kv - 1), s, -math.inf)
            m_new = tl.maximum(m, tl.max(s, 1))
            shift = tl.where(m_new == -math.inf, 0, m_new)  # no visible key yet
            keep = tl.exp2(m - shift)
            p = tl.exp2(s - shift[:, None])
            m, l = m_new, keep * l + tl.sum(p, 1)
            v = tl.load(V + in_K, mask=j[:, None] < N_kv, other=0)
            o = keep[:, None] * o + tl.dot(p.to(v.dtype), v, input_precision="ieee")

    tl.store(O + in_Q, o / tl.where(l == 0, 1, l)[:, None], mask=in_tensor)
    tl.store(LSE + head * N_q + i, 0.6931471805599453 * (m + tl.log2(l)), mask=i < N_q)


TILES = {32: (128, 64, 4), 64: (128, 64, 4), 128: (128, 64, 8), 256: (64, 32, 8)}  # Br, Bc, warps


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    o: torch.Tensor | None = None,
    lse: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """O and LSE of contiguous q (B, H, N_q, d), k and v (B, H_kv, N_kv, d)."""
    (B, H, N_q, d), (H_kv, N_kv) = q.shape, k.shape[1:3]
    Br, Bc, warps = TILES[d] if q.element_size() == 2 else (64, 32, 4)
    o = torch.empty_like(q) if o is None else o
    lse = torch.empty(q.shape[:3], device=q.device) if lse is None else lse
    Tr = triton.cdiv(N_q, Br)
    scale_log2 = (scale or 1 / math.sqrt(d)) / math.log(2)
    kernel[(B * H * Tr,)](
        q, k, v, o, lse, Tr, H // H_kv, N_q, N_kv, scale_log2, causal, d, Br, Bc, num_warps=warps
    )
    return o, lse
