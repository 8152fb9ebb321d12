"""attention() against float64 and against PyTorch's rules for operators, on CPU and GPU."""

import math
import multiprocessing
import sysconfig
from pathlib import Path

import pytest
import torch
from flash_steps import attention
from flash_steps.ladder import ROOT, choose, is_ordered, ladder

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
HOPPER = [one for one in DEVICES if one == "cpu" or torch.cuda.get_device_capability() == (9, 0)]
# (B, H, H_kv, N_q, N_kv): ragged, grouped, fewer and more queries than keys
SHAPES = [(1, 2, 2, 64, 64), (2, 4, 2, 33, 70), (1, 3, 1, 70, 33), (1, 1, 1, 1, 5)]
# Largest error over largest value.
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def problem(B, H, H_kv, N_q, N_kv, d=32, dtype=torch.float32, device="cpu", seed=0):
    """Q, K, V, and a dO."""
    draw = torch.Generator().manual_seed(seed)
    shapes = (B, H, N_q, d), (B, H_kv, N_kv, d), (B, H_kv, N_kv, d), (B, H, N_q, d)
    q, k, v, do = (torch.randn(shape, generator=draw).to(dtype).to(device) for shape in shapes)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), do


def expected(q, k, v, do, causal, scale=None):
    """O, LSE, dQ, dK, dV by PyTorch's autograd in float64; rows that see no key are zero."""
    q, k, v = (tensor.detach().double().requires_grad_() for tensor in (q, k, v))
    group = q.shape[1] // k.shape[1]
    S = q @ k.repeat_interleave(group, 1).mT * (scale or 1 / math.sqrt(q.shape[-1]))
    if causal:
        hidden = torch.ones(S.shape[-2:], dtype=torch.bool, device=S.device).triu(
            1 + S.shape[-1] - S.shape[-2]
        )
        S = S.masked_fill(hidden, -math.inf)
    blind = (-math.inf == S).all(-1, keepdim=True)
    o = torch.softmax(S.masked_fill(blind, 0), -1).masked_fill(blind, 0) @ v.repeat_interleave(
        group, 1
    )
    return o, torch.logsumexp(S, -1), *torch.autograd.grad((o * do.double()).sum(), (q, k, v))


def close(ours, right, dtype):
    finite = torch.isfinite(right)
    assert torch.equal(torch.isfinite(ours), finite)
    error = (ours.double() - right)[finite].abs().max().item()
    assert error <= TOLERANCE[dtype] * max(1, right[finite].abs().max().item())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "dtype, rung",
    [
        (torch.float32, None),
        (torch.float32, "double_buffer"),
        (torch.float16, "mma_sync"),
        (torch.bfloat16, "mma_sync"),
    ],
    ids=str,
)
def test_forward_and_gradients(dtype, rung, shape, causal, device):
    q, k, v, do = problem(*shape, dtype=dtype, device=device)
    o, lse = attention(q, k, v, causal, 0.3, rung=rung, return_lse=True)
    right = expected(q, k, v, do, causal, 0.3)
    assert o.dtype == dtype and lse.dtype == torch.float32 and not lse.requires_grad
    close(o, right[0], dtype)
    close(lse, right[1], dtype)
    if device == "cpu" or dtype != torch.float32:  # no backward rung computes fp32 on a GPU
        for ours, gradient in zip(torch.autograd.grad(o, (q, k, v), do), right[2:]):
            assert ours.dtype == dtype
            close(ours, gradient, dtype)


def test_which_rung_is_chosen():
    """For all of the ladder; nothing is built."""
    for rung in ladder():
        d, d_v = (rung.head_dims or (7,))[0], (rung.head_dims_v or (0,))[0]
        for gpu in [None, *([(9, 0)] if rung.cuda else [])]:
            for name in (rung.name, rung.program):
                wanted = name, rung.backward, rung.types[-1], d, gpu
                assert choose(*wanted, head_dim_v=d_v) == rung
        source = (ROOT / f"steps/{rung.program}/main.cpp").read_text()
        assert is_ordered(rung) == ("unordered_dQ" not in source)
    assert choose("", False, "bf16", 128, (9, 0)).name == "overlap"
    assert choose("", False, "bf16", 192, (9, 0), head_dim_v=128).name == "two_head_dims"
    assert choose("", False, "bf16", 128, (9, 0), head_dim_v=128).name == "overlap"
    assert choose("", False, "bf16", 128, (12, 0)).capability == "8.0"
    assert choose("", False, "bf16", 128, (8, 0)).name == "multistage"
    assert choose("", False, "bf16", 128, (9, 0), few_queries=True).name == "split_kv"
    assert choose("", False, "bf16", 256, (9, 0), few_queries=True).name == "overlap"
    assert choose("", False, "bf16", 128, None, few_queries=True).name == "split_kv"
    assert choose("", False, "fp32", 64, None, few_queries=True).name == "one_pass_softmax"
    assert choose("", False, "fp32", 64, None).name == "one_pass_softmax"
    for gpu, fastest, ordered in (
        ((9, 0), "backward_late_dq", "backward_ordered"),
        (None, "backward_late_dq", "backward_ordered"),
        ((8, 0), "backward_roles", "backward_two_kernels"),
        ((12, 0), "backward_roles", "backward_two_kernels"),
    ):
        assert choose("", True, "bf16", 64, gpu, False).name == fastest
        assert choose("", True, "bf16", 64, gpu, True).name == ordered
    for gpu in ((9, 0), None):
        assert choose("", True, "bf16", 256, gpu).name == "backward_three_roles"
    with pytest.raises(ValueError, match="no backward rung computes bf16 with head dim 256"):
        choose("", True, "bf16", 256, (8, 0))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("queries, decoded", [(8, True), (9, False)])
def test_few_queries_go_to_the_decoding_rung(queries, decoded, device):
    """Two heads to a K/V head: 16 rows and 18."""
    q, k, v, do = problem(1, 4, 2, queries, 300, 64, torch.bfloat16, device)
    gpu = torch.cuda.get_device_capability() if device == "cuda" else None
    usual = choose("", False, "bf16", 64, gpu).name
    ours, split, other = (
        attention(q, k, v, True, rung=rung, return_lse=True) for rung in (None, "split_kv", usual)
    )
    close(ours[0], expected(q, k, v, do, True)[0], torch.bfloat16)
    assert not torch.equal(split[1], other[1])  # so that the next line says something
    assert torch.equal(ours[1], (split if decoded else other)[1])


@pytest.mark.parametrize("device", DEVICES)
def test_a_named_rung_gives_a_row_the_same_bits_beside_any_others(device):
    """In a batch of three and alone, among 40 rows and alone: docs/from_pytorch.md says so."""
    q, k, v, _ = problem(3, 4, 4, 40, 300, 64, torch.bfloat16, device)
    named = {"causal": True, "scale": 3.0, "rung": "mma_sync", "return_lse": True}
    every = attention(q, k, v, **named)
    alone = attention(q[1:2, :, -1:].contiguous(), k[1:2], v[1:2], **named)
    for result, row in zip(every, alone):
        assert torch.equal(result[1:2, :, -1:], row)


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("device", DEVICES)
def test_deterministic_gradients(deterministic, device):
    """The same bits twice; and a rung without an order is refused, as functions of PyTorch are."""
    q, k, v, do = problem(1, 2, 2, 70, 70, 64, torch.bfloat16, device)
    o = attention(q, k, v, True)
    one, other = (torch.autograd.grad(o, (q, k, v), do, retain_graph=True) for _ in range(2))
    for a, b in zip(one, other):
        assert torch.equal(a, b)
    o = attention(q, k, v, True, backward_rung="backward_roles")
    with pytest.raises(
        RuntimeError, match="backward_roles does not have a deterministic implementation"
    ):
        torch.autograd.grad(o, (q, k, v), do)


@pytest.mark.parametrize("device", HOPPER)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradients_of_256_columns(dtype, device):
    q, k, v, do = problem(2, 4, 2, 70, 130, 256, dtype, device)
    o = attention(q, k, v, True)
    for ours, right in zip(torch.autograd.grad(o, (q, k, v), do), expected(q, k, v, do, True)[2:]):
        close(ours, right, dtype)


def test_gradients_of_256_columns_have_no_order(deterministic):
    q, k, v, do = problem(1, 1, 1, 9, 9, 256, torch.bfloat16)
    o = attention(q, k, v)
    with pytest.raises(
        RuntimeError, match="backward_three_roles does not have a deterministic implementation"
    ):
        torch.autograd.grad(o, (q, k, v), do)


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_casts_as_pytorch_does(device):
    q, k, v, do = problem(1, 2, 2, 17, 17, 64, device=device)
    types = torch.float32, torch.bfloat16, torch.float16
    mixed = [x.detach().to(dtype).requires_grad_() for x, dtype in zip((q, k, v), types)]
    with torch.autocast(device, torch.bfloat16):
        pytorch = torch.nn.functional.scaled_dot_product_attention(*mixed)
        o, lse = attention(*mixed, rung="mma_sync", return_lse=True)
    assert o.dtype == pytorch.dtype == torch.bfloat16 and lse.dtype == torch.float32
    close(o, pytorch.double(), torch.bfloat16)
    gradients = torch.autograd.grad(o, mixed, do.to(o.dtype))
    right = expected(*mixed, do, False)[2:]
    for ours, gradient, dtype in zip(gradients, right, types):
        assert ours.dtype == dtype
        close(ours, gradient, torch.bfloat16)


def child_computes(q, k, v, rung):
    return attention(q, k, v, rung=rung).tolist()


@pytest.mark.parametrize(
    "dtype, rung", [(torch.float32, "one_pass_softmax"), (torch.float16, "mma_sync")], ids=str
)
def test_in_a_forked_child(dtype, rung):
    """A rung's threads stay in the parent."""
    inputs = *(x.detach() for x in problem(2, 4, 2, 70, 70, dtype=dtype)[:3]), rung
    here = child_computes(*inputs)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(child_computes, inputs).get(timeout=60) == here


def test_sum_gives_a_gradient_that_is_no_whole_tensor():
    q, k, v, _ = problem(1, 2, 1, 9, 9)
    attention(q, k, v).sum().backward()
    right = expected(q, k, v, torch.ones_like(q), False)
    close(q.grad, right[2], torch.float32)
    close(k.grad, right[3], torch.float32)


@pytest.mark.parametrize("dtype, rung", [(torch.float32, ""), (torch.float16, "mma_sync")], ids=str)
def test_opcheck(dtype, rung):
    q, k, v, do = problem(1, 2, 1, 17, 21, dtype=dtype)
    near = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    ops, check = torch.ops.flash_steps, torch.library.opcheck
    check(ops.attention.default, (q, k, v, True, 0.2, rung, ""), **near)
    with torch.no_grad():
        o, lse = attention(q, k, v, True, 0.2, rung or None, return_lse=True)
        check(ops.attention_backward.default, (q, k, v, o, lse, do, True, 0.2, ""), **near)


@pytest.mark.parametrize(
    "backend, dynamic", [("eager", False), ("aot_eager", True), ("inductor", False)]
)
def test_compile(backend, dynamic):
    if backend == "inductor" and not Path(sysconfig.get_path("include"), "Python.h").is_file():
        pytest.skip("PyTorch's compiler needs Python's headers: apt-get install python3-dev")

    def layer(q, k, v):
        return torch.nn.functional.gelu(attention(q * 2, k, v, causal=True)) + 1

    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=backend, dynamic=dynamic)
    for N in (12, 19):
        q, k, v, do = problem(1, 2, 1, N, N)
        results = []
        for function in (layer, compiled):
            o = function(q, k, v)
            results.append([o, *torch.autograd.grad(o, (q, k, v), do)])
        for eager, graph in zip(*results):
            torch.testing.assert_close(graph, eager)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_stream_of_the_caller():
    """Q is written on another stream after a long wait: any other would read too early."""
    q, k, v, do = problem(1, 2, 2, 64, 64, dtype=torch.float16, device="cuda")
    right, q = expected(q, k, v, do, False)[0], q.detach()
    attention(q, k, v)
    late, stream = torch.zeros_like(q), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        late.copy_(q)
        o = attention(late, k, v)
    stream.synchronize()
    close(o, right, torch.float16)


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.mem_get_info()[0] < 20 << 30,
    reason="needs 20 GB on a GPU",
)
def test_more_elements_than_32_bits_count():
    N = (1 << 26) + 5  # 2^32 elements of Q and O
    q, k, v, _ = (tensor.detach() for tensor in problem(1, 1, 1, 8, 8, 64, torch.float16, "cuda"))
    long = torch.zeros(1, 1, N, 64, dtype=torch.float16, device="cuda")
    long[:, :, -8:] = q
    o = attention(long, k, v)
    close(o[:, :, -8:], attention(q, k, v).double(), torch.float16)
    close(o[:, :, :8], v.double().mean(2, keepdim=True).expand(-1, -1, 8, -1), torch.float16)
