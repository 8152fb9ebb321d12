"""attention() with a window and a sink, against float64."""

import math

import pytest
import torch
from flash_steps import attention
from test_attention import DEVICES, TOLERANCE, close

HOPPER = [one for one in DEVICES if one == "cpu" or torch.cuda.get_device_capability() == (9, 0)]


def inputs(N_q, N_kv, dtype, device, d=64):
    draw = torch.Generator().manual_seed(2)
    shapes = (2, 6, N_q, d), (2, 2, N_kv, d), (2, 2, N_kv, d)
    q, k, v = (torch.randn(*shape, generator=draw).to(dtype).to(device) for shape in shapes)
    sink = torch.tensor([0.5, -math.inf, 3, -2, 0, 50], device=device)
    return q, k, v, sink


def expected(q, k, v, window, sink, causal, scale):
    """O and LSE. The sink is one more column of the scores, which is dropped before V."""
    k, v = (x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    N_q, N_kv = q.shape[2], k.shape[2]
    own = torch.arange(N_q, device=q.device)[:, None] + N_kv - N_q
    j = torch.arange(N_kv, device=q.device)
    hidden = j > own if causal or window else torch.zeros(N_q, N_kv, dtype=bool, device=q.device)
    hidden = hidden | (j <= own - window) if window else hidden
    S = (scale * q.double() @ k.mT).masked_fill(hidden, -math.inf)
    column = (
        torch.full_like(S[..., :1], -math.inf) if sink is None else sink.double()[:, None, None]
    )
    S = torch.cat((S, column.expand(*S.shape[:3], 1)), -1)
    P = torch.softmax(S, -1)[..., :-1].nan_to_num()  # 0 where there is neither a key nor a sink
    return P @ v, torch.logsumexp(S, -1)


@pytest.mark.parametrize("device", HOPPER)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("window, with_sink", [(1, True), (30, False), (70, True), (None, True)])
@pytest.mark.parametrize("shape", [(80, 130), (130, 80)], ids=str)
def test_windows_and_sinks(shape, window, with_sink, dtype, device):
    q, k, v, sink = inputs(*shape, dtype, device)
    sink = sink if with_sink else None
    o, lse = attention(q, k, v, scale=0.2, window=window, sink=sink, return_lse=True)
    right = expected(q, k, v, window, sink, False, 0.2)
    close(o, right[0], dtype)
    close(lse, right[1], dtype)


def test_opcheck_and_compile():
    q, k, v, sink = inputs(40, 70, torch.bfloat16, "cpu")
    near = {"rtol": TOLERANCE[q.dtype], "atol": TOLERANCE[q.dtype]}
    operator = torch.ops.flash_steps.attention_window.default
    torch.library.opcheck(operator, (q, k, v, sink, 20, True, 0.2, "window"), **near)
    compiled = torch.compile(attention, fullgraph=True, backend="eager")
    assert torch.equal(compiled(q, k, v, window=20), attention(q, k, v, window=20))


def test_autocast_and_gradients():
    q, k, v, sink = inputs(40, 70, torch.bfloat16, "cpu")
    with torch.autocast("cpu", torch.bfloat16):
        o = attention(q.float(), k.float(), v.float(), window=20, sink=sink)
    assert torch.equal(o, attention(q, k, v, window=20, sink=sink))
    with pytest.raises(RuntimeError, match="attention_window"):
        attention(q.requires_grad_(), k, v, window=20).sum().backward()
