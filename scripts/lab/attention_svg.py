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

from lab.drawing import Drawing

Matrix = list[list[float]]
Groups = list[tuple[str, list[int]]]  # words, and where they stand

WIDTH, MARGIN = 960, 24
TOP, SIDE = 134, 352  # of both matrices, in pixels
CHAR, LINE = 7.8, 21  # width of a character of a 13-pixel monospace font, and a line of the text
INK = (0xDD, 0x6B, 0x10)  # one orange for both pages: its opacity is the attention
FULL = 0.6  # attention that shows in full colour
FAINTEST = 0.01  # in the text and among the chosen words; the whole matrix shows everything
MONOSPACE = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'


def opacity(p: float) -> float:
    """How strongly attention p shows: by its square root, so that small values are still seen."""
    return math.sqrt(min(max(p, 0.0) / FULL, 1.0))


def draw(
    title: str,
    note: str,
    P: Matrix,
    words: list[str],
    joined: list[bool],
    groups: Groups,
    queries: list[int],
) -> str:
    """The SVG's text.

    P        rows of attention, one per query token
    words    what each token is called
    joined   for each token, whether it follows the one before it without a space
    groups   (name, positions) of each word whose part of P is shown
    queries  positions whose attention is shown over the text"""
    texts = [placed(words, joined) for _ in queries]
    heights = [line * LINE + 62 for *_, (*_, line) in texts]
    picture = Drawing(TOP + SIDE + 20 + sum(heights), title, note, WIDTH)
    for i, p in enumerate((0.01, 0.05, 0.2, FULL)):
        x = WIDTH - MARGIN - 72 * (4 - i) + 16
        shade(picture, x, 31, 16, 16, p)
        picture.rect(x, 31, 16, 16)
        picture.note(x + 22, 44, f"{100 * p:.0f}%")
    picture.bold(MARGIN, TOP - 32, f"All {len(words)} tokens")
    picture.note(MARGIN, TOP - 13, "One row per query, one column per key, in the text's order")
    data = base64.b64encode(png(P)).decode()
    picture.parts.append(
        f'<image x="{MARGIN}" y="{TOP}" width="{SIDE}" height="{SIDE}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'
    )
    picture.rect(MARGIN, TOP, SIDE, SIDE)
    draw_groups(picture, WIDTH - MARGIN - SIDE, P, groups)
    y = TOP + SIDE + 40
    for query, text, height in zip(queries, texts, heights):
        asked = f"What \u201c{escape(words[query])}\u201d, token {query}, attends to"
        picture.bold(MARGIN, y, asked)
        draw_text(picture, y + LINE + 4, text, P[query], query)
        y += height
    return picture.svg()


def shade(picture: Drawing, x: float, y: float, width: float, height: float, p: float) -> None:
    place = f'x="{x:.6g}" y="{y:.6g}" width="{width:.6g}" height="{height:.6g}"'
    ink = f'fill="#{bytes(INK).hex()}" fill-opacity="{opacity(p):.2f}"'
    picture.parts.append(f"<rect {place} {ink}/>")


def draw_groups(picture: Drawing, left: float, P: Matrix, groups: Groups) -> None:
    """The rows and columns of the chosen words only, all occurrences of a word side by side."""
    positions = [i for _, occurrences in groups for i in occurrences]
    cell = SIDE / len(positions)
    picture.bold(left, TOP - 32, "Some words that come back")
    picture.note(left, TOP - 13, "Their rows and columns, sorted by word, in %")
    for row, i in enumerate(positions):
        for column, j in enumerate(positions):
            p, x, y = P[i][j], left + column * cell, TOP + row * cell
            if p >= FAINTEST:
                shade(picture, x, y, cell, cell, p)
            if p >= 0.02 and cell >= 14:
                middle = x + cell / 2, y + cell / 2 + 3
                picture.text(*middle, f"{100 * p:.0f}", anchor="middle", size=8.5)
    edge = 0
    for name, occurrences in groups:
        at, y = edge * cell, TOP + (edge + len(occurrences) / 2) * cell
        if edge:
            picture.path(f"M{left} {TOP + at:.6g}h{SIDE}M{left + at:.6g} {TOP}v{SIDE}", "grid")
        picture.text(left - 8, y + 4, escape(name), anchor="end")
        edge += len(occurrences)
    picture.rect(left, TOP, SIDE, SIDE)


def placed(words: list[str], joined: list[bool]) -> list[tuple[str, float, int]]:
    """[(word, x, number of its line)] of a text that is broken into lines."""
    x: float = MARGIN
    line, found = 0, []
    for i, word in enumerate(words):
        if i > 0 and not joined[i]:
            x += CHAR
        if x + len(word) * CHAR > WIDTH - MARGIN:
            x, line = MARGIN, line + 1
        found.append((word, x, line))
        x += len(word) * CHAR
    return found


def draw_text(
    picture: Drawing, top: float, text: list[tuple[str, float, int]], p: list[float], query: int
) -> None:
    """The text with each word shaded by p."""
    picture.parts.append(f"<g font-family='{MONOSPACE}'>")
    for i, (word, x, line) in enumerate(text):
        y, width = top + LINE * line, len(word) * CHAR
        if p[i] >= FAINTEST:
            shade(picture, x - 1, y - 14, width + 2, LINE - 3, p[i])
        if i == query:
            picture.rect(x - 2, y - 15, width + 4, LINE - 1, None, "blue", 'rx="3"')
        # Other fonts are wider or narrower: textLength keeps words on their shades.
        fit = f'textLength="{width:.6g}" lengthAdjust="spacingAndGlyphs"'
        picture.parts.append(f'<text x="{x:.6g}" y="{y:.6g}" {fit}>{escape(word)}</text>')
    picture.parts.append("</g>")


def png(P: Matrix) -> bytes:
    """The matrix as a palette PNG, one pixel per element: one colour, 256 opacities."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    rows = b"".join(b"\0" + bytes(round(255 * opacity(p)) for p in row) for row in P)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", len(P[0]), len(P), 8, 3, 0, 0, 0))
        + chunk(b"PLTE", bytes(INK) * 256)
        + chunk(b"tRNS", bytes(range(256)))
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )
