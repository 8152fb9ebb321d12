"""Time and memory against N, from records of scripts/bench --series and --memory."""

from bench_svg import COLOUR, source
from bench_tables import footprint, library_name, problems_of
from plot_svg import Plot, decades, powers

MEMORY_UNITS = {1e3: "kB", 1e6: "MB", 1e9: "GB", 1e12: "TB"}
STANDARD = ("01_naive_attention", "06_cuda_naive")  # they hold N x N matrices


def lines_of(record, value):
    """{(name, type): [(N, value of the row)]} in the order of the record; rows without a value are left out."""
    found = {}
    for row in record["rows"]:
        if value(row):
            found.setdefault((library_name(row) if row.get("library") else row["program"], row["dtype"]), []).append(
                (row["problem"]["N"], value(row), row))
    return found


def length_axis(plot, record):
    plot.x_axis("N", [(problem["N"], f"{problem['N']:,}") for problem in problems_of(record)])


def time_svg(record):
    """Milliseconds of every rung and library."""
    problems = problems_of(record)
    tokens, heads, d = problems[0]["batch"] * problems[0]["N"], problems[0]["heads"], problems[0]["d"]
    lines = lines_of(record, lambda row: row["median_s"] * 1e3)
    limits = decades([time for line in lines.values() for _, time, _ in line])
    plot = Plot("Time against N: every rung", source(record, f"{tokens:,} tokens in sequences of N, H = {heads}, d = {d}, full"),
                limits, (problems[0]["N"], problems[-1]["N"]), size=(820, 580), margins=(64, 236, 84, 60))
    plot.y_axis("ms", powers(limits))
    length_axis(plot, record)
    for (name, dtype), line in lines.items():
        library = line[0][2].get("library")
        colour = "purple" if library else COLOUR[line[0][2]["unit"]]
        points = [(plot.x(N), plot.y(time)) for N, time, _ in line]
        plot.path(points, f"{colour} {'dotted' if library else 'line'}")
        for x, y in points:
            plot.dot(x, y, colour, 2 if library else 3)
        plot.labels.append((points[-1][1], f"{name.replace('_', ' ')}, {dtype}", colour))
    return plot.finish()


def device_bytes(record):
    """The memory of the GPU, "143771 MiB" in the record; None without one."""
    amount, _, unit = record.get("memory", "").partition(" ")
    return float(amount) * 2 ** 20 if unit == "MiB" else None


def refused_at(record):
    """{rung: N} where a rung said that the problem does not fit."""
    return {entry["program"]: entry["problem"]["N"] for entry in record["left_out"] if "problem" in entry}


def memory_svg(record):
    """Bytes that must fit, tensors included: standard attention and tiles, measured, and where the first no longer does."""
    problems = problems_of(record)
    heads, d = problems[0]["heads"], problems[0]["d"]
    lines = lines_of(record, footprint)
    top = device_bytes(record)
    limits = decades([value for line in lines.values() for _, value, _ in line] + ([top] if top else []))
    limits = (limits[0], max(limits[1], 1e12 if top else 0))
    plot = Plot("Memory against N: standard attention and tiles",
                ["Q, K, V, O, LSE and the most that a rung held besides, measured",
                 *source(record, f"B = 1, H = {heads}, d = {d}, full")],
                limits, (problems[0]["N"], problems[-1]["N"]), size=(820, 500), margins=(72, 236, 100, 60))
    plot.y_axis("bytes", [(value, f"{value / unit:g} {MEMORY_UNITS[unit]}") for value, _ in powers(limits)
                          for unit in [max(unit for unit in MEMORY_UNITS if unit <= value)]])
    length_axis(plot, record)
    for (name, dtype), line in lines.items():
        colour = "orange" if name in STANDARD else "blue"
        points = [(plot.x(N), plot.y(value)) for N, value, _ in line]
        plot.path(points, f"{colour} line")
        for x, y in points:
            plot.dot(x, y, colour, 3.5)
        where = "GPU" if line[0][2]["backend"] == "cuda" else "CPU"
        text = f"{name.replace('_', ' ')}, {dtype}, {where}"
        if points[-1][0] == plot.right:
            plot.labels.append((points[-1][1], text, colour))
        else:
            plot.text(points[-1][0] - 8, points[-1][1] - 10, text, f"{colour}-fill small halo", "end")
    if top:
        plot.level(top, f"all memory of the GPU, {top / 1e9:.0f} GB", "purple", "dotted")
    for name, N in refused_at(record).items():
        plot.path([(plot.x(N), plot.bottom), (plot.x(N), plot.top)], "grey dotted")
        plot.text(plot.x(N) - 6, plot.bottom - 10, f"from here on rung {name[:2]} does not fit", "small halo", "end")
    return plot.finish()
