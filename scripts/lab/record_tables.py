"""Rows of records, and how tables of them are written; lab/results.py has the tables themselves.

A row is found by its record, its program (the beginning of a library's name is enough) and what is
said of its problem: B, H, N, d, causal, dtype, sigma.
"""

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from statistics import geometric_mean
from typing import Any, TypeVar

from lab import ladder, records
from lab.records import Record, Row

T = TypeVar("T")
L = TypeVar("L")
C = TypeVar("C")
Group = tuple[tuple[str, Any], ...]  # columns and their values: (("d", 64), ("causal", True))
PROBLEM = ("B", "H", "N_q", "d", "causal")
UNITS = {  # ceiling: what it is, and how its number is written
    "cpu_fma_flops": ("multiply-adds of all cores", 1e12, "TFLOP/s"),
    "ffma_flops": ("fp32 multiply-adds", 1e12, "TFLOP/s"),
    "mma_sync_flops": ("mma.sync", 1e12, "TFLOP/s"),
    "wgmma_flops": ("wgmma", 1e12, "TFLOP/s"),
    "ex2_per_s": ("exponentials, ex2.approx", 1e12, "T/s"),
    "copy_bytes_per_s": ("copy in the GPU's memory, read + write", 1e9, "GB/s"),
    "cpu_copy_bytes_per_s": ("copy in the processor's memory, read + write", 1e9, "GB/s"),
}


# ---------------- rows

read = functools.cache(records.read)


class NotMeasured(Exception):
    """A record is not there, or has nothing of a rung."""


@functools.cache
def order_of_rungs() -> dict[str, int]:
    """{name: place in the ladder}"""
    return {rung.name: place for place, rung in enumerate(ladder.ladder())}


def loaded(record: str | Record) -> tuple[dict[str, Any], list[Row]]:
    """(provenance, rows) of a record: of its name, or of what scripts/bench has just measured."""
    if not isinstance(record, dict):
        if not records.path_of(record).is_file():
            raise NotMeasured
        record = read(record)
    return record["provenance"], record["rows"]


def with_columns(where: dict[str, Any]) -> dict[str, Any]:
    return {"N_q" if key == "N" else key: value for key, value in where.items()}


def rows(
    record: str | Record,
    program: str = "",
    kinds: Sequence[str] = ("rung", "library"),
    **where: Any,
) -> list[Row]:
    """The rows of a record of these kinds that have all of these values."""
    return [
        row
        for row in loaded(record)[1]
        if row["kind"] in kinds
        and program in ("", row["program"])
        and all(row.get(key) == value for key, value in with_columns(where).items())
    ]


def needed_rows(record: str | Record, program: str = "", **where: Any) -> list[Row]:
    found = rows(record, program, **where)
    if not found and program in order_of_rungs() and not rows(record, program):
        raise NotMeasured
    if not found:
        said = [program] if program else []
        said += [f"{key}={value}" for key, value in where.items()]
        raise ValueError(f"the record {record} has no rows of {', '.join(said) or 'any program'}")
    return found


def first_problem(record: str | Record) -> dict[str, Any]:
    first = needed_rows(record)[0]
    return {key: first[key] for key in PROBLEM if key in first}


def machine(record: str | Record) -> str:
    """How the names of its records end: h200 for an NVIDIA H200, h100 for an NVIDIA H100 80GB HBM3,
    cpu without a GPU."""
    return re.sub(
        r"\W+", "_", re.sub(r"^nvidia | \d+gb\b.*", "", loaded(record)[0].get("gpu", "cpu").lower())
    )


def ceilings_of(record: str | Record) -> dict[str, float]:
    """{unit: what it reached}, of the record or of scripts/bench's on the same kind of GPU."""
    found, bench = rows(record, kinds=("ceiling",)), f"bench_{machine(record)}"
    if not found and (records.RECORDS / f"{bench}.json").is_file():
        found = rows(bench, kinds=("ceiling",))
    return {row["program"]: row["value"] for row in found}


# ---------------- how numbers and tables are written


def three_digits(value: float) -> str:
    """1234, 123, 12.3, 1.23, 0.123, 0.0123."""
    if value < 0.1:
        return f"{value:#.3g}"
    return f"{value:.{3 if value < 1 else max(3 - len(str(int(value))), 0)}f}"


def size(number: float) -> str:
    for unit, text in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if number >= unit:
            return f"{three_digits(number / unit)} {text}"
    return f"{three_digits(number / 1e3)} kB"


def table(header: Sequence[str], lines: Iterable[Sequence[object]], left: int = 0) -> list[str]:
    """The lines of a Markdown table; the first `left` columns are text."""
    rule = "|" + "".join("---|" if number < left else "---:|" for number in range(len(header)))
    return [
        "| " + " | ".join(header) + " |",
        rule,
        *("| " + " | ".join(map(str, line)) + " |" for line in lines),
    ]


def label(program: str) -> str:
    """A program as tables write it."""
    if program in order_of_rungs():
        return f"`{program}`"
    return re.sub(r"^FA(?=\d\b)", "FlashAttention-", program)


def mask(causal: Any) -> str:
    return "causal" if causal else "full"


def unique(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))


def formatted(value: Any, form: str = "") -> str:
    """By a format; without one three digits of a fraction."""
    if form:
        return format(value, form)
    return three_digits(value) if isinstance(value, float) else str(value)


def key_of(row: Row, names: str) -> tuple[str, ...]:
    """The values of columns ("program, kernel"), as a table names them."""
    of = {"program": label(row["program"]), "causal": mask(row.get("causal"))}
    values = [of.get(name, row.get(name, "")) for name in names.split(", ")]
    return tuple(f"{one:.15g}" if isinstance(one, float) else str(one) for one in values)


def grid(
    head: str,
    lines: dict[L, str],
    columns: dict[C, str],
    cell: Callable[[L, C], str],
    left: int = 0,
) -> list[str]:
    """A table with a line for each of `lines`, {key: its first cell}, and a column for each of
    `columns`, {key: its head}; cell(line, column) is what stands where they meet."""
    return table(
        [head, *columns.values()],
        [[first, *(cell(line, column) for column in columns)] for line, first in lines.items()],
        left,
    )


def pivot(
    found: list[Row],
    down: str,
    across: str,
    column: str,
    form: str = "",
    head: str = "",
    mean_of: str = "",
) -> list[str]:
    """A line for each value of the columns `down` of these rows, a column for each of `across`;
    where they meet stands `column`. With `mean_of` also the geometric mean of that column."""
    of = {(key_of(row, down), key_of(row, across)): row for row in found if column in row}
    if len(of) != sum(column in row for row in found):
        raise ValueError(f"several rows belong into one cell of {down} and {across}")
    columns, lines = unique(across for _, across in of), []
    for name in unique(down for down, _ in of):
        cells = [of.get((name, one)) for one in columns]
        lines.append([*name, *(formatted(row[column], form) if row else "" for row in cells)])
        if mean_of:
            known = [row[mean_of] for row in cells if row]
            whole = len(known) == len(cells)
            lines[-1].append(f"{geometric_mean(known):.0f}" if whole else "")
    names = [one[0] if one.startswith("N_") else one.replace("_", " ") for one in down.split(", ")]
    heads = [*([head] if head else names), *map(" ".join, columns)]
    return table([*heads, "geo. mean"] if mean_of else heads, lines)


def view(record: str | Record, name: str, program: str = "") -> list[str]:
    """A line for each kernel (with an mma, for the tensor cores), columns by VIEWS[name]."""
    lines = []
    for row in needed_rows(record, program, kinds=("kernel",)):
        if name != "tensor cores" or mmas(row):
            cells = [quotient(with_sums(row), *column) for column in VIEWS[name].values()]
            lines.append([f"{label(row['program'])} {row['kernel']}", *cells])
    return table(["kernel", *VIEWS[name]], lines, 1)


def mmas(row: Row) -> float:
    return row.get("tensor_pipe", 0) - row.get("tensor_pipe_moves", 0)


SUMS = {  # what tables need beside a row's columns: those that are added up, and those taken away
    "mmas": (["tensor_pipe"], ["tensor_pipe_moves"]),
    "dram_bytes": (["dram_read_bytes", "dram_write_bytes"], []),
    "spilled_sectors": (["local_load_sectors", "local_store_sectors"], []),
    "ideal_loads": (["shared_load_wavefronts"], ["shared_load_conflicts"]),
    "wavefronts": (["shared_load_wavefronts", "shared_store_wavefronts"], []),
    "ideal_wavefronts": (
        ["shared_load_wavefronts", "shared_store_wavefronts"],
        ["shared_load_conflicts", "shared_store_conflicts"],
    ),
}


def with_sums(row: Row) -> Row:
    found = {
        name: sum(row[one] for one in added) - sum(row[one] for one in taken)
        for name, (added, taken) in SUMS.items()
        if all(one in row for one in added + taken)
    }
    return row | found


def quotient(row: Row, form: str, column: str, factor: float = 1, per: str = "") -> str:
    """column * factor / per, of a row; "" where it has them not."""
    value, divisor = row.get(column), row.get(per) if per else 1
    return "" if value is None or not divisor else formatted(value * factor / divisor, form)


# {view: {head: (format, column, factor, column to divide by)}}
VIEWS: dict[str, dict[str, tuple[Any, ...]]] = {
    "traffic": {
        "L1 is asked: loads, GB": (".3g", "global_load_sectors", 32e-9),
        "stores, GB": (".3g", "global_store_sectors", 32e-9),
        "L1 and L2: read, GB": (".3g", "l2_read_sectors", 32e-9),
        "written, GB": (".3g", "l2_write_sectors", 32e-9),
        "DRAM: read, GB": (".3g", "dram_read_bytes", 1e-9),
        "DRAM: written, GB": (".3g", "dram_write_bytes", 1e-9),
    },
    "counters": {
        "DRAM, GB": ("", "dram_bytes", 1e-9),
        "sectors per load": (".1f", "global_load_sectors", 1, "global_load_requests"),
        "sectors per store": (".1f", "global_store_sectors", 1, "global_store_requests"),
        "shared wavefronts / ideal": (".2f", "wavefronts", 1, "ideal_wavefronts"),
        "occupancy": (".0%", "occupancy_percent", 0.01),
        "tensor pipe at work": (".0%", "tensor_active_percent", 0.01),
        "registers": (".0f", "registers"),
        "spilled sectors": (".0f", "spilled_sectors"),
    },
    "tensor cores": {
        "mma, 10^6": (".1f", "mmas", 1e-6),
        "tensor cores at work": (".1%", "tensor_active_percent", 0.01),
        "instructions per mma": (".2f", "instructions", 1, "mmas"),
        "wavefronts of shared loads per mma": (".2f", "shared_load_wavefronts", 1, "mmas"),
        "wavefronts / ideal": (".2f", "shared_load_wavefronts", 1, "ideal_loads"),
        "sectors of local memory": (".0f", "local_load_sectors"),
        "registers": (".0f", "registers"),
        "occupancy": (".0%", "occupancy_percent", 0.01),
    },
    "stalls": {
        "clocks per instruction": (".1f", "warps_per_issue"),
        "lg throttle": (".1f", "stall_lg_throttle"),
        "long scoreboard": (".1f", "stall_long_scoreboard"),
        "mio throttle": (".1f", "stall_mio_throttle"),
        "short scoreboard": (".1f", "stall_short_scoreboard"),
        "math pipe throttle": (".1f", "stall_math_pipe_throttle"),
        "wait": (".1f", "stall_wait"),
        "barrier": (".1f", "stall_barrier"),
        "gmma": (".1f", "stall_gmma"),
        "not selected": (".1f", "stall_not_selected"),
        "a scheduler issues": (".0%", "issue_active_percent", 0.01),
    },
}


# ---------------- one problem, all programs


def is_library(row: Row) -> bool:
    return row["kind"] == "library"


def name_of(row: Row) -> str:
    of_pytorch = is_library(row) and not row["program"].startswith(("FA3", "FA4", "Triton"))
    return "PyTorch, " + label(row["program"]) if of_pytorch else label(row["program"])


def milliseconds(row: Row) -> str:
    text = three_digits(row["ms"])
    return f"{text} (noisy)" if row.get("spread", 0) > 0.05 else text


def speed_columns(found: list[Row], ceilings: dict[str, float]) -> dict[str, Callable[[Row], str]]:
    """{head: text of a row}; what a row is compared with is of the same problem."""
    place = order_of_rungs()
    rungs = [row for row in found if not is_library(row)]

    def factor(row: Row, others: list[Row]) -> str:
        return three_digits(others[0]["ms"] / row["ms"]) if others else ""

    def before(row: Row) -> list[Row]:
        at = place.get(row["program"], -1)
        return [one for one in reversed(rungs) if place[one["program"]] < at]

    def best(row: Row) -> list[Row]:
        same = [one for one in found if is_library(one) and one.get("dtype") == row.get("dtype")]
        return sorted(same, key=lambda one: one["ms"]) if row.get("backend") != "cpu" else []

    first = [one for one in found if one["program"] == "cuda_naive"]

    def share(row: Row) -> str:
        unit = row.get("unit", "ffma_flops" if row.get("dtype") == "fp32" else "mma_sync_flops")
        known = unit in ceilings and not is_library(row)
        return f"{100 * row['tflops'] * 1e12 / ceilings[unit]:.1f}%" if known else ""

    return {
        "type": lambda row: row.get("dtype", ""),
        "ms": milliseconds,
        "of its unit": share,
        "spread": lambda row: f"{100 * row['spread']:.1f}%",
        "TFLOP/s": lambda row: three_digits(row["tflops"]),
        "GB/s": lambda row: three_digits(row["compulsory_bytes"] / row["ms"] / 1e6),
        "x the rung before": lambda row: factor(row, before(row)),
        "x cuda_naive": lambda row: factor(row, first),
        "x the best library": lambda row: factor(row, best(row)),
    }


def speeds(record: str | Record, found: list[Row], heads: Sequence[str]) -> list[str]:
    """A line for each of these rows of a record, which are of one problem."""
    of = speed_columns(found, ceilings_of(record))
    lines = [[name_of(row), *(of[head](row) for head in heads)] for row in found]
    return table(["rung", *heads], lines, 1)


def problem(row: Row) -> str:
    return (
        f"(B, H, N, d) = ({row['B']}, {row['H']}, {row['N_q']}, {row['d']}), {mask(row['causal'])}"
    )


def most_registers(rows: list[Row]) -> str:
    """That of a rung's kernels with most, and what is spilled in all of them."""
    spilled = sum(row["spill_stores"] for row in rows)
    most = max((row["registers"] for row in rows), default="")
    return f"{most}, {spilled} B spilled" if spilled > 0 else f"{most}"


# ---------------- comparisons


def of_rungs(found: list[Row], *names: str) -> list[Row]:
    """The rows of these rungs, and of the libraries, or of those that are named; all, where nothing
    is named."""
    libraries = {row["program"] for row in found if is_library(row)}
    shown = set(names)
    if shown - {row["program"] for row in found}:
        raise NotMeasured
    if not shown & libraries:
        shown |= libraries
    return [row for row in found if not names or row["program"] in shown]


def ratios(record: str | Record, program: str, other: str, **where: Any) -> list[float]:
    """How many times as fast as another program, on each problem that both were timed on."""
    key = (*PROBLEM, "sigma", "pattern", "dtype")
    theirs = {
        tuple(row.get(name) for name in key): row["ms"] for row in rows(record, other, **where)
    }
    found = [
        theirs[case] / row["ms"]
        for row in needed_rows(record, program, **where)
        if (case := tuple(row.get(name) for name in key)) in theirs
    ]
    if not found:
        raise ValueError(f"the record {record} has no problem of both {program} and {other}")
    return found


def groups_of(found: list[Row], title: str = "d={:.0f} {}") -> dict[Group, str]:
    """{(("d", 64), ("causal", True)): "d=64 causal"} of rows."""
    groups = unique((row["d"], row["causal"]) for row in found)
    return {(("d", d), ("causal", one)): title.format(d, mask(one)) for d, one in groups}
