#!/usr/bin/env python3
"""Draws the pictures of chapters 10 to 18: docs/diagrams/tensor_cores.py [--check] [FILE.svg ...]

Layouts come from steps/tests/layouts.py, which a test compares with what a program finds by trying. Tile sizes, which
row a lane names, and which block takes which tile are read from the kernels. --check writes nothing and compares with
the files in docs/figures. All pictures are narrow, so that a phone can show them.
"""

import heapq
import math
import random
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
from command import main  # noqa: E402
from lab.diagrams import Drawing  # noqa: E402
from lab.layouts import a_element, b_element, c_element, ldmatrix_element, swizzled  # noqa: E402

WIDTH = 560  # of a picture, whose text has 13 pixels: a phone shows it at 8
LANES, HALVES, REGISTERS = range(32), range(2), range(4)
SHOWN_LANE, SHOWN_CHUNK = 9, 2  # drawn apart from the others
PALE = ("pale-blue", "pale-green", "pale-yellow", "pale-purple")


# ---------------------------------------------------------------- what the sources say


def source(rung):
    return next((ROOT / "steps").glob(f"{rung}_*/*.cu")).read_text(encoding="utf-8")


def said(rung, pattern):
    """The groups of a pattern where the rung's kernel has it."""
    if not (found := re.search(pattern, source(rung))):
        raise ValueError(f"the kernel of rung {rung} has nothing like {pattern}")
    return found.groups()


def value(text, **known):
    """A C expression of whole numbers, none of them negative."""
    return eval(text.replace("/", "//"), {"__builtins__": {}, "min": min}, known)


def constants(rung, *names):
    """The values of `constexpr int NAME = ...;` in a rung's kernel, each of which may use those before it."""
    known = {}
    for name, text in re.findall(r"^constexpr int (\w+) = ([^;]+);", source(rung), re.M):
        known[name] = value(text, **known)
    if missing := set(names) - set(known):
        raise ValueError(f"the kernel of rung {rung} has no constant {', '.join(sorted(missing))}")
    return [known[name] for name in names]


# ---------------------------------------------------------------- mma_sync: fragments

CELL_W, CELL_H = 18, 17


def fill(drawing, x, y, held):
    """Cells of a matrix with the lanes that hold them; held: (lane, register, its cells). The marks come last."""
    for shown in (False, True):
        for lane, register, cells in held:
            (top, left), (bottom, right) = min(cells), max(cells)
            box = (
                x + CELL_W * left,
                y + CELL_H * top,
                CELL_W * (right - left + 1),
                CELL_H * (bottom - top + 1),
            )
            if not shown:
                drawing.rect(*box, PALE[register], "note", 'stroke-width="0.6"')
                for row, column in cells:
                    drawing.text(
                        x + CELL_W * (column + 0.5),
                        y + CELL_H * row + 13,
                        lane,
                        anchor="middle",
                        size=11,
                    )
            elif lane == SHOWN_LANE:
                drawing.rect(*box, None, "red", 'stroke-width="2.25"')


def matrix(drawing, x, y, columns, held, caption, across, down, first=0):
    """A matrix of 16 rows whose every cell says which lane holds it."""
    drawing.text(x, y - 38, caption, style="font-weight: 600")
    drawing.text(x, y - 21, across, "note", size=12)
    drawing.text(x - 26, y + 8 * CELL_H, down, "note", "middle", 12, turn=-90)
    for column in range(columns):
        drawing.text(x + CELL_W * (column + 0.5), y - 5, first + column, "note", "middle", 11)
    for row in range(16):
        drawing.text(x - 10, y + CELL_H * row + 13, row, "note", "middle", 11)
    fill(drawing, x, y, held)


def legend(drawing, y, text):
    drawing.text(24, y, text, "note")
    for register in REGISTERS:
        drawing.rect(150 + 64 * register, y - 13, CELL_W, CELL_H, PALE[register], "note")
        drawing.text(150 + 64 * register + CELL_W + 6, y, f"[{register}]", "note")


def fragments():
    """A x B = C, and then two C side by side that become an A."""
    a = [
        (lane, register, [a_element(lane, register, half) for half in HALVES])
        for lane in LANES
        for register in REGISTERS
    ]
    b = [
        (lane, register, [b_element(lane, register, half) for half in HALVES])
        for lane in LANES
        for register in HALVES
    ]
    c = [(lane, register, [c_element(lane, register)]) for lane in LANES for register in REGISTERS]
    drawing = Drawing(
        WIDTH,
        1136,
        "mma.sync m16n8k16: which lane holds which element",
        f"A number is a lane, a frame one register. Lane {SHOWN_LANE}'s registers are red.",
    )
    legend(drawing, 82, "register of the lane")
    left, right, half = 52, 402, 8 * CELL_H
    for top, *both in (
        (
            150,
            (left, 16, a, "A, 16 x 16: Q", "k (head dim)", "row (query)"),
            (right, 8, b, "B, 16 x 8: K transposed", "column (key)", "k"),
        ),
        (
            498,
            (left, 8, c, "C = A B, fp32: S of keys 0 to 7", "column (key)", "row (query)"),
            (left + 240, 8, c, "C of the next mma, keys 8 to 15", "column (key)", "", 8),
        ),
        (846, (left, 16, a, "P, 16 x 16: A of the next product", "k (key)", "row (query)")),
    ):
        for x, *rest in both:
            matrix(drawing, x, top, *rest)
    for x, y, sign in (
        (left + 16 * CELL_W + 14, 150 + half + 7, "×"),
        (left + 432, 498 + half, "round"),
        (left + 432, 498 + half + 22, "↓"),
        (left + 8 * CELL_W + 22, 498 + half, "and"),
    ):
        drawing.text(x, y, sign, anchor="middle", size=20 if len(sign) == 1 else 13)
    return drawing.svg()


# ---------------------------------------------------------------- swizzle: ldmatrix and the swizzle


def named_rows(tile, which):
    """[(row, chunk) that lane 0, 1, .. 31 names] in the `which`th ldmatrix of swizzle from a tile, for k = n = 0."""
    calls = re.findall(rf"swizzled<d, {tile}>\((.+?), ([^()]+)\)\)", source("11"))
    if which >= len(calls):
        raise ValueError(f"the kernel of swizzle has only {len(calls)} ldmatrix of {tile} rows")
    (key,) = said("11", r"const int key = (8[^;]+);")
    known = {"k": 0, "n": 0, "warp": 0, "warp_rows": 16}
    return [
        tuple(
            value(text, lane=lane, key=value(key, lane=lane, **known), **known)
            for text in calls[which]
        )
        for lane in LANES
    ]


def ldmatrix():
    """The three ldmatrix of swizzle: who names which row, and who receives which element."""
    drawing = Drawing(
        WIDTH,
        1134,
        "ldmatrix.x4: who names a row, and who receives its elements",
        "Beside a row of 16 bytes: the lane that names it. In a cell: the lane that\n"
        f"receives it, two elements per register. What lane {SHOWN_LANE} receives is red.",
    )
    legend(drawing, 100, "into register")
    left, chunk_w = 130, 8 * CELL_W
    for top, (caption, note, rows, columns, transposed, named) in zip(
        (166, 506, 846),
        (
            (
                "Q: one A fragment",
                "16 queries x 16 columns",
                "query",
                "column",
                False,
                named_rows("Br", 0),
            ),
            (
                "K: the B fragments of two mma",
                "16 keys x 16 columns; keys 0 to 7 for the first mma",
                "key",
                "column",
                False,
                named_rows("Bc", 0),
            ),
            (
                "V, .trans: the B fragments of two mma",
                "16 keys x 16 columns; columns 0 to 7 for the first mma",
                "key",
                "column",
                True,
                named_rows("Bc", 1),
            ),
        ),
    ):
        held = []
        for lane in LANES:
            for register in REGISTERS:
                cells = []
                for half in HALVES:
                    tile, row, column = ldmatrix_element(lane, register, half, transposed)
                    at_row, chunk = named[8 * tile + row]
                    cells.append((at_row, 8 * chunk + column))
                held.append((lane, register, cells))
        drawing.text(left - 78, top - 36, caption, style="font-weight: 600")
        drawing.text(left - 78, top - 19, note, "note", size=12)
        fill(drawing, left, top, held)
        for lane, (row, chunk) in enumerate(named):
            x, anchor = (left - 8, "end") if chunk == 0 else (left + 2 * chunk_w + 8, "start")
            drawing.text(x, top + CELL_H * row + 13, f"lane {lane}", "note", anchor, 11)
        drawing.text(left - 68, top + 8 * CELL_H, f"{rows} 0 to 15", "note", "middle", 12, turn=-90)
        for chunk in HALVES:
            drawing.text(
                left + chunk_w * (chunk + 0.5),
                top - 5,
                f"{columns}s {8 * chunk} to {8 * chunk + 7}",
                "note",
                "middle",
                11,
            )
    return drawing.svg()


def as_in_memory(d, rows, row, chunk):
    return 2 * d * row + 16 * chunk


def swizzle():
    """Eight rows of a tile before and after, for d = 64 and for d = 32."""
    width, height = 25, 20
    drawing = Drawing(
        WIDTH,
        560,
        "A tile in shared memory, 128 bytes wide",
        f"A frame is 16 bytes, which is 4 banks; a number is a chunk of its row. Blue: chunk\n"
        f"{SHOWN_CHUNK} of 8 rows, which ldmatrix wants at once. Below: how many lie in these banks.",
    )
    for x, y, caption, d, place in (
        (66, 150, "d = 64, as in memory", 64, as_in_memory),
        (338, 150, "d = 64: chunk XOR row", 64, swizzled),
        (66, 412, "d = 32, as in memory", 32, as_in_memory),
        (338, 412, "d = 32: chunk XOR row / 2", 32, swizzled),
    ):
        drawing.text(x, y - 40, caption, style="font-weight: 600")
        drawing.text(x, y - 22, "first bank", "note", size=11)
        meet, lines = [0] * 8, {}
        for row, chunk in ((row, chunk) for row in range(8) for chunk in range(d // 8)):
            line, byte = divmod(place(d, 8, row, chunk), 128)
            column, shown = byte // 16, chunk == SHOWN_CHUNK
            lines.setdefault(line, set()).add(row)
            meet[column] += shown
            left, top = x + width * column, y + height * line
            drawing.rect(
                left,
                top,
                width,
                height,
                "pale-blue" if shown else None,
                "blue" if shown else "grid",
            )
            drawing.text(
                left + width / 2,
                top + 14,
                f"{row}:{chunk}" if d == 32 else chunk,
                anchor="middle",
                size=11,
            )
        for line, rows in lines.items():
            named = f"row{'s' * (len(rows) > 1)} {', '.join(map(str, sorted(rows)))}"
            drawing.text(x - 6, y + height * line + 14, named, "note", "end", 11)
        below = y + height * len(lines) + 16
        for column in range(8):
            drawing.text(x + width * (column + 0.5), y - 6, 4 * column, "note", "middle", 11)
            drawing.text(
                x + width * (column + 0.5),
                below,
                meet[column] or "",
                "ink",
                "middle",
                11,
                style="font-weight: 600",
            )
        drawing.text(
            x,
            below + 20,
            *("1 wavefront", "green") if max(meet) == 1 else (f"{max(meet)} wavefronts", "red"),
            size=12,
        )
    return drawing.svg()


# ---------------------------------------------------------------- warp_tiles: warp tiles


def warp_tiles():
    """The scores of a block in m16n8 tiles, and those that one ldmatrix of K feeds."""
    drawing = Drawing(
        WIDTH,
        452,
        "What one ldmatrix.x4 of K feeds",
        "The scores of one block and one tile of K: each frame is the result of one mma,\n"
        "16 queries x 8 keys, for each 16 columns of Q and K. Red: the scores of one warp.",
    )
    width, height = 23, 30
    for x, rung in ((78, "11"), (344, "12")):
        warps, warp_rows, Bc = constants(rung, "warps", "warp_rows", "Bc")
        M, top = warp_rows // 16, 160
        drawing.text(
            x, top - 44, f"rung {rung}: {warp_rows} rows per warp", style="font-weight: 600"
        )
        for n in range(0, Bc // 8):
            drawing.text(x + width * (n + 0.5), top - 8, 8 * n, "note", "middle", 11)
            for i in range(M * warps):
                fed = i < M and n in (2, 3)
                drawing.rect(
                    x + width * n,
                    top + height * i,
                    width,
                    height,
                    "pale-blue" if fed else None,
                    "blue" if fed else "grid",
                )
        drawing.text(x, top - 24, "key", "note", size=11)
        for i in range(M * warps):
            drawing.text(x - 8, top + height * i + 19, f"row {16 * i}", "note", "end", 11)
        drawing.rect(x, top, width * Bc / 8, height * M, None, "red", 'stroke-width="2.25"')
        drawing.text(
            x, top + height * M * warps + 24, f"16 keys x 16 columns of K: {2 * M} mma", "blue"
        )
    return drawing.svg()


# ---------------------------------------------------------------- async_copy: two tiles in time


def pipeline():
    """The rung with asynchronous copies and the one before it, tile by tile: a drawing, whose lengths are chosen."""
    left, unit, copy, store, work = 84, 8, 5, 2, 10
    end = left + 56 * unit
    drawing = Drawing(
        WIDTH,
        338,
        "One block in time (a drawing: lengths are not measured)",
        "Red: a barrier. Green and yellow: which buffer is read;\nrung 12 has one, async_copy has two.",
    )

    def box(colour, stroke, start, length, y, text):
        x, shown = left + unit * start, min(unit * length, end - left - unit * start)
        if shown > 0:
            drawing.rect(x, y, shown, 28, colour, stroke, 'rx="3"')
        if shown == unit * length:
            drawing.text(x + shown / 2, y + 18, text, anchor="middle", size=11)

    def barrier(at, y):
        if left + unit * at < end:
            drawing.path(f"M{left + unit * at} {y - 4}V{y + 72}", "red", 2.5)

    for y, asynchronous in ((92, False), (204, True)):
        drawing.text(24, y + 19, f"rung {12 + asynchronous}", style="font-weight: 600")
        drawing.text(24, y + 55, "products", "note", size=12)
        time = copy if asynchronous else 0
        if asynchronous:
            box("pale-blue", "blue", 0, copy, y, "copy 0")
        for tile in range(6):
            barrier(
                time, y
            )  # slower warps still read the tile before; with copies, the tile is complete
            if asynchronous:
                box("pale-blue", "blue", time, copy, y, f"copy {tile + 1}")
            else:
                box("pale-blue", "blue", time, copy, y, f"load {tile}")
                box("pale-blue", "blue", time + copy, store, y, "st")
                time += copy + store
                barrier(time, y)  # the tile is complete
            odd = asynchronous and tile % 2
            box(
                "pale-yellow" if odd else "pale-green",
                "brown" if odd else "green",
                time,
                work,
                y + 36,
                f"tile {tile}",
            )
            time += work
    drawing.path(f"M{left} 298H{end}l-8 -4m8 4l-8 4", "note")
    drawing.text(end, 320, "time", "note", "end")
    return drawing.svg()


# ---------------------------------------------------------------- block_order: the order of the blocks


def in_order(block, Br, Tr, **_):
    """async_copy: (head, first row of the tile of Q) of a block."""
    texts = said("13", r"head = (blockIdx\.x [^;]+);\s+const int i0 = ([^;]+);")
    return [value(text.replace("blockIdx.x", "block"), block=block, Tr=Tr, Br=Br) for text in texts]


def longest_first(block, Br, Tr, heads, wave_heads):
    """block_order: the same, by the lines of its kernel."""
    known = {"block": block, "Br": Br, "Tr": Tr, "heads": heads, "wave_heads": wave_heads}
    for name in ("wave", "first_head", "wave_size", "in_wave", "head", "i0"):
        (text,) = said("14", rf"\b{name} = ([^;]+);")
        known[name] = value(text.replace("blockIdx.x", "block"), **known)
    return known["head"], known["i0"]


def schedule(order, places, heads, Tr, wave_heads):
    """[(place, start, length, head, tile)] when each block goes to the place that is free first."""
    Br, Bc = constants("14", "Br", "Bc")
    free, done = [(0.0, place) for place in range(places)], []
    for block in range(heads * Tr):
        head, i0 = order(block, Br=Br, Tr=Tr, heads=heads, wave_heads=wave_heads)
        start, place = heapq.heappop(free)
        length = (
            1.5 + (i0 + Br) / Bc
        )  # tiles of K that a causal block reads, and what each block does once
        heapq.heappush(free, (start + length, place))
        done.append((place, start, length, head, i0 // Br))
    return done


def block_order():
    """Who works when, on a small GPU: in order, longest first head by head, and in waves of twice the places."""
    places, heads, Tr, row = 16, 12, 8, 11
    drawing = Drawing(
        WIDTH,
        770,
        f"Causal blocks on a GPU with places for {places}",
        f"{heads} heads with {Tr} tiles of Q each. A line is a place for a block, a bar is a block: its\n"
        "length is the number of keys that its tile sees, its colour the head. Grey: idle.",
    )
    wave_heads = 2 * places // Tr
    plans = [
        ("async_copy: in the order of the tiles", in_order, 1),
        ("longest first, one head after the other", longest_first, 1),
        (f"block_order: longest first, in waves of {wave_heads} heads", longest_first, wave_heads),
    ]
    done = [schedule(order, places, heads, Tr, wave) for _, order, wave in plans]
    unit = (WIDTH - 48) / max(start + length for blocks in done for _, start, length, *_ in blocks)
    for panel, ((caption, *_), blocks) in enumerate(zip(plans, done)):
        top, end = 126 + 220 * panel, max(start + length for _, start, length, *_ in blocks)
        busy = sum(length for _, _, length, *_ in blocks) / (places * end)
        drawing.text(24, top - 10, caption, style="font-weight: 600")
        drawing.text(WIDTH - 24, top - 10, f"{busy:.0%} at work", "note", "end")
        drawing.rect(24, top, unit * end, row * places, "grid", "grid")
        for place, start, length, head, _ in blocks:
            drawing.rect(
                24 + unit * start,
                top + row * place,
                unit * length,
                row,
                PALE[head % 4],
                "note",
                'stroke-width="0.6"',
            )
    drawing.text(WIDTH - 24, 758, "time", "note", "end")
    return drawing.svg()


# ---------------------------------------------------------------- lazy_maximum and fixed_maximum: what waits for the maximum


def window():
    """Limits of one row: every tile's largest score, the running maximum of lean_softmax, and the limit m of lazy_maximum."""
    windows = said("16", r"window = [^?;]+\? (\d+) : (\d+);")
    sigma, tiles, left, unit = 8, 24, 48, 20
    random.seed(67)  # one of many with a second raise
    (Bc,) = constants("16", "Bc")
    tops = [
        max(random.gauss(0, sigma) for _ in range(Bc)) * math.log2(math.e) for _ in range(tiles)
    ]
    drawing = Drawing(
        WIDTH,
        566,
        "One row, tile by tile: when is the maximum raised?",
        f"Dots: the largest score of each tile, for random scores of standard deviation {sigma},\n"
        "in powers of two. Blue: m. Red: a tile in which m is raised.",
    )
    raised, running = [], -math.inf
    for tile, top in enumerate(tops):
        raised += [tile] * (top > running)
        running = max(running, top)
    panels = [
        (
            "lean_softmax: at each new maximum",
            raised,
            [max(tops[: tile + 1]) for tile in range(tiles)],
            100,
        )
    ]
    for name, size, height in zip(("fp16", "bf16"), map(int, windows), (100, 130)):
        m, raised, limits = -math.inf, [], []
        for tile, top in enumerate(tops):
            if tile == 0 or top >= m:
                m = top + size
                raised.append(tile)
            limits.append(m)
        panels.append(
            (f"lazy_maximum, {name}: m lies {size} above the largest", raised, limits, height)
        )
    y = 118
    for caption, raised, line, height in panels:
        low, high = min(tops) - 2, max(*tops, *line) + 3
        at = lambda value: y + height - (value - low) / (high - low) * height
        drawing.text(
            24, y - 10, f"{caption}: {len(raised)} of {tiles} tiles", style="font-weight: 600"
        )
        for tile in raised:
            drawing.rect(left + unit * tile, y, unit, height, "grid", "grid")
        path = "".join(
            f"{'L' if tile else 'M'}{left + unit * tile:g} {at(value):.1f}H{left + unit * (tile + 1):g}"
            for tile, value in enumerate(line)
        )
        drawing.path(path, "blue", 2)
        for tile, top in enumerate(tops):
            colour = "red" if tile in raised else "ink"
            drawing.rect(left + unit * (tile + 0.5) - 2.5, at(top) - 2.5, 5, 5, colour, "page")
        drawing.text(left - 6, at(line[0]) + 4, "m", "blue", "end", 12)
        y += height + 36
    drawing.text(left + unit * tiles, y - 14, "tile of keys", "note", "end", 12)
    return drawing.svg()


def overlap():
    """One warp of lazy_maximum and fixed_maximum in time: a drawing, whose lengths are chosen."""
    left, unit = 84, 8.2
    drawing = Drawing(
        WIDTH,
        340,
        "One warp in time (a drawing: lengths are not measured)",
        "Red: the vote. Above: what the tensor cores get from this warp, below: the rest.\n"
        "In fixed_maximum exponentials run beside the products of other keys.",
    )
    QK, vote, exp, PV = 8, 3, 9, 8

    def box(colour, stroke, start, length, y, text):
        drawing.rect(left + unit * start, y, unit * length, 28, colour, stroke, 'rx="3"')
        drawing.text(left + unit * (start + length / 2), y + 18, text, anchor="middle", size=11)

    for y, late in ((100, False), (212, True)):
        drawing.text(24, y + 19, f"rung {16 + late}", style="font-weight: 600")
        drawing.text(24, y + 53, "other units", "note", size=11)
        time = 0
        for tile in range(2 + late):
            if late:
                if time + QK + PV + 4 > 56:
                    break
                box("pale-blue", "blue", time, QK, y, f"Q K {tile}")
                box("pale-yellow", "brown", time + 2, exp + 1, y + 34, "exp2")
                box("pale-green", "green", time + QK, PV + 1, y, f"P V {tile}")
                time += QK + PV + 1
                box("page", "red", time, 1.5, y + 34, "")
                time += 1.5
            else:
                box("pale-blue", "blue", time, QK, y, f"Q K {tile}")
                box("page", "red", time + QK, vote, y + 34, "vote")
                box("pale-yellow", "brown", time + QK + vote, exp, y + 34, "exp2")
                box("pale-green", "green", time + QK + vote + 4, PV + 1, y, f"P V {tile}")
                time += QK + vote + 4 + PV + 1
    drawing.path(f"M{left} 300H{left + 55 * unit}l-8 -4m8 4l-8 4", "note")
    drawing.text(left + 55 * unit, 322, "time", "note", "end")
    return drawing.svg()


def drift():
    """Four warps and five tiles of fixed_maximum and multistage in time. The lengths are chosen, when a tile begins follows from them."""
    left, unit, warps, tiles, slots, landing = 78, 7.6, 4, 5, 4, 2
    lengths = ((9, 9, 8, 9, 8), (9, 12, 9, 8, 9), (8, 9, 9, 13, 8), (10, 8, 9, 9, 9))
    drawing = Drawing(
        WIDTH,
        392,
        "Four warps of a block in time (a drawing: lengths are not measured)",
        "A box is a tile of keys; two of them are mended, and take longer. Red: __syncthreads().\n"
        "Above, all warps wait for the slowest one. Below, each begins when its tile has landed.",
    )
    for y, rung in ((96, 17), (232, 18)):
        ends, landed = [[] for _ in range(warps)], [landing] * (slots // 2)
        for tile in range(tiles):
            ready = [
                max(landed[tile] if rung == 18 else landing, *ends[warp][-1:], 0)
                for warp in range(warps)
            ]
            begins = [max(ready)] * warps if rung == 17 else ready
            # The copy of the tile two further on starts here, once all warps are through the one that lies in its slot.
            free = (
                max(ends[warp][tile - slots // 2] for warp in range(warps))
                if tile >= slots // 2
                else 0
            )
            begins = [max(begin, free) if rung == 18 else begin for begin in begins]
            landed.append(max(begins) + landing)
            for warp in range(warps):
                ends[warp].append(begins[warp] + lengths[warp][tile])
                long = lengths[warp][tile] > 11
                drawing.rect(
                    left + unit * begins[warp],
                    y + 27 * warp,
                    unit * lengths[warp][tile],
                    22,
                    "pale-yellow" if long else "pale-blue",
                    "brown" if long else "blue",
                    'rx="3"',
                )
                drawing.text(
                    left + unit * (begins[warp] + lengths[warp][tile] / 2),
                    y + 27 * warp + 16,
                    f"{tile}",
                    anchor="middle",
                    size=11,
                )
            if rung == 17:
                drawing.path(f"M{left + unit * begins[0] - 2:g} {y - 4}v{27 * warps}", "red", 2)
        drawing.text(24, y + 16, f"rung {rung}", style="font-weight: 600")
    drawing.path(f"M{left} 358H{left + 60 * unit:g}l-8 -4m8 4l-8 4", "note")
    drawing.text(left + 60 * unit, 378, "time", "note", "end")
    return drawing.svg()


PICTURES = {
    "fragments.svg": fragments,
    "ldmatrix.svg": ldmatrix,
    "swizzle.svg": swizzle,
    "warp_tiles.svg": warp_tiles,
    "pipeline.svg": pipeline,
    "block_order.svg": block_order,
    "window.svg": window,
    "late_question.svg": overlap,
    "drift.svg": drift,
}


if __name__ == "__main__":
    sys.exit(main(PICTURES, *sys.argv))
