#!/usr/bin/env python3
"""Draws the pictures of chapters 06 to 09 and of the pages on memory.

    docs/diagrams/pictures.py [--check] [FILE.svg ...]

What a picture shows of a kernel is read from its source: tile sizes, and which lane owns what. --check writes nothing
and compares with the files in docs/figures. All pictures are narrow, so that a phone can show them.
"""

import json
import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
from command import main  # noqa: E402
from lab.diagrams import Drawing  # noqa: E402

WIDTH = 520  # of a picture, whose text has 13 pixels: a phone shows it at 9
SECTOR, FLOAT, WARP = 32, 4, 32  # bytes, bytes, lanes


# ---------------------------------------------------------------- what the sources say


def expression(rung, name, **known):
    """The value of `constexpr int NAME = ...;` or `const int NAME = ...;` in a rung's kernel."""
    source = next((ROOT / "steps").glob(f"{rung}_*/*.cu")).read_text(encoding="utf-8")
    found = re.search(rf"\bconst(?:expr)? int {name} = ([^;,]+);", source)
    if not found:
        raise ValueError(f"rung {rung} defines no {name}")
    choice = re.fullmatch(r"(.+?) \? (.+?) : (.+)", found[1])
    text = f"({choice[2]}) if ({choice[1]}) else ({choice[3]})" if choice else found[1]
    return eval(
        text.replace("/", "//"), {"__builtins__": {}}, known
    )  # no name of these is ever negative


def rows_of(record, **values):
    """The rows of a record that have these values."""
    text = (ROOT / f"docs/records/{record}.json").read_text(encoding="utf-8")
    return [
        row
        for row in json.loads(text)["rows"]
        if all(row.get(key) == value for key, value in values.items())
    ]


# ---------------------------------------------------------------- memory and latency


def scheduled(warps, wait, clocks):
    """[warp or None] of each clock: a scheduler takes the first warp that is ready, which then waits for its load."""
    ready, taken = [0] * warps, []
    for clock in range(clocks):
        warp = next((one for one in range(warps) if ready[one] <= clock), None)
        if warp is not None:
            ready[warp] = clock + wait
        taken.append(warp)
    return taken


def latency_hiding():
    """One scheduler with few warps and with many: the wait is the same, and is filled."""
    wait, clocks, cell, high, left = 8, 24, 16, 15, 92
    groups = 1, 4, 8
    drawing = Drawing(
        WIDTH,
        112 + sum(64 + high * warps for warps in groups),
        "One scheduler, and what it does while loads travel",
        f"Blue: a warp issues an instruction, and then waits {wait - 1} clocks for its load.\n"
        "(A drawing: a real load of the GPU's memory takes hundreds of clocks.)",
    )
    top = 92
    for warps in groups:
        taken = scheduled(warps, wait, clocks)
        busy = sum(warp is not None for warp in taken)
        share = f"{100 * busy / clocks:.3g}% of the clocks are used"
        drawing.text(
            24, top + 12, f"{warps} warp{'s' * (warps > 1)}: {share}", style="font-weight: 600"
        )
        for warp in range(warps):
            y = top + 22 + high * warp
            drawing.text(left - 8, y + 11, f"warp {warp}", "note", "end", 12)
            issues = [clock for clock in range(clocks) if taken[clock] == warp]
            for clock in issues:
                end = min(clock + wait, clocks)
                drawing.path(f"M{left + cell * (clock + 1)} {y + 7}H{left + cell * end}", "note")
                drawing.rect(left + cell * clock, y + 1, cell, high - 3, "blue", "page")
        y = top + 26 + high * warps
        drawing.text(left - 8, y + 11, "scheduler", "ink", "end", 12)
        for clock in range(clocks):
            drawing.rect(
                left + cell * clock,
                y,
                cell,
                high - 2,
                "green" if taken[clock] is not None else None,
                "grid",
            )
        top += 64 + high * warps
    drawing.path(f"M{left} {top - 2}H{left + cell * clocks}l-8 -4m8 4l-8 4", "note")
    drawing.text(left + cell * clocks, top + 15, "clocks", "note", "end", 12)
    return drawing.svg()


def pyramid():
    """The levels of a GPU's memory with what docs/examples/memory_levels.cu measured."""
    of = {row["program"]: row["value"] for row in rows_of("memory_levels_h200")}
    SMs, clocks_per_ns = of["SMs"], 1.98

    def size(number):
        return (
            f"{number / 2**30:.0f} GiB"
            if number >= 2**30
            else (f"{number / 2**20:.0f} MiB" if number >= 2**20 else f"{number / 2**10:.0f} KiB")
        )

    def speed(name, bandwidth):
        clocks = of[f"{name}_latency_clocks"]
        answer = f"{clocks:.0f} clocks, {clocks / clocks_per_ns:.0f} ns"
        return answer + (f"; {of[bandwidth] / 1e12:.1f} TB/s" if bandwidth in of else "")

    registers = of["registers_bytes_per_sm"]
    levels = (
        (
            "registers",
            f"{size(registers)} per SM, {size(SMs * registers)} in all",
            "one thread's own, at most 255 each",
            "",
            "pale-green",
        ),
        (
            "shared memory",
            f"up to {size(of['shared_bytes_per_sm'])} per SM, of {size(2**18)} together with L1",
            "of one block; the program says what is in it",
            speed("shared", "shared_bytes_per_s"),
            "pale-blue",
        ),
        (
            "L1 cache",
            f"the rest of those {size(2**18)} per SM",
            "of the threads of an SM",
            speed("l1", "l1_bytes_per_s"),
            "pale-blue",
        ),
        (
            "L2 cache",
            size(of["l2_bytes"]),
            "of all SMs",
            speed("l2", "l2_bytes_per_s"),
            "pale-yellow",
        ),
        (
            "DRAM, \u201cglobal memory\u201d",
            size(of["memory_bytes"]),
            "of all SMs; the host copies to and from it",
            speed("dram", "dram_read_bytes_per_s"),
            "pale-purple",
        ),
    )
    drawing = Drawing(
        WIDTH,
        92 + 92 * len(levels),
        f"The memories of an H200, {SMs:.0f} SMs",
        "Time of one load, and bytes per second of all SMs, as measured.",
    )
    for place, (name, big, whose, speeds, colour) in enumerate(levels):
        y, inset = 80 + 92 * place, 16 * (len(levels) - 1 - place)
        drawing.rect(24 + inset, y, WIDTH - 48 - 2 * inset, 82, colour, "grid", 'rx="6"')
        for line, (text, style) in enumerate(
            ((name, "font-weight: 600"), (big, ""), (whose, ""), (speeds, ""))
        ):
            ink = "ink" if line in (0, 3) else "note"
            drawing.text(WIDTH / 2, y + 20 + 18 * line, text, ink, "middle", style=style)
    return drawing.svg()


# ---------------------------------------------------------------- cuda_naive: coalescing


def touched(address, keys):
    """{byte: lanes} of one access of a warp whose threadIdx.x counts to `keys`, then threadIdx.y."""
    found = {}
    for lane in range(WARP):
        found.setdefault(address(lane % keys, lane // keys), []).append(lane)
    return found


def lanes_of(lanes):
    if len(lanes) == 1:
        return f"lane {lanes[0]}"
    step = lanes[1] - lanes[0]
    return (
        f"lanes {lanes[0]} to {lanes[-1]}"
        if step == 1
        else f"lanes {lanes[0]}, {lanes[1]} .. {lanes[-1]}"
    )


def coalescing():
    """Four accesses of `scores` by one warp, each row of the matrix a strip of sectors."""
    keys = expression("06", "score_keys")
    row_bytes = 4096  # any length will do: the rows of a matrix lie far apart
    panels = (
        (
            "Store of S: 8 keys x 4 queries per warp",
            "row of S",
            lambda x, y: row_bytes * y + FLOAT * x,
            keys,
            15,
        ),
        ("Load of K, one column x", "row of K", lambda x, y: row_bytes * x, keys, 15),
        ("Load of Q, one column x", "row of Q", lambda x, y: row_bytes * y, keys, 15),
        (
            "Store of S if threadIdx.x ran along the queries",
            "row of S",
            lambda x, y: row_bytes * x,
            WARP,
            6,
        ),
    )
    height = 96 + sum(
        56 + pitch * len({byte // row_bytes for byte in touched(address, width)})
        for _, _, address, width, pitch in panels
    )
    drawing = Drawing(
        WIDTH,
        height,
        "What one instruction of a warp touches",
        "A frame is a sector of 32 bytes, a cell in it one float.\n"
        "Blue cells are asked for; a touched sector moves whole.",
    )
    top, left, cell = 96, 74, 13
    for caption, of, address, width, pitch in panels:
        bytes_of = touched(address, width)
        sectors = {byte // SECTOR for byte in bytes_of}
        rows = sorted({byte // row_bytes for byte in bytes_of})
        asked = FLOAT * len(bytes_of)
        drawing.text(24, top + 12, caption, style="font-weight: 600")
        drawing.text(
            24,
            top + 30,
            f"{len(sectors)} sectors, {SECTOR * len(sectors)} bytes, of which {asked} are asked "
            "for",
            "red" if len(sectors) > 8 else "note",
        )
        for place, row in enumerate(rows):
            y = top + 38 + pitch * place
            for sector in range(2):
                for item in range(SECTOR // FLOAT):
                    byte = row * row_bytes + SECTOR * sector + FLOAT * item
                    if byte in bytes_of:
                        drawing.rect(
                            left + cell * (8 * sector + item) + sector * 5,
                            y,
                            cell,
                            pitch - 3,
                            "blue",
                            "page",
                            'stroke-width="0.6"',
                        )
                taken = row * row_bytes // SECTOR + sector in sectors
                drawing.rect(
                    left + sector * (8 * cell + 5),
                    y,
                    8 * cell,
                    pitch - 3,
                    None,
                    "ink" if taken else "grid",
                )
            if pitch > 12 or place in (0, len(rows) - 1):
                below = y + (11 if pitch > 12 else 6)
                drawing.text(left - 8, below, f"{of.split()[0]} {place}", "note", "end", 12)
                lanes = sorted(
                    sum((bytes_of[byte] for byte in bytes_of if byte // row_bytes == row), [])
                )
                drawing.text(left + 16 * cell + 16, below, lanes_of(lanes), "note", "start", 12)
        top += 56 + pitch * len(rows)
    return drawing.svg()


# ---------------------------------------------------------------- flash_attention_1 and flash_attention_2: loop orders


def arrow(drawing, x, y, along, across, colour):
    """From (x, y) by `along` pixels to the right or `across` downwards, with a head."""
    end_x, end_y = x + along, y + across
    head = "l-6 -4m6 4l-6 4" if along else "l-4 -6m4 6l4 -6"
    drawing.path(f"M{x:g} {y:g}L{end_x:g} {end_y:g}{head}", colour, 1.75)


def loop_orders():
    """Which pairs of tiles a block visits, in which order, and what of it passes between L1 and L2."""
    shown, d, N = 256, 64, 4096
    tiles = {
        rung: (expression(rung, "Br", d=d), expression(rung, "Bc", d=d)) for rung in ("07", "08")
    }
    drawing = Drawing(
        WIDTH,
        640,
        "Two ways through the same tiles",
        f"One head, {shown} queries x {shown} keys; a cell is a pair of tiles.\n"
        "A colour is one block, an arrow its inner loop.",
    )
    left, side = 66, 176
    colours = ("pale-blue", "pale-green", "pale-yellow", "pale-purple")
    for rung, top in (("07", 112), ("08", 390)):
        Br, Bc = tiles[rung]
        rows, columns = shown // Br, shown // Bc
        high, wide = side / rows, side / columns
        blocks_are_rows = rung == "08"
        what = "a block per tile of Q" if blocks_are_rows else "one block, K in the outer loop"
        drawing.text(24, top, f"Rung {rung}: {what}", style="font-weight: 600")
        drawing.text(left + side / 2, top + 22, f"K, V: tiles of {Bc} keys", "note", "middle", 12)
        drawing.text(
            left - 14, top + 30 + side / 2, f"Q, O: tiles of {Br}", "note", "middle", 12, turn=-90
        )
        for row in range(rows):
            for column in range(columns):
                drawing.rect(
                    left + wide * column,
                    top + 30 + high * row,
                    wide,
                    high,
                    colours[row % 4] if blocks_are_rows else "pale-blue",
                    "grid",
                )
        for line in range(rows if blocks_are_rows else columns):
            if blocks_are_rows:
                arrow(drawing, left + 8, top + 30 + high * (line + 0.5), side - 16, 0, "ink")
            else:
                arrow(drawing, left + wide * (line + 0.5), top + 38, 0, side - 16, "ink")
        Tr, Tc = N // Br, N // Bc
        passes = {
            "07": (("Q read", Tc), ("K, V read", 2), ("O read", Tc), ("O written", Tc + 1)),
            "08": (("Q read", 1), ("K, V read", 2 * Tr), ("O read", 0), ("O written", 1)),
        }[rung]
        x, y = left + side + 24, top + 22
        drawing.text(x, y, f"MiB per head, N = {N}, d = {d}", "note", size=12)
        for place, (what, times) in enumerate(passes):
            mebibytes = times * 4 * N * d / 2**20
            drawing.text(x, y + 30 + 36 * place, what, size=12)
            drawing.rect(
                x,
                y + 36 + 36 * place,
                max(mebibytes, 0.5),
                10,
                "orange" if "O" in what else "blue",
                "page",
            )
            drawing.text(
                x + mebibytes + 6, y + 46 + 36 * place, f"{mebibytes:.0f}", "note", size=12
            )
        drawing.text(
            x,
            y + 190,
            f"in all: {sum(times for _, times in passes) * 4 * N * d / 2**20:.0f}",
            style="font-weight: 600",
        )
    return drawing.svg()


def traffic():
    """What a larger tile saves in flash_attention_1: what the formula says, and what ncu counted."""
    rows = rows_of("gpu_tiles", kind="rung")
    sizes = sorted({row["Br"] for row in rows})
    drawing = Drawing(
        WIDTH,
        150 + 236 * 2,
        "flash_attention_1: bytes against the size of a tile",
        "N = 4096, d = 64, in GB. The formula holds between L1 and L2;\n"
        "DRAM depends on what fits into L2.",
    )
    for heads, top in ((64, 112), (8, 362)):
        drawing.text(24, top, f"{heads} heads", style="font-weight: 600")
        found = {row["Br"]: row for row in rows if row["H"] == heads}
        longest = max(row["predicted_bytes"] for row in found.values())
        for place, size in enumerate(sizes):
            row, y = found[size], top + 14 + 74 * place
            drawing.text(24, y + 38, f"{size:.0f} x {row['Bc']:.0f}")
            between = (row["l2_read_sectors"] + row["l2_write_sectors"]) * SECTOR
            dram = row["dram_read_bytes"] + row["dram_write_bytes"]
            for line, (what, value, colour) in enumerate(
                (
                    ("formula", row["predicted_bytes"], "note"),
                    ("L1 to L2", between, "blue"),
                    ("DRAM", dram, "orange"),
                )
            ):
                drawing.text(94, y + 18 + 20 * line, what, "note", size=12)
                drawing.rect(
                    158, y + 8 + 20 * line, max(270 * value / longest, 1), 12, colour, "page"
                )
                drawing.text(
                    166 + 270 * value / longest,
                    y + 18 + 20 * line,
                    f"{value / 1e9:.3g}",
                    "note",
                    size=12,
                )
    return drawing.svg()


# ---------------------------------------------------------------- double_buffer: the micro-tile


def micro_tile():
    """Which elements of a warp's tile of S one lane owns, and what it reads for them."""
    d, shown = 64, 5
    R, C = (expression("09", name) for name in "RC")
    LC = expression("09", "LC", d=d)
    LR = expression("09", "LR", LC=LC)
    place = {
        lane: (
            expression("09", "lane_r", thread=lane, LC=LC),
            expression("09", "lane_c", thread=lane, LC=LC),
        )
        for lane in range(WARP)
    }
    if sorted(place.values()) != [(row, column) for row in range(LR) for column in range(LC)]:
        raise ValueError("two lanes of double_buffer own the same elements")
    rows, columns, cell = LR * R, LC * C, 6.5
    left, top = 62, 124
    drawing = Drawing(
        WIDTH,
        524,
        f"double_buffer: who owns what of a warp's tile of S (d = {d})",
        f"{rows} queries x {columns} keys; a lane owns {R} x {C} of them, {LR} and {LC} apart.\n"
        f"Blue: lane {shown}'s scores. Orange: the numbers that it reads per step.",
    )
    lane_r, lane_c = place[shown]
    own_rows, own_columns = (
        [first + apart * i for i in range(count)]
        for first, apart, count in ((lane_r, LR, R), (lane_c, LC, C))
    )
    drawing.text(
        left + columns * cell / 2,
        top - 24,
        "column x of K: one number per key",
        "note",
        "middle",
        12,
    )
    drawing.text(left - 26, top + rows * cell / 2, "column x of Q", "note", "middle", 12, turn=-90)
    for column in range(columns):
        drawing.rect(
            left + cell * column,
            top - 14,
            cell,
            9,
            "orange" if column in own_columns else None,
            "grid",
        )
    for row in range(rows):
        drawing.rect(
            left - 14, top + cell * row, 9, cell, "orange" if row in own_rows else None, "grid"
        )
    for row in range(R):
        for column in range(C):
            drawing.rect(
                left + cell * LC * column, top + cell * LR * row, cell * LC, cell * LR, None, "grid"
            )
    for row in own_rows:
        for column in own_columns:
            drawing.rect(
                left + cell * column,
                top + cell * row,
                cell,
                cell,
                "blue",
                "page",
                'stroke-width="0.5"',
            )
    corner, big, from_left = top + rows * cell + 70, 25, 62
    drawing.text(
        24,
        corner - 34,
        f"Its first {LR} x {LC} elements, and the lane that owns each",
        style="font-weight: 600",
    )
    drawing.text(from_left + big * LC / 2, corner - 10, "keys", "note", "middle", 12)
    drawing.text(from_left - 12, corner + big * LR / 2, "queries", "note", "middle", 12, turn=-90)
    for lane, (row, column) in place.items():
        drawing.rect(
            from_left + big * column,
            corner + big * row,
            big,
            big,
            "pale-blue" if lane == shown else None,
            "blue" if lane == shown else "grid",
        )
        drawing.text(
            from_left + big * (column + 0.5),
            corner + big * row + 17,
            lane,
            anchor="middle",
            size=12,
        )
    for line, text in enumerate(
        (
            f"Per step a lane reads {R} + {C}",
            f"numbers and makes {R} x {C} = {R * C}",
            "multiply-adds, so each number",
            f"is used {R} times.",
        )
    ):
        drawing.text(from_left + big * LC + 22, corner + 22 + 20 * line, text, "note")
    return drawing.svg()


# ---------------------------------------------------------------- the roofline page


def bounds():
    """{rung: {what: ms}}: three lower bounds of cuda_naive to double_buffer as the page computes them, and what was measured."""
    record, SMs, clock = "bench_h200", 132, 1.98e9
    ceiling = {row["program"]: row["value"] for row in rows_of(record, kind="ceiling")}
    problem = {
        "B": 4,
        "H": 16,
        "N_q": 4096,
        "d": 64,
        "causal": False,
    }  # the page's; the record has others, too
    measured = {
        row["program"][:2]: row
        for row in rows_of(record, kind="rung", backend="cuda", dtype="fp32", **problem)
    }
    found = {}
    for rung, row in measured.items():
        kernels = [one for one in rows_of(record, kind="kernel") if one["program"][:2] == rung]
        heads, N, d = row["B"] * row["H"], row["N_q"], row["d"]
        busy = min(SMs, heads) if rung == "07" else SMs
        products = 2 * heads * N * N * d / WARP  # multiply-adds of warps
        dram = (
            sum(one["dram_read_bytes"] + one["dram_write_bytes"] for one in kernels)
            or 4 * 4 * heads * N * d
        )
        turns = (
            next(one for one in kernels if one["kernel"] == "scores")["global_load_sectors"]
            if rung == "06"
            else sum(one["shared_load_wavefronts"] for one in kernels) or products * 4 * 2 / 64
        )  # 09: by hand
        found[rung] = {
            "arithmetic": 4e3 * heads * N * N * d / ceiling["ffma_flops"] * SMs / busy,
            "memory": 1e3 * dram / ceiling["copy_bytes_per_s"],
            "L1 or shared memory": 1e3 * turns / busy / clock,
            "measured": row["ms"],
        }
    return found


def three_roofs():
    """The lower bounds of each rung and the measured time on one logarithmic axis."""
    of = bounds()
    colours = {
        "arithmetic": "green",
        "memory": "orange",
        "L1 or shared memory": "blue",
        "measured": "ink",
    }
    least, most, left, right, high = 0.03, 300, 44, 488, 104
    drawing = Drawing(
        WIDTH,
        106 + high * len(of) + 34,
        "What bounds cuda_naive to double_buffer",
        "Milliseconds at (B, H, N, d) = (4, 16, 4096, 64). The bound that is\n"
        "nearest to the measured time is the one to work on.",
    )

    def place(ms):
        return left + (right - left) * math.log(ms / least) / math.log(most / least)

    bottom = 92 + high * len(of)
    for tick in (0.1, 1, 10, 100):
        drawing.path(f"M{place(tick):g} 88V{bottom}", "grid")
        drawing.text(place(tick), bottom + 18, f"{tick:g} ms", "note", "middle", 12)
    for number, (rung, times) in enumerate(of.items()):
        top = 92 + high * number
        drawing.text(20, top + 50, rung, "ink", "middle", style="font-weight: 600")
        for line, (what, ms) in enumerate(times.items()):
            x, y, after = place(ms), top + 18 + 22 * line, place(ms) < 290
            drawing.rect(x - 5, y - 9, 10, 10, colours[what], "page", 'rx="5"')
            drawing.text(
                x + (10 if after else -10),
                y,
                f"{what}, {ms:.2g}" if ms < 100 else f"{what}, {ms:.0f}",
                "ink" if what == "measured" else "note",
                "start" if after else "end",
                12,
            )
        if number:
            drawing.path(f"M{left} {top + 1}H{right}", "grid")
    return drawing.svg()


PICTURES = {
    "memory_pyramid.svg": pyramid,
    "latency_hiding.svg": latency_hiding,
    "coalescing.svg": coalescing,
    "loop_orders.svg": loop_orders,
    "loop_traffic.svg": traffic,
    "micro_tile.svg": micro_tile,
    "three_roofs.svg": three_roofs,
}


if __name__ == "__main__":
    sys.exit(main(PICTURES, *sys.argv))
