"""Draws one head's attention over the words of a text as a self-contained SVG, for light and dark pages.

Three parts: the whole matrix P; the part of it that belongs to chosen words, brought together word by word; and the
text itself, once a query, each word shaded by the attention that it gets.
"""

import base64
import math
import struct
import zlib
from xml.sax.saxutils import escape

WIDTH = 960
MARGIN = 32
MATRIX_TOP = 134
SIDE = 352  # of both matrices, in pixels
FONT_SIZE = 13
CHAR = 7.8  # width of a character of a 13-pixel monospace font
LINE = 21
INK = (0xDD, 0x6B, 0x10)  # one orange for both pages: its opacity is the attention

STYLE = """
text { font: 13px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-size: 20px; font-weight: 600 }
.caption { font-weight: 600 }
.note { fill: #59636e }
.percent { font-size: 8.5px; text-anchor: middle }
.word { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }
.page { fill: #ffffff; stroke: #d1d9e0 }
.frame { fill: none; stroke: #818b98; stroke-width: 0.75 }
.group { stroke: #d1d9e0; stroke-width: 0.75 }
.asked { fill: none; stroke: #0969da; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .note { fill: #9198a1 }
  .page { fill: #0d1117; stroke: #3d444d }
  .frame { stroke: #9198a1 }
  .group { stroke: #3d444d }
  .asked { stroke: #4493f8 }
}
"""


FULL = 0.6  # attention that shows in full colour
LEGEND = (0.01, 0.05, 0.2, 0.6)
FAINTEST = 0.01  # in the text and among the chosen words; the whole matrix shows everything


def opacity(p):
    """How strongly attention p shows: by its square root, so that small values are still seen."""
    return math.sqrt(min(max(p, 0.0) / FULL, 1.0))


def draw(title, note, P, words, joined, groups, queries):
    """The SVG's text.

    P        rows of attention, one a query token
    words    what each token is called
    joined   for each token, whether it follows the one before it without a space
    groups   (name, positions) of each word whose part of P is shown
    queries  positions whose attention is shown over the text"""
    svg = Svg()
    svg.text(MARGIN, 44, title, "title")
    svg.text(MARGIN, 68, note, "note")
    for i, p in enumerate(LEGEND):
        x = WIDTH - MARGIN - 72 * (len(LEGEND) - i) + 16
        svg.rect(x, 31, 16, 16, fill_opacity=opacity(p))
        svg.rect(x, 31, 16, 16, "frame")
        svg.text(x + 22, 44, f"{100 * p:.0f}%", "note")

    svg.text(MARGIN, MATRIX_TOP - 32, f"All {len(words)} tokens", "caption")
    svg.text(MARGIN, MATRIX_TOP - 13, "One row a query, one column a key, in the order of the text", "note")
    svg.image(MARGIN, MATRIX_TOP, SIDE, png(P))
    svg.rect(MARGIN, MATRIX_TOP, SIDE, SIDE, "frame")

    draw_groups(svg, WIDTH - MARGIN - SIDE, P, groups)

    y = MATRIX_TOP + SIDE + 40
    for query in queries:
        y = draw_text(svg, y, P[query], words, joined, query) + 34
    return svg.finish(y - 10)


def draw_groups(svg, left, P, groups):
    """The rows and columns of the chosen words only, all occurrences of a word side by side."""
    positions = [i for _, occurrences in groups for i in occurrences]
    cell = SIDE / len(positions)
    svg.text(left, MATRIX_TOP - 32, "Some words that come back", "caption")
    svg.text(left, MATRIX_TOP - 13, "Their rows and columns, sorted by word, in %", "note")
    for row, i in enumerate(positions):
        for column, j in enumerate(positions):
            p = P[i][j]
            if p >= FAINTEST:
                x, y = left + column * cell, MATRIX_TOP + row * cell
                svg.rect(x, y, cell, cell, fill_opacity=opacity(p))
                if p >= 0.02 and cell >= 14:
                    svg.text(x + cell / 2, y + cell / 2 + 3, f"{100 * p:.0f}", "percent")
    edge = 0
    for name, occurrences in groups:
        if edge:
            at = edge * cell
            svg.line(left, MATRIX_TOP + at, left + SIDE, MATRIX_TOP + at)
            svg.line(left + at, MATRIX_TOP, left + at, MATRIX_TOP + SIDE)
        middle = MATRIX_TOP + (edge + len(occurrences) / 2) * cell
        svg.text(left - 8, middle + 4, name, anchor="end")
        edge += len(occurrences)
    svg.rect(left, MATRIX_TOP, SIDE, SIDE, "frame")


def draw_text(svg, y, p, words, joined, query):
    """The text with each word shaded by p; returns the y of its last line."""
    svg.text(MARGIN, y, f"What \u201c{words[query]}\u201d, token {query}, attends to", "caption")
    y += LINE + 4
    x = MARGIN
    for i, word in enumerate(words):
        width = len(word) * CHAR
        if not joined[i] and i > 0:
            x += CHAR
        if x + width > WIDTH - MARGIN:
            x, y = MARGIN, y + LINE
        if p[i] >= FAINTEST:
            svg.rect(x - 1, y - 14, width + 2, LINE - 3, fill_opacity=opacity(p[i]), radius=3)
        if i == query:
            svg.rect(x - 2, y - 15, width + 4, LINE - 1, "asked", radius=3)
        svg.text(x, y, word, "word", length=width)
        x += width
    return y


class Svg:
    """The elements that the drawing needs, collected in order."""

    def __init__(self):
        self.parts = []

    def rect(self, x, y, width, height, kind="", fill_opacity=None, radius=0):
        look = f'class="{kind}"' if kind else f'fill="#{"%02x%02x%02x" % INK}" fill-opacity="{fill_opacity:.2f}"'
        corners = f' rx="{radius}"' if radius else ""
        self.parts.append(f'<rect x="{x:.6g}" y="{y:.6g}" width="{width:.6g}" height="{height:.6g}"{corners} {look}/>')

    def line(self, x1, y1, x2, y2):
        self.parts.append(f'<path class="group" d="M{x1:.6g} {y1:.6g}L{x2:.6g} {y2:.6g}"/>')

    def text(self, x, y, text, kind="", anchor="", length=None):
        extra = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
        if length:  # other fonts are wider or narrower: keep words on their shades
            extra += f' textLength="{length:.6g}" lengthAdjust="spacingAndGlyphs"'
        self.parts.append(f'<text x="{x:.6g}" y="{y:.6g}"{extra}>{escape(text)}</text>')

    def image(self, x, y, side, data):
        encoded = base64.b64encode(data).decode()
        self.parts.append(f'<image x="{x}" y="{y}" width="{side}" height="{side}" preserveAspectRatio="none" '
                          f'style="image-rendering:pixelated" href="data:image/png;base64,{encoded}"/>')

    def finish(self, height):
        page = f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.6g}" rx="8"/>'
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.6g}" '
                f'viewBox="0 0 {WIDTH} {height:.6g}">\n<style>{STYLE}</style>\n' +
                "\n".join([page] + self.parts) + "\n</svg>\n")


def png(P):
    """The matrix as a palette PNG, one pixel an element: one colour, 256 opacities."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(round(255 * opacity(p)) for p in row) for row in P)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", len(P[0]), len(P), 8, 3, 0, 0, 0)) +
            chunk(b"PLTE", bytes(INK) * 256) + chunk(b"tRNS", bytes(range(256))) +
            chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))
