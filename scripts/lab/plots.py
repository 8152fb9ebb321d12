"""Plots of records by matplotlib, as SVG that follows the reader's page, light or dark.

A plot takes (provenance, rows) and returns a Figure of about 620 pixels, so that its letters can still be read when a
phone shows it half as wide. Labels stand at the ends of lines or in columns, where nothing crosses them; what would not
fit on the page is an error.
"""

import io
import json
import math
import re

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from lab import ladder as rungs
from lab import record_tables as pages
from lab.record_tables import (
    PROBLEM,
    ceilings_of,
    order_of_rungs,
    problem,
    size,
    three_digits,
    unique,
)
from lab.theme import FONT, LIGHT, themed

NUMBERS = {rung.name: rung.number for rung in rungs.ladder()}

CYCLE = ("blue", "orange", "green", "red", "brown", "teal", "pink")
UNIT = {
    "cpu_fma_flops": ("note", "the cores"),
    "ffma_flops": ("blue", "fp32 units"),
    "mma_sync_flops": ("orange", "mma.sync"),
    "wgmma_flops": ("green", "wgmma"),
}
WIDTH = 620
PAPER = {
    "facecolor": LIGHT["page"],
    "edgecolor": "none",
    "pad": 0.5,
}  # under a label, so that no line crosses it
matplotlib.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "flash",
        "font.size": 13,
        "text.color": LIGHT["ink"],
        "axes.grid": True,
        "axes.edgecolor": LIGHT["grid"],
        "axes.labelcolor": LIGHT["note"],
        "axes.linewidth": 0.75,
        "axes.axisbelow": True,
        "xtick.color": LIGHT["note"],
        "ytick.color": LIGHT["note"],
        "grid.color": LIGHT["grid"],
        "grid.linewidth": 0.75,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "xtick.minor.size": 0,
        "ytick.minor.size": 0,
        "path.simplify": False,
    }
)


# ---------------------------------------------------------------- the page


def page(height, title, notes, left=64, right=24, bottom=52, panels=(1, 1), **options):
    """(figure, axes) with a title and notes above; margins in pixels."""
    figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72, facecolor=LIGHT["page"])
    FigureCanvasAgg(figure)
    figure.text(16 / WIDTH, 1 - 28 / height, title, fontsize=16, fontweight="bold")
    for line, note in enumerate(notes):
        figure.text(
            16 / WIDTH, 1 - (48 + 17 * line) / height, note, color=LIGHT["note"], fontsize=12
        )
    top = 64 + 17 * len(notes) + (16 if panels != (1, 1) else 0)
    axes = figure.subplots(*panels, squeeze=False, **options)
    figure.subplots_adjust(left / WIDTH, bottom / height, 1 - right / WIDTH, 1 - top / height)
    for one in axes.flat:
        one.set_facecolor("none")
        one.spines[["top", "right", "left"]].set_visible(False)
        one.minorticks_off()
    return figure, axes[0, 0] if panels == (1, 1) else list(axes.flat)


def source(provenance, *notes):
    """The notes, then when and where it was measured."""
    gpu = (
        f"{provenance['gpu']} (CUDA {provenance.get('cuda', '?')})" if provenance.get("gpu") else ""
    )
    cpu = (
        f"{provenance['cores']} cores of {provenance['processor']}"
        if provenance.get("processor") and (not gpu or "bench" in provenance["command"])
        else ""
    )
    where = ", ".join(filter(None, (gpu, cpu.replace("(R)", "").replace(" Processor", ""))))
    command = re.match(r"\S+(?: (?:\w\S*|--series|--memory))?", provenance["command"])[0]
    return [*notes, f"{command}, {provenance['date']}; {where}"]


def spread_out(places, gap, low, high):
    """Places at least `gap` apart and within [low, high], near the wanted ones; in the same order as these."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    groups = []  # [sum, count] of places less their rank's gaps; neighbours that overlap share their mean
    for rank, index in enumerate(order):
        groups.append([places[index] - rank * gap, 1])
        while len(groups) > 1 and groups[-2][0] * groups[-1][1] > groups[-1][0] * groups[-2][1]:
            total, count = groups.pop()
            groups[-1] = [groups[-1][0] + total, groups[-1][1] + count]
    first = [total / count for total, count in groups for _ in range(count)]
    last = high - (len(order) - 1) * gap
    new = {index: max(min(first[rank], last), low) + rank * gap for rank, index in enumerate(order)}
    return [new[index] for index in range(len(places))]


def end_labels(axes, labels, least=14, gap=15):
    """Texts of (x, y, text, colour) in a column to the right of these points, with thin lines to where they belong."""
    if not labels:
        return
    axes.set(xlim=axes.get_xlim(), ylim=axes.get_ylim())  # from here on the places stay
    box, wanted = (
        axes.get_window_extent(),
        [axes.transData.transform((x, y)) for x, y, *_ in labels],
    )
    ys = spread_out([y for _, y in wanted], gap, box.y0, box.y1)
    column = max(x for x, _ in wanted) + max(
        least, min(40, max(abs(y - at[1]) for y, at in zip(ys, wanted)))
    )
    for at, y, (*_, text, colour) in zip(wanted, ys, labels):
        axes.annotate(
            text,
            at,
            (column, y),
            "figure pixels",
            textcoords="figure pixels",
            va="center",
            fontsize=12,
            color=LIGHT[colour],
            annotation_clip=False,
            bbox=PAPER,
            arrowprops={
                "arrowstyle": "-",
                "color": LIGHT[colour],
                "lw": 0.75,
                "shrinkA": 1,
                "shrinkB": 3,
                "relpos": (0, 0.5),
            },
        )


def log_axis(axis, ticks=None, text="{:g}"):
    """Logarithmic, its ticks written out: these, or powers of ten."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log", base=2 if ticks else 10)
    axis.set_minor_locator(matplotlib.ticker.NullLocator())
    if ticks:
        axis.set_ticks(ticks, [text.format(value) for value in ticks], fontsize=12)
        axis.axes.margins(x=0.02)
    else:
        axis.set_major_formatter(lambda value, _: text.format(value))


def decades(values):
    return 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))


def table_of_dots(title, notes, rows, columns, xlabel):
    """One line per row: its name, dots on a logarithmic axis, and the numbers themselves in columns to the right.

    rows     (name, colour, {column: value}, {column: a limit, drawn as a tick})
    columns  {column: its colour, or "" for the row's}"""
    figure, axes = page(150 + 22 * len(rows), title, notes, left=196, right=16 + 60 * len(columns))
    log_axis(axes.xaxis)
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows], color=LIGHT["ink"])
    axes.set(
        ylim=(len(rows) - 0.4, -0.6),
        xlabel=xlabel,
        xlim=decades(
            [value for *_, values, limits in rows for value in (*values.values(), *limits.values())]
        ),
    )
    for number, (column, own) in enumerate(columns.items()):
        place = {
            "x": 1 + (52 + 60 * number) / axes.get_window_extent().width,
            "transform": axes.get_yaxis_transform(),
            "ha": "right",
        }
        axes.text(y=-0.75, s=column, va="bottom", color=LIGHT[own or "note"], fontsize=12, **place)
        for line, (_, colour, values, limits) in enumerate(rows):
            colour = LIGHT[own or colour]
            if column in limits:
                axes.plot([limits[column]] * 2, [line - 0.33, line + 0.33], color=colour, lw=2)
            if column in values:
                axes.plot(values[column], line, "o", color=colour, ms=7)
                axes.text(
                    y=line, s=three_digits(values[column]), va="center", color=colour, **place
                )
    return figure


def lines(axes, rows, x, y, style, name):
    """A line for each program and type, by style(row) = (colour, kind of line). Returns labels for the ends."""
    labels = []
    for key in unique((row["program"], row.get("dtype")) for row in rows):
        of = sorted(
            (row for row in rows if (row["program"], row.get("dtype")) == key),
            key=lambda row: row[x],
        )
        colour, kind = style(of[0])
        axes.plot(
            [row[x] for row in of],
            [y(row) for row in of],
            kind,
            color=LIGHT[colour],
            marker="o",
            ms=4,
            lw=1.75,
        )
        labels.append((of[-1][x], y(of[-1]), name(of[0]), colour))
    return labels


# ---------------------------------------------------------------- numbers


def timed(rows, **where):
    return [
        row
        for row in rows
        if row["kind"] in ("rung", "library")
        and "ms" in row
        and all(row.get(key) == value for key, value in where.items())
    ]


def on_first_problem(rows):
    first = timed(rows)[0]
    return timed(rows, **{key: first.get(key) for key in PROBLEM})


def counted(rows):
    """{program: counters summed over its kernels} of what ncu watched."""
    found = {}
    for row in (row for row in rows if row["kind"] == "kernel"):
        sums = found.setdefault(row["program"], {})
        for key, value in row.items():
            if key not in PROBLEM and isinstance(value, (int, float)):
                sums[key] = sums.get(key, 0) + value
    return found


def name(row):
    """A rung "07 flash attention 1", a library by its name."""
    return row["program"].replace("_", " ") if row["kind"] == "rung" else row["program"]


def number(row):
    """Where a rung stands in the ladder, "34"; a library by its name. For plots too dense for names."""
    return NUMBERS.get(row["program"], row["program"])


def typed(of):
    return lambda row: f"{of(row)}, {row['dtype']}"


def dram_bytes(c):
    return c["dram_read_bytes"] + c["dram_write_bytes"]


def l2_bytes(c):
    return 32 * (c["l2_read_sectors"] + c["l2_write_sectors"])


BC_OF_07 = 64  # keys of a tile of flash_attention_1 at d = 64


def formulas(row, c):
    """(bytes between L1 and L2 or None, bytes from and to DRAM) that the chapters' formulas give.

    06: S and P are written and read; its L1 serves most requests. 07: K and V once, O and Q once for each tile of Bc
    keys. From 08 on DRAM has each tensor once, and every block reads all of K and V of its head."""
    heads, N, own = row["B"] * row["H"], row["N_q"], row["compulsory_bytes"]
    matrix = N * row["d"] * (4 if row["dtype"] == "fp32" else 2)  # Q, K, V or O of one head
    if row["program"] == "cuda_naive":
        return None, 4 * heads * N * N * 4 + own
    if row["program"] == "flash_attention_1":
        return (heads * matrix * (3 + 3 * -(-N // BC_OF_07)),) * 2
    return 2 * c["blocks"] * matrix + own if "blocks" in c else None, own


# ---------------------------------------------------------------- the plots


def ladder(provenance, rows):
    found, reached = on_first_problem(rows), ceilings_of({"provenance": provenance, "rows": rows})
    used = [
        unit for unit in UNIT if reached.get(unit) and any(row.get("unit") == unit for row in found)
    ]
    ticks = ", ".join(f"{UNIT[unit][1]} {three_digits(reached[unit] / 1e12)}" for unit in used)
    return table_of_dots(
        "The ladder: every rung on one problem",
        source(provenance, problem(found[0]), f"Ticks: what a unit reaches by itself: {ticks}"),
        [
            (
                typed(name)(row),
                UNIT[row["unit"]][0] if row["kind"] == "rung" else "purple",
                {"TFLOP/s": row["tflops"]},
                {"TFLOP/s": reached[row["unit"]] / 1e12} if row.get("unit") in used else {},
            )
            for row in found
        ],
        {"TFLOP/s": ""},
        "TFLOP/s",
    )


def traffic(provenance, rows):
    found = {row["program"]: row for row in on_first_problem(rows)}
    columns, made = {"L1-L2": "purple", "DRAM": "orange"}, []
    for program, c in counted(rows).items():
        limits = {
            column: value / 1e9
            for column, value in zip(columns, formulas(found[program], c))
            if value
        }
        made.append(
            (
                name(found[program]),
                "",
                {"L1-L2": l2_bytes(c) / 1e9, "DRAM": dram_bytes(c) / 1e9},
                limits,
            )
        )
    notes = source(
        provenance,
        problem(on_first_problem(rows)[0]),
        "Dots: counted by ncu, between L1 and L2 and from and to DRAM. Ticks: the chapters' formulas",
    )
    return table_of_dots("Traffic of every CUDA rung", notes, made, columns, "GB")


def roofline(provenance, rows):
    reached, counts = ceilings_of({"provenance": provenance, "rows": rows}), counted(rows)
    found = [row for row in on_first_problem(rows) if row["program"] in counts]
    figure, axes = page(
        440,
        "Roofline: speed against operations per byte",
        source(provenance, problem(found[0])),
        right=200,
    )
    at = [
        (
            row["tflops"] * row["ms"] * 1e9 / dram_bytes(counts[row["program"]]),
            row["tflops"],
            number(row),
            UNIT[row["unit"]][0],
        )
        for row in found
    ]
    units = [
        (reached[unit], *UNIT[unit])
        for unit in UNIT
        if unit in reached and any(row["unit"] == unit for row in found)
    ]
    (left, right), highest, copy = (
        decades([x for x, *_ in at]),
        max(units)[0],
        reached["copy_bytes_per_s"],
    )
    log_axis(axes.xaxis), log_axis(axes.yaxis)
    axes.set(
        xlim=(left, right),
        ylim=(0.6, 1000),
        xlabel="FLOP per byte from or to DRAM, counted by ncu",
        ylabel="TFLOP/s",
    )
    axes.plot(
        [left, highest / copy],
        [left * copy / 1e12, highest / 1e12],
        "--",
        color=LIGHT["note"],
        lw=1.5,
    )
    middle = math.sqrt(left * highest / copy)
    axes.annotate(
        f"DRAM, {copy / 1e9:.0f} GB/s",
        (middle, middle * copy / 1e12),
        (10, -14),
        textcoords="offset points",
        color=LIGHT["note"],
        fontsize=12,
    )
    for value, colour, _ in units:
        axes.plot([value / copy, right], [value / 1e12] * 2, "--", color=LIGHT[colour], lw=1.5)
    end_labels(
        axes,
        [
            (right, value / 1e12, f"{text}, {three_digits(value / 1e12)}", colour)
            for value, colour, text in units
        ],
    )
    for x, y, _, colour in at:
        axes.plot(x, y, "o", color=LIGHT[colour], ms=7)
    for few in (True, False):  # those that move much stand apart from those that do not
        end_labels(axes, [point for point in at if (point[0] < 100) == few])
    return figure


def time(provenance, rows):
    found = timed(rows)
    first, programs = found[0], unique((row["program"], row["dtype"]) for row in found)
    notes = source(
        provenance,
        f"{first['B'] * first['N_q']:,.0f} tokens in sequences of N, H = {first['H']:.0f}, "
        f"d = {first['d']:.0f}, full",
    )
    figure, axes = page(
        190 + 16 * len(programs), "Time against N: every rung and library", notes, right=216
    )
    log_axis(axes.yaxis)
    log_axis(axes.xaxis, sorted({row["N_q"] for row in found}), "{:,.0f}")
    axes.set(xlabel="N", ylabel="ms")
    end_labels(
        axes,
        lines(
            axes,
            found,
            "N_q",
            lambda row: row["ms"],
            lambda row: (
                ("purple", ":") if row["kind"] == "library" else (UNIT[row["unit"]][0], "-")
            ),
            typed(name),
        ),
    )
    return figure


def memory(provenance, rows):
    found = [row for row in timed(rows) if "extra_bytes" in row]
    needed = lambda row: row["compulsory_bytes"] + row["extra_bytes"]
    first, device = found[0], float((provenance.get("memory") or "0").split()[0]) * 2**20
    N = sorted({row["N_q"] for row in rows if "N_q" in row})
    square = {
        row["program"]
        for row in found
        if row["extra_bytes"] > row["compulsory_bytes"] and row["N_q"] > N[1]
    }
    notes = source(
        provenance,
        f"Q, K, V, O, LSE and what a rung held besides; B = 1, H = {first['H']:.0f}, "
        f"d = {first['d']:.0f}, full",
    )
    figure, axes = page(
        470, "Memory against N: standard attention and tiles", notes, left=76, right=216
    )
    log_axis(axes.yaxis)
    log_axis(axes.xaxis, N[::2], "{:,.0f}")
    axes.yaxis.set_major_formatter(
        lambda value, _: size(value).replace(".00", "").replace(".0", "")
    )
    axes.set(
        xlabel="N",
        ylim=(
            0.5 * decades([needed(row) for row in found])[0],
            4e12 if device else 10 * max(map(needed, found)),
        ),
    )
    labels = lines(
        axes,
        found,
        "N_q",
        needed,
        lambda row: ("orange" if row["program"] in square else "blue", "-"),
        typed(name),
    )
    if device:
        axes.plot([N[0], N[-1]], [device] * 2, ":", color=LIGHT["purple"], lw=2)
        labels.append((N[-1], device, f"all memory of the GPU, {device / 1e9:.0f} GB", "purple"))
    end_labels(axes, [label for label in labels if label[0] == N[-1]])
    for x, y, text, colour in labels:
        if x != N[-1]:  # above its end: what goes on lies lower
            note(axes, NUMBERS.get(text, text), (x, y), (-4, 8), colour)
    for row in rows:
        if row["kind"] == "left out" and "N_q" in row and device:
            note(axes, f"{name(row)} does not fit", (row["N_q"], device), (0, 25), "orange")
            axes.plot(row["N_q"], device, "x", color=LIGHT["orange"], ms=8, mew=2)
    return figure


def note(axes, text, at, offset, colour):
    axes.annotate(
        text,
        at,
        offset,
        textcoords="offset points",
        ha="right",
        color=LIGHT[colour],
        fontsize=12,
        bbox=PAPER,
    )


def colours_of(rows):
    """{program: colour}: libraries grey and purple, rungs each their own, the last the first."""
    programs = unique(row["program"] for row in rows)
    place = order_of_rungs()
    libraries = sorted((one for one in programs if one not in place), reverse=True)
    rungs = sorted((one for one in programs if one in place), key=place.get, reverse=True)
    return dict(zip(libraries, ("note", "purple") * 4)) | dict(zip(rungs, CYCLE * 4))


def comparison(provenance, rows):
    """TFLOP/s against N, a panel for each head dim and mask."""
    found = timed(rows)
    groups, colours = unique((row["d"], row["causal"]) for row in found), colours_of(found)
    first, height = found[0], -(-len(groups) // 2)
    figure, panels = page(
        130 + 250 * height,
        f"TFLOP/s against N, {first['dtype']}",
        source(
            provenance,
            f"{first['B'] * first['N_q']:,.0f} tokens, heads x d = {first['H'] * first['d']:,.0f}, medians",
        ),
        panels=(height, 2),
        right=92,
    )
    figure.subplots_adjust(wspace=0.6, hspace=0.36)
    for axes, (d, causal) in zip(panels, groups):
        of = [row for row in found if (row["d"], row["causal"]) == (d, causal)]
        axes.set_title(f"d = {d:.0f}, {'causal' if causal else 'full'}", fontsize=13, loc="left")
        labels = lines(
            axes,
            of,
            "N_q",
            lambda row: row["tflops"],
            lambda row: (colours[row["program"]], "--" if row["kind"] == "library" else "-"),
            number,
        )
        log_axis(axes.xaxis, sorted({row["N_q"] for row in of})[::-2][::-1], "{:,.0f}")
        axes.set_ylim(0, 1.05 * max(row["tflops"] for row in found))
        end_labels(axes, labels)
    return figure


def spread(provenance, rows):
    """TFLOP/s against the standard deviation of the scores: libraries, and the last two rungs in fp16 and in bf16."""
    found = [row for row in timed(rows, causal=False) if row.get("sigma")]
    if not found:
        raise ValueError("no row of this record has a sigma")
    last = sorted(
        {row["program"] for row in found if row["kind"] == "rung"}, key=order_of_rungs().get
    )[-2:]
    longest = max(row["N_q"] for row in found)
    found = [
        row
        for row in found
        if row["N_q"] == longest
        and (row["program"] in last or row["kind"] == "library" and row["dtype"] == "bf16")
    ]
    dims, colours = sorted({row["d"] for row in found}), colours_of(found)
    figure, panels = page(
        390,
        "Speed against the spread of the scores",
        source(
            provenance,
            f"N = {longest:,.0f}, full; Q is multiplied so that the scores have this standard deviation",
            "Solid: bf16, dashed: fp16",
        ),
        panels=(1, len(dims)),
        right=116,
        sharey=True,
    )
    figure.subplots_adjust(wspace=0.75)
    for axes, d in zip([panels] if len(dims) == 1 else panels, dims):
        axes.set_title(f"d = {d:.0f}", fontsize=13, loc="left")
        labels = lines(
            axes,
            [row for row in found if row["d"] == d],
            "sigma",
            lambda row: row["tflops"],
            lambda row: (colours[row["program"]], "--" if row["dtype"] == "fp16" else "-"),
            typed(number),
        )
        log_axis(
            axes.xaxis,
            [one for one in (1, 2, 4, 8, 16) if one <= max(row["sigma"] for row in found)],
        )
        axes.set(
            ylim=(0, 1.05 * max(row["tflops"] for row in found)),
            xlabel="standard deviation of the scores",
        )
        end_labels(axes, labels)
    return figure


def training(provenance, rows):
    """The losses of two trainings step by step, and how far apart they are."""
    ours, theirs = (
        {row["step"]: row["loss"] for row in rows if row["program"] == which}
        for which in ("ours", "sdpa")
    )
    figure, (above, below) = page(
        470,
        "One model, trained twice from the same seed",
        source(
            provenance, "Loss per letter, with attention by a rung of the ladder and by PyTorch"
        ),
        panels=(2, 1),
        right=150,
        sharex=True,
        height_ratios=(3, 2),
    )
    figure.subplots_adjust(hspace=0.25)
    for of, colour, kind in ((ours, "blue", "-"), (theirs, "orange", ":")):
        above.plot(list(of), list(of.values()), kind, color=LIGHT[colour], lw=2.5)
    apart = {step: max(abs(loss - theirs[step]), 1e-6) for step, loss in ours.items()}
    below.plot(list(apart), list(apart.values()), color=LIGHT["green"], lw=1.75)
    log_axis(below.yaxis)
    above.set(ylabel="loss", ylim=(0, None))
    below.set(ylabel="difference", xlabel="step")
    last = max(ours)
    end_labels(
        above,
        [
            (last, ours[last], "the ladder's", "blue"),
            (last, theirs[last], "PyTorch's, dotted", "orange"),
        ],
    )
    end_labels(below, [(last, apart[last], "how far apart", "green")])
    return figure


# ---------------------------------------------------------------- files


def texts_of(figure):
    """(text, its box in pixels) of every text that shows."""
    figure.canvas.draw()
    found = [text for owner in (figure, *figure.axes) for text in owner.texts]
    for axes in figure.axes:
        found += [axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        found += [
            tick.label1
            for axis in (axes.xaxis, axes.yaxis)
            for tick in axis.get_major_ticks()
            if tick.label1.get_visible()
            and min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        ]
    return [(text.get_text(), Text.get_window_extent(text)) for text in found if text.get_text()]


def outside(figure):
    """Texts of a figure that the page would clip."""
    return [
        text
        for text, box in texts_of(figure)
        if box.x0 < 0
        or box.y0 < 0
        or box.x1 > figure.bbox.width + 1
        or box.y1 > figure.bbox.height + 1
    ]


def data(figure):
    """What is drawn, apart from how: the points of every line, and the texts."""

    def rounded(values):
        return [float(f"{value:.4g}") for value in values]

    return {
        "lines": [
            [rounded(line.get_xdata()), rounded(line.get_ydata())]
            for axes in figure.axes
            for line in axes.lines
        ],
        "texts": [text.get_text() for owner in (figure, *figure.axes) for text in owner.texts],
    }


def svg(figure):
    """The text of the file: self-contained, its colours those of the page, its data inside."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = re.sub(
        r"font: (?:(\d00) )?[^;\"]*?(\d+px)[^;\"]*",
        lambda match: f"font-weight: {match[1]}; " * bool(match[1]) + f"font-size: {match[2]}",
        text[text.index("<svg") :],
    )
    text = re.sub(
        r'width="[\d.]+pt"|height="[\d.]+pt"', lambda match: match[0].replace("pt", ""), text, 2
    )
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.S)
    drawn = json.dumps(data(figure), ensure_ascii=False).replace("&", "&amp;").replace("<", "&lt;")
    head = text.index(">") + 1
    return themed(
        f'{text[: head - 1]} {FONT}>\n<metadata id="data">{drawn}</metadata>{text[head:]}'
    )


def data_of(text):
    """The data of a file's text; None without any."""
    found = re.search(r'<metadata id="data">(.*?)</metadata>', text, re.S)
    return json.loads(found[1].replace("&lt;", "<").replace("&amp;", "&")) if found else None


def pictures(record):
    """{file: (title, plot)} of what a record of scripts/bench has the numbers for."""
    command, rows = record["provenance"]["command"], record["rows"]
    if "--series" in command:
        return {"time.svg": ("Time against N", time)}
    if "--memory" in command:
        return {"memory.svg": ("Memory against N", memory)}
    found = {"ladder.svg": ("The ladder", ladder)}
    if counted(rows):
        found |= {"traffic.svg": ("Traffic", traffic)}
    if counted(rows) and "copy_bytes_per_s" in ceilings_of(record):
        found |= {"roofline.svg": ("Roofline", roofline)}
    return found


def bench_page(record, folder):
    """The page that scripts/bench leaves in a build folder: pictures and tables. Returns the page's path."""
    provenance = record["provenance"]
    kind = next((kind for kind in ("series", "memory") if kind in provenance["command"]), "bench")
    parts = [
        f"# What `{provenance['command']}` measured",
        source(provenance)[0] + f", commit {provenance['commit']}",
    ]
    if "--quick" in provenance["command"]:
        parts.append(
            "With `--quick`: smaller problems than those of the README; compare nothing with it."
        )
    for file, (title, plot) in pictures(record).items():
        (folder / file).write_text(svg(plot(provenance, record["rows"])), encoding="utf-8")
        parts.append(f"![{title}]({file})")
    parts += [
        f"## {title}\n\n" + "\n".join(lines) for title, lines in pages.bench_tables(record).items()
    ]
    page_file = folder / f"{kind}.md"
    page_file.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return page_file
