"""Tables of a record of scripts/bench, for the terminal, for README.md and for docs/results.md."""

import re

from benched import UNITS, code_of
from records import ROOT, markdown_table
from tensor_tables import tensor_tables


def title_of(problem):
    shape = ", ".join(str(problem[name]) for name in ("batch", "heads", "N", "d"))
    return f"({shape}) {'causal' if problem['causal'] else 'full'}"


def problems_of(record):
    """The problems of a record, in the order in which they were measured."""
    return list({title_of(row["problem"]): row["problem"] for row in record["rows"]}.values())


def rows_of(record, problem):
    """(rungs, libraries) of one problem."""
    rows = [row for row in record["rows"] if row["problem"] == problem]
    return [row for row in rows if not row.get("library")], [row for row in rows if row.get("library")]


def speed(row):
    return row["flops"] / row["median_s"]


def three_digits(value):
    """1234, 123, 12.3, 1.23, 0.123, 0.0123."""
    if value < 0.1:
        return f"{value:#.3g}"
    return f"{value:.{3 if value < 1 else max(3 - len(str(int(value))), 0)}f}"


def milliseconds(row):
    """The median, with what a reader must know about it."""
    older = not row.get("library") and row["code"] != code_of(row["program"])
    return three_digits(row["median_s"] * 1e3) + " (noisy)" * row["noisy"] + " (older code)" * older


def share(record, row):
    """Of the measured ceiling of the unit that does the products."""
    ceiling = record["ceilings"].get(row.get("unit"))
    return f"{100 * speed(row) / ceiling:.1f}%" if ceiling else ""


def factor(before, row):
    return three_digits(before["median_s"] / row["median_s"]) if before else ""


def library_name(row):
    return f"PyTorch, {row['program']}"


def details(record, problem):
    """Everything about one problem: a row a rung, then the libraries."""
    rungs, libraries = rows_of(record, problem)
    naive = next((row for row in rungs if row["program"].startswith("06_")), None)
    lines, before = [], None
    for row in rungs + libraries:
        ours = not row.get("library")
        others = [other for other in libraries if other["dtype"] == row["dtype"]]
        best = min(others, key=lambda other: other["median_s"]) if others and row["backend"] == "cuda" else None
        lines.append([row["program"] if ours else library_name(row), row["dtype"], milliseconds(row),
                      f"{100 * row['spread']:.1f}%", three_digits(speed(row) / 1e12),
                      three_digits(row["compulsory_bytes"] / row["median_s"] / 1e9), share(record, row),
                      factor(before, row) if ours else "", factor(naive, row), factor(best, row)])
        before = row if ours else before
    return left_aligned(markdown_table(["rung", "type", "ms", "spread", "TFLOP/s", "GB/s", "of its unit",
                                        "x the rung before", "x rung 06", "x the best library"], lines))


def ceilings_table(record):
    found = record["ceilings"]
    lines = [[name, f"{three_digits(found[key] / 1e12)} TFLOP/s"] for key, name in UNITS.items() if found.get(key)]
    if found.get("ex2_per_s"):
        lines.append(["exponentials, ex2.approx", f"{three_digits(found['ex2_per_s'] / 1e12)} T/s"])
    for key, name in (("copy_bytes_per_s", "copy in the GPU's memory, read + write"),
                      ("cpu_copy_bytes_per_s", "copy in the processor's memory, read + write")):
        if found.get(key):
            lines.append([name, f"{three_digits(found[key] / 1e9)} GB/s"])
    return left_aligned(markdown_table(["unit", "measured"], lines))


def against_N(record, cell):
    """A line a rung and library, a column an N; `cell` makes a text of a row of the record."""
    problems = problems_of(record)
    of = {(row["program"], row["dtype"], row["problem"]["N"]): row for row in record["rows"]}
    refused = {(entry["program"], entry["problem"]["N"]) for entry in record["left_out"] if "problem" in entry}
    lines = []
    for name, dtype in dict.fromkeys((row["program"], row["dtype"]) for row in record["rows"]):
        rows = [(problem["N"], of.get((name, dtype, problem["N"]))) for problem in problems]
        first = next(row for _, row in rows if row)
        lines.append([library_name(first) if first.get("library") else name, dtype,
                      *(cell(row) if row else "does not fit" if (name, N) in refused else "" for N, row in rows)])
    return left_aligned(markdown_table(["rung", "type", *(f"N = {problem['N']:,}" for problem in problems)], lines))


def footprint(row):
    """Bytes of Q, K, V, O and LSE and of what the rung needs besides; None where that was not measured."""
    extra = row["peak_memory_bytes"]
    return None if extra is None else row["compulsory_bytes"] + extra


def size(number):
    """134 MB and the like."""
    unit = next((unit for unit in (1e9, 1e6) if number >= unit), 1e3)
    return three_digits(number / unit) + {1e9: " GB", 1e6: " MB", 1e3: " kB"}[unit]


def ladder_rungs():
    """Name and idea of every rung of the ladder, as steps/ladder.txt has them."""
    for line in (ROOT / "steps/ladder.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, *_, idea = (column.strip() for column in line.split("|"))
            yield name, idea


def ladder(record, problem, rungs):
    """README's table: every rung of the ladder, measured or not, and the libraries. Links begin at the root."""
    measured, libraries = rows_of(record, problem)
    of = {row["program"]: row for row in measured}
    lines, before = [], None
    for name, idea in rungs:
        chapter = f"[{name[:2]}](docs/{name}.md)" if (ROOT / "docs" / f"{name}.md").is_file() else ""
        row = of.get(name)
        numbers = [row["dtype"], milliseconds(row), three_digits(speed(row) / 1e12), share(record, row),
                   factor(before, row)] if row else ["", "", "", "", ""]
        lines.append([f"[{name}](steps/{name})", idea, chapter, *numbers])
        before = row or before
    for row in libraries:
        numbers = [row["dtype"], milliseconds(row), three_digits(speed(row) / 1e12), "", ""]
        lines.append([library_name(row), "", "", *numbers])
    table = markdown_table(["rung", "the one idea", "chapter", "type", "ms", "TFLOP/s", "of its unit",
                            "x the rung before"], lines)
    table[1] = "|---|---|---|---|" + "---:|" * 4
    return table


def left_aligned(table):
    """The same table with names in its first column."""
    return [table[0], table[1].replace("---:", "---", 1), *table[2:]]


def ways(kernel):
    """Turns that the accesses to shared memory took, over those that they would take without bank conflicts."""
    turns = kernel["shared_load_wavefronts"] + kernel["shared_store_wavefronts"]
    extra = kernel["shared_load_conflicts"] + kernel["shared_store_conflicts"]
    return turns / (turns - extra) if turns else None


def counters_table(counters):
    """What ncu counted, a row a kernel."""
    def sectors(kernel, access):
        requests = kernel[f"global_{access}_requests"]
        return f"{kernel[f'global_{access}_sectors'] / requests:.1f}" if requests else ""

    lines = []
    for rung, kernels in counters.items():
        for name, kernel in kernels.items():
            lines.append([f"{rung[:2]} {name}",
                          three_digits((kernel["dram_read_bytes"] + kernel["dram_write_bytes"]) / 1e9),
                          sectors(kernel, "load"), sectors(kernel, "store"),
                          f"{ways(kernel):.2f}" if ways(kernel) else "", f"{kernel['occupancy_percent']:.0f}%",
                          f"{kernel['tensor_active_percent']:.0f}%", f"{kernel['registers']:.0f}",
                          f"{kernel['local_load_sectors'] + kernel['local_store_sectors']:.0f}"])
    return left_aligned(markdown_table(["kernel", "DRAM, GB", "sectors a load", "sectors a store",
                                        "shared turns / ideal", "occupancy", "tensor pipe at work", "registers",
                                        "spilled sectors"], lines))


def bench_tables(record):
    """From a record of scripts/bench."""
    problems = problems_of(record)
    kind = record.get("kind", "bench")
    if kind == "series":
        return {"ms against N": against_N(record, milliseconds),
                "TFLOP/s against N": against_N(record, lambda row: three_digits(speed(row) / 1e12))}
    if kind == "memory":
        return {"bytes against N": against_N(record, lambda row: size(footprint(row)) if footprint(row) else "?")}
    tables = {f"at {title_of(problem)}": details(record, problem) for problem in problems}
    if record.get("counters"):
        tables["counters"] = counters_table(record["counters"])
    return {**tables, **tensor_tables(record), "ceilings": ceilings_table(record),
            "ladder": ladder(record, problems[0], list(ladder_rungs()))}
