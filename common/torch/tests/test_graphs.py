"""CUDA graphs beside other calls: no two of them share a workspace or a counter."""

import pytest
import torch
from flash_steps import attention

HERE = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(HERE is None, reason="needs a GPU")]
FORWARD = ["fixed_maximum", *(["persistent_blocks", "overlap"] if HERE == (9, 0) else [])]
BACKWARD = ["backward_two_kernels", "backward_roles"]
BACKWARD += ["backward_late_dq", "backward_ordered"] if HERE == (9, 0) else []
IN_ANY_ORDER = {"backward_roles", "backward_late_dq"}  # blocks add to dQ as they come


def work_of(rung, seed):
    """A function that calls the rung on inputs of its own. They have more tiles of Q than a GPU has
    SMs, the last of which see no key and take no time: blocks of the next kernel begin while others
    still draw tiles."""
    draw = torch.Generator("cuda").manual_seed(seed)
    q, k, v, do = (
        torch.randn(1, 63, length, 128, generator=draw, device="cuda", dtype=torch.bfloat16)
        for length in (2048, 512, 512, 2048)
    )
    if rung in FORWARD:
        return lambda: attention(q, k, v, causal=True, rung=rung, return_lse=True)
    o, lse = attention(q, k, v, causal=True, return_lse=True)
    backward = torch.ops.flash_steps.attention_backward
    return lambda: backward(q, k, v, o, lse, do, True, 128**-0.5, rung)


def captured(work):
    """A graph of three calls, and all that they return: what is dropped shares its memory."""
    work()  # builds what is missing: nothing may be built or allocated while a graph is captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [result for _ in range(3) for result in work()]
    return graph, results


@pytest.mark.parametrize("rung", FORWARD + BACKWARD)
def test_graphs_and_eager_calls_at_once(rung):
    works = [work_of(rung, seed) for seed in (1, 2, 3)]
    rights = [[result.clone() for result in work()] for work in works]
    (one, of_one), (other, of_other) = captured(works[0]), captured(works[1])
    for _ in range(50):
        for result in (*of_one, *of_other):
            result.fill_(torch.nan)
        torch.cuda._sleep(2_000_000)  # until all are queued, so that they begin at once
        asleep, returned = torch.cuda.current_stream().record_event(), []
        for call in (one.replay, other.replay, works[2]):
            stream = torch.cuda.Stream()
            stream.wait_event(asleep)
            with torch.cuda.stream(stream):
                returned.append(call())
        torch.cuda.synchronize()
        for results, right in zip((of_one, of_other, returned[2]), rights):
            for number, ours in enumerate(results):
                expected = right[number % len(right)]
                near = 2e-2 if rung in IN_ANY_ORDER and expected is right[0] else 0
                torch.testing.assert_close(ours, expected, rtol=near, atol=near)
