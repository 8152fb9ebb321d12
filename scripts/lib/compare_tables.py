"""Markdown tables of a record of scripts/compare: TFLOP/s, and ratios to the libraries."""

import math

from records import markdown_table


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


class Comparison:
    """Medians of a record, by case (d, causal, N) and program."""

    def __init__(self, record):
        self.seconds = {((row["d"], row["causal"], row["N"]), row["program"]): row["median_s"] for row in record["rows"]}
        self.flops = {(row["d"], row["causal"], row["N"]): row["flops"] for row in record["rows"]}
        self.programs = list(dict.fromkeys(row["program"] for row in record["rows"]))
        self.lengths = sorted({N for _, _, N in self.flops})
        self.groups = list(dict.fromkeys((d, causal) for d, causal, _ in self.flops))

    def tflops(self, case, program):
        return self.flops[case] / self.seconds[case, program] / 1e12

    def ratios(self, program, library, group=None):
        """How many times as fast as the library, in each case (of a group)."""
        return [self.seconds[case, library] / self.seconds[case, program]
                for case in self.flops if group in (None, case[:2])]


def group_name(group):
    return f"d={group[0]} {'causal' if group[1] else 'full'}"


def comparison_tables(record):
    """Lines: TFLOP/s of every case and program, then each rung's factor to each library."""
    comparison = Comparison(record)
    libraries = [name for name in comparison.programs if not name[0].isdigit()]
    rungs = [name for name in comparison.programs if name not in libraries]
    rows = []
    for group in comparison.groups:
        for name in comparison.programs:
            values = [comparison.tflops((*group, N), name) for N in comparison.lengths]
            rows.append([group_name(group), name, *(f"{value:.0f}" for value in values), f"{geometric_mean(values):.0f}"])
    lines = [f"TFLOP/s, {record['dtype']}, {record['gpu']}, {record['tokens']} tokens, heads x d = {record['hidden']}, "
             f"medians of {record['rounds']}", ""]
    lines += markdown_table(["case", "program", *map(str, comparison.lengths), "geo. mean"], rows)
    for library in libraries:
        rows = []
        for name in rungs:
            for group in comparison.groups:
                ratios = comparison.ratios(name, library, group)
                rows.append([name, group_name(group), *(f"{ratio:.2f}" for ratio in ratios),
                             f"{geometric_mean(ratios):.3f}", f"{min(ratios):.2f}"])
            ratios = comparison.ratios(name, library)
            rows.append([name, f"all {len(ratios)}", *[""] * len(comparison.lengths), f"{geometric_mean(ratios):.3f}",
                         f"{min(ratios):.2f}"])
        lines += ["", f"Times as fast as {library}", ""]
        lines += markdown_table(["rung", "case", *map(str, comparison.lengths), "geo. mean", "least"], rows)
    return lines


LABELS = {"FA2": "FlashAttention-2"}


def label(program):
    return program[:2] if program[0].isdigit() else LABELS.get(program, program)


def chapter_tables(record):
    """{title: lines} for the chapters: TFLOP/s of a head dim and mask, and how many times as fast as each library."""
    comparison = Comparison(record)
    tables = {}
    for group in comparison.groups:
        rows = []
        for name in comparison.programs:
            values = [comparison.tflops((*group, N), name) for N in comparison.lengths]
            rows.append([label(name), *(f"{value:.0f}" for value in values), f"{geometric_mean(values):.0f}"])
        tables[f"TFLOP/s, {group_name(group)}"] = markdown_table(
            ["N", *map(str, comparison.lengths), "geo. mean"], rows)
    rungs = [name for name in comparison.programs if name[0].isdigit()]
    for library in [name for name in comparison.programs if name not in rungs]:
        rows = []
        for name in rungs:
            ratios = comparison.ratios(name, library)
            rows.append([label(name), *(f"{geometric_mean(comparison.ratios(name, library, group)):.2f}"
                                        for group in comparison.groups),
                         f"{geometric_mean(ratios):.3f}", f"{min(ratios):.2f}"])
        tables[f"times as fast as {library}"] = markdown_table(
            ["rung", *map(group_name, comparison.groups), f"all {len(comparison.flops)}", "least"], rows)
    return tables


TABLES = {"gpu_bf16": chapter_tables, "gpu_bf16_d32": chapter_tables}
