"""Draws one head's attention over the words of a text as a self-contained SVG, for light and dark
pages.

Three parts: the whole matrix P; the part of it that belongs to chosen words, brought together word
by word; and the text itself, once per query, each word shaded by the attention that it gets.
"""

import base64
import math
import struct
import zlib
from xml.sax.saxutils import escape

from lab.theme import FONT, LIGHT, themed

WIDTH, MARGIN = 960, 32
TOP, SIDE = 134, 352  # of both matrices, in pixels
CHAR, LINE = 7.8, 21  # width of a character of a 13-pixel monospace font, and a line of the text
INK = (0xDD, 0x6B, 0x10)  # one orange for both pages: its opacity is the attention
FULL = 0.6  # attention that shows in full colour
FAINTEST = 0.01  # in the text and among the chosen words; the whole matrix shows everything
FONTS = """
.title { font-size: 20px; font-weight: 600 }
.caption { font-weight: 600 }
.percent { font-size: 8.5px; text-anchor: middle }
.word { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }
"""
LINES = {
    "page": f"fill: {LIGHT['page']}; stroke: {LIGHT['grid']}",
    "frame": f"fill: none; stroke: {LIGHT['note']}; stroke-width: 0.75",
    "group": f"stroke: {LIGHT['grid']}; stroke-width: 0.75",
    "asked": f"fill: none; stroke: {LIGHT['blue']}; stroke-width: 1.5",
}


def opacity(p):
    """How strongly attention p shows: by its square root, so that small values are still seen."""
    return math.sqrt(min(max(p, 0.0) / FULL, 1.0))


def rect(x, y, width, height, kind="", shade=None, radius=0):
    shaded = f'fill="#{bytes(INK).hex()}" fill-opacity="{opacity(shade or 0):.2f}"'
    look = f'style="{LINES[kind]}"' if kind else shaded
    place = f'x="{x:.6g}" y="{y:.6g}" width="{width:.6g}" height="{height:.6g}" rx="{radius}"'
    return f"<rect {place} {look}/>"


def label(x, y, text, kind="", more=""):
    look = f'style="fill: {LIGHT["note"]}"' if kind == "note" else f'class="{kind}"' if kind else ""
    return f'<text x="{x:.6g}" y="{y:.6g}" {look} {more}>{escape(text)}</text>'


def draw(title, note, P, words, joined, groups, queries):
    """The SVG's text.

    P        rows of attention, one per query token
    words    what each token is called
    joined   for each token, whether it follows the one before it without a space
    groups   (name, positions) of each word whose part of P is shown
    queries  positions whose attention is shown over the text"""
    parts = [label(MARGIN, 44, title, "title"), label(MARGIN, 68, note, "note")]
    for i, p in enumerate((0.01, 0.05, 0.2, FULL)):
        x = WIDTH - MARGIN - 72 * (4 - i) + 16
        parts += [
            rect(x, 31, 16, 16, shade=p),
            rect(x, 31, 16, 16, "frame"),
            label(x + 22, 44, f"{100 * p:.0f}%", "note"),
        ]
    parts += [
        label(MARGIN, TOP - 32, f"All {len(words)} tokens", "caption"),
        label(
            MARGIN,
            TOP - 13,
            "One row per query, one column per key, in the order of the text",
            "note",
        ),
        f'<image x="{MARGIN}" y="{TOP}" width="{SIDE}" height="{SIDE}" preserveAspectRatio="none" '
        'style="image-rendering:pixelated" '
        f'href="data:image/png;base64,{base64.b64encode(png(P)).decode()}"/>',
        rect(MARGIN, TOP, SIDE, SIDE, "frame"),
        *draw_groups(WIDTH - MARGIN - SIDE, P, groups),
    ]
    y = TOP + SIDE + 40
    for query in queries:
        lines, y = draw_text(y, P[query], words, joined, query)
        parts, y = parts + lines, y + 34
    size = f'width="{WIDTH}" height="{y - 10:.6g}" viewBox="0 0 {WIDTH} {y - 10:.6g}"'
    page = rect(0.5, 0.5, WIDTH - 1, y - 11, "page", radius=8)
    return themed(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {FONT} font-size="13" '
        f'style="fill: {LIGHT["ink"]}">\n'
        f"<style>{FONTS}</style>\n" + "\n".join([page, *parts]) + "\n</svg>\n"
    )


def draw_groups(left, P, groups):
    """The rows and columns of the chosen words only, all occurrences of a word side by side."""
    positions = [i for _, occurrences in groups for i in occurrences]
    cell = SIDE / len(positions)
    parts = [
        label(left, TOP - 32, "Some words that come back", "caption"),
        label(left, TOP - 13, "Their rows and columns, sorted by word, in %", "note"),
    ]
    for row, i in enumerate(positions):
        for column, j in enumerate(positions):
            p, x, y = P[i][j], left + column * cell, TOP + row * cell
            if p >= FAINTEST:
                parts.append(rect(x, y, cell, cell, shade=p))
            if p >= 0.02 and cell >= 14:
                parts.append(label(x + cell / 2, y + cell / 2 + 3, f"{100 * p:.0f}", "percent"))
    edge = 0
    for name, occurrences in groups:
        at, middle = edge * cell, TOP + (edge + len(occurrences) / 2) * cell
        if edge:
            parts.append(
                f'<path style="{LINES["group"]}" d="M{left} {TOP + at:.6g}h{SIDE}'
                f'M{left + at:.6g} {TOP}v{SIDE}"/>'
            )
        parts.append(label(left - 8, middle + 4, name, more='text-anchor="end"'))
        edge += len(occurrences)
    return [*parts, rect(left, TOP, SIDE, SIDE, "frame")]


def draw_text(y, p, words, joined, query):
    """The text with each word shaded by p, and the y of its last line."""
    parts = [
        label(MARGIN, y, f"What \u201c{words[query]}\u201d, token {query}, attends to", "caption")
    ]
    x, y = MARGIN, y + LINE + 4
    for i, word in enumerate(words):
        width = len(word) * CHAR
        x += CHAR * (not joined[i] and i > 0)
        if x + width > WIDTH - MARGIN:
            x, y = MARGIN, y + LINE
        if p[i] >= FAINTEST:
            parts.append(rect(x - 1, y - 14, width + 2, LINE - 3, shade=p[i], radius=3))
        if i == query:
            parts.append(rect(x - 2, y - 15, width + 4, LINE - 1, "asked", radius=3))
        # Other fonts are wider or narrower: textLength keeps words on their shades.
        parts.append(
            label(x, y, word, "word", f'textLength="{width:.6g}" lengthAdjust="spacingAndGlyphs"')
        )
        x += width
    return parts, y


def png(P):
    """The matrix as a palette PNG, one pixel per element: one colour, 256 opacities."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + bytes(round(255 * opacity(p)) for p in row) for row in P)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", len(P[0]), len(P), 8, 3, 0, 0, 0))
        + chunk(b"PLTE", bytes(INK) * 256)
        + chunk(b"tRNS", bytes(range(256)))
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )
