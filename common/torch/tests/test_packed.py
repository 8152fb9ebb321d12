"""attention_packed() against float64: sequences of any lengths on a line."""

import pytest
import torch
from flash_steps import attention, attention_packed
from test_attention import DEVICES, TOLERANCE, close, expected

HOPPER = [one for one in DEVICES if one == "cpu" or torch.cuda.get_device_capability() == (9, 0)]


def ends(lengths, device="cpu"):
    sums = torch.tensor([0, *lengths]).cumsum(0)
    return sums.to(torch.int32).to(device)


def line(queries, keys, H=4, H_kv=2, d=64, dtype=torch.bfloat16, device="cpu"):
    """q, k, v and both tables."""
    draw = torch.Generator().manual_seed(3)
    shapes = (sum(queries), H, d), (sum(keys), H_kv, d), (sum(keys), H_kv, d)
    tensors = (torch.randn(shape, generator=draw).to(dtype).to(device) for shape in shapes)
    return *tensors, ends(queries, device), ends(keys, device)


def check(q, k, v, cu_q, cu_kv, o, lse, causal):
    """Each sequence by itself."""
    for b in range(len(cu_q) - 1):
        rows, columns = slice(cu_q[b], cu_q[b + 1]), slice(cu_kv[b], cu_kv[b + 1])
        if columns.start == columns.stop:
            assert (o[rows] == 0).all() and torch.isneginf(lse[:, rows]).all()
        elif rows.start < rows.stop:
            own = [x.transpose(0, 1)[None] for x in (q[rows], k[columns], v[columns])]
            right = expected(*own, own[0], causal)
            close(o[rows].transpose(0, 1)[None], right[0], q.dtype)
            close(lse[None, :, rows], right[1], q.dtype)


@pytest.mark.parametrize("device", HOPPER)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bounds", [{}, {"max_q": 300, "max_kv": 200}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_lengths(dtype, bounds, causal, device):
    tensors = line([5, 0, 300, 1, 9], [70, 3, 200, 0, 9], dtype=dtype, device=device)
    o, lse = attention_packed(*tensors, causal, return_lse=True, **bounds)
    check(*tensors, o, lse, causal)


@pytest.mark.parametrize("device", HOPPER)
def test_one_table_for_both_and_equal_lengths(device):
    q, k, v, cu, _ = line([70, 70], [70, 70], device=device)
    o = attention_packed(q, k, v, cu, causal=True)
    apart = [x.view(2, 70, -1, 64).transpose(1, 2).contiguous() for x in (q, k, v)]
    assert torch.equal(
        o.view(2, 70, 4, 64).transpose(1, 2), attention(*apart, causal=True, rung="overlap")
    )


@pytest.mark.skipif(HOPPER == ["cpu"], reason="graphs are a GPU's")
def test_a_graph_serves_another_batch():
    q, k, v, cu_q, cu_kv = line([100, 50, 0], [60, 90, 5], device="cuda")
    attention_packed(q, k, v, cu_q, cu_kv, causal=True)  # builds the rung
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, lse = attention_packed(q, k, v, cu_q, cu_kv, causal=True, return_lse=True)
    cu_q.copy_(ends([7, 0, 143]))
    cu_kv.copy_(ends([5, 50, 100]))
    graph.replay()
    check(q, k, v, cu_q, cu_kv, o, lse, True)


def test_opcheck_and_compile():
    tensors = line([30, 0, 12], [41, 2, 12])
    near = {"rtol": TOLERANCE[torch.bfloat16], "atol": TOLERANCE[torch.bfloat16]}
    ops = torch.ops.flash_steps
    how = 30, 41, True, 0.2
    torch.library.opcheck(ops.attention_packed.default, (*tensors, *how), **near)
    leaves = [x.detach().requires_grad_() for x in tensors[:3]]
    torch.library.opcheck(ops.attention_packed.default, (*leaves, *tensors[3:], *how), **near)
    o, lse = ops.attention_packed(*tensors, *how)
    backward = (*tensors, o, lse, o, *how)
    torch.library.opcheck(ops.attention_packed_backward.default, backward, **near)
    compiled = torch.compile(attention_packed, fullgraph=True, backend="eager")
    assert torch.equal(compiled(*tensors), attention_packed(*tensors))


def test_autocast():
    q, k, v, *tables = line([30, 7], [30, 7])
    with torch.autocast("cpu", torch.bfloat16):
        o = attention_packed(q.float(), k.float(), v.float(), *tables)
    assert torch.equal(o, attention_packed(q, k, v, *tables))


def gradients_of(q, k, v, *how, d_o, **more):
    """dQ, dK and dV."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    return torch.autograd.grad(attention_packed(*leaves, *how, **more), leaves, d_o)


def check_gradients(q, k, v, cu_q, cu_kv, d_o, found, causal):
    """Each sequence by itself; without other side they are 0."""
    right = [torch.zeros_like(x, dtype=torch.float64) for x in (q, k, v)]
    for b in range(len(cu_q) - 1):
        rows, columns = slice(cu_q[b], cu_q[b + 1]), slice(cu_kv[b], cu_kv[b + 1])
        if rows.start < rows.stop and columns.start < columns.stop:
            parts = (q[rows], k[columns], v[columns], d_o[rows])
            own = [x.transpose(0, 1)[None] for x in parts]
            for into, x in zip(
                (right[0][rows], right[1][columns], right[2][columns]), expected(*own, causal)[2:]
            ):
                into.copy_(x[0].transpose(0, 1))
    for one, by_definition in zip(found, right):
        close(one, by_definition, q.dtype)


@pytest.mark.parametrize("device", HOPPER)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradients(dtype, d, causal, device):
    tensors = line([5, 0, 300, 1, 9], [70, 3, 200, 0, 9], d=d, dtype=dtype, device=device)
    d_o = torch.randn_like(tensors[0])
    found = gradients_of(*tensors, causal, d_o=d_o, max_q=300, max_kv=200)
    check_gradients(*tensors, d_o, found, causal)


def test_gradients_of_a_loss_and_under_compile():
    q, k, v, *tables = line([30, 7], [30, 7])
    d_o = torch.ones((), dtype=q.dtype).expand(q.shape)  # what sum() hands on
    found = gradients_of(q, k, v, *tables, True, d_o=d_o)
    check_gradients(q, k, v, *tables, d_o, found, True)
    compiled = torch.compile(attention_packed, fullgraph=True, backend="aot_eager")
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    compiled(*leaves, *tables, causal=True).sum().backward()
    check_gradients(q, k, v, *tables, d_o, [x.grad for x in leaves], True)


def test_gradients_have_no_order_and_no_head_dim_256():
    q, k, v, *tables = line([30, 7], [30, 7], d=256)
    with pytest.raises(ValueError, match="backward_packed takes head dims 64, 128"):
        gradients_of(q, k, v, *tables, d_o=q)
    q, k, v, *tables = line([30, 7], [30, 7])
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="backward_packed does not have a deterministic"):
            gradients_of(q, k, v, *tables, d_o=q)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.skipif(HOPPER == ["cpu"], reason="graphs are a GPU's")
def test_a_graph_serves_the_gradients_of_another_batch():
    q, k, v, cu_q, cu_kv = line([100, 50, 0], [60, 90, 5], device="cuda")
    d_o = torch.randn_like(q)
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    gradients_of(*leaves, cu_q, cu_kv, True, d_o=d_o)  # builds the rungs
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = gradients_of(*leaves, cu_q, cu_kv, True, d_o=d_o)
    cu_q.copy_(ends([7, 0, 143]))
    cu_kv.copy_(ends([5, 50, 100]))
    graph.replay()
    check_gradients(q, k, v, cu_q, cu_kv, d_o, found, True)


Q, K, V, CU_Q, CU_KV = line([4, 3], [5, 2])


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        ((Q[None], K, V, CU_Q, CU_KV), {}, "q has 4 dimensions; (tokens, heads, head dim)"),
        ((Q, K, V[:5], CU_Q, CU_KV), {}, "k is (7, 2, 64) and v is (5, 2, 64); k and v must"),
        ((Q[:, :3].contiguous(), K, V, CU_Q, CU_KV), {}, "q has 3 heads and k has 2"),
        ((Q[:, ::2], K, V, CU_Q, CU_KV), {}, "q is not contiguous"),
        ((Q[:0], K, V, CU_Q, CU_KV), {}, "q is empty: its shape is (0, 4, 64)"),
        ((Q, K, V, CU_Q.long(), CU_KV), {}, "cu_seqlens_q is torch.int64; torch.int32"),
        ((Q, K, V, CU_Q, CU_KV[:2]), {}, "cu_seqlens_kv is (2) and cu_seqlens_q (3)"),
        ((Q, K, V, CU_Q[:1], CU_KV[:1]), {}, "a number more than there are sequences"),
        ((Q, K, V, CU_Q, CU_KV.to("meta")), {}, "they must be on the same device"),
        ((Q, K, V, None), {}, "cu_seqlens_q is NoneType; a torch.Tensor is expected"),
        ((Q, K, V, CU_Q, CU_KV), {"max_kv": 0}, "max_kv must be at least 1, got 0"),
        ((Q.float(), K.float(), V.float(), CU_Q), {}, "packed_sequences computes in fp16 and bf16"),
    ],
)
def test_message(arguments, options, message):
    with pytest.raises((TypeError, ValueError)) as raised:
        attention_packed(*arguments, **options)
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_attention_on_tensors_is_refused():
    q = torch.zeros(1, 2, 8, 64, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="takes sequences on a line: attention_packed"):
        attention(q, q, q, rung="packed_sequences")
