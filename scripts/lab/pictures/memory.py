"""Pictures of memory: its levels, what an access touches, what the fp32 rungs move; and of online
softmax."""

import math

from lab.pictures.drawing import PALE, Narrow


def latency_hiding(wait=8, clocks=24):
    """One scheduler with few warps and with many: the wait is the same, and is filled."""
    cell, high, left, top, groups = 16, 15, 92, 92, (1, 4, 8)
    drawing = Narrow(
        112 + sum(64 + high * warps for warps in groups),
        "One scheduler, and what it does while loads travel",
        f"Blue: a warp issues an instruction, and then waits {wait - 1} clocks for its load.\n"
        "(A drawing: a real load of the GPU's memory takes hundreds of clocks.)",
    )
    for warps in groups:
        taken = scheduled(warps, wait, clocks)
        share = 100 * sum(warp is not None for warp in taken) / clocks
        caption = f"{warps} warp{'s' * (warps > 1)}: {share:.3g}% of the clocks are used"
        drawing.bold(24, top + 12, caption)
        for warp in range(warps):
            y = top + 22 + high * warp
            drawing.note(left - 8, y + 11, f"warp {warp}", "end")
            for clock in (clock for clock in range(clocks) if taken[clock] == warp):
                end = min(clock + wait, clocks)
                drawing.path(f"M{left + cell * (clock + 1)} {y + 7}H{left + cell * end}")
                drawing.rect(left + cell * clock, y + 1, cell, high - 3, "blue", "page")
        y = top + 26 + high * warps
        drawing.text(left - 8, y + 11, "scheduler", "ink", "end", 12)
        for clock, warp in enumerate(taken):
            colour = None if warp is None else "green"
            drawing.rect(left + cell * clock, y, cell, high - 2, colour)
        top += 64 + high * warps
    drawing.time(left, left + cell * clocks, top - 2, "clocks")
    return drawing.svg()


def scheduled(warps, wait, clocks):
    """[warp or None] of each clock: a scheduler takes the first warp that is ready, which then
    waits for its load."""
    ready, taken = [0] * warps, []
    for clock in range(clocks):
        warp = next((one for one in range(warps) if ready[one] <= clock), None)
        if warp is not None:
            ready[warp] = clock + wait
        taken.append(warp)
    return taken


def memory_pyramid():
    """The levels of a GPU's memory with what docs/examples/memory_levels.cu measured (the record
    memory_levels_h200)."""
    levels = (
        ("registers", "256 KiB per SM, 33 MiB in all", "one thread's own, at most 255 each", "",
         "pale-green"),
        ("shared memory", "up to 228 KiB per SM, of 256 KiB together with L1",
         "of one block; the program says what is in it", "29 clocks, 15 ns; 32.4 TB/s",
         "pale-blue"),
        ("L1 cache", "the rest of those 256 KiB per SM", "of the threads of an SM",
         "39 clocks, 20 ns; 32.0 TB/s", "pale-blue"),
        ("L2 cache", "60 MiB", "of all SMs", "288 clocks, 146 ns; 9.1 TB/s", "pale-yellow"),
        ("DRAM, \u201cglobal memory\u201d", "140 GiB", "of all SMs; the host copies to and from it",
         "666 clocks, 336 ns; 4.5 TB/s", "pale-purple"),
    )  # fmt: skip
    drawing = Narrow(
        92 + 92 * len(levels),
        "The memories of an H200, 132 SMs",
        "Time of one load, and bytes per second of all SMs, as measured.",
    )
    for place, (name, size, whose, speed, colour) in enumerate(levels):
        y, inset, middle = 80 + 92 * place, 16 * (len(levels) - 1 - place), Narrow.width / 2
        drawing.rect(24 + inset, y, Narrow.width - 48 - 2 * inset, 82, colour, "grid", 'rx="6"')
        drawing.text(middle, y + 20, name, anchor="middle", style="font-weight: 600")
        drawing.note(middle, y + 38, size, "middle", 13)
        drawing.note(middle, y + 56, whose, "middle", 13)
        drawing.text(middle, y + 74, speed, anchor="middle")
    return drawing.svg()


def coalescing(keys=8):
    """Four accesses of cuda_naive's `scores` by one warp, whose threadIdx.x counts `keys` keys."""
    drawing = Narrow(
        752,
        "What one instruction of a warp touches",
        "A frame is a sector of 32 bytes, a cell in it one float.\n"
        "Blue cells are asked for; a touched sector moves whole.",
    )
    # What a lane asks for: (row of the matrix, float of that row).
    store = [(lane // keys, lane % keys) for lane in range(32)]
    key = [(lane % keys, 0) for lane in range(32)]
    query = [(lane // keys, 0) for lane in range(32)]
    turned = [(lane, 0) for lane in range(32)]
    top = draw_access(drawing, 96, "Store of S: 8 keys x 4 queries per warp", store)
    top = draw_access(drawing, top, "Load of K, one column x", key)
    top = draw_access(drawing, top, "Load of Q, one column x", query)
    draw_access(drawing, top, "Store of S if threadIdx.x ran along the queries", turned, 6)
    return drawing.svg()


def draw_access(drawing, top, caption, asked, pitch=15):
    """The sectors that a warp touches; rows lie far apart. Returns where the next panel begins."""
    left, cell, rows = 74, 13, sorted({row for row, _ in asked})
    sectors = {(row, item // 8) for row, item in asked}
    moved = f"{len(sectors)} sectors, {32 * len(sectors)} bytes, of which {4 * len(set(asked))}"
    drawing.bold(24, top + 12, caption)
    colour = "red" if len(sectors) > 8 else "note"
    drawing.text(24, top + 30, f"{moved} are asked for", colour)
    for place, row in enumerate(rows):
        y = top + 38 + pitch * place
        for item in sorted({item for at, item in asked if at == row}):
            x = left + cell * item + item // 8 * 5
            drawing.rect(x, y, cell, pitch - 3, "blue", "page", 'stroke-width="0.6"')
        for sector in range(2):
            taken = "ink" if (row, sector) in sectors else "grid"
            drawing.rect(left + sector * (8 * cell + 5), y, 8 * cell, pitch - 3, None, taken)
        if pitch > 12 or place in (0, len(rows) - 1):
            below = y + (11 if pitch > 12 else 6)
            drawing.note(left - 8, below, f"row {place}", "end")
            lanes = [lane for lane in range(32) if asked[lane][0] == row]
            drawing.note(left + 16 * cell + 16, below, in_words(lanes))
    return top + 56 + pitch * len(rows)


def in_words(lanes):
    """Some lanes, evenly apart."""
    if len(lanes) == 1:
        return f"lane {lanes[0]}"
    if lanes[1] - lanes[0] == 1:
        return f"lanes {lanes[0]} to {lanes[-1]}"
    return f"lanes {lanes[0]}, {lanes[1]} .. {lanes[-1]}"


def loop_orders():
    """Which pairs of tiles a block visits, in which order, and what of it passes between L1 and
    L2."""
    drawing = Narrow(
        640,
        "Two ways through the same tiles",
        "One head, 256 queries x 256 keys; a cell is a pair of tiles.\n"
        "A colour is one block, an arrow its inner loop.",
    )
    draw_order(drawing, 112, "flash_attention_1: one block, K in the outer loop", 64, 64, False)
    draw_order(drawing, 390, "flash_attention_2: a block per tile of Q", 64, 32, True)
    return drawing.svg()


def draw_order(drawing, top, caption, Br, Bc, block_per_tile):
    """One order, and how often it moves each matrix of a head."""
    left, side, N, d = 66, 176, 4096, 64
    rows, columns, Tr, Tc = 256 // Br, 256 // Bc, N // Br, N // Bc
    high, wide = side / rows, side / columns
    drawing.bold(24, top, caption)
    drawing.note(left + side / 2, top + 22, f"K, V: tiles of {Bc} keys", "middle")
    drawing.note(left - 14, top + 30 + side / 2, f"Q, O: tiles of {Br}", "middle", turn=-90)
    for row in range(rows):
        for column in range(columns):
            colour = PALE[row % 4] if block_per_tile else PALE[0]
            drawing.rect(left + wide * column, top + 30 + high * row, wide, high, colour)
    for line in range(rows if block_per_tile else columns):
        x, y = left + wide * (line + 0.5), top + 30 + high * (line + 0.5)
        if block_per_tile:
            drawing.arrow(left + 8, y, left + side - 8, y, "ink", 1.75)
        else:
            drawing.arrow(x, top + 38, x, top + 22 + side, "ink", 1.75)
    if block_per_tile:
        times = {"Q read": 1, "K, V read": 2 * Tr, "O read": 0, "O written": 1}
    else:
        times = {"Q read": Tc, "K, V read": 2, "O read": Tc, "O written": Tc + 1}
    x, y, mebibytes = left + side + 24, top + 22, 4 * N * d / 2**20
    drawing.note(x, y, f"MiB per head, N = {N}, d = {d}")
    for place, (what, often) in enumerate(times.items()):
        drawing.text(x, y + 30 + 36 * place, what, size=12)
        colour = "orange" if "O" in what else "blue"
        drawing.bar(
            x, y + 36 + 36 * place, often * mebibytes, 10, colour, f"{often * mebibytes:.0f}"
        )
    drawing.bold(x, y + 190, f"in all: {sum(times.values()) * mebibytes:.0f}")


def tile_sizes():
    """What a larger tile saves in flash_attention_1, in GB: what the formula says, and what ncu
    counted between L1 and L2 and at DRAM (the record gpu_tiles)."""
    counted = {
        64: {
            32: (25.971, 27.346, 26.495),
            64: (13.086, 13.696, 13.342),
            128: (6.6438, 7.0012, 6.7647),
        },
        8: {
            32: (3.2464, 3.4252, 0.028099),
            64: (1.6358, 1.7266, 0.027520),
            128: (0.83047, 0.88609, 0.027774),
        },
    }
    drawing = Narrow(
        622,
        "flash_attention_1: bytes against the size of a tile",
        "N = 4096, d = 64, in GB. The formula holds between L1 and L2;\n"
        "DRAM depends on what fits into L2.",
    )
    whats = ("formula", "note"), ("L1 to L2", "blue"), ("DRAM", "orange")
    for (heads, sizes), top in zip(counted.items(), (112, 362), strict=True):
        drawing.bold(24, top, f"{heads} heads")
        unit = 270 / sizes[32][0]  # pixels per GB
        for place, (size, values) in enumerate(sizes.items()):
            y = top + 14 + 74 * place
            drawing.text(24, y + 38, f"{size} x {size}")
            for line, ((what, colour), value) in enumerate(zip(whats, values, strict=True)):
                drawing.note(94, y + 18 + 20 * line, what)
                text = f"{value:.3g}"
                drawing.bar(158, y + 8 + 20 * line, max(unit * value, 1), 12, colour, text)
    return drawing.svg()


def outer_product():
    """How many multiply-adds 2, 4 and 16 numbers pay for."""
    drawing = Narrow(
        298,
        "Reads grow with the side, work with the area",
        "Orange: numbers fetched from shared memory. Blue: multiply-adds.",
    )
    for left, side, cell in ((30, 1, 20), (166, 2, 20), (310, 8, 16)):
        x, y = left + 26, 104
        for at in range(side):
            drawing.rect(x + cell * at, y - cell - 4, cell, cell, "orange", "page")
            drawing.rect(x - cell - 4, y + cell * at, cell, cell, "orange", "page")
        for row in range(side):
            for column in range(side):
                drawing.rect(x + cell * column, y + cell * row, cell, cell, "blue", "page")
        work = f"{side * side} multiply-add{'s' if side > 1 else ''}"
        for line, text in enumerate((f"{2 * side} numbers,", work)):
            drawing.text(left, 258 + 18 * line, text)
    return drawing.svg()


def micro_tile(R=8, C=8, LR=4, LC=8, d=64, shown=9):
    """Which elements of a warp's tile of S one lane owns, and what it reads for them: R x C, LR and
    LC apart."""
    lanes = [(lane // LC, lane % LC) for lane in range(32)]
    rows, columns, cell, left, top = LR * R, LC * C, 6.5, 62, 124
    drawing = Narrow(
        524,
        f"micro_tiles: a lane's part of its warp's S (d = {d})",
        f"{rows} queries x {columns} keys; a lane owns {R} x {C} of them, {LR} and {LC} apart.\n"
        f"Blue: lane {shown}'s scores. Orange: the numbers that it reads per column.",
    )
    own_rows = [lanes[shown][0] + LR * i for i in range(R)]
    own_columns = [lanes[shown][1] + LC * i for i in range(C)]
    middle = left + columns * cell / 2
    drawing.note(middle, top - 24, "column x of K: one number per key", "middle")
    drawing.note(left - 26, top + rows * cell / 2, "column x of Q", "middle", turn=-90)
    for column in range(columns):
        colour = "orange" if column in own_columns else None
        drawing.rect(left + cell * column, top - 14, cell, 9, colour)
    for row in range(rows):
        colour = "orange" if row in own_rows else None
        drawing.rect(left - 14, top + cell * row, 9, cell, colour)
    for row in range(R):
        for column in range(C):
            at = left + cell * LC * column, top + cell * LR * row
            drawing.rect(*at, cell * LC, cell * LR)
    for row in own_rows:
        for column in own_columns:
            at = left + cell * column, top + cell * row
            drawing.rect(*at, cell, cell, "blue", "page", 'stroke-width="0.5"')
    corner, big, from_left = top + rows * cell + 70, 25, 62
    drawing.bold(24, corner - 34, f"Its first {LR} x {LC} elements, and the lane that owns each")
    drawing.note(from_left + big * LC / 2, corner - 10, "keys", "middle")
    drawing.note(from_left - 12, corner + big * LR / 2, "queries", "middle", turn=-90)
    for lane, (row, column) in enumerate(lanes):
        x, y = from_left + big * column, corner + big * row
        drawing.rect(x, y, big, big, *("pale-blue", "blue") if lane == shown else (None, "grid"))
        drawing.text(x + big / 2, y + 17, lane, anchor="middle", size=12)
    texts = (
        f"Per column a lane reads {R} + {C}",
        f"numbers and makes {R} x {C} = {R * C}",
        "multiply-adds, so each number",
        f"is used {R} times.",
    )
    drawing.lines(from_left + big * LC + 22, corner + 22, texts, 20, 13)
    return drawing.svg()


def transposed_square(LR=4):
    """Four rows of memory, in which one column is 4 numbers far apart, become four rows of shared
    memory, in which it is 16 bytes side by side."""
    drawing = Narrow(
        330,
        "wide_loads: a 4 x 4 square is turned on its way in",
        "A colour is a column of Q. One thread loads 16 bytes of each of four\n"
        "rows, and stores 16 bytes of each of four columns.",
    )
    fills, cell, top = ("blue", "orange", "green", "purple"), 34, 128

    def square(left, caption, names, turned, apart):
        drawing.bold(left, top - 22, caption)
        for row in range(4):
            y = top + apart * row
            drawing.note(left - 8, y + 22, names[row], "end")
            for column in range(4):
                letter, number = (column, row) if turned else (row, column)
                x = left + cell * column
                drawing.rect(x, y, cell, cell, fills[number], "page", 'rx="3"')
                text = f"{'abcd'[letter]}{number}"
                drawing.text(x + cell / 2, y + 22, text, "page", "middle", 12)

    rows = ["row 0", *(f"row {LR * i}" for i in range(1, 4))]
    square(70, "memory", rows, False, 42)
    drawing.arrow(222, top + 80, 268, top + 80)
    drawing.note(246, top + 70, "one thread", "middle")
    drawing.note(246, top + 98, "16 registers", "middle")
    square(352, "shared memory", [f"column {x}" for x in range(4)], True, 42)
    drawing.note(24, 316, f"four queries of one lane, {LR} apart")
    drawing.note(330, 316, "the same, side by side")
    return drawing.svg()


def three_roofs():
    """Three lower bounds of each fp32 rung as docs/roofline.md computes them, and the measured time
    (the records bench_h200 and gpu_fp32_climb), in ms on one logarithmic axis."""
    bounds = {
        "cuda_naive": (4.297, 4.129, 98.60, 132.9),
        "flash_attention_1": (8.862, 3.150, 51.77, 63.81),
        "flash_attention_2": (4.297, 0.06177, 15.41, 18.94),
        "micro_tiles": (4.297, 0.06334, 4.108, 10.63),
        "wide_loads": (4.297, 0.06334, 4.108, 7.074),
        "double_buffer": (4.297, 0.06238, 2.055, 5.980),
    }
    bottom, left, right, high = 92 + 104 * len(bounds), 44, 488, 104
    drawing = Narrow(
        bottom + 48,
        "What bounds the fp32 rungs",
        "Milliseconds at (B, H, N, d) = (4, 16, 4096, 64). The bound that is\n"
        "nearest to the measured time is the one to work on.",
    )

    def place(ms):
        return left + (right - left) * math.log(ms / 0.03) / math.log(300 / 0.03)

    for tick in (0.1, 1, 10, 100):
        drawing.path(f"M{place(tick):g} 88V{bottom}", "grid")
        drawing.note(place(tick), bottom + 18, f"{tick:g} ms", "middle")
    whats = "arithmetic", "memory", "L1 or shared memory", "measured"
    for number, (rung, times) in enumerate(bounds.items()):
        top = 92 + high * number
        drawing.bold(24, top + 18, rung)
        for line, (what, ms) in enumerate(zip(whats, times, strict=True)):
            x, y, after = place(ms), top + 18 + 22 * line, place(ms) < 290
            dot, ink = (("green", "note"), ("orange", "note"), ("blue", "note"), ("ink", "ink"))[
                line
            ]
            drawing.rect(x - 5, y - 9, 10, 10, dot, "page", 'rx="5"')
            text = f"{what}, {ms:.2g}" if ms < 100 else f"{what}, {ms:.0f}"
            side = (x + 10, y, text, ink, "start") if after else (x - 10, y, text, ink, "end")
            drawing.text(*side, 12)
        if number:
            drawing.path(f"M{left} {top + 1}H{right}", "grid")
    return drawing.svg()


LEFT, RIGHT = 56, 500  # of the axes of the next two pictures


def traffic_of_tiles():
    """Numbers moved per score against the tile: 2 d / B, beside the 4 of unfused attention; and
    where 96 KiB end."""
    numbers = 96 * 1024 // 2  # of 16 bits, in the shared memory of one block
    top, height, most_B, most = 84, 220, 256, 5
    drawing = Narrow(
        360,
        "What tiling moves",
        "Numbers from and to memory per score, by the formulas of this page.\n"
        f"Dots: the largest tile of {numbers:,} numbers, B = M / 4d.",
    )

    def place(B, moved):
        return LEFT + (RIGHT - LEFT) * B / most_B, top + height * (1 - moved / most)

    for moved in range(most + 1):
        drawing.path(f"M{LEFT} {place(0, moved)[1]:.1f}H{RIGHT}", "grid")
        drawing.note(LEFT - 8, place(0, moved)[1] + 4, moved, "end", 11)
    for B in range(0, most_B + 1, 32):
        drawing.note(place(B, 0)[0], top + height + 18, B, "middle", 11)
    drawing.note(RIGHT, top + height + 40, "B, rows of a tile", "end", 13)
    drawing.curve([place(0, 4), place(most_B, 4)], "red")
    unfused = "unfused: S and P written and read"
    drawing.text(RIGHT, place(0, 4)[1] - 8, unfused, "red", "end")
    for d, colour, below in ((64, "blue", 20), (128, "orange", -10)):
        tiles = [B for B in range(2 * d // most, most_B + 1, 2) if 2 * d / B <= most]
        drawing.curve([place(B, 2 * d / B) for B in tiles], colour)
        B = numbers // (4 * d)
        x, y = place(B, 2 * d / B)
        drawing.rect(round(x - 4, 1), round(y - 4, 1), 8, 8, colour, colour, 'rx="4"')
        drawing.text(x + 8, y + below, f"d = {d}: {2 * d / B:.2f}", colour)
    return drawing.svg()


# Row 169 of S of head 5 in reference/data/minilm_layer1.safetensors: its maximum rises early,
# in the middle and late.
SCORES = [
    2.277, 0.369, 1.863, 0.437, -1.22, -2.015, -1.183, -2.834, -0.748, -1.507, -0.066, 1.631,
    0.018, -0.058, 1.09, -0.216, 1.309, 1.771, 1.069, -0.573, -0.504, 0.522, -0.465, 2.554,
    0.894, 1.52, -0.335, 2.77, 2.26, -0.544, 0.987, -0.517, 0.626, 1.481, 1.634, -0.368, 2.063,
    -0.246, 0.571, 0.141, 1.03, 1.1, -1.28, 0.18, -0.134, -0.201, -1.234, 0.046, -0.638, 0.881,
    -0.352, -0.809, -0.543, -1.178, -0.279, -0.917, -1.743, 0.236, -0.527, 0.829, -0.665,
    -0.314, 0.192, -2.687, -0.459, -0.77, -0.68, 0.539, 1.264, -1.456, 0.634, 0.83, -2.45,
    -1.839, 0.299, -2.091, -3.265, -0.075, -1.326, -2.166, -1.591, 0.503, -1.181, -0.812,
    -1.497, -0.509, -2.976, -1.966, -1.425, 0.287, -2.24, -1.976, -3.126, -0.477, -2.397, 0.294,
    -0.07, -1.344, -0.064, -1.592, -1.222, -2.053, -1.569, -0.955, -1.014, -0.566, 0.135,
    -2.338, -2.085, 0.344, -1.876, -0.1, -1.339, -2.207, 0.766, -0.887, 1.25, -0.668, 0.102,
    1.341, 1.685, 0.648, 0.181, 0.379, 0.891, 0.179, -0.489, -0.821, 2.085, 0.015, 0.968, 2.844,
    1.405, 2.716, 3.469, 0.198, 0.492, 0.138, 0.254, 0.843, 2.0, 1.718, 1.441, 3.084, 2.198,
    1.597, 2.509, 0.942, 0.567, -0.895, -0.343, 0.68, 1.961, 1.662, 1.299, 1.326, 2.22, 2.019,
    2.433, 2.041, 3.393, 2.944, 4.614, 2.353, 1.823, 2.04, 2.82, 1.958, 2.101, 2.922, 2.548,
    0.918, 0.477, 2.561, 5.071, 2.947,
]  # fmt: skip


def online_softmax():
    """The running maximum and the running sum on a row of scores, one key at a time."""
    m, total, maxima, sums = -math.inf, 0.0, [], []
    for score in SCORES:
        m_new = max(m, score)
        total = total * math.exp(m - m_new) + math.exp(score - m_new)
        m = m_new
        maxima.append(m)
        sums.append(total)
    rises = [j for j in range(1, len(SCORES)) if maxima[j] > maxima[j - 1]]
    drawing = Narrow(
        520,
        "A row of scores, one key after the other",
        f"Query 169 of head 5, {len(SCORES)} keys of a real transformer.\n"
        f"The maximum rises {len(rises)} times after the first key (yellow): l is scaled down.",
    )

    def x(j):
        return LEFT + (RIGHT - LEFT) * (j + 0.5) / len(SCORES)

    def axis(top, height, least, most, step, caption):
        """An axis with its grid; returns the function from a value to its y."""

        def y(value):
            return top + height * (most - value) / (most - least)

        drawing.bold(24, top - 12, caption)
        for value in range(step * math.ceil(least / step), math.floor(most) + 1, step):
            drawing.path(f"M{LEFT} {y(value):.1f}H{RIGHT}", "grid")
            drawing.note(LEFT - 8, y(value) + 4, value, "end", 11)
        return y

    caption = "Scores (dots) and the maximum so far, m (orange)"
    y = axis(124, 170, min(SCORES) - 0.3, max(SCORES) + 0.8, 2, caption)
    for j in rises:
        drawing.path(f"M{x(j):.1f} 124V294M{x(j):.1f} 334V474", "pale-yellow", 5)
    for j, score in enumerate(SCORES):
        drawing.dot(x(j), y(score), 3, "blue")
    drawing.curve([(x(j), y(value)) for j, value in enumerate(maxima)], "orange", steps=True)
    caption = "The sum so far, l = sum of exp(S - m) (green)"
    y = axis(334, 140, 0, 1.1 * max(sums), 5, caption)
    drawing.curve([(x(j), y(value)) for j, value in enumerate(sums)], "green")
    for j in range(0, len(SCORES) - 10, 25):
        drawing.note(x(j), 490, j, "middle", 11)
    drawing.note(RIGHT, 490, "key", "end", 11)
    end = (
        f"At the end m = {m:.2f}, l = {total:.2f}, so LSE = m + log l = {m + math.log(total):.2f}."
    )
    drawing.note(24, 510, end, size=13)
    return drawing.svg()
