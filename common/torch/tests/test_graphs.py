"""Calls at the same time, and calls that a CUDA graph repeats: each has its own workspace."""

import pytest
import torch
from flash_steps import attention

HERE = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(HERE is None, reason="needs a GPU")]
hopper = pytest.mark.skipif(HERE != (9, 0), reason="needs a GPU of compute capability 9.0")
FORWARD = [
    pytest.param("fixed_maximum"),
    pytest.param("persistent_blocks", marks=hopper),
    pytest.param("overlap", marks=hopper),
]
BACKWARD = [
    pytest.param("backward_two_kernels"),
    pytest.param("backward_roles"),
    pytest.param("backward_late_dq", marks=hopper),
    pytest.param("backward_ordered", marks=hopper),
]
IN_ANY_ORDER = {"backward_roles", "backward_late_dq"}  # blocks add to dQ as they come
REPLAYS = 50
CALLS = 64  # a counter that a kernel takes from so many in turn meets one that a graph has kept


def tensors(seed):
    """Q, K, V, dO with more tiles of Q than SMs, the last of which see no key under the causal mask
    and take no time: the first blocks of a kernel have ended, and those of the next one have begun,
    while others of it still draw.
    """
    draw = torch.Generator("cuda").manual_seed(seed)
    return [
        torch.randn(1, 63, length, 128, generator=draw, device="cuda", dtype=torch.bfloat16)
        for length in (2048, 512, 512, 2048)
    ]


def forward_of(rung, seed):
    q, k, v, _ = tensors(seed)
    return lambda: attention(q, k, v, causal=True, rung=rung, return_lse=True)


def backward_of(rung, seed):
    q, k, v, do = tensors(seed)
    o, lse = attention(q, k, v, causal=True, return_lse=True)
    return lambda: torch.ops.flash_steps.attention_backward(
        q, k, v, o, lse, do, True, 128**-0.5, rung
    )


def captured(work):
    """A graph of three calls, and all that they return: what is dropped shares its memory."""
    work()  # builds what is missing: nothing may be built or allocated while a graph is captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [work() for _ in range(3)]
    return graph, results


def spoil(calls):
    for results in calls:
        for result in results:
            result.fill_(torch.nan)


def at_once(*works):
    """Runs each on a stream of its own. The GPU sleeps until all are queued, to begin at once."""
    torch.cuda._sleep(2_000_000)
    asleep = torch.cuda.current_stream().record_event()
    for work in works:
        stream = torch.cuda.Stream()
        stream.wait_event(asleep)
        with torch.cuda.stream(stream):
            work()
    torch.cuda.synchronize()


def check(calls, right, rung):
    for results in calls:
        for i, (ours, expected) in enumerate(zip(results, right)):
            if rung in IN_ANY_ORDER and i == 0:
                torch.testing.assert_close(ours, expected, rtol=2e-2, atol=2e-2)
            else:
                assert torch.equal(ours, expected)


def two_graphs(work_of, rung):
    works = [work_of(rung, seed) for seed in (1, 2)]
    rights = [[result.clone() for result in work()] for work in works]
    graphs = [captured(works[0])]
    # And the four of captured(): CALLS of them from one graph's last to the other's.
    for _ in range(CALLS - 4):
        works[0]()
    graphs.append(captured(works[1]))
    for _ in range(REPLAYS):
        for _, results in graphs:
            spoil(results)
        at_once(*(graph.replay for graph, _ in graphs))
        for (_, results), right in zip(graphs, rights):
            check(results, right, rung)


def graph_beside_eager_calls(work_of, rung):
    repeated, eager = (work_of(rung, seed) for seed in (1, 2))
    right_repeated, right_eager = (
        [result.clone() for result in work()] for work in (repeated, eager)
    )
    graph, results = captured(repeated)
    beside = []
    for _ in range(REPLAYS):
        spoil(results)
        # One call less than CALLS: both begin with the same counter in an early repetition.
        at_once(graph.replay, lambda: beside.extend(eager() for _ in range(CALLS - 1)))
        check(results, right_repeated, rung)
        check(beside, right_eager, rung)
        beside.clear()


@pytest.mark.parametrize("rung", FORWARD)
def test_two_graphs_at_once(rung):
    two_graphs(forward_of, rung)


@pytest.mark.parametrize("rung", FORWARD)
def test_a_graph_beside_eager_calls(rung):
    graph_beside_eager_calls(forward_of, rung)


@pytest.mark.parametrize("rung", BACKWARD)
def test_two_graphs_of_gradients_at_once(rung):
    two_graphs(backward_of, rung)


@pytest.mark.parametrize("rung", BACKWARD)
def test_a_graph_of_gradients_beside_eager_calls(rung):
    graph_beside_eager_calls(backward_of, rung)
