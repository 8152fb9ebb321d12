"""The tables that pages show of the records, each a function of that name.

<!-- table: mean_tflops(gpu_bf16, lean_softmax, FA2) --> is mean_tflops("gpu_bf16", "lean_softmax",
"FA2"). `lab bench` shows some of them of what it has just measured.
"""

from statistics import geometric_mean
from typing import Any

from lab import ladder
from lab.record_tables import (
    PROBLEM,
    UNITS,
    Group,
    ceilings_of,
    first_problem,
    grid,
    groups_of,
    is_library,
    label,
    loaded,
    machine,
    milliseconds,
    mmas,
    most_registers,
    name_of,
    needed_rows,
    of_rungs,
    order_of_rungs,
    pivot,
    problem,
    ratios,
    rows,
    size,
    speed_columns,
    speeds,
    table,
    three_digits,
    unique,
    view,
)
from lab.records import Record

# ---------------- the ladder, and one problem


def climb(record: str | Record, *rungs: str) -> list[str]:
    """Some rungs, and libraries of either type, on the record's first problem."""
    found = of_rungs(needed_rows(record, **first_problem(record)), *rungs)
    of = speed_columns(found, ceilings_of(record))
    heads = ["type", "TFLOP/s", "of its unit", "x the best library"]
    libraries = ("memory-efficient", "FA2", "cuDNN")
    shown = [row for row in found if row["program"] in (*rungs, *libraries)]
    lines = [[name_of(row), *(of[head](row) for head in heads)] for row in shown]
    return table(["rung", *heads], lines, 1)


def step(record: str | Record, before: str, after: str) -> list[str]:
    """A rung beside its parent and the libraries, on the record's first problem. Types are compared
    only with themselves, and a CPU has another unit than a GPU."""
    one, other = (ladder.find(name, ladder.ladder()) for name in (before, after))
    types = (one.dtype, other.dtype)
    found = of_rungs(needed_rows(record, **first_problem(record)), before, after)
    found = [row for row in found if row["dtype"] in types]
    heads = ["ms", "TFLOP/s"]
    if one.cuda:
        heads.append("of its unit")
    if one.dtype == other.dtype:
        heads += ["x the rung before", "x the best library"]
    return speeds(record, found, heads)


def all_programs(record: str | Record, **where: Any) -> list[str]:
    """All programs on one problem, with all that is known of them."""
    found = needed_rows(record, **where or first_problem(record))
    heads = ["type", "ms", "spread", "TFLOP/s", "GB/s", "of its unit", "x the rung before"]
    if any(row["program"] == "cuda_naive" for row in found):
        heads.append("x cuda_naive")
    return speeds(record, found, [*heads, "x the best library"])


def ceilings(*names: str | Record) -> list[str]:
    of, lines = [ceilings_of(name) for name in names], []
    for key, (text, unit_size, unit) in UNITS.items():
        if all(key in one for one in of):
            values = (f"{three_digits(one[key] / unit_size)} {unit}" for one in of)
            lines.append([text, *values])
    return table(["unit", *(map(machine, names) if len(names) > 1 else ["measured"])], lines, 1)


def side_by_side(*names: str) -> list[str]:
    """TFLOP/s of all programs of several GPUs on the first problem."""
    found = [
        row | {"machine": machine(name)}
        for name in names
        for row in needed_rows(name, **first_problem(name))
        if row["backend"] != "cpu"
    ]
    return pivot(found, "program", "machine", "tflops", head="TFLOP/s")


# ---------------- against N


def against_N(record: str | Record, cell: str) -> list[str]:
    """Programs and types against N; the cells are "ms", "TFLOP/s" or "bytes"."""
    found, refused = needed_rows(record), rows(record, kinds=("left out",))
    too_large = {(row["program"], row.get("N_q")) for row in refused}
    of = {(row["program"], row.get("dtype", ""), row["N_q"]): row for row in found}

    def shown_at(name: str, dtype: str, N: int) -> str:
        row = of.get((name, dtype, N))
        if not row:
            return "does not fit" if (name, N) in too_large else ""
        if cell == "ms":
            return milliseconds(row)
        if cell == "TFLOP/s":
            return three_digits(row["tflops"])
        known = "extra_bytes" in row
        return size(row["compulsory_bytes"] + row["extra_bytes"]) if known else "?"

    lengths = sorted({row["N_q"] for row in found + refused if "N_q" in row})
    names = {(row["program"], row.get("dtype", "")): name_of(row) for row in found}
    lines = [[name, of[1], *(shown_at(*of, N) for N in lengths)] for of, name in names.items()]
    return table(["rung", "type", *(f"N = {N:,}" for N in lengths)], lines, 1)


# ---------------- comparisons


def tflops_by_N(record: str | Record, d: str, under: str, *rungs: str) -> list[str]:
    """TFLOP/s against N, `under` a mask: "full" or "causal"; of all rungs, where none is named."""
    found = of_rungs(needed_rows(record, d=int(d), causal=under == "causal"), *rungs)
    return pivot(found, "program", "N_q", "tflops", ".0f", head="N", mean_of="tflops")


def tflops_by_head_dim(record: str | Record, under: str, *rungs: str) -> list[str]:
    found = of_rungs(needed_rows(record, causal=under == "causal"), *rungs)
    return pivot(found, "d", "program", "tflops", ".1f")


def tflops_of_problems(record: str | Record, columns: str, *programs: str) -> list[str]:
    """TFLOP/s of these programs, or all: a line for each problem, which these columns ("d window")
    tell from the others."""
    found = [row for program in programs or [""] for row in needed_rows(record, program)]
    return pivot(found, ", ".join(columns.split()), "program", "tflops", ".0f")


def rms_of_problems(record: str | Record, columns: str) -> list[str]:
    """The same of all programs' errors: the root of the mean square of O's."""
    found = needed_rows(record, "")
    return pivot(found, ", ".join(columns.split()), "program", "rms_error", ".2g")


def mean_tflops(record: str | Record, *programs: str) -> list[str]:
    """TFLOP/s of these programs, or all: geometric means over N by head dim and mask, and over
    all."""
    found = [row for program in programs or [""] for row in needed_rows(record, program)]

    def cell(name: str, group: Group) -> str:
        of = needed_rows(record, name, **dict(group))
        return f"{geometric_mean([row['tflops'] for row in of]):.0f}"

    names = {row["program"]: label(row["program"]) for row in found}
    return grid("TFLOP/s", names, groups_of(found) | {(): "all"}, cell, 1)


def mean_step(record: str | Record, before: str, after: str, *libraries: str) -> list[str]:
    """mean_tflops of a rung, the one before it and libraries, with two more columns: how many times
    as fast, over all problems, the rung is as the one before, and each as the best library."""
    names = (before, after, *libraries)

    def times(name: str, other: str) -> float:
        return geometric_mean(ratios(record, name, other))

    best = min(libraries, key=lambda name: times(after, name))
    more = [" x the rung before | x the best library |", "---:|---:|"]
    for name in names:
        gain = f"{times(after, before):.2f}" if name == after else ""
        more.append(f" {gain} | {times(name, best):.2f} |")
    return [line + end for line, end in zip(mean_tflops(record, *names), more, strict=True)]


def times_as_fast(record: str | Record, library: str) -> list[str]:
    """How many times as fast as a library each rung is: geometric means by head dim and mask."""
    found = [row for row in needed_rows(record) if not is_library(row)]
    names = {row["program"]: label(row["program"]) for row in found}
    count = len(ratios(record, found[-1]["program"], library))

    def cell(name: str, group: Group | None) -> str:
        of = ratios(record, name, library, **dict(group or ()))
        return f"{min(of):.2f}" if group is None else f"{geometric_mean(of):.{2 if group else 3}f}"

    columns = groups_of(found) | {(): f"all {count}", None: "least"}
    return grid("rung", names, columns, cell)


def times_as_fast_by_N(record: str | Record, program: str, library: str) -> list[str]:
    """How many times as fast as a library a program is: by head dim and mask against N, and the
    geometric mean over N >= 1024."""
    found = needed_rows(record, program)
    lengths = unique(row["N_q"] for row in found)

    def cell(group: Group, N: int | None) -> str:
        of = dict(zip(lengths, ratios(record, program, library, **dict(group))))
        long = [factor for length, factor in of.items() if length >= 1024]
        return f"{of[N] if N else geometric_mean(long):.2f}"

    columns = {N: str(N) for N in lengths} | {None: "geo. mean, N >= 1024"}
    return grid("N", groups_of(found, "d = {}, {}"), columns, cell, 1)


def times_as_fast_by_spread(record: str | Record, library: str, *rungs: str) -> list[str]:
    """The same of several rungs against the spread of the scores."""
    found = needed_rows(record)

    def cell(sigma: float, column: tuple[int, str]) -> str:
        d, name = column
        return f"{geometric_mean(ratios(record, name, library, d=d, sigma=sigma)):.2f}"

    lines = {sigma: f"{sigma:.15g}" for sigma in sorted({row["sigma"] for row in found})}
    dims = unique(row["d"] for row in found)
    columns = {(d, name): f"d={d:.0f}: {label(name)}" for d in dims for name in rungs}
    return grid("standard deviation", lines, columns, cell)


def decoding(record: str | Record) -> list[str]:
    """GB/s of decoding."""
    down = "B, H, H_kv, N_kv"
    return pivot(needed_rows(record), "program", down, "gb_per_s", ".0f", head=f"{down}:")


def ring(record: str | Record) -> list[str]:
    return pivot(needed_rows(record), "ranks, processes", "causal", "ms", ".1f")


def host_microseconds(record: str | Record) -> list[str]:
    return pivot(needed_rows(record, kinds=("host",)), "program", "what", "host_us", ".0f")


# ---------------- what is counted


def kernels(record: str | Record, what: str, program: str = "") -> list[str]:
    """What ncu counted of each kernel: "traffic", "counters", "stalls" or "tensor cores"."""
    return view(record, what, program)


def counted(record: str | Record, *beginnings: str) -> list[str]:
    """What the GPU and the SIMT backend counted on the first problem, GPU / SIMT where they differ,
    of the counters that begin so."""
    found = [
        row | {"text": " / ".join(unique((f"{row['gpu']:,.15g}", f"{row['simt']:,.15g}")))}
        for row in needed_rows(record, problem=needed_rows(record)[0]["problem"])
        if row["counter"].startswith(beginnings)
    ]
    return pivot(found, "program, kernel", "counter", "text")


def found_by_tools(record: str | Record) -> list[str]:
    """What compute-sanitizer's tools report of programs of docs/examples."""
    return pivot(needed_rows(record, kinds=("example",)), "program", "tool", "reported", ".0f")


def passed_by_tools(record: str | Record) -> list[str]:
    """In how many runs of each rung they report nothing."""
    found = [
        row | {"text": f"{row['runs'] - row['reported']} of {row['runs']}"}
        for row in needed_rows(record)
    ]
    return pivot(found, "program", "tool", "text")


def registers(record: str | Record) -> list[str]:
    """By architecture, the most registers of a rung's kernels, and what they spill."""
    found = needed_rows(record)

    def cell(rung: str, architecture: str) -> str:
        return most_registers(rows(record, rung, architecture=architecture))

    in_order = sorted({row["program"] for row in found}, key=order_of_rungs().__getitem__)
    names = {rung: label(rung) for rung in in_order}
    columns = {one: f"sm_{one}" for one in unique(row["architecture"] for row in found)}
    return grid("rung", names, columns, cell)


TABLES = {
    name: made for name, made in globals().items() if getattr(made, "__module__", "") == __name__
}


def bench_tables(record: Record) -> dict[str, list[str]]:
    """{title: lines} of all that scripts/bench measures: every problem, against N, counters and
    ceilings."""
    first = {problem(row): row for row in reversed(needed_rows(record))}  # of each problem
    if len({row["N_q"] for row in first.values()}) > 1:
        cells = ["bytes"] if "memory" in loaded(record)[0]["command"] else ["ms", "TFLOP/s"]
        return {f"{cell} against N": against_N(record, cell) for cell in cells}
    tables = {
        f"At {text}": all_programs(record, **{key: row[key] for key in PROBLEM})
        for text, row in reversed(first.items())
    }
    of_ncu = rows(record, kinds=("kernel",))
    tables |= {"Counters": kernels(record, "counters")} if of_ncu else {}
    tables |= {"Tensor cores": kernels(record, "tensor cores")} if any(map(mmas, of_ncu)) else {}
    return tables | ({"Ceilings": ceilings(record)} if ceilings_of(record) else {})
