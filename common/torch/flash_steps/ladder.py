"""The rungs of steps/ladder.txt, and which of them can solve a problem."""

import difflib
import errno
import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DRAFT = "draft:"  # how the idea of a rung begins that nothing but its folder is needed of

# Rungs whose blocks add to dQ in the order in which they come: faster, and the last bits differ
# from run to run.
UNORDERED = (
    "backward_one_kernel",
    "backward_roles",
    "backward_wgmma",
    "backward_late_dq",
    "backward_three_roles",
    "backward_window",
    "backward_packed",
)

# For decoding: so few rows for each K/V head that its keys are worth sharing out.
FOR_FEW_QUERIES = ("split_kv",)
# Steps on the way there, for several GPUs, for windows, or for lines: run when asked for by name.
BY_NAME = (
    "packed_heads",
    "page_table",
    "paged_kv",
    "ring_attention",
    "window",
    "packed_sequences",
    "backward_window",
    "backward_packed",
)


@dataclass(frozen=True)
class Rung:
    """A line of the ladder."""

    number: str  # "13": where it stands, and nothing else
    name: str  # "flash_attention_2"
    parent: str  # the name of the rung that it changes; "" for a new start
    types: tuple[str, ...]  # of "fp32", "fp16", "bf16" and "e4m3"
    head_dims: tuple[int, ...]  # () for any
    capability: str  # the GPU's, at least: "9.0"; "" for a rung on the CPU
    processes: bool  # whether several of them can share its work, which takes MPI
    idea: str
    folder: Path
    head_dims_v: tuple[int, ...] = ()  # of V and O beside each of head_dims; () for the same

    def takes(self, head_dim: int, head_dim_v: int) -> bool:
        """Whether Q and K may have the first, and V and O the second."""
        if not self.head_dims_v:
            return head_dim_v == head_dim and (not self.head_dims or head_dim in self.head_dims)
        return (head_dim, head_dim_v) in zip(self.head_dims, self.head_dims_v, strict=True)

    @property
    def cuda(self) -> bool:
        return bool(self.capability)

    @property
    def backward(self) -> bool:
        """Whether it computes gradients."""
        return self.name.startswith("backward_")

    @property
    def draft(self) -> bool:
        """Whether it needs no chapter, no exercise and no place in a table yet."""
        return self.idea.startswith(DRAFT)

    @property
    def program(self) -> str:
        """Its folder, its chapter and its programs: "13_flash_attention_2"."""
        return f"{self.number}_{self.name}"

    @property
    def chapter(self) -> Path:
        return self.folder.parents[1] / f"docs/{self.program}.md"

    @property
    def kernel_file(self) -> Path:
        """The .cu file; on the CPU the .cpp file beside main.cpp. Raises FileNotFoundError."""
        found = sorted(self.folder.glob("*.cu")) or sorted(self.folder.glob("*.cpp"))
        for path in found:
            if path.name != "main.cpp":
                return path
        raise FileNotFoundError(errno.ENOENT, "there is no kernel", str(self.folder))

    @property
    def tensor(self) -> bool:
        return "fp32" not in self.types

    @property
    def dtype(self) -> str:
        """The type that it is timed in."""
        return "bf16" if "bf16" in self.types else self.types[0]


def parse(text: str, root: Path = ROOT) -> list[Rung]:
    """The rungs in order. Raises ValueError."""
    rungs = []
    for at, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split("|", 5)]
        if len(cells) != 6 or not re.match(r"\d\d[a-z]?_", cells[0]):
            raise ValueError(
                f"steps/ladder.txt:{at}: a line is NN_name | parent | types | head dims | "
                "capability | idea"
            )
        program, parent, types, head_dims, needs, idea = cells
        number, _, name = program.partition("_")
        capability, *others = needs.split()
        pairs = [] if head_dims == "any" else [dim.partition("/") for dim in head_dims.split()]
        rungs.append(
            Rung(
                number=number,
                name=name,
                parent=parent.strip("-"),
                types=tuple(types.split()),
                head_dims=tuple(int(d) for d, _, _ in pairs),
                capability=capability.strip("-"),
                processes="MPI" in others,
                idea=idea,
                folder=root / "steps" / program,
                head_dims_v=tuple(int(d_v) for _, _, d_v in pairs if d_v),
            )
        )
    return rungs


def unknown(what: str, wanted: str, names: Sequence[str]) -> str:
    """What to say where none of these names was meant, or one of them was, mistyped."""
    near = difflib.get_close_matches(wanted, names, 1)
    every = ", ".join(names)
    there_are = every if len(every) < 60 else f"{len(names)} of them, {names[0]} to {names[-1]}"
    said = f"did you mean {near[0]}?" if near else f"there are {there_are}"
    return f"there is no {what} '{wanted}'; {said}"


def find(wanted: str, rungs: Iterable[Rung], what: str = "rung") -> Rung:
    """The rung that `wanted` names, as overlap, 34_overlap or steps/34_overlap/. Raises
    ValueError."""
    key = wanted.rstrip("/").split("/")[-1]
    for rung in rungs:
        if key in (rung.name, rung.program):
            return rung
    if named := [one.name for one in ladder() if one.number == key.zfill(2)]:
        raise ValueError(f"rungs go by name, not by number: '{wanted}' is {named[0]}")
    raise ValueError(unknown(what, wanted, [rung.name for rung in rungs]))


@functools.cache
def ladder() -> list[Rung]:
    """The rungs in order."""
    return parse((ROOT / "steps/ladder.txt").read_text(encoding="utf-8"))


def is_ordered(rung: Rung) -> bool:
    """Whether it gives the same bits in every run."""
    return rung.name not in UNORDERED


def named(head_dim: int, head_dim_v: int) -> str:
    """That of Q and K, and behind a slash that of V and O, where it is another one."""
    return f"{head_dim}" if head_dim_v in (0, head_dim) else f"{head_dim}/{head_dim_v}"


def refusal(
    rung: Rung, dtype: str, head_dim: int, gpu: tuple[int, ...] | None, head_dim_v: int = 0
) -> str:
    """Why it cannot solve a problem, "" if it can. `gpu` is the capability of the tensors' GPU,
    None on the CPU. `head_dim_v`: of V and O, 0 for that of Q and K."""
    if dtype not in rung.types:
        return f"computes in {' and '.join(rung.types)}, and these tensors are {dtype}"
    if not rung.takes(head_dim, head_dim_v or head_dim):
        pairs = zip(rung.head_dims, rung.head_dims_v or rung.head_dims, strict=True)
        dims = ", ".join(named(*pair) for pair in pairs) or "that are equal"
        return f"takes head dims {dims}, and these tensors have {named(head_dim, head_dim_v)}"
    if gpu and not rung.cuda:
        return "runs on the CPU, and these tensors are on a GPU"
    # wgmma exists in Hopper's code alone.
    least = tuple(map(int, rung.capability.split("."))) if gpu else ()
    if gpu and (gpu != least if least == (9, 0) else gpu < least):
        here = ".".join(map(str, gpu))
        return f"is for GPUs of compute capability {rung.capability}, and this one has {here}"
    return ""


@functools.cache
def choose(
    wanted: str,
    backward: bool,
    dtype: str,
    head_dim: int,
    gpu: tuple[int, ...] | None,
    ordered: bool = False,
    few_queries: bool = False,
    head_dim_v: int = 0,
) -> Rung:
    """The rung of that name; with "" the highest one that fits. Raises ValueError.

    `few_queries`: 16 rows or fewer for each K/V head, its query heads taken together.

    Tensors on the CPU go to a rung that was written for the CPU if one fits. Emulating a GPU takes
    longer. For gradients an order costs time, so rungs without one come first, unless the caller
    wants the same bits in every run.
    """
    rungs = [rung for rung in ladder() if rung.backward == backward]
    if wanted:
        rung = find(wanted, rungs, "backward rung" if backward else "forward rung")
        if reason := refusal(rung, dtype, head_dim, gpu, head_dim_v):
            raise ValueError(f"{rung.name} {reason}")
        return rung
    fitting = [
        rung
        for rung in rungs
        if rung.name not in BY_NAME
        and not rung.draft
        and not refusal(rung, dtype, head_dim, gpu, head_dim_v)
    ]
    fitting = [rung for rung in fitting if (rung.name in FOR_FEW_QUERIES) == few_queries] or fitting
    if backward:
        fitting = [rung for rung in fitting if is_ordered(rung) == ordered] or fitting
    if not fitting:
        kind = "backward" if backward else "forward"
        where = f"on a GPU of compute capability {'.'.join(map(str, gpu))}" if gpu else "on the CPU"
        raise ValueError(
            f"no {kind} rung computes {dtype} with head dim {named(head_dim, head_dim_v)} {where}; "
            "steps/ladder.txt says what each of them takes"
        )
    return next((rung for rung in reversed(fitting) if not gpu and not rung.cuda), fitting[-1])
