"""The rule of reference/check.hpp on the GPU, for shapes at which the oracle on the CPU would take hours."""

import math

import torch


def expected(q, k, v, causal):
    """What one head should give and how far from it a result may lie: O, bound, LSE, bounds of its rows.

    O and LSE are computed in float64. The bound is twice the error of unfused attention that accumulates in float32 and
    rounds P and O, with terms for rounding that no kernel avoids (docs/00_attention.md).
    """
    roundoff, tau = {torch.float16: (2**-11, 1e-3), torch.bfloat16: (2**-8, 4e-3), torch.float32: (0, 2e-5)}[q.dtype]
    scale = 1 / math.sqrt(q.shape[1])
    hidden = torch.ones(len(q), len(k), dtype=torch.bool, device=q.device).triu(1 + len(k) - len(q)) if causal else None

    def unfused(kind, round_to=None):
        S = q.to(kind) @ k.to(kind).T * scale
        if causal:
            S.masked_fill_(hidden, -math.inf)
        LSE = torch.logsumexp(S, 1)
        P = torch.softmax(S, 1)
        O = (P if round_to is None else P.to(round_to).to(kind)) @ v.to(kind)
        return (O if round_to is None else O.to(round_to)).double(), LSE

    O, LSE = unfused(torch.float64)
    naive, _ = unfused(torch.float32, q.dtype)
    products = q.abs().float() @ k.abs().float().T * scale
    if causal:
        products.masked_fill_(hidden, 0)
    largest = products.amax(1).double()  # A_i of the rule
    bound = (2 * (naive - O).abs().max() + 2 * roundoff * O.abs().max()
             + 2**-20 * largest.max() * v.abs().max().double() + 1e-5)
    return O, bound, LSE, tau + 2**-19 * largest


def worst(programs, q, k, v, causal):
    """{name: largest error as a part of its bound} over the first and the last head; above 1 or NaN is wrong.

    `programs` are f(q, k, v, causal) -> (O, LSE or None).
    """
    results = {name: program(q, k, v, causal) for name, program in programs.items()}
    share = {name: 0.0 for name in programs}
    for b, h in {(0, 0), (q.shape[0] - 1, q.shape[1] - 1)}:
        O, bound, LSE, LSE_bounds = expected(q[b, h], k[b, h], v[b, h], causal)
        for name, (o, lse) in results.items():
            parts = [((o[b, h].double() - O).abs().max() / bound).item()]
            if lse is not None:
                parts.append(((lse[b, h].double() - LSE).abs() / LSE_bounds).max().item())
            share[name] = max([share[name], *parts], key=lambda x: math.inf if math.isnan(x) else x)
    # The other heads: all programs within the same bound of the first one.
    first = next(iter(results.values()))[0].float()
    for name, (o, _) in results.items():
        distance = ((o.float() - first).abs().max() / (2 * bound)).item()
        share[name] = max(share[name], distance, key=lambda x: math.inf if math.isnan(x) else x)
    return share
