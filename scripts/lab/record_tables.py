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

read_records = {}  # by name


@functools.cache
def order_of_rungs():
    """{name: place in the ladder}"""
    return {rung.name: place for place, rung in enumerate(ladder.ladder())}


FP32 = {rung.name for rung in ladder.ladder() if not rung.tensor}


def loaded(record):
    """(provenance, rows) of a record: of its name, or of what scripts/bench has just measured."""
    if not isinstance(record, dict):
        if record not in read_records:
            read_records[record] = records.read(record)
        record = read_records[record]
    return record["provenance"], record["rows"]


def at(where):
    return {"N_q" if key == "N" else key: value for key, value in where.items()}


def rows(record, program="", kinds=("rung", "library", "variant"), **where):
    """The rows of a record of these kinds that have all of these values."""
    found = [
        row
        for row in loaded(record)[1]
        if row["kind"] in kinds
        and row["program"].startswith(program)
        and all(row.get(key) == value for key, value in at(where).items())
    ]
    return [row for row in found if row["program"] == program] or found


def some(record, *arguments, **where):
    found = rows(record, *arguments, **where)
    if not found:
        said = [*map(str, arguments), *(f"{key}={value}" for key, value in where.items())]
        raise ValueError(f"the record {record} has no rows of {', '.join(said) or 'any program'}")
    return found


def first_problem(record):
    first = some(record)[0]
    return {key: first[key] for key in PROBLEM if key in first}


def ms(record, program, **where):
    """The time of the one row of a program."""
    where = first_problem(record) | at(where)
    found = some(record, program, **where)
    if len(found) != 1:
        raise ValueError(f"the record {record} has {len(found)} rows of {program} with {where}")
    return found[0]["ms"]


def mean(record, program, **where):
    """The geometric mean of TFLOP/s over all its rows with these values."""
    return geometric_mean([row["tflops"] for row in some(record, program, **where)])


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
    unit, text = next(
        (pair for pair in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")) if number >= pair[0]),
        (1e3, "kB"),
    )
    return f"{three_digits(number / unit)} {text}"


def shown(value, form=""):
    """By a format; without one three digits of a fraction."""
    return (
        format(value, form)
        if form
        else three_digits(value)
        if isinstance(value, float)
        else str(value)
    )


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
    known = program in order_of_rungs()
    return f"`{program}`" if known else re.sub(r"^FA(?=\d$)", "FlashAttention-", program)


def unique(values):
    return list(dict.fromkeys(values))


def text(row, expression):
    """An expression over the columns of a row, "EXPRESSION" or "EXPRESSION : FORMAT"; else ""."""
    expression, _, form = expression.partition(" : ")
    try:
        return shown(eval(expression, {"__builtins__": {}, **NAMES}, row), form)
    except (NameError, ZeroDivisionError):
        return ""


def key_of(row, names):
    """The values of columns ("program, kernel"), as a table names them."""
    of = {"program": label(row["program"]), "causal": "causal" if row.get("causal") else "full"}
    return tuple(
        f"{value:.15g}"
        if isinstance(value := of.get(name, row.get(name, "")), float)
        else str(value)
        for name in names.split(", ")
    )


def pivot(record, down, across, value, head="", mean_of="", **where):
    """A line for each value of the columns `down`, a column for each of `across`; `value` is
    text()'s. With `mean_of` also the geometric mean of that column."""
    found = [row for row in some(record, **where) if text(row, value)]
    of = {(key_of(row, down), key_of(row, across)): row for row in found}
    if len(of) != len(found):
        raise ValueError(
            f"several rows of {record} belong into one cell; say which: d=..., causal=..., "
            "dtype=..."
        )
    columns, lines = unique(key_of(row, across) for row in found), []
    for name in unique(key_of(row, down) for row in found):
        cells = [of.get((name, column)) for column in columns]
        lines.append([*name, *(text(row, value) if row else "" for row in cells)])
        if mean_of:
            lines[-1].append(
                f"{geometric_mean([row[mean_of] for row in cells]):.0f}"
                if None not in cells
                else ""
            )
    heads = (
        [head]
        if head
        else [one[0] if one.startswith("N_") else one.replace("_", " ") for one in down.split(", ")]
    )
    return table(
        [*heads, *(" ".join(column) for column in columns), *["geo. mean"] * bool(mean_of)], lines
    )


def view(record, name, program="", **where):
    """A line for each kernel, and the columns of VIEWS[name]; for the tensor cores only kernels
    with an mma."""
    lines = []
    for row in some(record, program, kinds=("rung",) if name == "tiles" else ("kernel",), **where):
        if name != "tensor cores" or mmas(row):
            first = [] if name == "tiles" else [f"{label(row['program'])} {row['kernel']}"]
            lines.append(
                [*first, *(text(row | {"mmas": mmas(row)}, one) for one in VIEWS[name].values())]
            )
    return table([*["kernel"] * (name != "tiles"), *VIEWS[name]], lines, name != "tiles")


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
                "lg_throttle",
                "long_scoreboard",
                "mio_throttle",
                "short_scoreboard",
                "math_pipe_throttle",
                "wait",
                "barrier",
                "gmma",
                "not_selected",
            )
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
    whose = "PyTorch, " * (row["program"] != "FA3")
    return whose + label(row["program"]) if is_library(row) else label(row["program"])


def milliseconds(row):
    return three_digits(row["ms"]) + " (noisy)" * (row.get("spread", 0) > 0.05)


def speed_columns(found, ceilings):
    """{head: text of a row}; what a row is compared with is of the same problem."""

    def times(others):
        return lambda row: next(
            (three_digits(other["ms"] / row["ms"]) for other in others(row)), ""
        )

    def best(row):
        same = [one for one in found if is_library(one) and one.get("dtype") == row.get("dtype")]
        return sorted(same, key=lambda one: one["ms"]) if row.get("backend") != "cpu" else []

    def share(row):
        unit = row.get("unit", "ffma_flops" if row.get("dtype") == "fp32" else "mma_sync_flops")
        return (
            f"{100 * row['tflops'] * 1e12 / ceilings[unit]:.1f}%"
            if unit in ceilings and not is_library(row)
            else ""
        )

    return {
        "type": lambda row: row.get("dtype", ""),
        "ms": milliseconds,
        "of its unit": share,
        "spread": lambda row: f"{100 * row['spread']:.1f}%",
        "TFLOP/s": lambda row: three_digits(row["tflops"]),
        "GB/s": lambda row: three_digits(row["compulsory_bytes"] / row["ms"] / 1e6),
        "x the rung before": times(
            lambda row: (
                []
                if is_library(row)
                else [
                    one
                    for one in reversed(found)
                    if not is_library(one)
                    and order_of_rungs()[one["program"]] < order_of_rungs()[row["program"]]
                ]
            )
        ),
        "x cuda_naive": times(lambda _: [one for one in found if one["program"] == "cuda_naive"]),
        "x the best library": times(best),
    }


def speeds(
    record,
    heads=("ms", "TFLOP/s", "of its unit", "x the rung before", "x the best library"),
    **where,
):
    """All programs on one problem, in short."""
    found = some(record, **first_problem(record) | at(where))
    of = speed_columns(found, ceilings_of(record))
    return table(
        ["rung", *heads], [[name_of(row), *(of[head](row) for head in heads)] for row in found], 1
    )


def details(record, **where):
    return speeds(
        record,
        (
            "type",
            "ms",
            "spread",
            "TFLOP/s",
            "GB/s",
            "of its unit",
            "x the rung before",
            "x cuda_naive",
            "x the best library",
        ),
        **where,
    )


def ladder_table():
    """README's: every rung of the ladder, with links that begin at the root."""

    def chapter(rung):
        path = f"docs/{rung.program}.md"
        return f"[{rung.number}]({path})" if (records.ROOT / path).is_file() else rung.number

    return table(
        ["chapter", "kernel", "the one idea"],
        [
            [chapter(rung), f"[{rung.name}](steps/{rung.program})", rung.idea]
            for rung in ladder.ladder()
        ],
        3,
    )


def ceilings(*names):
    of = [ceilings_of(name) for name in names]
    return table(
        ["unit", *(map(machine, names) if len(names) > 1 else ["measured"])],
        [
            [text, *(f"{three_digits(one[key] / size)} {unit}" for one in of)]
            for key, (text, size, unit) in UNITS.items()
            if all(key in one for one in of)
        ],
        1,
    )


def side_by_side(*names):
    """TFLOP/s of all programs of several GPUs on the first problem."""
    found = [
        row | {"machine": machine(name)}
        for name in names
        for row in some(name, **first_problem(name))
    ]
    return pivot(
        {"provenance": {}, "rows": [row for row in found if row["backend"] != "cpu"]},
        "program",
        "machine",
        "three_digits(tflops)",
        head="TFLOP/s",
    )


def against_N(record, cell, **where):
    """A line for each program and type, a column for each N; the cells are "ms", "TFLOP/s" or
    "bytes"."""
    found, refused = some(record, **where), rows(record, kinds=("left out",))
    lengths, lines = sorted({row["N_q"] for row in found + refused if "N_q" in row}), []

    def shown_at(of, N):
        if N not in of:
            return "does not fit" * any(
                (row["program"], row.get("N_q")) == (name, N) for row in refused
            )
        return {
            "ms": milliseconds,
            "TFLOP/s": lambda row: three_digits(row["tflops"]),
            "bytes": lambda row: (
                size(row["compulsory_bytes"] + row["extra_bytes"]) if "extra_bytes" in row else "?"
            ),
        }[cell](of[N])

    for name, dtype in unique((row["program"], row.get("dtype", "")) for row in found):
        of = {
            row["N_q"]: row
            for row in found
            if (row["program"], row.get("dtype", "")) == (name, dtype)
        }
        lines.append([name_of(next(iter(of.values()))), dtype, *(shown_at(of, N) for N in lengths)])
    return table(["rung", "type", *(f"N = {N:,.0f}" for N in lengths)], lines, 1)


def problem(row):
    mask = "causal" if row["causal"] else "full"
    return f"(B, H, N, d) = ({row['B']}, {row['H']}, {row['N_q']}, {row['d']}), {mask}"


def bench_tables(record):
    """{title: lines} of all that scripts/bench measures: details of each problem, against N,
    counters and ceilings."""
    first = {problem(row): row for row in reversed(some(record))}  # of each problem
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
    """What the GPU and the SIMT backend counted on the first problem, of the counters that the
    regular expression names."""
    found = [
        row
        for row in some(record, problem=rows(record)[0]["problem"])
        if re.match(names, row["counter"])
    ]
    return pivot(
        {"provenance": {}, "rows": found},
        "program, kernel",
        "counter",
        "' / '.join(unique((f'{gpu:,.15g}', f'{simt:,.15g}')))",
    )  # GPU / SIMT where they differ


def registers(record):
    """Of all kernels of a rung the most registers of a thread, and what is spilled, by
    architecture."""
    of = {}
    for row in some(record):
        most, spilled = of.get((row["program"], row["architecture"]), (0, 0))
        of[row["program"], row["architecture"]] = (
            max(most, row["registers"]),
            spilled + row["spill_stores"],
        )
    cells = {
        key: f"{most}" + f", {spilled} B spilled" * (spilled > 0)
        for key, (most, spilled) in of.items()
    }
    architectures = unique(architecture for _, architecture in of)
    return table(
        ["rung", *(f"sm_{one}" for one in architectures)],
        [
            [label(rung), *(cells.get((rung, one), "") for one in architectures)]
            for rung in sorted({rung for rung, _ in of})
        ],
    )


# ---------------- comparisons and experiments


def compared(record, **where):
    """TFLOP/s of every program against N."""
    return pivot(record, "program", "N_q", "tflops : .0f", head="N", mean_of="tflops", **where)


def only(record, *programs):
    """The record, cut to these programs, where it has them, and the libraries."""
    provenance, found = loaded(record)
    return {
        "provenance": provenance,
        "rows": [row for row in found if is_library(row) or row["program"] in programs],
    }


def ratios(record, program, other, **where):
    """How many times as fast as another program, on each problem that both were timed on."""
    key = (*PROBLEM, "sigma", "pattern", "dtype")
    theirs = {
        tuple(row.get(name) for name in key): row["ms"] for row in rows(record, other, **where)
    }
    found = [
        theirs[case] / row["ms"]
        for row in some(record, program, **where)
        if (case := tuple(row.get(name) for name in key)) in theirs
    ]
    if not found:
        raise ValueError(f"the record {record} has no problem of both {program} and {other}")
    return found


def factors(record, library, **where):
    """How many times as fast as a library each rung is: geometric means by head dim and mask, and
    over all."""
    found = [row for row in some(record, **where) if not is_library(row)]
    groups, lines = unique((row["d"], row["causal"]) for row in found), []
    for name in unique(row["program"] for row in found):
        whole = ratios(record, name, library, **where)
        means = [
            geometric_mean(ratios(record, name, library, **where, d=d, causal=causal))
            for d, causal in groups
        ]
        lines.append(
            [
                label(name),
                *(f"{one:.2f}" for one in means),
                f"{geometric_mean(whole):.3f}",
                f"{min(whole):.2f}",
            ]
        )
    return table(
        [
            "rung",
            *(f"d={d:.0f} {'causal' if causal else 'full'}" for d, causal in groups),
            f"all {len(whole)}",
            "least",
        ],
        lines,
    )


def by_length(record, program, library, **where):
    """How many times as fast as a library a program is: by head dim and mask against N, and the
    geometric mean over N >= 1024."""
    found, lines = some(record, program, **where), []
    lengths = unique(row["N_q"] for row in found)
    for d, causal in unique((row["d"], row["causal"]) for row in found):
        of = {
            N: ratios(record, program, library, **where, d=d, causal=causal, N=N)[0]
            for N in lengths
        }
        mean = geometric_mean([ratio for N, ratio in of.items() if N >= 1024])
        lines.append(
            [
                f"d = {d}, {'causal' if causal else 'full'}",
                *(f"{ratio:.2f}" for ratio in of.values()),
                f"{mean:.2f}",
            ]
        )
    return table(["N", *map(str, lengths), "geo. mean, N >= 1024"], lines, 1)


def means(record, *programs, **where):
    """TFLOP/s of these programs: geometric means over N by head dim and mask, and over all."""
    found = [row for program in programs for row in some(record, program, **where)]
    groups = unique((row["d"], row["causal"]) for row in found)
    return table(
        [
            "TFLOP/s",
            *(f"d={d:.0f} {'causal' if causal else 'full'}" for d, causal in groups),
            "all",
        ],
        [
            [
                label(name),
                *(f"{mean(record, name, **where, d=d, causal=causal):.0f}" for d, causal in groups),
                f"{mean(record, name, **where):.0f}",
            ]
            for name in unique(row["program"] for row in found)
        ],
        1,
    )


def by_spread(record, other, programs=(), **where):
    """How many times as fast as another program each rung is, against the spread of the scores:
    geometric means."""
    names = unique(
        row["program"]
        for row in some(record, **where)
        if not is_library(row) and (not programs or row["program"] in programs)
    )
    groups = [
        (d, name) for d in unique(row["d"] for row in rows(record, **where)) for name in names
    ]
    return table(
        ["standard deviation", *(f"d={d:.0f}: {label(name)}" for d, name in groups)],
        [
            [
                f"{sigma:.15g}",
                *(
                    f"{geometric_mean(ratios(record, name, other, **where, d=d, sigma=sigma)):.2f}"
                    for d, name in groups
                ),
            ]
            for sigma in sorted({row["sigma"] for row in rows(record, **where)})
        ],
    )


def neighbours(record, before, after):
    """Two rungs against N."""
    pairs = [
        (row["N_q"], row["ms"], ms(record, after, N=row["N_q"])) for row in some(record, before)
    ]
    return table(
        ["N", before, after, f"{after} / {before}"],
        [[N, three_digits(a), three_digits(b), f"{b / a:.2f}"] for N, a, b in pairs],
    )


def growth(record):
    """By what the time of each rung grows when N doubles."""
    rungs = unique(row["program"] for row in some(record))
    lengths = [N for N in unique(row["N_q"] for row in rows(record)) if rows(record, N=N // 2)]
    return table(
        ["N", *map(label, rungs)],
        [
            [
                f"{N // 2} to {N}",
                *(f"{ms(record, rung, N=N) / ms(record, rung, N=N // 2):.2f}" for rung in rungs),
            ]
            for N in lengths
        ],
    )


def experiments(record, rung):
    """What was changed in a rung, what was predicted, and what came out: means over N. Empty
    columns are left out."""
    about = {
        row["program"]: row
        for row in reversed(some(record, kinds=("build",)))
        if row["rung"] == rung
    }
    names = [name for name in reversed(about) if rows(record, name)]
    groups = unique((row["d"], row["causal"]) for row in some(record, names[0]))
    lines, largest = [], max(d for d, _ in groups)

    def mean_speed(name, **where):
        return (
            f"{mean(record, name, **where):.{1 if rung in FP32 else 0}f}"
            if rows(record, name, **where)
            else ""
        )

    def mean_ratio(name, other, least=0):
        dims = [d for d in unique(d for d, _ in groups) if d >= least and rows(record, other, d=d)]
        return (
            f"{geometric_mean(sum((ratios(record, name, other, d=d) for d in dims), [])):.3f}"
            if dims
            else ""
        )

    for name in names:
        of = [
            row
            for d in (256, 128, 64, 32)
            for row in rows(record, name, kinds=("build",))
            if row.get("d") == d
        ]
        counts = next(iter(rows(record, name, kinds=("kernel",))), {})
        lines.append(
            {
                "change": (about[name].get("what") or f"`{rung}`")
                + " (wrong on purpose)" * bool(about[name].get("wrong")),
                "predicted": about[name].get("predicted", ""),
                "x the rung": mean_ratio(name, names[0]),
                "x FA2, d = 64 and 128": mean_ratio(name, "FA2", 64) if rung not in FP32 else "",
                "registers at d = 256, 128, 64, 32"
                if largest > 128
                else "registers at d = 128, 64, 32": ", ".join(f"{row['registers']}" for row in of),
                "bytes spilled": ", ".join(
                    f"{row['spill_stores']} at {row['d']}"
                    if row["spill_stores"]
                    else f"stack {row['stack']} at {row['d']}"
                    for row in of
                    if row["spill_stores"] or row["stack"]
                ),
                "instructions per mma, 128, 64": ", ".join(
                    text(row, "instructions / mma : .2f")
                    for row in of
                    if row.get("mma") and row["d"] in (64, 128)
                ),
                "wavefronts per load": text(
                    counts, "shared_load_wavefronts / shared_load_requests : .2f"
                ),
                "ms": text(rows(record, name)[0], "ms : .1f")
                if len(rows(record, name)) == 1
                else "",
                **{
                    f"TFLOP/s, d={d}" + " causal" * causal: mean_speed(name, d=d, causal=causal)
                    for d, causal in groups
                },
            }
        )
    heads = [head for head in lines[0] if any(line[head] for line in lines)]
    return table(heads, [[line[head] for head in heads] for line in lines], 2)


NAMES = {name: value for name, value in globals().items() if callable(value)}
