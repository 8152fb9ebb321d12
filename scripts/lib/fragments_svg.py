"""Who holds what in mma.sync.m16n8k16, and the drawing of it as a self-contained SVG, for light and dark pages.

Each function of a layout says where the element is that a lane holds in one of its registers. A register of A or B holds
two elements of 16 bits, the halves 0 (bits 0-15) and 1; one of C holds one element of 32 bits.
scripts/tests/test_fragments.py compares them with what steps/tests/show_layouts finds by trying.
"""

WIDTH, HEIGHT = 952, 848
CELL_W, CELL_H = 23, 19
SHOWN_LANE = 9  # drawn apart from the others


def a_element(lane, register, half):
    """(row, k) in A, 16 x 16; registers 0 to 3."""
    return lane // 4 + 8 * (register % 2), 2 * (lane % 4) + half + 8 * (register // 2)


def b_element(lane, register, half):
    """(k, column) in B, 16 x 8; registers 0 and 1."""
    return 2 * (lane % 4) + half + 8 * register, lane // 4


def c_element(lane, register):
    """(row, column) in C, 16 x 8; registers 0 to 3."""
    return lane // 4 + 8 * (register // 2), 2 * (lane % 4) + register % 2


def p_source(register, half):
    """(which of two neighbouring C fragments, its register) that becomes this half of a register of A."""
    return register // 2, register % 2 * 2 + half


def ldmatrix_element(lane, register, half, transposed):
    """(matrix, row, column) of what a lane receives; the matrices are 8 x 8, and register i comes from matrix i."""
    row, column = lane // 4, 2 * (lane % 4) + half
    return (register, column, row) if transposed else (register, row, column)


STYLE = """
text { font: 13px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.caption { font-weight: 600 }
.note { fill: #59636e }
.sign { font-size: 22px; text-anchor: middle }
.lane, .tick { font-size: 10.5px; text-anchor: middle }
.tick { fill: #59636e }
.page { fill: #ffffff; stroke: #d1d9e0 }
.held { stroke: #818b98; stroke-width: 0.75 }
.mine { fill: none; stroke: #cf222e; stroke-width: 2.25 }
.r0 { fill: #ddf4ff }
.r1 { fill: #dafbe1 }
.r2 { fill: #fff8c5 }
.r3 { fill: #fbefff }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .note, .tick { fill: #9198a1 }
  .page { fill: #0d1117; stroke: #3d444d }
  .held { stroke: #656c76 }
  .mine { stroke: #ff7b72 }
  .r0 { fill: #0c2d6b }
  .r1 { fill: #033a16 }
  .r2 { fill: #4b2900 }
  .r3 { fill: #3c1e70 }
}
"""


class Grid:
    """A matrix whose every cell says which lane holds it, its colour in which register."""

    def __init__(self, x, y, rows, columns):
        self.x, self.y, self.rows, self.columns = x, y, rows, columns
        self.parts, self.marks = [], []

    def hold(self, lane, register, cells):
        """One register of a lane: one cell, or two that lie side by side or one below the other."""
        top, left = min(cells)
        bottom, right = max(cells)
        x, y = self.x + CELL_W * left, self.y + CELL_H * top
        box = f'x="{x}" y="{y}" width="{CELL_W * (right - left + 1)}" height="{CELL_H * (bottom - top + 1)}"'
        self.parts.append(f'<rect class="held r{register}" {box}/>')
        if lane == SHOWN_LANE:
            self.marks.append(f'<rect class="mine" {box}/>')
        for row, column in cells:
            self.parts.append(f'<text class="lane" x="{self.x + CELL_W * column + CELL_W / 2}" '
                              f'y="{self.y + CELL_H * row + 13}">{lane}</text>')

    def svg(self, caption, across, down, first=0):
        """With a caption, and numbers of rows and columns; the columns' begin at `first`."""
        parts = [f'<text class="caption" x="{self.x}" y="{self.y - 40}">{caption}</text>',
                 f'<text class="note" x="{self.x}" y="{self.y - 22}">{across}</text>',
                 f'<text class="note" x="{self.x - 26}" y="{self.y + CELL_H * self.rows / 2}" text-anchor="middle" '
                 f'transform="rotate(-90 {self.x - 26} {self.y + CELL_H * self.rows / 2})">{down}</text>']
        for column in range(self.columns):
            parts.append(f'<text class="tick" x="{self.x + CELL_W * column + CELL_W / 2}" '
                         f'y="{self.y - 5}">{first + column}</text>')
        for row in range(self.rows):
            parts.append(f'<text class="tick" x="{self.x - 11}" y="{self.y + CELL_H * row + 13}">{row}</text>')
        return parts + self.parts + self.marks


def a_grid(x, y):
    grid = Grid(x, y, 16, 16)
    for lane in range(32):
        for register in range(4):
            grid.hold(lane, register, [a_element(lane, register, half) for half in range(2)])
    return grid


def b_grid(x, y):
    grid = Grid(x, y, 16, 8)
    for lane in range(32):
        for register in range(2):
            grid.hold(lane, register, [b_element(lane, register, half) for half in range(2)])
    return grid


def c_grid(x, y):
    grid = Grid(x, y, 16, 8)
    for lane in range(32):
        for register in range(4):
            grid.hold(lane, register, [c_element(lane, register)])
    return grid


def sign(x, y, text):
    return f'<text class="sign" x="{x}" y="{y}">{text}</text>'


def fragments_svg():
    """The SVG: A x B = C above; below, two C side by side that become an A."""
    top, below = 128, 520
    half = 8 * CELL_H
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
             'aria-label="Which lane holds which element of the operands of mma.m16n8k16">', f"<style>{STYLE}</style>",
             f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="6"/>',
             '<text class="title" x="24" y="32">mma.sync m16n8k16: which lane holds which element</text>',
             f'<text class="note" x="24" y="54">A number is a lane; one frame is one register; what lane {SHOWN_LANE} '
             'holds is red. Lane = 4g + t.</text>']
    for register in range(4):
        x = 600 + 80 * register
        parts.append(f'<rect class="held r{register}" x="{x}" y="36" width="{CELL_W}" height="{CELL_H}"/>'
                     f'<text class="note" x="{x + CELL_W + 6}" y="50">[{register}]</text>')

    parts += a_grid(60, top).svg("A, 16 x 16: Q", "k (head dim)", "row (query)")
    parts.append(sign(449, top + half, "×"))
    parts += b_grid(502, top).svg("B, 16 x 8: K transposed", "column (key)", "k")
    parts.append(sign(706, top + half, "="))
    parts += c_grid(744, top).svg("C, 16 x 8, fp32: S", "column (key)", "")

    for fragment in range(2):
        caption = f"C of keys {8 * fragment} to {8 * fragment + 7}"
        parts += c_grid(60 + (8 * CELL_W + 24) * fragment, below).svg(caption, "", "row (query)" * (fragment == 0),
                                                                    8 * fragment)
    parts.append(sign(500, below + half, "→"))
    parts.append(f'<text class="note" x="500" y="{below + half + 20}" text-anchor="middle">round</text>')
    parts += a_grid(560, below).svg("P, 16 x 16: A of the next product", "k (key)", "")
    parts.append("</svg>")
    return "\n".join(part for part in parts if part) + "\n"
