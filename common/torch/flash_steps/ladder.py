"""Which rungs there are, and which can solve a problem. steps/ladder.txt is the only list."""

import functools
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]


class Rung(NamedTuple):
    """A line of steps/ladder.txt."""

    program: str  # "13_flash_attention_2"
    types: tuple  # of "fp32", "fp16" and "bf16"
    head_dims: tuple  # () for any
    capability: str  # the GPU's, at least: "9.0"; "" for a rung on the CPU

    number = property(lambda self: self.program.split("_", 1)[0])
    name = property(lambda self: self.program.split("_", 1)[1])  # "flash_attention_2"
    backward = property(lambda self: self.name.startswith("backward_"))
    cuda = property(lambda self: bool(self.capability))


@functools.cache
def ladder():
    """All rungs in order."""
    lines = (ROOT / "steps/ladder.txt").read_text(encoding="utf-8").splitlines()
    cells = [
        [cell.strip() for cell in line.split("|")]
        for line in lines
        if line.strip() and not line.startswith("#")
    ]
    return [
        Rung(
            program,
            tuple(types.split()),
            () if dims == "any" else tuple(map(int, dims.split())),
            capability.replace("-", ""),
        )
        for program, _, types, dims, capability, *_ in cells
    ]


# Rungs whose blocks add to dQ in the order in which they come: faster, and the last bits differ
# from run to run.
UNORDERED = (
    "backward_one_kernel",
    "backward_roles",
    "backward_wgmma",
    "backward_late_dq",
)


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


def renamed():
    """{number: (its name then, its name now)} of the rungs that had other numbers once."""
    try:
        lines = (ROOT / "steps/renamed.txt").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    rows = [line.partition("#")[0].split() for line in lines]
    return {number: (then, now) for number, then, now in filter(None, rows)}


def why_unknown(wanted, rungs):
    """What to tell a caller whose rung is none of these. A number says which rung it stood for."""
    number, _, name = wanted.partition("_")
    number = number.zfill(2)
    full = {rung.name: rung.program for rung in ladder()}
    then, now = renamed().get(number, ("", ""))
    if name and then == name:
        return f"there is no rung '{wanted}' any more; it is {full.get(now, now)} now"
    today = next((rung.name for rung in ladder() if rung.number == number), "")
    if not name and (then or today):
        was = f"{number} was {then}, which is {full.get(now, now)} now" if then else ""
        has = f"{number} is {today} today" if today else ""
        return f"rung {wanted}: a rung goes by its name; " + ", and ".join(filter(None, (was, has)))
    kind = "backward" if rungs[0].backward else "forward"
    names = ", ".join(rung.name for rung in rungs)
    return f"there is no {kind} rung '{wanted}'; there are {names}"


@functools.cache
def choose(wanted, backward, dtype, head_dim, gpu, ordered=False):
    """The rung of that name; with "" the highest one that fits. Raises ValueError.

    Tensors on the CPU go to a rung that was written for the CPU if one fits. Emulating a GPU takes
    longer. For gradients an order costs time, so rungs without one come first, unless the caller
    wants the same bits in every run.
    """
    rungs = [rung for rung in ladder() if rung.backward == backward]
    if wanted:
        for rung in rungs:
            if wanted in (rung.name, rung.program):
                if reason := refusal(rung, dtype, head_dim, gpu):
                    raise ValueError(f"{rung.name} {reason}")
                return rung
        raise ValueError(why_unknown(wanted, rungs))
    fitting = [rung for rung in rungs if not refusal(rung, dtype, head_dim, gpu)]
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
