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


@pytest.mark.parametrize("device", HOPPER)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("window, with_sink", [(1, True), (30, False), (70, True), (None, True)])
@pytest.mark.parametrize("shape", [(20, 200), (80, 130), (130, 80)], ids=str)
def test_gradients(shape, window, with_sink, dtype, device):
    tensors = inputs(*shape, dtype, device)[: 4 if with_sink else 3]
    leaves = [x.clone().requires_grad_() for x in tensors]
    sink = leaves[3] if with_sink else None
    o = attention(*leaves[:3], scale=0.2, window=window, sink=sink)
    d_o = torch.randn(o.shape, generator=torch.Generator().manual_seed(3)).to(o)
    doubles = [x.double().requires_grad_() for x in tensors]
    right = expected(*doubles[:3], window, doubles[3] if with_sink else None, False, 0.2)[0]
    for got, wanted in zip(
        torch.autograd.grad(o, leaves, d_o),
        torch.autograd.grad(right, doubles, d_o.double()),
        strict=True,
    ):
        wanted = wanted.nan_to_num()  # through the softmax of a row without a key or a sink
        close(got, wanted, dtype)


def test_gradient_of_the_sink_alone():
    q, k, v, sink = inputs(40, 70, torch.bfloat16, "cpu")
    everything = [x.clone().requires_grad_() for x in (q, k, v, sink)]
    attention(*everything[:3], window=20, sink=everything[3]).sum().backward()
    attention(q, k, v, window=20, sink=sink.requires_grad_()).sum().backward()
    assert torch.equal(sink.grad, everything[3].grad)


def test_gradients_refused():
    q, k, v, sink = inputs(40, 70, torch.bfloat16, "cpu")
    o = attention(q.requires_grad_(), k, v, window=20, backward_rung="backward_late_dq")
    with pytest.raises(ValueError, match="neither windows nor sinks; backward_window does"):
        o.sum().backward()
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="backward_window does not have a deterministic"):
            attention(q, k, v, window=20).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_opcheck_and_compile():
    q, k, v, sink = inputs(40, 70, torch.bfloat16, "cpu")
    near = {"rtol": TOLERANCE[q.dtype], "atol": TOLERANCE[q.dtype]}
    ops = torch.ops.flash_steps
    for logits in (sink, None):
        forward = (q, k, v, logits, 20, True, 0.2, "window", "backward_window")
        torch.library.opcheck(ops.attention_window.default, forward, **near)
        o, lse = ops.attention_window(*forward)
        backward = (q, k, v, logits, o, lse, o, 20, True, 0.2, "backward_window")
        torch.library.opcheck(ops.attention_window_backward.default, backward, **near)
    compiled = torch.compile(attention, fullgraph=True, backend="eager")
    assert torch.equal(compiled(q, k, v, window=20), attention(q, k, v, window=20))


def test_autocast():
    q, k, v, sink = inputs(40, 70, torch.bfloat16, "cpu")
    with torch.autocast("cpu", torch.bfloat16):
        o = attention(q.float(), k.float(), v.float(), window=20, sink=sink)
    assert torch.equal(o, attention(q, k, v, window=20, sink=sink))
