"""Draws rungs 11 and 12 tile by tile in time as a self-contained SVG, for light and dark pages. A drawing, not a measurement:
the lengths are chosen to show the order, and a copy is drawn half as long as the work on a tile."""

WIDTH, HEIGHT = 900, 330
LEFT, UNIT = 132, 13  # pixels: where time begins, and a unit of it
COPY, STORE, WORK = 5, 2, 10  # units
END = LEFT + 56 * UNIT

STYLE = """
text { font: 13px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.caption { font-weight: 600 }
.note { fill: #59636e }
.in { text-anchor: middle; font-size: 12px }
.page { fill: #ffffff; stroke: #d1d9e0 }
.copy { fill: #ddf4ff; stroke: #0969da }
.even { fill: #dafbe1; stroke: #1a7f37 }
.odd { fill: #fff8c5; stroke: #9a6700 }
.barrier { stroke: #cf222e; stroke-width: 2.5 }
.axis { stroke: #818b98; fill: none }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .note { fill: #9198a1 }
  .page { fill: #0d1117; stroke: #3d444d }
  .copy { fill: #0c2d6b; stroke: #4493f8 }
  .even { fill: #033a16; stroke: #3fb950 }
  .odd { fill: #4b2900; stroke: #d29922 }
  .barrier { stroke: #ff7b72 }
  .axis { stroke: #9198a1 }
}
"""


def box(kind, start, length, y, text):
    """A piece of time; what lies beyond the end is cut off."""
    x = LEFT + UNIT * start
    width = min(UNIT * length, END - x)
    if width <= 0:
        return []
    label = f'<text class="in" x="{x + width / 2}" y="{y + 19}">{text}</text>' if width == UNIT * length else ""
    return [f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="28" rx="3"/>{label}']


def barrier(at, top, bottom):
    x = LEFT + UNIT * at
    return [f'<path class="barrier" d="M{x} {top}V{bottom}"/>'] if x < END else []


def rung_11(y):
    parts, time = [], 0
    for tile in range(5):
        parts += barrier(time, y - 4, y + 72)  # slower warps still read the tile before
        parts += box("copy", time, COPY, y, f"load {tile}") + box("copy", time + COPY, STORE, y, "st.")
        time += COPY + STORE
        parts += barrier(time, y - 4, y + 72)  # the tile is complete
        parts += box("even", time, WORK, y + 36, f"S, softmax, O: tile {tile}")
        time += WORK
    return parts


def rung_12(y):
    parts = box("copy", 0, COPY, y, "copy 0")
    time = COPY
    for tile in range(6):
        parts += barrier(time, y - 4, y + 72)
        parts += box("copy", time, COPY, y, f"copy {tile + 1}")
        parts += box("odd" if tile % 2 else "even", time, WORK, y + 36, f"S, softmax, O: tile {tile}")
        time += WORK
    return parts


def pipeline_svg():
    """The SVG: copies above, work below, for each of the two rungs; red lines are barriers."""
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
             'aria-label="Rungs 11 and 12 in time">', f"<style>{STYLE}</style>",
             f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="6"/>',
             '<text class="title" x="24" y="32">One block in time (a drawing: lengths are not measured)</text>',
             '<text class="note" x="24" y="54">Red: a barrier. Green and yellow: which buffer is read; rung 11 has one, rung 12 has two.</text>']
    for y, name, draw in ((84, "rung 11", rung_11), (196, "rung 12", rung_12)):
        parts.append(f'<text class="caption" x="24" y="{y + 19}">{name}</text>'
                     f'<text class="note" x="24" y="{y + 55}">tensor cores</text>')
        parts += draw(y)
    parts.append(f'<path class="axis" d="M{LEFT} 290H{END}l-8 -4m8 4l-8 4"/>'
                 f'<text class="note" x="{END}" y="312" text-anchor="end">time</text></svg>')
    return "\n".join(parts) + "\n"
