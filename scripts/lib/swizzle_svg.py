"""Where a swizzled tile keeps its 16-byte chunks, and the drawing of it as a self-contained SVG, for light and dark pages.

scripts/tests/test_fragments.py compares `swizzled` with what the kernels' own code computes.
"""

WIDTH, HEIGHT = 880, 628
CELL_W, CELL_H = 42, 24
COLUMNS = 8  # chunks of 16 bytes in the 128 bytes that the 32 banks are wide
SHOWN_CHUNK = 2  # of 8 rows: what ldmatrix fetches at once


def swizzled(d, rows, row, chunk):
    """The byte at which chunk `chunk` (8 elements of 16 bits) of row `row` begins, in a tile of `rows` rows of d."""
    if d == 32:  # two rows of 64 bytes share the width of the banks
        return 64 * row + 16 * (chunk ^ row // 2 % 4)
    half, column = divmod(chunk, COLUMNS)  # d = 128: two tiles of 64 columns, one after the other
    return 128 * (half * rows + row) + 16 * (column ^ row % 8)


def as_in_memory(d, rows, row, chunk):
    return 2 * d * row + 16 * chunk


STYLE = """
text { font: 13px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.caption { font-weight: 600 }
.note { fill: #59636e }
.chunk, .tick, .turns { font-size: 11px; text-anchor: middle }
.tick { fill: #59636e }
.row { text-anchor: end }
.turns { font-weight: 600 }
.page { fill: #ffffff; stroke: #d1d9e0 }
.cell { fill: none; stroke: #d1d9e0 }
.shown { fill: #54aeff; stroke: #0969da }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .note, .tick { fill: #9198a1 }
  .page { fill: #0d1117; stroke: #3d444d }
  .cell { stroke: #3d444d }
  .shown { fill: #1158c7; stroke: #4493f8 }
}
"""


def panel(x, y, caption, d, place):
    """Eight rows of a tile, 128 bytes of shared memory a line, and how many of the shown chunks each column holds."""
    parts = [f'<text class="caption" x="{x}" y="{y - 44}">{caption}</text>',
             f'<text class="tick" x="{x + CELL_W * COLUMNS / 2}" y="{y - 24}">banks</text>']
    meet = [0] * COLUMNS
    lines = {}
    for row in range(8):
        for chunk in range(d // 8):
            line, byte = divmod(place(d, 8, row, chunk), 16 * COLUMNS)
            column = byte // 16
            lines.setdefault(line, []).append(row)
            shown = chunk == SHOWN_CHUNK
            meet[column] += shown
            parts.append(f'<rect class="{"shown" if shown else "cell"}" x="{x + CELL_W * column}" '
                         f'y="{y + CELL_H * line}" width="{CELL_W}" height="{CELL_H}"/>'
                         f'<text class="chunk" x="{x + CELL_W * column + CELL_W / 2}" y="{y + CELL_H * line + 16}">'
                         f'{f"{row}: {chunk}" if d == 32 else chunk}</text>')
    for line, rows in lines.items():
        names = sorted(set(rows))
        parts.append(f'<text class="note row" x="{x - 8}" y="{y + CELL_H * line + 16}">'
                     f'{"row" if len(names) == 1 else "rows"} {", ".join(map(str, names))}</text>')
    below = y + CELL_H * len(lines) + 18
    for column in range(COLUMNS):
        middle = x + CELL_W * column + CELL_W / 2
        parts.append(f'<text class="tick" x="{middle}" y="{y - 6}">{4 * column}-{4 * column + 3}</text>'
                     f'<text class="turns" x="{middle}" y="{below}">{meet[column] or ""}</text>')
    turns = max(meet)
    parts.append(f'<text class="note" x="{x}" y="{below + 22}">chunk {SHOWN_CHUNK} of 8 rows: '
                 f'{turns} {"turn" if turns == 1 else "turns"}</text>')
    return parts


def swizzle_svg():
    """The SVG: before and after, for d = 64 and for d = 32."""
    left, right = 84, 516
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
             'aria-label="A tile in shared memory, before and after the swizzle">', f"<style>{STYLE}</style>",
             f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="6"/>',
             '<text class="title" x="24" y="32">A tile in shared memory: one frame is 16 bytes, 4 banks wide</text>',
             f'<text class="note" x="24" y="54">A number is a chunk of its row. Blue: chunk {SHOWN_CHUNK} of 8 rows, '
             'which ldmatrix wants at once; below, how many of them lie in these banks.</text>']
    parts += panel(left, 132, "d = 64, as in memory", 64, as_in_memory)
    parts += panel(right, 132, "d = 64, swizzled: column = chunk XOR row", 64, swizzled)
    parts += panel(left, 464, "d = 32, as in memory", 32, as_in_memory)
    parts += panel(right, 464, "d = 32, swizzled: chunk XOR (row / 2)", 32, swizzled)
    parts.append("</svg>")
    return "\n".join(parts) + "\n"
