"""Plots of records by matplotlib, as SVG that follows the reader's page, light or dark.

A plot takes (provenance, rows) and returns a Figure of about 620 pixels, so that its letters can
still be read when a phone shows it half as wide. Labels stand at the ends of lines or in columns,
where nothing crosses them.
"""

import io
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lab import ladder as ladder_file
from lab import results
from lab.record_tables import (
    PROBLEM,
    ceilings_of,
    order_of_rungs,
    problem,
    size,
    three_digits,
    unique,
)
from lab.records import METRICS, Record, Row
from lab.theme import FONT, LIGHT, themed

Plot = Callable[[dict[str, Any], list[Row]], Figure]
Label = tuple[float, float, str, str]  # x, y, text, colour
Dots = tuple[str, str, dict[str, float], dict[str, float]]  # a row of table_of_dots()

NUMBERS = {rung.name: rung.number for rung in ladder_file.ladder()}
CYCLE = ("blue", "orange", "green", "red", "brown", "teal", "pink")
UNIT = {
    "cpu_fma_flops": ("note", "the cores"),
    "ffma_flops": ("blue", "fp32 units"),
    "mma_sync_flops": ("orange", "mma.sync"),
    "wgmma_flops": ("green", "wgmma"),
}
WIDTH = 620
PAPER = {"facecolor": LIGHT["page"], "edgecolor": "none", "pad": 0.5}  # under a label
GRID = {"axes.grid": True, "axes.axisbelow": True, "grid.color": LIGHT["grid"]}
NO_TICKS = {f"{axis}tick.{kind}.size": 0 for axis in "xy" for kind in ("major", "minor")}
matplotlib.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "flash",
        "font.size": 13,
        "text.color": LIGHT["ink"],
        "axes.edgecolor": LIGHT["grid"],
        "axes.labelcolor": LIGHT["note"],
        "axes.linewidth": 0.75,
        "grid.linewidth": 0.75,
        "xtick.color": LIGHT["note"],
        "ytick.color": LIGHT["note"],
        "path.simplify": False,
        **GRID,
        **NO_TICKS,
    }
)


# ---------------------------------------------------------------- the page


def page(
    height: float,
    title: str,
    notes: Sequence[str],
    left: float = 64,
    right: float = 24,
    bottom: float = 52,
    panels: tuple[int, int] = (1, 1),
    **options: Any,
) -> tuple[Figure, Any]:
    """(figure, axes) with a title and notes above; margins in pixels."""
    figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72, facecolor=LIGHT["page"])
    FigureCanvasAgg(figure)
    figure.text(16 / WIDTH, 1 - 28 / height, title, fontsize=16, fontweight="bold")
    for line, note in enumerate(notes):
        at = 16 / WIDTH, 1 - (48 + 17 * line) / height
        figure.text(*at, note, color=LIGHT["note"], fontsize=12)
    top = 64 + 17 * len(notes) + (16 if panels != (1, 1) else 0)
    axes = figure.subplots(*panels, squeeze=False, **options)
    figure.subplots_adjust(left / WIDTH, bottom / height, 1 - right / WIDTH, 1 - top / height)
    for one in axes.flat:
        one.set_facecolor("none")
        one.spines[["top", "right", "left"]].set_visible(False)
        one.minorticks_off()
    return figure, axes[0, 0] if panels == (1, 1) else list(axes.flat)


def source(provenance: dict[str, Any], *notes: str) -> list[str]:
    """The notes, then when and where it was measured."""
    gpu, cpu = "", ""
    if provenance.get("gpu"):
        gpu = f"{provenance['gpu']} (CUDA {provenance.get('cuda', '?')})"
    if provenance.get("processor") and (not gpu or "bench" in provenance["command"]):
        cpu = f"{provenance['cores']} cores of {provenance['processor']}"
    where = ", ".join(filter(None, (gpu, cpu.replace("(R)", "").replace(" Processor", ""))))
    command = re.match(r"\S+(?: (?:\w\S*|--series|--memory))?", provenance["command"])
    assert command
    return [*notes, f"{command[0]}, {provenance['date']}; {where}"]


def spread_out(places: list[float], gap: float, low: float, high: float) -> list[float]:
    """Places at least `gap` apart and within [low, high], near the wanted ones and in their
    order."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    # (sum, count) of places less their rank's gaps; overlapping ones share their mean
    groups: list[tuple[float, int]] = []
    for rank, index in enumerate(order):
        groups.append((places[index] - rank * gap, 1))
        while len(groups) > 1 and groups[-2][0] * groups[-1][1] > groups[-1][0] * groups[-2][1]:
            total, count = groups.pop()
            groups[-1] = groups[-1][0] + total, groups[-1][1] + count
    first = [total / count for total, count in groups for _ in range(count)]
    last = high - (len(order) - 1) * gap
    new = {index: max(min(first[rank], last), low) + rank * gap for rank, index in enumerate(order)}
    return [new[index] for index in range(len(places))]


def end_labels(axes: Axes, labels: list[Label], least: float = 14, gap: float = 15) -> None:
    """Texts of (x, y, text, colour) in a column to the right of these points, with thin lines to
    where they belong."""
    if not labels:
        return
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())  # from here on the places stay
    box = axes.get_window_extent()
    wanted = [axes.transData.transform((x, y)) for x, y, *_ in labels]
    ys = spread_out([y for _, y in wanted], gap, box.y0, box.y1)
    farthest = max(abs(y - at[1]) for y, at in zip(ys, wanted, strict=True))
    column = max(x for x, _ in wanted) + max(least, min(40, farthest))
    line = {"arrowstyle": "-", "lw": 0.75, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)}
    style = {"textcoords": "figure pixels", "va": "center", "fontsize": 12, "bbox": PAPER}
    style["annotation_clip"] = False
    for at, y, (*_, text, colour) in zip(wanted, ys, labels, strict=True):
        own = {"color": LIGHT[colour], "arrowprops": line | {"color": LIGHT[colour]}}
        axes.annotate(text, at, (column, y), "figure pixels", **style, **own)


def note(
    axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], colour: str
) -> None:
    """A text that ends near a point."""
    style = {"ha": "right", "color": LIGHT[colour], "fontsize": 12, "bbox": PAPER}
    axes.annotate(text, at, offset, textcoords="offset points", **style)


def log_axis(axis: Any, ticks: Sequence[float] | None = None, text: str = "{:g}") -> None:
    """Logarithmic, its ticks written out: these, or powers of ten."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log", base=2 if ticks else 10)
    axis.set_minor_locator(matplotlib.ticker.NullLocator())
    if ticks:
        axis.set_ticks(ticks, [text.format(value) for value in ticks], fontsize=12)
        axis.axes.margins(x=0.02)
    else:
        axis.set_major_formatter(lambda value, _: text.format(value))


def decades(values: Collection[float]) -> tuple[float, float]:
    """The powers of ten between which all values lie."""
    return 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))


def table_of_dots(
    title: str, notes: Sequence[str], rows: list[Dots], columns: dict[str, str], xlabel: str
) -> Figure:
    """One line per row: its name, dots on a logarithmic axis, and the numbers in columns.

    rows     (name, colour, {column: value}, {column: a limit, drawn as a tick})
    columns  {column: its colour, or "" for the row's}"""
    figure, axes = page(150 + 22 * len(rows), title, notes, left=196, right=16 + 60 * len(columns))
    log_axis(axes.xaxis)
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows], color=LIGHT["ink"])
    shown = [value for *_, dots, limits in rows for value in (*dots.values(), *limits.values())]
    axes.set(ylim=(len(rows) - 0.4, -0.6), xlabel=xlabel, xlim=decades(shown))
    for number, (column, own) in enumerate(columns.items()):
        x = 1 + (52 + 60 * number) / axes.get_window_extent().width
        place = {"x": x, "transform": axes.get_yaxis_transform(), "ha": "right"}
        axes.text(y=-0.75, s=column, va="bottom", color=LIGHT[own or "note"], fontsize=12, **place)
        for line, (_, colour, values, limits) in enumerate(rows):
            colour = LIGHT[own or colour]
            if column in limits:
                axes.plot([limits[column]] * 2, [line - 0.33, line + 0.33], color=colour, lw=2)
            if column in values:
                axes.plot(values[column], line, "o", color=colour, ms=7)
                number_text = three_digits(values[column])
                axes.text(y=line, s=number_text, va="center", color=colour, **place)
    return figure


def lines(
    axes: Axes,
    rows: list[Row],
    x: str,
    y: Callable[[Row], float],
    style: Callable[[Row], tuple[str, str]],
    name: Callable[[Row], str],
) -> list[Label]:
    """A line for each program and type, by style(row) = (colour, kind of line). Returns labels for
    the ends."""
    labels = []
    for program, dtype in unique((row["program"], row.get("dtype")) for row in rows):
        of = [row for row in rows if (row["program"], row.get("dtype")) == (program, dtype)]
        of.sort(key=lambda row: row[x])
        colour, kind = style(of[0])
        xs, ys = [row[x] for row in of], [y(row) for row in of]
        axes.plot(xs, ys, kind, color=LIGHT[colour], marker="o", ms=4, lw=1.75)
        labels.append((xs[-1], ys[-1], name(of[0]), colour))
    return labels


# ---------------------------------------------------------------- numbers


def timed(rows: list[Row], **where: Any) -> list[Row]:
    """The rows of rungs and libraries with a time, and with these values."""
    kinds = "rung", "library"
    found = [row for row in rows if row["kind"] in kinds and "ms" in row]
    return [row for row in found if all(row.get(key) == where[key] for key in where)]


def on_first_problem(rows: list[Row]) -> list[Row]:
    """Those on the problem of the first one."""
    first = timed(rows)[0]
    return timed(rows, **{key: first.get(key) for key in PROBLEM})


def counted(rows: list[Row]) -> dict[str, Counter[str]]:
    """{program: counters summed over its kernels} of what ncu watched."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        if row["kind"] == "kernel":
            counts = {key: value for key, value in row.items() if key in METRICS}
            found.setdefault(row["program"], Counter()).update(counts)
    return found


def name(row: Row) -> str:
    """A rung "flash attention 1", a library by its name."""
    return row["program"].replace("_", " ") if row["kind"] == "rung" else row["program"]


def number(row: Row) -> str:
    """Where a rung stands in the ladder, "34"; a library by its name. For plots too dense for
    names."""
    program: str = row["program"]
    return NUMBERS.get(program, program)


def typed(of: Callable[[Row], str]) -> Callable[[Row], str]:
    """The same with the type."""
    return lambda row: f"{of(row)}, {row['dtype']}"


def dram_bytes(c: Mapping[str, float]) -> float:
    return c["dram_read_bytes"] + c["dram_write_bytes"]


def l2_bytes(c: Mapping[str, float]) -> float:
    """Bytes between L1 and L2."""
    return 32 * (c["l2_read_sectors"] + c["l2_write_sectors"])


def formulas(
    row: Row, c: Mapping[str, float], Bc_of_flash_attention_1: int = 64
) -> tuple[float | None, float]:
    """(bytes between L1 and L2 or None, bytes from and to DRAM) that the chapters' formulas give.

    cuda_naive: S and P are written and read; its L1 serves most requests. flash_attention_1: K and
    V once, O and Q once for each tile of Bc keys. Of later rungs DRAM has each tensor once, and
    every block reads all of K and V of its head."""
    heads, N, own = row["B"] * row["H"], row["N_q"], row["compulsory_bytes"]
    matrix = N * row["d"] * (4 if row["dtype"] == "fp32" else 2)  # Q, K, V or O of one head
    if row["program"] == "cuda_naive":
        return None, 4 * heads * N * N * 4 + own
    if row["program"] == "flash_attention_1":
        moved = heads * matrix * (3 + 3 * math.ceil(N / Bc_of_flash_attention_1))
        return moved, moved
    return 2 * c["blocks"] * matrix + own if "blocks" in c else None, own


def colours_of(rows: list[Row]) -> dict[str, str]:
    """{program: colour}: libraries grey and purple, rungs each their own, the last the first."""
    libraries = sorted({row["program"] for row in rows if row["kind"] != "rung"}, reverse=True)
    of_ladder = {row["program"] for row in rows if row["kind"] == "rung"}
    rungs = sorted(of_ladder, key=order_of_rungs().__getitem__, reverse=True)
    return dict(zip(libraries, ("note", "purple") * 4)) | dict(zip(rungs, CYCLE * 4))


# ---------------------------------------------------------------- the plots


def ladder(provenance: dict[str, Any], rows: list[Row]) -> Figure:
    """TFLOP/s of every rung on one problem."""
    found, reached = on_first_problem(rows), ceilings_of({"provenance": provenance, "rows": rows})
    units = {row.get("unit") for row in found}
    limits = {unit: reached[unit] / 1e12 for unit in UNIT if unit in units and reached.get(unit)}
    ticks = ", ".join(f"{UNIT[unit][1]} {three_digits(one)}" for unit, one in limits.items())
    notes = problem(found[0]), f"Ticks: what a unit reaches by itself: {ticks}"
    dots = []
    for row in found:
        colour = UNIT[row["unit"]][0] if row["kind"] == "rung" else "purple"
        limit = {"TFLOP/s": limits[row["unit"]]} if row.get("unit") in limits else {}
        dots.append((typed(name)(row), colour, {"TFLOP/s": row["tflops"]}, limit))
    title = "The ladder: every rung on one problem"
    return table_of_dots(title, source(provenance, *notes), dots, {"TFLOP/s": ""}, "TFLOP/s")


def traffic(provenance: dict[str, Any], rows: list[Row]) -> Figure:
    """Bytes of every CUDA rung on one problem."""
    found = {row["program"]: row for row in on_first_problem(rows)}
    columns, dots = {"L1-L2": "purple", "DRAM": "orange"}, []
    for program, c in counted(rows).items():
        predicted = zip(columns, formulas(found[program], c), strict=True)
        limits = {column: value / 1e9 for column, value in predicted if value}
        values = {"L1-L2": l2_bytes(c) / 1e9, "DRAM": dram_bytes(c) / 1e9}
        dots.append((name(found[program]), "", values, limits))
    dotted = "Dots: counted by ncu, between L1 and L2 and from and to DRAM"
    text = f"{dotted}. Ticks: the chapters' formulas"
    notes = source(provenance, problem(on_first_problem(rows)[0]), text)
    return table_of_dots("Traffic of every CUDA rung", notes, dots, columns, "GB")


def roofline(provenance: dict[str, Any], rows: list[Row]) -> Figure:
    """TFLOP/s of every CUDA rung against its FLOP per byte of DRAM."""
    reached, counts = ceilings_of({"provenance": provenance, "rows": rows}), counted(rows)
    found = [row for row in on_first_problem(rows) if row["program"] in counts]
    notes = source(provenance, problem(found[0]))
    figure, axes = page(440, "Roofline: speed against operations per byte", notes, right=200)
    at = []
    for row in found:
        intensity = row["tflops"] * row["ms"] * 1e9 / dram_bytes(counts[row["program"]])
        at.append((intensity, row["tflops"], number(row), UNIT[row["unit"]][0]))
    used = [unit for unit in UNIT if unit in reached and unit in {row["unit"] for row in found}]
    units = [(reached[unit], *UNIT[unit]) for unit in used]
    (left, right), copy = decades([x for x, *_ in at]), reached["copy_bytes_per_s"]
    highest = max(units)[0]
    log_axis(axes.xaxis)
    log_axis(axes.yaxis)
    xlabel = "FLOP per byte from or to DRAM, counted by ncu"
    axes.set(xlim=(left, right), ylim=(0.6, 1000), xlabel=xlabel, ylabel="TFLOP/s")
    slope = [left, highest / copy], [left * copy / 1e12, highest / 1e12]
    axes.plot(*slope, "--", color=LIGHT["note"], lw=1.5)
    middle = math.sqrt(left * highest / copy)
    style = {"textcoords": "offset points", "color": LIGHT["note"], "fontsize": 12}
    roof = f"DRAM, {copy / 1e9:.0f} GB/s"
    axes.annotate(roof, (middle, middle * copy / 1e12), (10, -14), **style)
    labels = []
    for value, colour, text in units:
        axes.plot([value / copy, right], [value / 1e12] * 2, "--", color=LIGHT[colour], lw=1.5)
        labels.append((right, value / 1e12, f"{text}, {three_digits(value / 1e12)}", colour))
    end_labels(axes, labels)
    for x, y, _, colour in at:
        axes.plot(x, y, "o", color=LIGHT[colour], ms=7)
    for few in (True, False):  # those that move much stand apart from those that do not
        end_labels(axes, [point for point in at if (point[0] < 100) == few])
    return figure


def time(provenance: dict[str, Any], rows: list[Row]) -> Figure:
    """Milliseconds against N."""
    found = timed(rows)
    first, programs = found[0], unique((row["program"], row["dtype"]) for row in found)
    tokens = f"{first['B'] * first['N_q']:,.0f} tokens in sequences of N"
    notes = source(provenance, f"{tokens}, H = {first['H']:.0f}, d = {first['d']:.0f}, full")
    title = "Time against N: every rung and library"
    figure, axes = page(190 + 16 * len(programs), title, notes, right=216)
    log_axis(axes.yaxis)
    log_axis(axes.xaxis, sorted({row["N_q"] for row in found}), "{:,.0f}")
    axes.set(xlabel="N", ylabel="ms")

    def style(row: Row) -> tuple[str, str]:
        return ("purple", ":") if row["kind"] == "library" else (UNIT[row["unit"]][0], "-")

    end_labels(axes, lines(axes, found, "N_q", lambda row: row["ms"], style, typed(name)))
    return figure


def memory(provenance: dict[str, Any], rows: list[Row]) -> Figure:
    """Bytes held against N."""
    found = [row for row in timed(rows) if "extra_bytes" in row]
    first, device = found[0], float((provenance.get("memory") or "0").split()[0]) * 2**20
    N = sorted({row["N_q"] for row in rows if "N_q" in row})
    extra = [row for row in found if row["extra_bytes"] > row["compulsory_bytes"]]
    square = {row["program"] for row in extra if row["N_q"] > N[1]}

    def needed(row: Row) -> float:
        return row["compulsory_bytes"] + row["extra_bytes"]

    def style(row: Row) -> tuple[str, str]:
        return ("orange" if row["program"] in square else "blue", "-")

    text = "Q, K, V, O, LSE and what a rung held besides; B = 1"
    notes = source(provenance, f"{text}, H = {first['H']:.0f}, d = {first['d']:.0f}, full")
    title = "Memory against N: standard attention and tiles"
    figure, axes = page(470, title, notes, left=76, right=216)
    log_axis(axes.yaxis)
    log_axis(axes.xaxis, N[::2], "{:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: re.sub(r"\.0+", "", size(value)))
    held = [needed(row) for row in found]
    axes.set(xlabel="N", ylim=(0.5 * decades(held)[0], 4e12 if device else 10 * max(held)))
    labels = lines(axes, found, "N_q", needed, style, typed(name))
    if device:
        axes.plot([N[0], N[-1]], [device] * 2, ":", color=LIGHT["purple"], lw=2)
        labels.append((N[-1], device, f"all memory of the GPU, {device / 1e9:.0f} GB", "purple"))
    end_labels(axes, [label for label in labels if label[0] == N[-1]])
    for x, y, text, colour in labels:
        if x != N[-1]:  # above its end: what goes on lies lower
            note(axes, text.partition(" ")[0], (x, y), (-4, 8), colour)
    for row in rows:
        if row["kind"] == "left out" and "N_q" in row and device:
            text = f"{name(row)} does not fit"
            note(axes, text, (row["N_q"], device), (0, 25), "orange")
            axes.plot(row["N_q"], device, "x", color=LIGHT["orange"], ms=8, mew=2)
    return figure


def comparison(provenance: dict[str, Any], rows: list[Row]) -> Figure:
    """TFLOP/s against N, a panel for each head dim and mask."""
    found = timed(rows)
    groups, colours = unique((row["d"], row["causal"]) for row in found), colours_of(found)
    first, height = found[0], math.ceil(len(groups) / 2)
    tokens = f"{first['B'] * first['N_q']:,.0f} tokens"
    notes = source(provenance, f"{tokens}, heads x d = {first['H'] * first['d']:,.0f}, medians")
    title, panels = f"TFLOP/s against N, {first['dtype']}", (height, 2)
    figure, panels = page(130 + 250 * height, title, notes, panels=panels, right=92)
    figure.subplots_adjust(wspace=0.6, hspace=0.36)

    def style(row: Row) -> tuple[str, str]:
        return colours[row["program"]], "--" if row["kind"] == "library" else "-"

    for axes, (d, causal) in zip(panels, groups, strict=False):
        of = [row for row in found if (row["d"], row["causal"]) == (d, causal)]
        axes.set_title(f"d = {d:.0f}, {'causal' if causal else 'full'}", fontsize=13, loc="left")
        labels = lines(axes, of, "N_q", lambda row: row["tflops"], style, number)
        log_axis(axes.xaxis, sorted({row["N_q"] for row in of})[::-2][::-1], "{:,.0f}")
        axes.set_ylim(0, 1.05 * max(row["tflops"] for row in found))
        end_labels(axes, labels)
    return figure


def spread(provenance: dict[str, Any], rows: list[Row]) -> Figure:
    """TFLOP/s against the standard deviation of the scores: libraries, and the last two rungs in
    fp16 and in bf16."""
    found = [row for row in timed(rows, causal=False) if row.get("sigma")]
    rungs = {row["program"] for row in found if row["kind"] == "rung"}
    last = sorted(rungs, key=order_of_rungs().__getitem__)[-2:]
    longest = max(row["N_q"] for row in found)
    found = [row for row in found if row["N_q"] == longest]
    ours = [row for row in found if row["program"] in last]
    found = [row for row in found if row["kind"] == "library" and row["dtype"] == "bf16"] + ours
    dims, colours = sorted({row["d"] for row in found}), colours_of(found)
    text = "full; Q is multiplied so that the scores have this standard deviation"
    notes = source(provenance, f"N = {longest:,.0f}, {text}", "Solid: bf16, dashed: fp16")
    title, panels = "Speed against the spread of the scores", (1, len(dims))
    figure, panels = page(390, title, notes, panels=panels, right=116, sharey=True)
    figure.subplots_adjust(wspace=0.75)

    def style(row: Row) -> tuple[str, str]:
        return colours[row["program"]], "--" if row["dtype"] == "fp16" else "-"

    for axes, d in zip(panels, dims, strict=True):
        axes.set_title(f"d = {d:.0f}", fontsize=13, loc="left")
        of = [row for row in found if row["d"] == d]
        labels = lines(axes, of, "sigma", lambda row: row["tflops"], style, typed(number))
        widest = max(row["sigma"] for row in found)
        log_axis(axes.xaxis, [one for one in (1, 2, 4, 8, 16) if one <= widest])
        fastest = max(row["tflops"] for row in found)
        axes.set(ylim=(0, 1.05 * fastest), xlabel="standard deviation of the scores")
        end_labels(axes, labels)
    return figure


def training(provenance: dict[str, Any], rows: list[Row]) -> Figure:
    """The losses of two trainings step by step, and how far apart they are."""
    losses: dict[str, dict[int, float]] = {"ours": {}, "sdpa": {}}
    for row in rows:
        losses[row["program"]][row["step"]] = row["loss"]
    ours, theirs = losses.values()
    text = "Loss per letter, with attention by a rung of the ladder and by PyTorch"
    layout: dict[str, Any] = {"panels": (2, 1), "sharex": True, "height_ratios": (3, 2)}
    title = "One model, trained twice from the same seed"
    figure, (above, below) = page(470, title, source(provenance, text), right=150, **layout)
    figure.subplots_adjust(hspace=0.25)
    for of, colour, kind in ((ours, "blue", "-"), (theirs, "orange", ":")):
        above.plot(list(of), list(of.values()), kind, color=LIGHT[colour], lw=2.5)
    apart = {step: max(abs(loss - theirs[step]), 1e-6) for step, loss in ours.items()}
    below.plot(list(apart), list(apart.values()), color=LIGHT["green"], lw=1.75)
    log_axis(below.yaxis)
    above.set(ylabel="loss", ylim=(0, None))
    below.set(ylabel="difference", xlabel="step")
    last = max(ours)
    ends = (ours, "the ladder's", "blue"), (theirs, "PyTorch's, dotted", "orange")
    end_labels(above, [(last, of[last], text, colour) for of, text, colour in ends])
    end_labels(below, [(last, apart[last], "how far apart", "green")])
    return figure


# ---------------------------------------------------------------- files


def svg(figure: Figure) -> str:
    """The text of the file: self-contained, its colours those of a light page."""

    def font(match: re.Match[str]) -> str:
        size = f"font-size: {match[2]}"
        return f"font-weight: {match[1]}; {size}" if match[1] else size

    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"font: (?:(\d00) )?[^;\"]*?(\d+px)[^;\"]*", font, text)
    text = re.sub(r'(width|height)="([\d.]+)pt"', r'\1="\2"', text, count=2)
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.S)
    head, body = text.split(">", 1)
    rule = '<style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style>'
    body = body.replace(rule, "", 1)  # it would outdo attributes, which can be inherited as well
    return f'{head} {FONT} stroke-linejoin="round">{body}'


def pictures(record: Record) -> dict[str, Plot]:
    """{file: plot} of what a record of scripts/bench has the numbers for."""
    command, rows = record["provenance"]["command"], record["rows"]
    if "--series" in command:
        return {"time.svg": time}
    if "--memory" in command:
        return {"memory.svg": memory}
    found: dict[str, Plot] = {"ladder.svg": ladder}
    if counted(rows):
        found["traffic.svg"] = traffic
        if "copy_bytes_per_s" in ceilings_of(record):
            found["roofline.svg"] = roofline
    return found


def bench_page(record: Record, folder: Path) -> Path:
    """The page that scripts/bench leaves in a build folder: pictures and tables. Returns the page's
    path."""
    provenance = record["provenance"]
    kind = provenance["plan"]
    parts = [f"# What `{provenance['command']}` measured", *source(provenance)]
    for file, plot in pictures(record).items():
        text = themed(svg(plot(provenance, record["rows"])))
        (folder / file).write_text(text, encoding="utf-8")
        parts.append(f"![{file}]({file})")
    for title, rows in results.bench_tables(record).items():
        parts.append("\n".join([f"## {title}", "", *rows]))
    page_file = folder / f"{kind}.md"
    page_file.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return page_file
