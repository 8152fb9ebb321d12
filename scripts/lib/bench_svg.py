"""The pictures of a record of scripts/bench: the ladder, the roofline, the traffic and the conflicts of each rung."""

from bench_tables import problems_of, rows_of, speed, three_digits, title_of, ways
from plot_svg import Plot, decades, powers

COLOUR = {"cpu_fma_flops": "grey", "ffma_flops": "blue", "mma_sync_flops": "orange", "wgmma_flops": "green"}
CEILING = {"cpu_fma_flops": "the cores' multiply-adds", "ffma_flops": "fp32 multiply-adds",
           "mma_sync_flops": "mma.sync, bf16", "wgmma_flops": "wgmma, bf16"}


def source(record, problem):
    """What stands under the title: where and when, and which record."""
    gpu = f"{record['gpu']} (CUDA {record['cuda']}, driver {record['driver']})" if record.get("gpu") else "no GPU"
    return [f"(B, H, N, d) = {title_of(problem)}; {gpu}",
            f"{record['cores']} cores of {record['processor']}; scripts/bench, {record['date']}"]


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
    plot = Plot("The ladder: TFLOP/s of every rung on one problem", source(record, problem), limits,
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
    plot = Plot("Roofline: speed against operations a byte of DRAM", source(record, record["counted_problem"]),
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
    """Bytes between L1 and L2, bytes from and to DRAM, and those that no kernel can avoid."""
    rungs = counted(record)
    marks = [("purple", "between L1 and L2", lambda row, kernels: l2_bytes(kernels)),
             ("orange", "from and to DRAM", lambda row, kernels: dram_bytes(kernels)),
             ("grey", "Q, K, V, O and LSE, once each", lambda row, kernels: row["compulsory_bytes"])]
    limits = decades([of(*rung) / 1e9 for rung in rungs for _, _, of in marks])
    plot = Plot("Traffic of every CUDA rung", source(record, record["counted_problem"]), limits,
                size=(760, 460), margins=(64, 210, 84, 100))
    plot.y_axis("GB", powers(limits))
    step = (plot.right - plot.left) / len(rungs)
    for place, (row, kernels) in enumerate(rungs):
        x = round(plot.left + step * (place + 0.5), 1)
        values = [(colour, of(row, kernels) / 1e9) for colour, _, of in marks]
        for colour, value in values[:-1]:
            plot.dot(x, plot.y(value), colour)
        least = plot.y(values[-1][1])
        plot.path([(x - 16, least), (x + 16, least)], "grey line")
        plot.beside([(x, plot.y(value), three_digits(value)) for _, value in values[:-1]])
        plot.text(x + 4, plot.bottom + 16, row["program"].replace("_", " "), "small", "end", -38)
    for line, (colour, text, _) in enumerate(marks):
        x, y = plot.right + 24, plot.top + 16 + 24 * line
        if colour == "grey":
            plot.path([(x - 8, y), (x + 8, y)], "grey line")
        else:
            plot.dot(x, y, colour)
        plot.text(x + 14, y + 4, text, "small")
    return plot.finish()


def conflicts_svg(record):
    """Bank conflicts of every CUDA rung: how many times the ideal number of turns its shared accesses take."""
    rungs = counted(record)
    limits = (1.0, 10.0)
    plot = Plot("Bank conflicts of every CUDA rung", source(record, record["counted_problem"]), limits,
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
