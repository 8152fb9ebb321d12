"""attention() where V and O are narrower than Q and K, against float64."""

import pytest
import torch
from flash_steps import attention
from test_attention import DEVICES, SHAPES, TOLERANCE, close, expected

HOPPER = [one for one in DEVICES if one == "cpu" or torch.cuda.get_device_capability() == (9, 0)]


def inputs(B, H, H_kv, N_q, N_kv, dtype, device="cpu"):
    """Q and K with 192 columns, V and a dO with 128."""
    draw = torch.Generator().manual_seed(3)
    shapes = (B, H, N_q, 192), (B, H_kv, N_kv, 192), (B, H_kv, N_kv, 128), (B, H, N_q, 128)
    return [torch.randn(shape, generator=draw).to(dtype).to(device) for shape in shapes]


@pytest.mark.parametrize("device", HOPPER)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward(shape, causal, dtype, device):
    """The scale is 1 / sqrt(192) unless given."""
    q, k, v, do = inputs(*shape, dtype, device)
    for scale in (None, 0.2):
        o, lse = attention(q, k, v, causal, scale, return_lse=True)
        right = expected(q, k, v, do, causal, scale)
        assert o.shape == (*q.shape[:3], 128) and o.dtype == dtype
        close(o, right[0], dtype)
        close(lse, right[1], dtype)


def test_opcheck_compile_and_autocast():
    q, k, v, _ = inputs(1, 4, 2, 40, 70, torch.bfloat16)
    near = {"rtol": TOLERANCE[q.dtype], "atol": TOLERANCE[q.dtype]}
    operator = torch.ops.flash_steps.attention.default
    torch.library.opcheck(operator, (q, k, v, True, 0.2, "", ""), **near)
    o = attention(q, k, v, True)
    compiled = torch.compile(attention, fullgraph=True, backend="eager")
    assert torch.equal(compiled(q, k, v, True), o)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(attention(q.float(), k.float(), v.float(), True), o)


def test_gradients_are_refused():
    q, k, v, _ = inputs(1, 1, 1, 8, 8, torch.bfloat16)
    o = attention(q, k, v.requires_grad_())
    with pytest.raises(ValueError, match="no backward rung computes bf16 with head dim 192/128"):
        o.sum().backward()
