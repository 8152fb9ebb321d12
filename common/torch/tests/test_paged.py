"""attention_paged() against float64: K and V in pages, and a length for each sequence."""

import pytest
import torch
from flash_steps import attention_paged
from test_attention import DEVICES, TOLERANCE, close, expected


def cache(lengths, page, kv_heads=2, d=64, dtype=torch.bfloat16, device="cpu", spare=1, seed=0):
    """Random K and V of each sequence, and the same in shuffled pages, the rest of which is NaN:
    k_pages, v_pages, table, lengths. Behind a length the table names no page."""
    draw = torch.Generator().manual_seed(seed)
    used = [-(-length // page) for length in lengths]
    numbers = torch.randperm(sum(used) + spare, generator=draw).tolist()
    table = torch.full((len(lengths), max(used) + 1), 1 << 30, dtype=torch.int32)
    pages = torch.full((2, len(numbers), kv_heads, page, d), torch.nan, dtype=dtype)
    sequences = []
    for b, length in enumerate(lengths):
        kv = torch.randn(2, kv_heads, length, d, generator=draw).to(dtype)
        sequences.append(kv.to(device))
        for n in range(used[b]):
            table[b, n] = numbers.pop()
            part = kv[:, :, n * page : (n + 1) * page]
            pages[:, table[b, n], :, : part.shape[2]] = part
    numbers = torch.tensor(lengths, dtype=torch.int32)
    return sequences, tuple(x.to(device) for x in (pages[0], pages[1], table, numbers))


def queries(B, H, N_q, d=64, dtype=torch.bfloat16, device="cpu"):
    draw = torch.Generator().manual_seed(1)
    return torch.randn(B, H, N_q, d, generator=draw).to(dtype).to(device)


def check(q, sequences, results, causal):
    for b, (k, v) in enumerate(sequences):
        ours = [result[b : b + 1] for result in results]
        if k.shape[1] == 0:
            assert (ours[0] == 0).all() and torch.isneginf(ours[1]).all()
            continue
        right = expected(q[b : b + 1], k[None], v[None], q[b : b + 1], causal)
        close(ours[0], right[0], q.dtype)
        close(ours[1], right[1], q.dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("page", [16, 64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_pages_and_lengths(dtype, page, causal, device):
    sequences, kv = cache([300, 0, 17, 16, 1], page, dtype=dtype, device=device)
    q = queries(5, 4, 3, dtype=dtype, device=device)
    check(q, sequences, attention_paged(q, *kv, causal, return_lse=True), causal)


@pytest.mark.parametrize("device", DEVICES)
def test_the_other_layout_by_strides(device):
    _, (k, v, table, lengths) = cache([100, 33], 32, device=device)
    q = queries(2, 8, 1, device=device)
    other = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v)]
    assert other[0].stride() != k.stride()
    results = [attention_paged(q, *kv, table, lengths) for kv in ((k, v), other)]
    assert torch.equal(*results)


def test_opcheck_and_compile():
    sequences, kv = cache([40, 5], 16)
    q = queries(2, 4, 1)
    near = {"rtol": TOLERANCE[q.dtype], "atol": TOLERANCE[q.dtype]}
    operator = torch.ops.flash_steps.attention_paged.default
    torch.library.opcheck(operator, (q, *kv, True, 0.2), **near)
    compiled = torch.compile(attention_paged, fullgraph=True, backend="eager")
    assert torch.equal(compiled(q, *kv), attention_paged(q, *kv))


def test_autocast_casts_the_queries():
    sequences, kv = cache([30, 7], 16)
    q = queries(2, 4, 1)
    with torch.autocast("cpu", torch.bfloat16):
        o = attention_paged(q.float(), *kv)
    assert torch.equal(o, attention_paged(q, *kv))


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"table": torch.zeros(2, 1)}, TypeError, "table is torch.float32; torch.int32 is exp"),
        ({"lengths": torch.zeros(3).int()}, ValueError, "lengths is .3.; .batch 2,. is expected"),
        ({"table": torch.zeros(3, 1).int()}, ValueError, "table is .3, 1.; .batch 2, most pages"),
        ({"v": torch.zeros(9, 2, 8, 64).bfloat16()}, ValueError, "shapes and strides must be the"),
        ({"q": torch.zeros(2, 4, 1, 64)}, TypeError, "q is torch.float32 and k_pages is torch.bf"),
        ({"q": torch.zeros(2, 3, 1, 64).bfloat16()}, ValueError, "q has 3 heads and k_pages has 2"),
        ({"q": torch.zeros(2, 4, 1, 32).bfloat16()}, ValueError, "head dim 32. is expected"),
    ],
)
def test_what_a_caller_is_told(change, error, message):
    _, (k, v, table, lengths) = cache([5, 7], 16)
    given = {"q": queries(2, 4, 1), "k": k, "v": v, "table": table, "lengths": lengths} | change
    with pytest.raises(error, match=message):
        attention_paged(*given.values())


def test_a_page_of_20_keys():
    _, kv = cache([30, 7], 20)
    with pytest.raises(ValueError, match="k_pages has 20 keys in a page; a multiple of 16 is exp"):
        attention_paged(queries(2, 4, 1), *kv)


def test_strides_that_a_rung_cannot_read():
    _, (k, v, table, lengths) = cache([5, 7], 16, d=64)
    wide = [torch.zeros(*x.shape[:3], 68, dtype=x.dtype)[..., :64] for x in (k, v)]
    with pytest.raises(ValueError, match="k_pages has strides .*68, 1.; multiples of 8 elements"):
        attention_paged(queries(2, 4, 1), *wide, table, lengths)


def test_a_stride_that_is_never_used_may_be_any_number():
    """That of the heads, where there is one."""
    sequences, (k, v, table, lengths) = cache([30, 7], 16, kv_heads=1)
    odd = k.as_strided(k.shape, (k.stride(0), 3, *k.stride()[2:]))
    assert odd.stride() != v.stride() and torch.equal(odd.nan_to_num(), k.nan_to_num())
    q = queries(2, 4, 1)
    check(q, sequences, attention_paged(q, odd, v, table, lengths, return_lse=True), False)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_one_graph_serves_a_cache_that_grows():
    """Captured once; then only table, lengths, pages and q change, in the same memory."""
    page, q = 16, queries(3, 8, 1, device="cuda")
    steps = []
    for seed, lengths in enumerate(([300, 1, 17], [300, 0, 300], [16, 300, 31], [300, 20, 0])):
        spare = 60 - sum(-(-length // page) for length in lengths)
        steps.append(cache(lengths, page, device="cuda", seed=seed, spare=spare))
    kv = [tensor.clone() for tensor in steps[0][1]]
    attention_paged(q, *kv)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = attention_paged(q, *kv, return_lse=True)
    for sequences, now in steps:
        for ours, tensor in zip(kv, now):
            ours.copy_(tensor)
        graph.replay()
        torch.cuda.synchronize()
        check(q, sequences, results, False)
