"""Draws time and memory of the CPU rungs against N, from the record of scripts/measure_cpu."""

import math

from plot_svg import COLOURS, Plot, decades, powers

HEADS, d = 8, 64  # of that record
H200 = 141e9  # bytes
RUNGS = (("01_naive_attention", "orange", "rung 01, S of all heads"), ("05_one_pass_softmax", "blue", "rung 05, tiles"))


def source(record):
    return f"{record['cores']} cores of {record['processor']}; scripts/measure_cpu, {record['date']}"


def time_svg(record):
    """Medians of rungs 01 to 05."""
    lengths = sorted({row["N"] for row in record["rows"]})
    limits = decades([row["median_s"] * 1e3 for row in record["rows"]])
    plot = Plot("Time against N: the rungs on the CPU",
                [f"B = 1, H = {HEADS}, d = {d}, fp32, full; medians", source(record)], limits,
                (lengths[0], lengths[-1]), size=(760, 420), margins=(64, 190, 84, 60))
    plot.y_axis("ms", powers(limits))
    plot.x_axis("N", [(N, f"{N:,}") for N in lengths])
    for name, colour in zip(dict.fromkeys(row["rung"] for row in record["rows"]), COLOURS):
        points = [(plot.x(row["N"]), plot.y(row["median_s"] * 1e3)) for row in record["rows"] if row["rung"] == name]
        plot.path(points, f"{colour} line")
        for x, y in points:
            plot.dot(x, y, colour, 3)
        plot.labels.append((points[-1][1], name.replace("_", " "), colour))
    return plot.finish()


def memory_svg(record):
    """Measured points on the line that the formula gives for S, and the N at which S alone fills an H200."""
    points = {name: [(row["N"], row["peak_memory_bytes"]) for row in record["rows"] if row["rung"] == name]
              for name, *_ in RUNGS}
    lengths = [N for N, _ in points[RUNGS[0][0]]]
    full = math.sqrt(H200 / (4 * HEADS))  # 4 bytes a score
    x_limits, y_limits = (1e3, 1e6), (1e5, 1e14)
    plot = Plot("Memory against N: standard attention and tiles",
                [f"B = 1, H = {HEADS}, d = {d}, fp32; points: peak beyond Q, K, V, O and LSE, measured",
                 source(record)],
                y_limits, x_limits, size=(800, 440), margins=(72, 240, 84, 60))
    names = {1e3: "kB", 1e6: "MB", 1e9: "GB", 1e12: "TB"}
    plot.y_axis("bytes", [(value, f"{value / unit:g} {names[unit]}") for value, _ in powers(y_limits)
                          for unit in [max(unit for unit in names if unit <= value)]])
    plot.x_axis("N", powers(x_limits, "{:,.0f}"))
    ends = (lengths[0], x_limits[1])
    for colour, kind, formula, text in (
            ("orange", "dashed", lambda N: 4 * HEADS * N * N, "4 H N\u00b2, S by the formula"),
            ("grey", "dashed", lambda N: 4 * HEADS * N * (4 * d + 1), "Q, K, V, O and LSE themselves")):
        plot.path([(plot.x(N), plot.y(formula(N))) for N in ends], f"{colour} {kind}")
        plot.labels.append((plot.y(formula(ends[1])), text, colour))
    for name, colour, text in RUNGS:
        for N, size in points[name]:
            plot.dot(plot.x(N), plot.y(size), colour)
        N, size = points[name][-1]
        plot.text(plot.x(N) + 10, plot.y(size) + (16 if name[:2] == "01" else 4), text, f"{colour}-fill small halo")
    plot.level(H200, "141 GB, an H200", "purple", "dotted")
    plot.path([(plot.x(full), plot.bottom), (plot.x(full), plot.y(H200))], "purple dotted")
    plot.text(plot.x(full) + 6, plot.bottom - 8, f"N = {full:,.0f}", "purple-fill small halo")
    return plot.finish()
