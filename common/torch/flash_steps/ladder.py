"""Which rungs can solve a problem."""

import functools

from lab.ladder import ROOT, find, ladder

__all__ = ["ROOT", "choose", "is_ordered", "ladder"]

# Rungs whose blocks add to dQ in the order in which they come: faster, and the last bits differ
# from run to run.
UNORDERED = ("backward_one_kernel", "backward_roles", "backward_wgmma", "backward_late_dq")

# For decoding: so few rows for each K/V head that its keys are worth sharing out.
FOR_FEW_QUERIES = ("split_kv",)
# Steps on the way there, or for several GPUs: run when asked for by name.
BY_NAME = ("packed_heads", "paged_kv", "ring_attention")


def is_ordered(rung):
    """Whether it gives the same bits in every run."""
    return rung.name not in UNORDERED


def refusal(rung, dtype, head_dim, gpu):
    """Why it cannot solve a problem, "" if it can. `gpu` is the capability of the tensors' GPU,
    None on the CPU."""
    if dtype not in rung.types:
        return f"computes in {' and '.join(rung.types)}, and these tensors are {dtype}"
    if rung.head_dims and head_dim not in rung.head_dims:
        dims = ", ".join(map(str, rung.head_dims))
        return f"takes head dims {dims}, and these tensors have {head_dim}"
    if gpu and not rung.cuda:
        return "runs on the CPU, and these tensors are on a GPU"
    # wgmma exists in Hopper's code alone.
    least = tuple(map(int, rung.capability.split("."))) if gpu else ()
    if gpu and (gpu != least if least == (9, 0) else gpu < least):
        here = ".".join(map(str, gpu))
        return f"is for GPUs of compute capability {rung.capability}, and this one has {here}"
    return ""


@functools.cache
def choose(wanted, backward, dtype, head_dim, gpu, ordered=False, few_queries=False):
    """The rung of that name; with "" the highest one that fits. Raises ValueError.

    `few_queries`: 16 rows or fewer for each K/V head, its query heads taken together.

    Tensors on the CPU go to a rung that was written for the CPU if one fits. Emulating a GPU takes
    longer. For gradients an order costs time, so rungs without one come first, unless the caller
    wants the same bits in every run.
    """
    rungs = [rung for rung in ladder() if rung.backward == backward]
    if wanted:
        rung = find(wanted, rungs, "backward rung" if backward else "forward rung")
        if reason := refusal(rung, dtype, head_dim, gpu):
            raise ValueError(f"{rung.name} {reason}")
        return rung
    fitting = [
        rung
        for rung in rungs
        if rung.name not in BY_NAME and not rung.draft and not refusal(rung, dtype, head_dim, gpu)
    ]
    fitting = [rung for rung in fitting if (rung.name in FOR_FEW_QUERIES) == few_queries] or fitting
    if backward:
        fitting = [rung for rung in fitting if is_ordered(rung) == ordered] or fitting
    if not fitting:
        kind = "backward" if backward else "forward"
        where = f"on a GPU of compute capability {'.'.join(map(str, gpu))}" if gpu else "on the CPU"
        raise ValueError(
            f"no {kind} rung computes {dtype} with head dim {head_dim} {where}; "
            "steps/ladder.txt says what each of them takes"
        )
    return next((rung for rung in reversed(fitting) if not gpu and not rung.cuda), fitting[-1])
