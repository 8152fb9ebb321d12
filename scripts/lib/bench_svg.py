"""The pictures of a record of scripts/bench: the ladder, the roofline, the traffic and the conflicts of each rung."""

from bench_tables import problems_of, rows_of, speed, three_digits, title_of, ways
from plot_svg import Plot, decades, powers
from traffic_formula import formula_dram_bytes, formula_l2_bytes

COLOUR = {"cpu_fma_flops": "grey", "ffma_flops": "blue", "mma_sync_flops": "orange", "wgmma_flops": "green"}
CEILING = {"cpu_fma_flops": "the cores' multiply-adds", "ffma_flops": "fp32 multiply-adds",
           "mma_sync_flops": "mma.sync, bf16", "wgmma_flops": "wgmma, bf16"}


def source(record, what):
    """What stands under the title: what was measured, by which script, when and where."""
    gpu = f"{record['gpu']} (CUDA {record['cuda']}, driver {record['driver']}), " if record.get("gpu") else ""
    return [f"{what}; {record['command']}, {record['date']}",
            f"{gpu}{record['cores']} cores of {record['processor']}"]


def shape(problem):
    return f"(B, H, N, d) = {title_of(problem)}"


def used_ceilings(record, rungs):
    """The units that the rungs use, in order, with a measured ceiling."""
    units = dict.fromkeys(row["unit"] for row in rungs)
    return [(unit, record["ceilings"][unit]) for unit in units if record["ceilings"].get(unit)]


def ladder_svg(record):
    """TFLOP/s of every rung, ceilings of the units dashed, libraries dotted."""
    problem = problems_of(record)[0]
    rungs, libraries = rows_of(record, problem)
    ceilings = used_ceilings(record, rungs)
    limits = decades([speed(row) / 1e12 for row in rungs + libraries] + [value / 1e12 for _, value in ceilings])
    plot = Plot("The ladder: TFLOP/s of every rung on one problem", source(record, shape(problem)), limits,
                size=(820, 500), margins=(64, 222, 84, 112))
    plot.y_axis("TFLOP/s", powers(limits))
    for unit, value in ceilings:
        plot.level(value / 1e12, f"{CEILING[unit]}: {three_digits(value / 1e12)}", COLOUR[unit])
    for row in libraries:
        plot.level(speed(row) / 1e12, f"{row['program']}, {row['dtype']}: {three_digits(speed(row) / 1e12)}", "purple",
                   "dotted")
    step = (plot.right - plot.left) / len(rungs)
    points = [(round(plot.left + step * (place + 0.5), 1), plot.y(speed(row) / 1e12))
              for place, row in enumerate(rungs)]
    plot.path(points, "grey leader")
    for (x, y), row in zip(points, rungs):
        plot.dot(x, y, COLOUR[row["unit"]])
        plot.text(x, y - 9, three_digits(speed(row) / 1e12), "small halo", "middle")
        plot.text(x + 4, plot.bottom + 16, row["program"].replace("_", " "), "small", "end", -38)
    return plot.finish()


def total(kernels, *counters):
    """Sum of counters over the kernels of a rung."""
    return sum(kernel[counter] for kernel in kernels.values() for counter in counters)


def counted(record):
    """[(row, counters of its kernels)] of the rungs that ncu watched."""
    rungs, _ = rows_of(record, record["counted_problem"])
    return [(row, record["counters"][row["program"]]) for row in rungs if row["program"] in record["counters"]]


def dram_bytes(kernels):
    return total(kernels, "dram_read_bytes", "dram_write_bytes")


def l2_bytes(kernels):
    return 32 * total(kernels, "l2_read_sectors", "l2_write_sectors")


def roofline_svg(record):
    """TFLOP/s against FLOP a byte of DRAM, as ncu counted it."""
    rungs = counted(record)
    at = [(row, row["flops"] / dram_bytes(kernels)) for row, kernels in rungs]
    ceilings = used_ceilings(record, [row for row, _ in rungs])
    copy = record["ceilings"]["copy_bytes_per_s"]
    x_limits = decades([value for _, value in at])
    y_limits = decades([speed(row) / 1e12 for row, _ in at] + [value / 1e12 for _, value in ceilings])
    plot = Plot("Roofline: speed against operations a byte of DRAM", source(record, shape(record["counted_problem"])),
                y_limits, x_limits, margins=(64, 200, 84, 60))
    plot.y_axis("TFLOP/s", powers(y_limits))
    plot.x_axis("FLOP a byte from or to DRAM, counted by ncu", powers(x_limits))
    for unit, value in ceilings:
        start = plot.x(min(max(value / copy, x_limits[0]), x_limits[1]))
        plot.level(value / 1e12, f"{CEILING[unit]}: {three_digits(value / 1e12)}", COLOUR[unit], start=start)
    low = max(x_limits[0], y_limits[0] * 1e12 / copy)
    high = min(x_limits[1], max(value for _, value in ceilings) / copy)
    plot.path([(plot.x(value), plot.y(value * copy / 1e12)) for value in (low, high)], "grey dashed")
    middle = (low * high) ** 0.5
    plot.text(plot.x(middle) + 12, plot.y(middle * copy / 1e12) + 14, f"DRAM, {three_digits(copy / 1e9)} GB/s",
              "note small halo")
    points = [(plot.x(value), plot.y(speed(row) / 1e12), row) for row, value in at]
    for x, y, row in points:
        plot.dot(x, y, COLOUR[row["unit"]])
    plot.beside([(x, y, row["program"][:2]) for x, y, row in points])
    return plot.finish()


def traffic_of_rungs_svg(record):
    """Bytes between L1 and L2 and bytes from and to DRAM, beside what the formulas of traffic_formula.py say."""
    rungs = counted(record)
    problem = record["counted_problem"]
    marks = [("purple", "between L1 and L2", lambda row, kernels: l2_bytes(kernels),
              lambda row, kernels: formula_l2_bytes(row, problem, kernels)),
             ("orange", "from and to DRAM", lambda row, kernels: dram_bytes(kernels),
              lambda row, kernels: formula_dram_bytes(row, problem))]
    limits = decades([of(*rung) / 1e9 for rung in rungs for *_, measured, formula in marks
                      for of in (measured, formula) if of(*rung)])
    plot = Plot("Traffic of every CUDA rung", source(record, shape(problem)), limits,
                size=(820, 480), margins=(64, 222, 84, 100))
    plot.y_axis("GB", powers(limits))
    step = (plot.right - plot.left) / len(rungs)
    for place, (row, kernels) in enumerate(rungs):
        x = round(plot.left + step * (place + 0.5), 1)
        for colour, _, _, formula in marks:
            if formula(row, kernels):
                y = plot.y(formula(row, kernels) / 1e9)
                plot.path([(x - 15, y), (x + 15, y)], f"{colour} line")
        for colour, _, measured, _ in marks:
            plot.dot(x, plot.y(measured(row, kernels) / 1e9), colour)
        plot.beside([(x + 8, plot.y(measured(row, kernels) / 1e9), three_digits(measured(row, kernels) / 1e9))
                     for *_, measured, _ in marks])
        plot.text(x + 4, plot.bottom + 16, row["program"].replace("_", " "), "small", "end", -38)
    legend = [(colour, text + kind) for colour, text, *_ in marks for kind in (", counted", ", formula")]
    for line, (colour, text) in enumerate(legend):
        x, y = plot.right + 30, plot.top + 16 + 22 * line
        if line % 2:
            plot.path([(x - 10, y), (x + 10, y)], f"{colour} line")
        else:
            plot.dot(x, y, colour)
        plot.text(x + 16, y + 4, text, "small")
    return plot.finish()


def conflicts_svg(record):
    """Bank conflicts of every CUDA rung: how many times the ideal number of turns its shared accesses take."""
    rungs = counted(record)
    limits = (1.0, 10.0)
    plot = Plot("Bank conflicts of every CUDA rung", source(record, shape(record["counted_problem"])), limits,
                size=(760, 420), margins=(64, 40, 84, 100))
    plot.y_axis("times the ideal", [(value, f"{value}") for value in (1, 2, 4, 8)])
    step = (plot.right - plot.left) / len(rungs)
    for place, (row, kernels) in enumerate(rungs):
        times = ways({name: total(kernels, name) for name in next(iter(kernels.values()))}) or 1
        x, y = round(plot.left + step * (place + 0.5), 1), plot.y(min(times, limits[1]))
        plot.path([(x, plot.bottom), (x, y)], f"{COLOUR[row['unit']]} line")
        plot.dot(x, y, COLOUR[row["unit"]])
        plot.beside([(x, y, f"{times:.2f}")])
        plot.text(x + 4, plot.bottom + 16, row["program"].replace("_", " "), "small", "end", -38)
    return plot.finish()
