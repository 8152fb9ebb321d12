"""Layouts, drawn by the functions that say them (steps/tests/layouts.py), and two rungs in time."""

import sys

from lab.ladder import ROOT, ladder
from lab.theme import style

sys.path.append(str(ROOT / "steps/tests"))
from layouts import a_element, b_element, c_element, swizzled  # noqa: E402

SHOWN_LANE, SHOWN_CHUNK = 9, 2  # drawn apart from the others
PALE = ("pale-blue", "pale-green", "pale-yellow", "pale-purple")


def as_in_memory(d, rows, row, chunk):
    return 2 * d * row + 16 * chunk


# ---------------------------------------------------------------- drawing

class Drawing:
    def __init__(self, width, height, title, note):
        size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">', style(),
                      "<style>text { font: 13px var(--font); fill: var(--ink) }</style>"]
        self.rect(0.5, 0.5, width - 1, height - 1, "page", "grid", 'rx="6"')
        self.text(24, 32, title, style="font-size: 16px; font-weight: 600")
        for line, text in enumerate(note.split("\n")):
            self.text(24, 54 + 18 * line, text, "note")

    def rect(self, x, y, width, height, fill, stroke, more=""):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
                          f'style="fill: {f"var(--{fill})" if fill else "none"}; stroke: var(--{stroke})" {more}/>')

    def text(self, x, y, text, colour="ink", anchor="start", size=13, turn=0, style=""):
        turned = f' transform="rotate({turn} {x:g} {y:g})"' if turn else ""
        style += f"; fill: var(--{colour})" * (colour != "ink") + f"; font-size: {size}px" * (size != 13)
        place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"{turned}'
        self.parts.append(f'<text {place} style="{style.strip("; ")}">{text}</text>')

    def path(self, d, colour, width=1):
        self.parts.append(f'<path d="{d}" style="fill: none; stroke: var(--{colour}); stroke-width: {width}"/>')

    def svg(self):
        return "\n".join(self.parts) + "\n</svg>\n"


CELL_W, CELL_H = 23, 19


def matrix(drawing, x, y, columns, held, caption, across, down, first=0):
    """A matrix of 16 rows whose every cell says which lane holds it; held: (lane, register, its cells)."""
    drawing.text(x, y - 40, caption, style="font-weight: 600")
    drawing.text(x, y - 22, across, "note")
    drawing.text(x - 26, y + 8 * CELL_H, down, "note", "middle", turn=-90)
    for column in range(columns):
        drawing.text(x + CELL_W * (column + 0.5), y - 5, first + column, "note", "middle", 11)
    for row in range(16):
        drawing.text(x - 11, y + CELL_H * row + 13, row, "note", "middle", 11)
    for shown in (False, True):  # the marks last, so that nothing covers them
        for lane, register, cells in held:
            (top, left), (bottom, right) = min(cells), max(cells)
            box = x + CELL_W * left, y + CELL_H * top, CELL_W * (right - left + 1), CELL_H * (bottom - top + 1)
            if not shown:
                drawing.rect(*box, PALE[register], "note", 'stroke-width="0.6"')
                for row, column in cells:
                    drawing.text(x + CELL_W * (column + 0.5), y + CELL_H * row + 13, lane, anchor="middle", size=11)
            elif lane == SHOWN_LANE:
                drawing.rect(*box, None, "red", 'stroke-width="2.25"')


def fragments():
    """A x B = C above; below, two C side by side that become an A."""
    lanes, halves = range(32), range(2)
    a = [(lane, register, [a_element(lane, register, half) for half in halves]) for lane in lanes
         for register in range(4)]
    b = [(lane, register, [b_element(lane, register, half) for half in halves]) for lane in lanes
         for register in halves]
    c = [(lane, register, [c_element(lane, register)]) for lane in lanes for register in range(4)]
    drawing = Drawing(952, 848, "mma.sync m16n8k16: which lane holds which element",
                      f"A number is a lane; one frame is one register; lane {SHOWN_LANE}'s are red. Lane = 4g + t.")
    for register in range(4):
        drawing.rect(640 + 74 * register, 40, CELL_W, CELL_H, PALE[register], "note")
        drawing.text(640 + 74 * register + CELL_W + 6, 54, f"[{register}]", "note")
    top, below, half = 128, 520, 8 * CELL_H
    matrix(drawing, 60, top, 16, a, "A, 16 x 16: Q", "k (head dim)", "row (query)")
    matrix(drawing, 502, top, 8, b, "B, 16 x 8: K transposed", "column (key)", "k")
    matrix(drawing, 744, top, 8, c, "C, 16 x 8, fp32: S", "column (key)", "")
    for fragment in halves:
        matrix(drawing, 60 + 208 * fragment, below, 8, c, f"C of keys {8 * fragment} to {8 * fragment + 7}", "",
               "row (query)" * (fragment == 0), 8 * fragment)
    matrix(drawing, 560, below, 16, a, "P, 16 x 16: A of the next product", "k (key)", "")
    for x, y, sign in ((449, top, "×"), (706, top, "="), (500, below, "→")):
        drawing.text(x, y + half, sign, anchor="middle", size=22)
    drawing.text(500, below + half + 20, "round", "note", "middle")
    return drawing.svg()


def swizzle():
    """Eight rows of a tile before and after, for d = 64 and for d = 32."""
    width, height = 42, 24
    drawing = Drawing(880, 646, "A tile in shared memory: one frame is 16 bytes, 4 banks wide",
                      f"A number is a chunk of its row. Blue: chunk {SHOWN_CHUNK} of 8 rows, which ldmatrix wants at "
                      "once;\nbelow, how many of them lie in these banks.")
    for x, y, caption, d, place in ((84, 150, "d = 64, as in memory", 64, as_in_memory),
                                    (516, 150, "d = 64, swizzled: column = chunk XOR row", 64, swizzled),
                                    (84, 482, "d = 32, as in memory", 32, as_in_memory),
                                    (516, 482, "d = 32, swizzled: chunk XOR (row / 2)", 32, swizzled)):
        drawing.text(x, y - 44, caption, style="font-weight: 600")
        drawing.text(x + 4 * width, y - 24, "banks", "note", "middle", 11)
        meet, lines = [0] * 8, {}
        for row, chunk in ((row, chunk) for row in range(8) for chunk in range(d // 8)):
            line, byte = divmod(place(d, 8, row, chunk), 128)
            column, shown = byte // 16, chunk == SHOWN_CHUNK
            lines.setdefault(line, set()).add(row)
            meet[column] += shown
            left, top = x + width * column, y + height * line
            drawing.rect(left, top, width, height, "pale-blue" if shown else None, "blue" if shown else "grid")
            drawing.text(left + width / 2, top + 16, f"{row}: {chunk}" if d == 32 else chunk, anchor="middle", size=11)
        for line, rows in lines.items():
            drawing.text(x - 8, y + height * line + 16,
                         f"row{'s' * (len(rows) > 1)} {', '.join(map(str, sorted(rows)))}", "note", "end")
        below = y + height * len(lines) + 18
        for column in range(8):
            drawing.text(x + width * (column + 0.5), y - 6, f"{4 * column}-{4 * column + 3}", "note", "middle", 11)
            drawing.text(x + width * (column + 0.5), below, meet[column] or "", "ink", "middle", 11,
                         style="font-weight: 600")
        drawing.text(x, below + 22, f"chunk {SHOWN_CHUNK} of 8 rows: {max(meet)} wavefront{'s' * (max(meet) > 1)}",
                     "note")
    return drawing.svg()


def pipeline():
    """The rung with asynchronous copies and the one before it, tile by tile: a drawing, whose lengths are chosen."""
    names = [rung.name for rung in ladder()]
    after = next(number for number, name in enumerate(names) if "async" in name)
    left, unit, copy, store, work = 132, 13, 5, 2, 10
    end = left + 56 * unit
    drawing = Drawing(900, 330, "One block in time (a drawing: lengths are not measured)",
                      f"Red: a barrier. Green and yellow: which buffer is read; rung {names[after - 1][:2]} "
                      f"has one, rung {names[after][:2]} has two.")

    def box(fill, stroke, start, length, y, text):
        x, shown = left + unit * start, min(unit * length, end - left - unit * start)
        if shown > 0:
            drawing.rect(x, y, shown, 28, fill, stroke, 'rx="3"')
        if shown == unit * length:
            drawing.text(x + shown / 2, y + 19, text, anchor="middle", size=12)

    def barrier(at, y):
        if left + unit * at < end:
            drawing.path(f"M{left + unit * at} {y - 4}V{y + 72}", "red", 2.5)
    for y, number in ((84, after - 1), (196, after)):
        drawing.text(24, y + 19, f"rung {names[number][:2]}", style="font-weight: 600")
        drawing.text(24, y + 55, "tensor cores", "note")
        time = 0 if number < after else copy
        if number == after:
            box("pale-blue", "blue", 0, copy, y, "copy 0")
        for tile in range(6):
            barrier(time, y)  # slower warps still read the tile before; with copies, the tile is complete
            if number < after:
                box("pale-blue", "blue", time, copy, y, f"load {tile}")
                box("pale-blue", "blue", time + copy, store, y, "st.")
                time += copy + store
                barrier(time, y)  # the tile is complete
            else:
                box("pale-blue", "blue", time, copy, y, f"copy {tile + 1}")
            odd = number == after and tile % 2
            box("pale-yellow" if odd else "pale-green", "brown" if odd else "green", time, work, y + 36,
                f"S, softmax, O: tile {tile}")
            time += work
    drawing.path(f"M{left} 290H{end}l-8 -4m8 4l-8 4", "note")
    drawing.text(end, 312, "time", "note", "end")
    return drawing.svg()
