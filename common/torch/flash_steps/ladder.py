"""Which rungs there are, and which of them can solve a problem. steps/ladder.txt is the only list."""

import functools
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Rung:
    name: str  # "17_fixed_maximum"
    types: tuple  # of "fp32", "fp16" and "bf16"
    head_dims: tuple  # () for any
    capability: tuple  # the GPU's, at least: (8, 0); () for a rung on the CPU

    @property
    def number(self):
        return self.name[:2]

    @property
    def backward(self):
        """Whether it computes gradients."""
        return self.name[3:].startswith("backward_")

    def refusal(self, dtype, head_dim, gpu):
        """Why it cannot solve a problem, "" if it can. `gpu` is the capability of the tensors' GPU, None on the CPU."""
        if dtype not in self.types:
            return f"computes in {' and '.join(self.types)}, and these tensors are {dtype}"
        if self.head_dims and head_dim not in self.head_dims:
            return f"takes head dims {', '.join(map(str, self.head_dims))}, and these tensors have {head_dim}"
        if gpu and not self.capability:
            return "runs on the CPU, and these tensors are on a GPU"
        # wgmma exists in Hopper's code alone.
        if gpu and (gpu != self.capability if self.capability == (9, 0) else gpu < self.capability):
            return (f"is for GPUs of compute capability {'.'.join(map(str, self.capability))}, "
                    f"and this one has {'.'.join(map(str, gpu))}")
        return ""


@functools.cache
def ladder():
    """All rungs, in order."""
    rungs = []
    for line in (ROOT / "steps/ladder.txt").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, types, head_dims, capability, _ = (cell.strip() for cell in line.split("|", 4))
            dims = () if head_dims == "any" else tuple(map(int, head_dims.split()))
            gpu = () if capability == "-" else tuple(map(int, capability.split(".")))
            rungs.append(Rung(name, tuple(types.split()), dims, gpu))
    return rungs


@functools.cache
def choose(wanted, backward, dtype, head_dim, gpu):
    """The rung that is named by number or name; with "" the highest one that fits. Raises ValueError.

    Tensors on the CPU go to a rung that was written for the CPU if one fits. Emulating a GPU takes longer.
    """
    rungs = [rung for rung in ladder() if rung.backward == backward]
    kind = "backward" if backward else "forward"
    if wanted:
        for rung in rungs:
            if wanted in (rung.name, rung.number, rung.number.lstrip("0")):
                if reason := rung.refusal(dtype, head_dim, gpu):
                    raise ValueError(f"{rung.name} {reason}")
                return rung
        raise ValueError(f"there is no {kind} rung '{wanted}'; there are {', '.join(rung.name for rung in rungs)}")
    fitting = [rung for rung in rungs if not rung.refusal(dtype, head_dim, gpu)]
    if not fitting:
        where = f"on a GPU of compute capability {'.'.join(map(str, gpu))}" if gpu else "on the CPU"
        raise ValueError(f"no {kind} rung computes {dtype} with head dim {head_dim} {where}; "
                         "steps/ladder.txt says what each of them takes")
    return next((rung for rung in reversed(fitting) if not gpu and not rung.capability), fitting[-1])
