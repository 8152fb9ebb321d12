"""Draws a record of scripts/compare as a self-contained SVG for light and dark pages: TFLOP/s against N, a panel a group."""

import math

from compare_tables import Comparison, group_name

WIDTH, PANEL_WIDTH, PANEL_HEIGHT = 760, 270, 190
LEFT, TOP, GAP_X, GAP_Y = 64, 84, 40, 62
COLOURS = (("#57606a", "#9198a1"), ("#8250df", "#ab7df8"), ("#bf8700", "#d29922"), ("#1a7f37", "#3fb950"),
           ("#0969da", "#4493f8"), ("#bc4c00", "#db6d28"), ("#cf222e", "#f85149"))  # on light and on dark pages


def style(count):
    def rules(column):
        return "".join(f".p{n} {{ fill: none; stroke: {COLOURS[n % len(COLOURS)][column]}; stroke-width: 2 }}\n"
                       f".m{n} {{ fill: {COLOURS[n % len(COLOURS)][column]} }}\n" for n in range(count))
    return f"""
text {{ font: 13px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }}
.title {{ font-size: 16px; font-weight: 600 }}
.note {{ fill: #59636e }}
.page {{ fill: #ffffff; stroke: #d1d9e0 }}
.grid {{ stroke: #d1d9e0; stroke-width: 0.75 }}
{rules(0)}@media (prefers-color-scheme: dark) {{
text {{ fill: #f0f6fc }}
.note {{ fill: #9198a1 }}
.page {{ fill: #0d1117; stroke: #3d444d }}
.grid {{ stroke: #3d444d }}
{rules(1)}}}
"""


def panel(comparison, group, left, top, highest):
    """The lines of one group: a panel with N to the right, logarithmic, and TFLOP/s upwards."""
    bottom, right = top + PANEL_HEIGHT, left + PANEL_WIDTH
    first, last = math.log2(comparison.lengths[0]), math.log2(comparison.lengths[-1])

    def x(N):
        return round(left + (math.log2(N) - first) / max(last - first, 1) * PANEL_WIDTH, 1)

    def y(tflops):
        return round(bottom - tflops / highest * PANEL_HEIGHT, 1)

    parts = [f'<text x="{left}" y="{top - 10}">{group_name(group)}</text>']
    for tick in range(0, highest + 1, 100):
        parts.append(f'<path class="grid" d="M{left} {y(tick)}H{right}"/>'
                     f'<text class="note" x="{left - 8}" y="{y(tick) + 4}" text-anchor="end">{tick}</text>')
    for N in comparison.lengths:
        parts.append(f'<text class="note" x="{x(N)}" y="{bottom + 20}" text-anchor="middle">{N}</text>')
    for number, name in enumerate(comparison.programs):
        points = [(x(N), y(comparison.tflops((*group, N), name))) for N in comparison.lengths]
        parts.append(f'<path class="p{number}" d="M' + "L".join(f"{a} {b}" for a, b in points) + '"/>')
        parts += [f'<circle class="m{number}" cx="{a}" cy="{b}" r="3"/>' for a, b in points]
    return parts


def comparison_svg(record):
    comparison = Comparison(record)
    rows = (len(comparison.groups) + 1) // 2
    legend = TOP + rows * (PANEL_HEIGHT + GAP_Y)
    height = legend + 24 * ((len(comparison.programs) + 2) // 3) + 8
    highest = 100 * math.ceil(max(comparison.tflops(*key) for key in comparison.seconds) / 100)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
             'aria-label="TFLOP/s of rungs and libraries against sequence length">',
             f"<style>{style(len(comparison.programs))}</style>",
             f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
             f'<text class="title" x="{LEFT}" y="32">TFLOP/s against N, {record["dtype"]}, {record["gpu"]}</text>',
             f'<text class="note" x="{LEFT}" y="52">{record["tokens"]} tokens, heads x d = {record["hidden"]}, '
             f'medians of {record["rounds"]} interleaved runs</text>']
    for number, group in enumerate(comparison.groups):
        parts += panel(comparison, group, LEFT + number % 2 * (PANEL_WIDTH + LEFT + GAP_X),
                       TOP + number // 2 * (PANEL_HEIGHT + GAP_Y), highest)
    for number, name in enumerate(comparison.programs):
        left, top = LEFT + number % 3 * 220, legend + number // 3 * 24
        parts.append(f'<path class="p{number}" d="M{left} {top}h28"/><text x="{left + 36}" y="{top + 4}">{name}</text>')
    return "\n".join(parts) + "\n</svg>\n"
