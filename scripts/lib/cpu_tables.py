"""The tables of chapters 01 to 05, made from the records in docs/records."""

from records import markdown_table

RUNGS = ("01_naive_attention", "02_safe_softmax", "03_three_pass_softmax", "04_two_pass_softmax",
         "05_one_pass_softmax")


def milliseconds(seconds):
    return f"{seconds * 1e3:.3g}" if seconds < 0.1 else f"{seconds * 1e3:.0f}"


def mebibytes(size):
    return f"{size / 2**20:.1f}" if size < 100 * 2**20 else f"{size / 2**20:.0f}"


def scaling_tables(record):
    """Time, growth and memory against N, from the record of scripts/measure_cpu."""
    rows = {(row["rung"], row["N"]): row for row in record["rows"]}
    lengths = sorted({N for _, N in rows})
    short = [name[:2] for name in RUNGS]
    time, growth, memory = [], [], []
    for N in lengths:
        of = [rows[name, N] for name in RUNGS]
        time.append([str(N), *(milliseconds(row["median_s"]) for row in of)])
        memory.append([str(N), *(mebibytes(row["peak_memory_bytes"]) for row in of)])
        if N // 2 in lengths:
            growth.append([f"{N // 2} to {N}", *(f"{row['median_s'] / rows[name, N // 2]['median_s']:.2f}"
                                                 for name, row in zip(RUNGS, of))])
    neighbours = {}
    for before, after in zip(RUNGS, RUNGS[1:]):
        pairs = [(rows[before, N]["median_s"], rows[after, N]["median_s"]) for N in lengths]
        neighbours[f"time in ms, {before[:2]} and {after[:2]}"] = markdown_table(
            ["N", before[:2], after[:2], f"{after[:2]} / {before[:2]}"],
            [[str(N), milliseconds(a), milliseconds(b), f"{b / a:.2f}"] for N, (a, b) in zip(lengths, pairs)])
    return {
        **neighbours,
        "time in ms": markdown_table(["N", *short], time),
        "growth of time": markdown_table(["N", *short], growth),
        "memory in MiB": markdown_table(["N", *short], memory),
    }


def precision_tables(record):
    """Errors against N, from the record of scripts/precision."""
    error = {(row["variant"], row["input"], row["rung"], row["N"]): row for row in record["rows"]}
    lengths = sorted({N for *_, N in error})
    rungs = ("02", "03", "04", "05", "05, Bc = 1")
    tables = {}
    for name in ("random", "rising"):
        tables[f"error of O, {name} scores"] = markdown_table(
            ["N", *rungs],
            [[str(N), *(f"{error['fused', name, rung, N]['o_error']:.2e}" for rung in rungs)] for N in lengths])
    tables["error of LSE, random scores"] = markdown_table(
        ["N", *rungs],
        [[str(N), *(f"{error['fused', 'random', rung, N]['lse_error']:.2e}" for rung in rungs)] for N in lengths])
    variants = tuple(record["flags"])
    tables["error of O in rung 05, fused and not"] = markdown_table(
        ["N", *(f"{name}: {variant}" for name in ("random", "rising") for variant in variants)],
        [[str(N), *(f"{error[variant, name, '05', N]['o_error']:.3e}"
                    for name in ("random", "rising") for variant in variants)] for N in lengths])
    return tables


def comparison_tables(record):
    """Rung 05 and PyTorch, from the record of scripts/compare_cpu.py."""
    rows = []
    for row in record["rows"]:
        p = row["problem"]
        ours, theirs = row["rung_median_s"], row["pytorch_median_s"]
        shape = f"({p['batch']}, {p['heads']}, {p['q_len']}, {p['head_dim']})" + (" causal" if p["causal"] else "")
        rows.append([shape, milliseconds(ours), milliseconds(theirs), f"{row['flops'] / ours / 1e9:.0f}",
                     f"{row['flops'] / theirs / 1e9:.0f}", f"{ours / theirs:.2f}",
                     f"{row['rung_min_s'] / row['pytorch_min_s']:.2f}"])
    header = ["(B, H, N, d)", "rung 05, ms", "PyTorch, ms", "rung 05, GFLOP/s", "PyTorch, GFLOP/s",
              "ratio of medians", "ratio of fastest runs"]
    return {"rung 05 and PyTorch": markdown_table(header, rows)}


# record: what makes tables of it
TABLES = {"cpu_scaling": scaling_tables, "cpu_precision": precision_tables, "cpu_comparison": comparison_tables}
