"""What the pages show of the records: the tables that their expressions can name.

A row is found by its record, its program (the beginning of a library's name is enough) and what is
said of its problem: B, H, N, d, causal, dtype, sigma.
"""

import functools
import re
from statistics import geometric_mean

from lab import ladder, records

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


@functools.cache
def order_of_rungs():
    """{name: place in the ladder}"""
    return {rung.name: place for place, rung in enumerate(ladder.ladder())}


def loaded(record):
    """(provenance, rows) of a record: of its name, or of what scripts/bench has just measured."""
    if not isinstance(record, dict):
        record = read(record)
    return record["provenance"], record["rows"]


def with_columns(where):
    return {"N_q" if key == "N" else key: value for key, value in where.items()}


def rows(record, program="", kinds=("rung", "library"), **where):
    """The rows of a record of these kinds that have all of these values."""
    found = [
        row
        for row in loaded(record)[1]
        if row["kind"] in kinds
        and row["program"].startswith(program)
        and all(row.get(key) == value for key, value in with_columns(where).items())
    ]
    return [row for row in found if row["program"] == program] or found


def needed_rows(record, *arguments, **where):
    found = rows(record, *arguments, **where)
    if not found:
        said = [*map(str, arguments), *(f"{key}={value}" for key, value in where.items())]
        raise ValueError(f"the record {record} has no rows of {', '.join(said) or 'any program'}")
    return found


def first_problem(record):
    first = needed_rows(record)[0]
    return {key: first[key] for key in PROBLEM if key in first}


def ms(record, program, **where):
    """The time of the one row of a program."""
    where = first_problem(record) | with_columns(where)
    found = needed_rows(record, program, **where)
    if len(found) != 1:
        raise ValueError(f"the record {record} has {len(found)} rows of {program} with {where}")
    return found[0]["ms"]


def mean(record, program, **where):
    """The geometric mean of TFLOP/s over all its rows with these values."""
    return geometric_mean([row["tflops"] for row in needed_rows(record, program, **where)])


def machine(record):
    """How the names of its records end: h200 for an NVIDIA H200, h100 for an NVIDIA H100 80GB HBM3,
    cpu without a GPU."""
    return re.sub(
        r"\W+", "_", re.sub(r"^nvidia | \d+gb\b.*", "", loaded(record)[0].get("gpu", "cpu").lower())
    )


def ceilings_of(record):
    """{unit: what it reached}, of the record or of scripts/bench's on the same kind of GPU."""
    found, bench = rows(record, kinds=("ceiling",)), f"bench_{machine(record)}"
    if not found and (records.RECORDS / f"{bench}.json").is_file():
        found = rows(bench, kinds=("ceiling",))
    return {row["program"]: row["value"] for row in found}


# ---------------- how numbers and tables are written


def three_digits(value):
    """1234, 123, 12.3, 1.23, 0.123, 0.0123."""
    if value < 0.1:
        return f"{value:#.3g}"
    return f"{value:.{3 if value < 1 else max(3 - len(str(int(value))), 0)}f}"


def size(number):
    for unit, text in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= unit or text == "kB":
            return f"{three_digits(number / unit)} {text}"


def formatted(value, form=""):
    """By a format; without one three digits of a fraction."""
    if form:
        return format(value, form)
    return three_digits(value) if isinstance(value, float) else str(value)


def table(header, lines, left=0):
    """The lines of a Markdown table; the first `left` columns are text."""
    rule = "|" + "".join("---|" if number < left else "---:|" for number in range(len(header)))
    return [
        "| " + " | ".join(header) + " |",
        rule,
        *("| " + " | ".join(map(str, line)) + " |" for line in lines),
    ]


def label(program):
    """A program as tables write it."""
    if program in order_of_rungs():
        return f"`{program}`"
    return re.sub(r"^FA(?=\d$)", "FlashAttention-", program)


def mask(causal):
    return "causal" if causal else "full"


def unique(values):
    return list(dict.fromkeys(values))


def evaluated(row, expression):
    """An expression over the columns of a row, "EXPRESSION" or "EXPRESSION : FORMAT"; else ""."""
    expression, _, form = expression.partition(" : ")
    try:
        return formatted(eval(expression, {"__builtins__": {}, **NAMES}, row), form)
    except (NameError, ZeroDivisionError):
        return ""


def key_of(row, names):
    """The values of columns ("program, kernel"), as a table names them."""
    of = {"program": label(row["program"]), "causal": mask(row.get("causal"))}
    values = [of.get(name, row.get(name, "")) for name in names.split(", ")]
    return tuple(f"{one:.15g}" if isinstance(one, float) else str(one) for one in values)


def grid(head, lines, columns, cell, left=0):
    """A table with a line for each of `lines`, {key: its first cell}, and a column for each of
    `columns`, {key: its head}; cell(line, column) is what stands where they meet."""
    return table(
        [head, *columns.values()],
        [[first, *(cell(line, column) for column in columns)] for line, first in lines.items()],
        left,
    )


def pivot(record, down, across, value, head="", mean_of="", **where):
    """A line for each value of the columns `down`, a column for each of `across`; `value` is
    evaluated()'s. With `mean_of` also the geometric mean of that column."""
    found = [row for row in needed_rows(record, **where) if evaluated(row, value)]
    of = {(key_of(row, down), key_of(row, across)): row for row in found}
    if len(of) != len(found):
        raise ValueError(
            f"several rows of {record} belong into one cell; say which: d=..., causal=..., "
            "dtype=..."
        )
    columns, lines = unique(key_of(row, across) for row in found), []
    for name in unique(key_of(row, down) for row in found):
        cells = [of.get((name, column)) for column in columns]
        lines.append([*name, *(evaluated(row, value) if row else "" for row in cells)])
        if mean_of:
            means = "" if None in cells else geometric_mean([row[mean_of] for row in cells])
            lines[-1].append(means and f"{means:.0f}")
    names = [one[0] if one.startswith("N_") else one.replace("_", " ") for one in down.split(", ")]
    heads = [*([head] if head else names), *map(" ".join, columns), *["geo. mean"] * bool(mean_of)]
    return table(heads, lines)


def view(record, name, program="", **where):
    """A line for each kernel (with an mma, for the tensor cores), columns by VIEWS[name]."""
    tiles, columns, lines = name == "tiles", VIEWS[name], []
    kinds = ("rung",) if tiles else ("kernel",)
    for row in needed_rows(record, program, kinds=kinds, **where):
        if name != "tensor cores" or mmas(row):
            cells = [evaluated(row | {"mmas": mmas(row)}, one) for one in columns.values()]
            kernel = f"{label(row['program'])} {row.get('kernel')}"
            lines.append(cells if tiles else [kernel, *cells])
    return table(columns if tiles else ["kernel", *columns], lines, not tiles)


def mmas(row):
    return row.get("tensor_pipe", 0) - row.get("tensor_pipe_moves", 0)


VIEWS = {
    "profile": {
        "ms": "seconds * 1e3 : .2f",
        "occupancy": "occupancy_percent / 100 : .0%",
        "SMs at work": "sm_active_percent / 100 : .0%",
        "shared loads, GB/s": "shared_load_wavefronts * 128e-9 / seconds : .0f",
        "shared stores, GB/s": "shared_store_wavefronts * 128e-9 / seconds : .0f",
        "global loads, GB/s": "global_load_sectors * 32e-9 / seconds : .0f",
        "global stores, GB/s": "global_store_sectors * 32e-9 / seconds : .0f",
    },
    "traffic": {
        "L1 is asked: loads, GB": "global_load_sectors * 32e-9 : .3g",
        "stores, GB": "global_store_sectors * 32e-9 : .3g",
        "L1 and L2: read, GB": "l2_read_sectors * 32e-9 : .3g",
        "written, GB": "l2_write_sectors * 32e-9 : .3g",
        "DRAM: read, GB": "dram_read_bytes / 1e9 : .3g",
        "DRAM: written, GB": "dram_write_bytes / 1e9 : .3g",
    },
    "instructions": {
        "instructions of warps, 10^9": "instructions / 1e9 : .3g",
        "multiply-adds among them": "multiply_adds / 32 / instructions : .0%",
        "shared loads per multiply-add": "shared_load_requests * 32 / multiply_adds : .3f",
        "shared wavefronts per multiply-add": "shared_load_wavefronts * 32 / multiply_adds : .3f",
    },
    "counters": {
        "DRAM, GB": "three_digits((dram_read_bytes + dram_write_bytes) / 1e9)",
        "sectors per load": "global_load_sectors / global_load_requests : .1f",
        "sectors per store": "global_store_sectors / global_store_requests : .1f",
        "shared wavefronts / ideal": "1 / (1 - (shared_load_conflicts + shared_store_conflicts) / "
        "(shared_load_wavefronts + shared_store_wavefronts)) : .2f",
        "occupancy": "occupancy_percent / 100 : .0%",
        "tensor pipe at work": "tensor_active_percent / 100 : .0%",
        "registers": "registers : .0f",
        "spilled sectors": "local_load_sectors + local_store_sectors : .0f",
    },
    "tensor cores": {
        "mma, 10^6": "mmas / 1e6 : .1f",
        "tensor cores at work": "tensor_active_percent / 100 : .1%",
        "instructions per mma": "instructions / mmas : .2f",
        "wavefronts of shared loads per mma": "shared_load_wavefronts / mmas : .2f",
        "wavefronts / ideal": "1 / (1 - shared_load_conflicts / shared_load_wavefronts) : .2f",
        "sectors of local memory": "local_load_sectors : .0f",
        "registers": "registers : .0f",
        "occupancy": "occupancy_percent / 100 : .0%",
    },
    "stalls": {
        "clocks per instruction": "warps_per_issue : .1f",
        **{
            one.replace("_", " "): f"stall_{one} : .1f"
            for one in (
                "lg_throttle long_scoreboard mio_throttle short_scoreboard math_pipe_throttle "
                "wait barrier gmma not_selected"
            ).split()
        },
        "a scheduler issues": "issue_active_percent / 100 : .0%",
    },
    "tiles": {
        "Br x Bc": "f'{Br:.0f} x {Bc:.0f}'",
        "M, KiB": "shared_bytes / 1024 : .1f",
        "predicted, GB": "predicted_bytes / 1e9 : .3g",
        "between L1 and L2, GB": "(l2_read_sectors + l2_write_sectors) * 32e-9 : .3g",
        "DRAM, GB": "(dram_read_bytes + dram_write_bytes) / 1e9 : .3g",
        "ms": "seconds * 1e3 : .1f",
    },
}


# ---------------- one problem, all programs


def is_library(row):
    return row["kind"] == "library"


def name_of(row):
    whose = "PyTorch, " * (row["program"] not in ("FA3", "Triton"))
    return whose + label(row["program"]) if is_library(row) else label(row["program"])


def milliseconds(row):
    return three_digits(row["ms"]) + " (noisy)" * (row.get("spread", 0) > 0.05)


def speed_columns(found, ceilings):
    """{head: text of a row}; what a row is compared with is of the same problem."""
    place = order_of_rungs()
    rungs = [row for row in found if not is_library(row)]

    def factor(row, others):
        return three_digits(others[0]["ms"] / row["ms"]) if others else ""

    def before(row):
        at = place.get(row["program"], -1)
        return [one for one in reversed(rungs) if place[one["program"]] < at]

    def best(row):
        same = [one for one in found if is_library(one) and one.get("dtype") == row.get("dtype")]
        return sorted(same, key=lambda one: one["ms"]) if row.get("backend") != "cpu" else []

    first = [one for one in found if one["program"] == "cuda_naive"]

    def share(row):
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


SPEEDS = ("ms", "TFLOP/s", "of its unit", "x the rung before", "x the best library")


def speeds(record, heads=SPEEDS, **where):
    """All programs on one problem, in short."""
    found = needed_rows(record, **first_problem(record) | with_columns(where))
    of = speed_columns(found, ceilings_of(record))
    lines = [[name_of(row), *(of[head](row) for head in heads)] for row in found]
    return table(["rung", *heads], lines, 1)


def details(record, **where):
    """All programs on one problem, with all that speed_columns() has."""
    found = needed_rows(record, **first_problem(record) | with_columns(where))
    heads = ["type", "ms", "spread", "TFLOP/s", "GB/s", "of its unit", "x the rung before"]
    heads += ["x cuda_naive"] * any(row["program"] == "cuda_naive" for row in found)
    return speeds(record, (*heads, "x the best library"), **where)


def ladder_table():
    """README's: every rung of the ladder, with links that begin at the root."""
    lines = []
    for rung in ladder.ladder():
        path = f"docs/{rung.program}.md"
        written = (records.ROOT / path).is_file()
        chapter = f"[{rung.number}]({path})" if written else rung.number
        lines.append([chapter, f"[{rung.name}](steps/{rung.program})", rung.idea])
    return table(["chapter", "kernel", "the idea"], lines, 3)


def ceilings(*names):
    of, lines = [ceilings_of(name) for name in names], []
    for key, (text, size, unit) in UNITS.items():
        if all(key in one for one in of):
            lines.append([text, *(f"{three_digits(one[key] / size)} {unit}" for one in of)])
    return table(["unit", *(map(machine, names) if len(names) > 1 else ["measured"])], lines, 1)


def made_of(rows):
    """A record of these rows."""
    return {"provenance": {}, "rows": rows}


def side_by_side(*names):
    """TFLOP/s of all programs of several GPUs on the first problem."""
    found = [
        row | {"machine": machine(name)}
        for name in names
        for row in needed_rows(name, **first_problem(name))
        if row["backend"] != "cpu"
    ]
    return pivot(made_of(found), "program", "machine", "three_digits(tflops)", head="TFLOP/s")


def against_N(record, cell, **where):
    """Programs and types against N; the cells are "ms", "TFLOP/s" or "bytes"."""
    found, refused = needed_rows(record, **where), rows(record, kinds=("left out",))
    too_large = {(row["program"], row.get("N_q")) for row in refused}
    of = {(row["program"], row.get("dtype", ""), row["N_q"]): row for row in found}

    def shown_at(name, dtype, N):
        row = of.get((name, dtype, N))
        if not row:
            return "does not fit" * ((name, N) in too_large)
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


def problem(row):
    return (
        f"(B, H, N, d) = ({row['B']}, {row['H']}, {row['N_q']}, {row['d']}), {mask(row['causal'])}"
    )


def bench_tables(record):
    """{title: lines} of all that scripts/bench measures: details of each problem, against N,
    counters and ceilings."""
    first = {problem(row): row for row in reversed(needed_rows(record))}  # of each problem
    if len({row["N_q"] for row in first.values()}) > 1:
        cells = ["bytes"] if "memory" in loaded(record)[0]["command"] else ["ms", "TFLOP/s"]
        return {f"{cell} against N": against_N(record, cell) for cell in cells}
    tables = {
        f"At {text}": details(record, **{key: row[key] for key in PROBLEM})
        for text, row in reversed(first.items())
    }
    of_ncu = rows(record, kinds=("kernel",))
    tables |= {"Counters": view(record, "counters")} if of_ncu else {}
    tables |= {"Tensor cores": view(record, "tensor cores")} if any(map(mmas, of_ncu)) else {}
    return tables | ({"Ceilings": ceilings(record)} if ceilings_of(record) else {})


def simt(record, names):
    """What the GPU and the SIMT backend counted on the first problem, GPU / SIMT where they differ,
    of the counters that the regular expression names."""
    found = needed_rows(record, problem=rows(record)[0]["problem"])
    found = [row for row in found if re.match(names, row["counter"])]
    cell = "' / '.join(unique((f'{gpu:,.15g}', f'{simt:,.15g}')))"
    return pivot(made_of(found), "program, kernel", "counter", cell)


def most_registers(rows):
    """That of a rung's kernels with most, and what is spilled in all of them."""
    spilled = sum(row["spill_stores"] for row in rows)
    most = max((row["registers"] for row in rows), default="")
    return f"{most}" + f", {spilled} B spilled" * (spilled > 0)


def registers(record):
    """By architecture, the most registers of a rung's kernels, and what they spill."""
    found = needed_rows(record)

    def cell(rung, architecture):
        return most_registers(rows(record, rung, architecture=architecture))

    in_order = sorted({row["program"] for row in found}, key=order_of_rungs().get)
    names = {rung: label(rung) for rung in in_order}
    columns = {one: f"sm_{one}" for one in unique(row["architecture"] for row in found)}
    return grid("rung", names, columns, cell)


# ---------------- comparisons


def compared(record, **where):
    """TFLOP/s of every program against N."""
    return pivot(record, "program", "N_q", "tflops : .0f", head="N", mean_of="tflops", **where)


def only(record, *programs):
    """The record, cut to these programs, where it has them, and the libraries."""
    provenance, found = loaded(record)
    kept = [row for row in found if is_library(row) or row["program"] in programs]
    return {"provenance": provenance, "rows": kept}


def ratios(record, program, other, **where):
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


def groups_of(found, title="d={:.0f} {}"):
    """{(("d", 64), ("causal", True)): "d=64 causal"} of rows."""
    groups = unique((row["d"], row["causal"]) for row in found)
    return {(("d", d), ("causal", one)): title.format(d, mask(one)) for d, one in groups}


def factors(record, library, **where):
    """How many times as fast as a library each rung is: geometric means by head dim and mask."""
    found = [row for row in needed_rows(record, **where) if not is_library(row)]
    names = {row["program"]: label(row["program"]) for row in found}
    count = len(ratios(record, found[-1]["program"], library, **where))

    def cell(name, group):
        of = ratios(record, name, library, **where, **dict(group or ()))
        return f"{min(of):.2f}" if group is None else f"{geometric_mean(of):.{2 if group else 3}f}"

    columns = groups_of(found) | {(): f"all {count}", None: "least"}
    return grid("rung", names, columns, cell)


def by_length(record, program, library, **where):
    """How many times as fast as a library a program is: by head dim and mask against N, and the
    geometric mean over N >= 1024."""
    found = needed_rows(record, program, **where)
    lengths = unique(row["N_q"] for row in found)

    def cell(group, N):
        of = dict(zip(lengths, ratios(record, program, library, **where, **dict(group))))
        long = [factor for length, factor in of.items() if length >= 1024]
        return f"{of[N] if N else geometric_mean(long):.2f}"

    columns = {N: str(N) for N in lengths} | {None: "geo. mean, N >= 1024"}
    return grid("N", groups_of(found, "d = {}, {}"), columns, cell, 1)


def means(record, *programs, **where):
    """TFLOP/s of these programs: geometric means over N by head dim and mask, and over all."""
    found = [row for program in programs for row in needed_rows(record, program, **where)]

    def cell(name, group):
        return f"{mean(record, name, **where, **dict(group)):.0f}"

    names = {row["program"]: label(row["program"]) for row in found}
    return grid("TFLOP/s", names, groups_of(found) | {(): "all"}, cell, 1)


def by_spread(record, other, programs=(), **where):
    """The same against another program and the spread of the scores."""
    found = needed_rows(record, **where)
    ours = [row["program"] for row in found if not is_library(row)]
    names = [name for name in unique(ours) if not programs or name in programs]

    def cell(sigma, column):
        d, name = column
        return f"{geometric_mean(ratios(record, name, other, **where, d=d, sigma=sigma)):.2f}"

    lines = {sigma: f"{sigma:.15g}" for sigma in sorted({row["sigma"] for row in found})}
    dims = unique(row["d"] for row in found)
    columns = {(d, name): f"d={d:.0f}: {label(name)}" for d in dims for name in names}
    return grid("standard deviation", lines, columns, cell)


def neighbours(record, before, after):
    """Two rungs against N."""
    lines = []
    for row in needed_rows(record, before):
        one, other = row["ms"], ms(record, after, N=row["N_q"])
        lines.append([row["N_q"], three_digits(one), three_digits(other), f"{other / one:.2f}"])
    return table(["N", before, after, f"{after} / {before}"], lines)


def growth(record):
    """By what the time of each rung grows when N doubles."""
    found = needed_rows(record)
    lengths = [N for N in unique(row["N_q"] for row in found) if rows(record, N=N // 2)]

    def cell(N, rung):
        return f"{ms(record, rung, N=N) / ms(record, rung, N=N // 2):.2f}"

    lines = {N: f"{N // 2} to {N}" for N in lengths}
    return grid("N", lines, {row["program"]: label(row["program"]) for row in found}, cell)


NAMES = {name: value for name, value in globals().items() if callable(value)}
