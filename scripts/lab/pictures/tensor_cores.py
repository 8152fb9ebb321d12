"""Pictures of what tensor cores read: fragments, ldmatrix, swizzled tiles, descriptors, and weights
that are neither too large nor too small."""

from lab.layouts import a_element, b_element, c_element, ldmatrix_element, swizzled
from lab.pictures.drawing import PALE, Drawing

LANES, HALVES, REGISTERS = range(32), range(2), range(4)
SHOWN_LANE, SHOWN_CHUNK = 9, 2  # drawn apart from the others
CELL_W, CELL_H = 18, 17


def fill(drawing, x, y, held):
    """Cells of a matrix with the lanes that hold them; held: (lane, register, its cells)."""
    marks = []
    for lane, register, cells in held:
        (top, left), (bottom, right) = min(cells), max(cells)
        place = x + CELL_W * left, y + CELL_H * top
        size = CELL_W * (right - left + 1), CELL_H * (bottom - top + 1)
        drawing.rect(*place, *size, PALE[register], "note", 'stroke-width="0.6"')
        for row, column in cells:
            at = x + CELL_W * (column + 0.5), y + CELL_H * row + 13
            drawing.text(*at, lane, anchor="middle", size=11)
        marks += [(*place, *size)] * (lane == SHOWN_LANE)
    for mark in marks:  # above all cells
        drawing.mark(*mark)


def matrix(drawing, x, y, columns, held, caption, across, down="", rows=range(16), first=0):
    """A matrix whose every cell says which lane holds it; rows: those that are drawn, from the
    top."""
    drawing.bold(x, y - 38, caption)
    drawing.note(x, y - 21, across)
    for column in range(columns):
        drawing.note(x + CELL_W * (column + 0.5), y - 5, first + column, "middle", 11)
    if down:
        drawing.note(x - 26, y + len(rows) * CELL_H / 2, down, "middle", turn=-90)
        for line, row in enumerate(rows):
            drawing.note(x - 6, y + CELL_H * line + 13, row, "end", 11)
    lines = {row: line for line, row in enumerate(rows)}
    drawn = [
        (lane, register, [(lines[row], column) for row, column in cells])
        for lane, register, cells in held
        if all(row in lines for row, _ in cells)
    ]
    fill(drawing, x, y, drawn)


def legend(drawing, y, text, x=150):
    """Which colour is which register."""
    drawing.note(24, y, text, size=13)
    for register in REGISTERS:
        left = x + 64 * register
        drawing.rect(left, y - 13, CELL_W, CELL_H, PALE[register], "note")
        drawing.note(left + CELL_W + 6, y, f"[{register}]", size=13)


def held_in(element, registers):
    """What each lane holds of A or B, two elements in a register."""
    return [
        (lane, register, [element(lane, register, half) for half in HALVES])
        for lane in LANES
        for register in registers
    ]


def fragments():
    """A x B = C, each beside those whose rows and columns it shares; then two C become an A."""
    a, b = held_in(a_element, REGISTERS), held_in(b_element, HALVES)
    c = [(lane, register, [c_element(lane, register)]) for lane in LANES for register in REGISTERS]
    g, t = divmod(SHOWN_LANE, 4)
    drawing = Drawing(1206, "mma m16n8k16: which lane holds what", "A number in a cell is a lane.")
    left, right, upper, lower = 56, 372, 130, 462
    texts = (
        "A colour is one register of the lane:",
        "",
        "",
        f"Red is what lane {SHOWN_LANE} holds:",
        f"g = {SHOWN_LANE} / 4 = {g},  t = {SHOWN_LANE} mod 4 = {t}.",
        "",
        "A: rows g and g + 8; columns 2t, 2t + 1,",
        "and the same two 8 columns on",
        "B: A's columns are its rows;",
        "and one column, g",
        "C: A's rows; columns 2t and 2t + 1",
    )
    drawing.lines(24, 110, texts, 22, 13)
    legend(drawing, 136, "", 24)
    query, key = "row: a query", "column: a key"
    matrix(drawing, right, upper, 8, b, "B, 16 x 8: K transposed", key, "row: head dim")
    matrix(drawing, left, lower, 16, a, "A, 16 x 16: Q", "column: head dim", query)
    matrix(drawing, right, lower, 8, c, "C = A B: S, in fp32", key)

    rows = (*range(4), *range(8, 12))  # enough to see all registers
    upper, lower, height = lower + 368, lower + 572, len(rows) * CELL_H
    drawing.bold(24, upper - 64, "Two results side by side are the next A: nothing moves")
    matrix(drawing, left, upper, 8, c, "C of keys 0 to 7", key, query, rows)
    matrix(drawing, left + 150, upper, 8, c, "C of keys 8 to 15", key, "", rows, 8)
    matrix(drawing, left, lower, 16, a, "A: P, rounded to 16 bits", "column: a key", query, rows)
    drawing.arrow(left + 330, upper + height / 2, left + 330, lower + height / 2)
    texts = ("round, and pack:", "left C to [0] and [1],", "right C to [2] and [3]")
    drawing.lines(left + 342, lower - 60, texts)
    drawing.note(24, lower + height + 20, "Rows 4 to 7 and 12 to 15 are left out.")
    return drawing.svg()


def ldmatrix():
    """The ldmatrix for Q, K and V: who names which row, and who receives which element."""
    drawing = Drawing(
        1134,
        "ldmatrix.x4: who names a row, who receives it",
        "Beside a row of 16 bytes: the lane that names it. In a cell: the lane that\n"
        f"receives it, two elements per register. What lane {SHOWN_LANE} receives is red.",
    )
    legend(drawing, 100, "into register")
    rows_then_chunks = [(lane % 16, lane // 16) for lane in LANES]
    chunks_then_rows = [(lane % 8 + lane // 16 * 8, lane // 8 % 2) for lane in LANES]
    for top, caption, note, rows, columns, transposed, named in (
        (166, "Q: one A fragment", "16 queries x 16 columns", "query", "column", False,
         rows_then_chunks),
        (506, "K: the B fragments of two mma",
         "16 keys x 16 columns; keys 0 to 7 for the first mma", "key", "column", False,
         chunks_then_rows),
        (846, "V, .trans: the B fragments of two mma",
         "16 keys x 16 columns; columns 0 to 7 for the first mma", "key", "column", True,
         rows_then_chunks),
    ):  # fmt: skip
        draw_ldmatrix(drawing, top, caption, note, rows, columns, transposed, named)
    return drawing.svg()


def draw_ldmatrix(drawing, top, caption, note, rows, columns, transposed, named):
    """One ldmatrix.x4; named: (row, chunk) that each lane names."""
    left, chunk_w = 130, 8 * CELL_W

    def cell(lane, register, half):
        tile, row, column = ldmatrix_element(lane, register, half, transposed)
        at_row, chunk = named[8 * tile + row]
        return at_row, 8 * chunk + column

    drawing.bold(left - 78, top - 36, caption)
    drawing.note(left - 78, top - 19, note)
    fill(drawing, left, top, held_in(cell, REGISTERS))
    for lane, (row, chunk) in enumerate(named):
        x, anchor = (left - 8, "end") if chunk == 0 else (left + 2 * chunk_w + 8, "start")
        drawing.note(x, top + CELL_H * row + 13, f"lane {lane}", anchor, 11)
    drawing.note(left - 68, top + 8 * CELL_H, f"{rows} 0 to 15", "middle", turn=-90)
    for chunk in HALVES:
        text = f"{columns}s {8 * chunk} to {8 * chunk + 7}"
        drawing.note(left + chunk_w * (chunk + 0.5), top - 5, text, "middle", 11)


def swizzle():
    """Eight rows of a tile before and after, for d = 64 and for d = 32."""
    drawing = Drawing(
        560,
        "A tile in shared memory, 128 bytes wide",
        "A frame is 16 bytes, or 4 banks; its number is a chunk of the row. Blue:\n"
        f"chunk {SHOWN_CHUNK} of 8 rows, wanted at once. Below: how many lie in these banks.",
    )

    def as_in_memory(d, rows, row, chunk):
        return 2 * d * row + 16 * chunk

    draw_banks(drawing, 66, 150, "d = 64, as in memory", 64, as_in_memory)
    draw_banks(drawing, 338, 150, "d = 64: chunk XOR row", 64, swizzled)
    draw_banks(drawing, 66, 412, "d = 32, as in memory", 32, as_in_memory)
    draw_banks(drawing, 338, 412, "d = 32: chunk XOR row / 2", 32, swizzled)
    return drawing.svg()


def draw_banks(drawing, x, y, caption, d, place):
    """Where a layout puts the chunks of eight rows."""
    width, height = 25, 20
    drawing.bold(x, y - 40, caption)
    drawing.note(x, y - 22, "first bank", size=11)
    meet, lines = [0] * 8, {}
    for row, chunk in ((row, chunk) for row in range(8) for chunk in range(d // 8)):
        line, byte = divmod(place(d, 8, row, chunk), 128)
        column, shown = byte // 16, chunk == SHOWN_CHUNK
        lines.setdefault(line, set()).add(row)
        meet[column] += shown
        left, top = x + width * column, y + height * line
        colours = ("pale-blue", "blue") if shown else (None, "grid")
        drawing.rect(left, top, width, height, *colours)
        text = f"{row}:{chunk}" if d == 32 else chunk
        drawing.text(left + width / 2, top + 14, text, anchor="middle", size=11)
    for line, rows in lines.items():
        named = f"row{'s' * (len(rows) > 1)} {', '.join(map(str, sorted(rows)))}"
        drawing.note(x - 6, y + height * line + 14, named, "end", 11)
    below = y + height * len(lines) + 16
    for column in range(8):
        middle = x + width * (column + 0.5)
        drawing.note(middle, y - 6, 4 * column, "middle", 11)
        drawing.text(
            middle, below, meet[column] or "", "ink", "middle", 11, style="font-weight: 600"
        )
    most = max(meet)
    colour = "green" if most == 1 else "red"
    drawing.text(x, below + 20, f"{most} wavefront{'s' * (most > 1)}", colour, size=12)


def warp_tiles():
    """The scores of a block in m16n8 tiles, and those that one ldmatrix of K feeds."""
    drawing = Drawing(
        452,
        "What one ldmatrix.x4 of K feeds",
        "The scores of one block and one tile of K: each frame is the result of one mma,\n"
        "16 queries x 8 keys. Red: one warp's scores. Blue: what one fetch feeds.",
    )
    draw_block(drawing, 78, "swizzle", warps=4, warp_rows=16, Bc=64)
    draw_block(drawing, 344, "warp_tiles", warps=4, warp_rows=32, Bc=64)
    return drawing.svg()


def draw_block(drawing, x, rung, warps, warp_rows, Bc):
    """The scores of a block and a tile of K."""
    width, height, top, M = 23, 30, 160, warp_rows // 16
    drawing.bold(x, top - 44, f"{rung}: {warp_rows} rows per warp")
    drawing.note(x, top - 24, "key", size=11)
    for n in range(0, Bc // 8):
        drawing.note(x + width * (n + 0.5), top - 8, 8 * n, "middle", 11)
        for i in range(M * warps):
            colours = ("pale-blue", "blue") if i < M and n in (2, 3) else (None, "grid")
            drawing.rect(x + width * n, top + height * i, width, height, *colours)
    for i in range(M * warps):
        drawing.note(x - 8, top + height * i + 19, f"row {16 * i}", "end", 11)
    drawing.mark(x, top, width * Bc / 8, height * M)
    below = top + height * M * warps + 24
    drawing.text(x, below, f"a fetch of 16 keys: {2 * M} mma", "blue")


def descriptors(Bc=96, stride=1024, step_of_K=32, step_of_V=2048):
    """The tiles of K and V at d = 128 as wgmma sees them: what one k16 step reads, and how far
    apart its pieces are, in bytes. A tile has Bc rows."""
    shown, w, h, panel = 24, 13, 13, 128 * Bc
    drawing = Drawing(
        590,
        "What one k16 step of wgmma reads, at d = 128",
        "A number is a chunk of 16 bytes, drawn where the swizzle puts it.\n"
        f"Of {Bc} rows {shown} are drawn. Coloured: the first k16 step. Frames: atoms.",
    )

    def tile(x, caption, colour, is_read):
        drawing.bold(x, 116, caption, colour)
        for left, first in ((x, 0), (x + 8 * w + 6, 8)):
            columns = f"columns {8 * first} to {8 * first + 63}"
            drawing.note(left + 4 * w, 150, columns, "middle", 11)
            for row, chunk in ((row, first + i) for row in range(shown) for i in range(8)):
                line, byte = divmod(swizzled(128, Bc, row, chunk) % panel, 128)
                at, read = (left + byte // 16 * w, 158 + line * h), is_read(row, chunk)
                drawing.rect(*at, w, h, f"pale-{colour}" if read else None)
                if read:
                    drawing.text(at[0] + w / 2, at[1] + 10.5, chunk, anchor="middle", size=9)
            for atom in range(shown // 8):
                drawing.rect(left, 158 + 8 * atom * h, 8 * w, 8 * h, None, "note", THICKER)

    tile(62, "K: 16 columns of all keys", "blue", lambda row, chunk: chunk < 2)
    tile(312, "V: 16 keys, all columns", "green", lambda row, chunk: row < 16)
    for row in range(0, shown, 8):
        drawing.note(56, 158 + row * h + 10, f"row {row}", "end", 11)
    bottom = 158 + shown * h
    drawing.arrow(28, 170, 28, 158 + 8 * h, "red")
    drawing.text(20, 158 + 5 * h, f"SBO {stride}", "red", "middle", 12, turn=-90)
    texts = (
        f"next k16 step: start + {step_of_K} bytes;",
        f"after four, the next panel: + {panel:,}",
        "LBO: not used",
    )
    drawing.lines(62, bottom + 26, texts, colour="blue")
    step = f"next k16 step: start + {step_of_V:,} bytes"
    drawing.text(312, bottom + 26, step, "green", size=12)
    drawing.text(312, bottom + 44, f"LBO: {panel:,}, from panel to panel", "red", size=12)
    drawing.arrow(316, 136, 312 + 8 * w + 10, 136, "red")
    drawing.text(312 + 8 * w + 16, 140, "LBO", "red", size=12)
    text = f"Panels lie one after the other: {Bc} rows of 128 bytes are {panel:,}."
    drawing.note(24, bottom + 92, text)
    return drawing.svg()


THICKER = 'stroke-width="1.2"'


def five_products():
    """Which warpgroup of backward_wgmma makes what out of which half of dS."""
    drawing = Drawing(
        372,
        "One step of a block at d = 128: 128 keys, 64 queries",
        "Blue: warpgroup 0 and its keys. Green: warpgroup 1. dV comes from P\n"
        "as dK comes from dS. Red: what one warpgroup needs of the other.",
    )
    halves = ("pale-blue", "blue"), ("pale-green", "green")
    drawing.bold(24, 100, "dS\u1d40, a row is a key")
    for group, colours in enumerate(halves):
        y = 112 + 80 * group
        keys = f"keys {64 * group} to {64 * group + 63}"
        drawing.box(24, y, 120, 76, *colours, keys)
        drawing.arrow(150, y + 38, 206, y + 38)
        drawing.box(212, y + 8, 130, 60, *colours, "dK += dS\u1d40 Q")
        drawing.note(350, y + 30, "64 keys x 128: the warpgroup's")
        drawing.note(350, y + 48, "own half of dS is enough")
    drawing.mark(20, 108, 128, 164)
    drawing.arrow(84, 274, 84, 296, "red")
    for group, colours in enumerate(halves):
        columns = f"columns {64 * group} to {64 * group + 63}"
        drawing.box(24 + 164 * group, 302, 160, 44, *colours, columns)
    drawing.text(360, 320, "dQ = dS K", style="font-weight: 600")
    drawing.note(360, 338, "64 queries x 128: a sum over")
    drawing.note(360, 356, "all keys, so all of dS")
    return drawing.svg()


def exponents(window=40, fp16_window=16, negligible=-112):
    """The weights of fixed_maximum on an axis of exponents: what becomes of a guess whose largest
    weight lies there, and where the weights of a row lie before and after a rise of m."""
    left, unit, low, high = 290, 1.72, -138, 146
    holds, repaired = ("pale-green", "green"), ("pale-yellow", "brown")
    dropped, nothing = ("pale-purple", "purple"), ("page", "grid")
    drawing = Drawing(
        492,
        "What becomes of a guess, by its largest weight",
        "The axis counts powers of two. Blue: what the largest weight of a row becomes\n"
        "when m is raised, and how far scores may rise from there before a repair.",
    )

    def at(exponent):
        return left + unit * exponent

    def strip(y, *parts):
        for start, stop, colours, text in parts:
            drawing.box(at(start), y, unit * (stop - start), 28, *colours, text)

    def ticks(y, *exponents):
        for exponent in exponents:
            drawing.path(f"M{at(exponent):g} {y}v6")
            drawing.note(at(exponent), y + 19, f"{exponent}".replace("-", "−"), "middle")

    def room(y, start, end):
        drawing.dot(at(start), y, 6, "blue")
        drawing.arrow(at(start), y, at(end), y, "blue")
        drawing.text(at(end) + 8, y + 4, f"{end - start} powers of two", "blue", size=12)

    top = -window
    kept = top - negligible  # up to here the old O is kept
    drawing.bold(24, 104, "bf16")
    strip(
        112,
        (low, -126, nothing, "0"),
        (-126, window, holds, "the guess holds"),
        (window, kept, repaired, "repaired"),
        (kept, 128, dropped, "and old O dropped"),
        (128, high, dropped, "∞"),
    )
    ticks(140, -126, top, window, kept, 128)
    room(176, top, window)
    drawing.bold(24, 212, "fp16")
    strip(
        220,
        (low, -24, nothing, "rounded to 0"),
        (-24, fp16_window, holds, "it holds"),
        (fp16_window, -negligible, repaired, "saturates, and is repaired"),
        (-negligible, high, dropped, ""),
    )
    ticks(248, -24, 0, fp16_window, -negligible)
    room(284, 0, fp16_window)

    drawing.bold(24, 324, f"bf16: all weights of a row, before and after m rises by {-negligible}")
    for y, name, moved in ((334, "before", 0), (380, "after", negligible)):
        drawing.text(24, y + 19, name, "note", size=12)
        first = at(-126) if moved else at(low) + 50
        drawing.box(
            first, y, at(window + moved) - first, 28, *holds, "old" if moved else "old keys"
        )
        drawing.rect(at(kept + moved) - 3, y, 6, 28, "red", "page")
        drawing.text(at(kept + moved) + 8, y + 19, "the new key", "red", size=12)
    ticks(408, window + negligible, top)
    texts = (
        "The old keys now weigh less than 2⁻⁷² each, the new one weighs 2⁻⁴⁰. With any larger",
        "rise O is dropped, and that loses less than 2⁻³² of the sum for each old key.",
    )
    drawing.lines(24, 452, texts)
    return drawing.svg()
