"""Draws rung 07's traffic against the shared memory of a block as a self-contained SVG, for light and dark pages."""

import math

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 80, 500, 56, 356  # of the plot; the legend stands to the right

STYLE = """
text { font: 13px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.note { fill: #59636e }
.page { fill: #ffffff; stroke: #d1d9e0 }
.grid { stroke: #d1d9e0; stroke-width: 0.75 }
.theory { fill: none; stroke: #818b98; stroke-width: 1.5; stroke-dasharray: 6 4 }
.l2 { fill: none; stroke: #0969da; stroke-width: 2 }
.dram { fill: none; stroke: #bc4c00; stroke-width: 2 }
.few { fill: none; stroke: #8250df; stroke-width: 2 }
.l2-mark { fill: #0969da }
.dram-mark { fill: #bc4c00 }
.few-mark { fill: #8250df }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .note { fill: #9198a1 }
  .page { fill: #0d1117; stroke: #3d444d }
  .grid { stroke: #3d444d }
  .theory { stroke: #9198a1 }
  .l2 { stroke: #4493f8 }
  .dram { stroke: #db6d28 }
  .few { stroke: #ab7df8 }
  .l2-mark { fill: #4493f8 }
  .dram-mark { fill: #db6d28 }
  .few-mark { fill: #ab7df8 }
}
"""


def traffic_svg(record):
    """The SVG of the record of scripts/measure_tiles. Both axes are logarithmic, so that 1/M is a straight line."""
    def lines(heads):
        """(M in KiB, MB a head between L1 and L2, MB a head from and to DRAM) of each tile size."""
        return [(row["shared_bytes"] / 1024,
                 32 * (row["counts"]["l2_read_sectors"] + row["counts"]["l2_write_sectors"]) / 1e6 / heads,
                 (row["counts"]["dram_read_bytes"] + row["counts"]["dram_write_bytes"]) / 1e6 / heads)
                for row in record["rows"] if row["heads"] == heads]

    few, many = sorted({row["heads"] for row in record["rows"]})
    M = [point[0] for point in lines(many)]
    l2 = [point[1] for point in lines(many)]
    x_range, y_range = (16, 256), (2, 512)

    def x(value):
        low, high = map(math.log2, x_range)
        return round(LEFT + (math.log2(value) - low) / (high - low) * (RIGHT - LEFT), 1)

    def y(value):
        low, high = map(math.log2, y_range)
        return round(BOTTOM - (math.log2(value) - low) / (high - low) * (BOTTOM - TOP), 1)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
             'aria-label="Traffic of rung 07 against shared memory">', f"<style>{STYLE}</style>",
             f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="6"/>',
             f'<text class="title" x="{LEFT}" y="32">Rung 07: bytes against M, the shared memory of a block</text>']
    for tick in (16, 32, 64, 128, 256):
        parts.append(f'<path class="grid" d="M{x(tick)} {TOP}V{BOTTOM}"/>'
                     f'<text class="note" x="{x(tick)}" y="{BOTTOM + 20}" text-anchor="middle">{tick}</text>')
    for tick in (2, 8, 32, 128, 512):
        parts.append(f'<path class="grid" d="M{LEFT} {y(tick)}H{RIGHT}"/>'
                     f'<text class="note" x="{LEFT - 10}" y="{y(tick) + 4}" text-anchor="end">{tick}</text>')
    parts.append(f'<text class="note" x="{(LEFT + RIGHT) // 2}" y="{BOTTOM + 44}" text-anchor="middle">M, KiB</text>'
                 f'<text class="note" x="24" y="{(TOP + BOTTOM) // 2}" text-anchor="middle" '
                 f'transform="rotate(-90 24 {(TOP + BOTTOM) // 2})">MB a head</text>')
    inverse = [(value, l2[0] * M[0] / value) for value in (M[0], M[-1])]
    for name, points in (("theory", inverse), ("l2", zip(M, l2)), ("dram", [point[::2] for point in lines(many)]),
                         ("few", [point[::2] for point in lines(few)])):
        points = [(x(a), y(b)) for a, b in points]
        parts.append(f'<path class="{name}" d="M' + "L".join(f"{a} {b}" for a, b in points) + '"/>')
        if name != "theory":
            parts += [f'<circle class="{name}-mark" cx="{a}" cy="{b}" r="4"/>' for a, b in points]
    for row, a, b in zip(record["rows"], M, l2):
        parts.append(f'<text class="note" x="{x(a) + 8}" y="{y(b) - 8}">{row["Br"]} x {row["Bc"]}</text>')
    for line, (name, text) in enumerate((("l2", "between L1 and L2"), ("theory", "proportional to 1/M"),
                                         ("dram", f"DRAM, {many} heads at once"), ("few", f"DRAM, {few} heads at once"))):
        parts.append(f'<path class="{name}" d="M{RIGHT + 24} {TOP + 12 + 28 * line}h32"/>'
                     f'<text x="{RIGHT + 64}" y="{TOP + 16 + 28 * line}">{text}</text>')
    parts.append(f'<text class="note" x="{RIGHT + 24}" y="{BOTTOM - 16}">N = {record["N"]}, d = {record["d"]},</text>'
                 f'<text class="note" x="{RIGHT + 24}" y="{BOTTOM}">{record["gpu"]}</text></svg>')
    return "\n".join(parts) + "\n"
