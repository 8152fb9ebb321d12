"""A plot with logarithmic axes as a self-contained SVG that follows the page's colours, light or dark."""

import math
from xml.sax.saxutils import escape

COLOURS = {"grey": ("#59636e", "#9198a1"), "blue": ("#0969da", "#4493f8"), "orange": ("#bc4c00", "#db6d28"),
           "green": ("#1a7f37", "#3fb950"), "purple": ("#8250df", "#ab7df8")}  # on light pages and on dark ones


def style():
    def rules(column):
        return "".join(f".{name} {{ fill: none; stroke: {pair[column]} }}\n.{name}-fill {{ fill: {pair[column]} }}\n"
                       for name, pair in COLOURS.items())
    return f"""
text {{ font: 13px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }}
.title {{ font-size: 16px; font-weight: 600 }}
.note {{ fill: #59636e }}
.small {{ font-size: 12px }}
.halo {{ paint-order: stroke; stroke: #ffffff; stroke-width: 4; stroke-linejoin: round }}
.page {{ fill: #ffffff; stroke: #d1d9e0 }}
.grid {{ stroke: #d1d9e0; stroke-width: 0.75 }}
.line {{ stroke-width: 2 }}
.dashed {{ stroke-width: 1.5; stroke-dasharray: 7 4 }}
.dotted {{ stroke-width: 2; stroke-dasharray: 1.5 3.5 }}
.leader {{ stroke-width: 0.75 }}
{rules(0)}@media (prefers-color-scheme: dark) {{
text {{ fill: #f0f6fc }}
.note {{ fill: #9198a1 }}
.halo {{ stroke: #0d1117 }}
.page {{ fill: #0d1117; stroke: #3d444d }}
.grid {{ stroke: #3d444d }}
{rules(1)}}}
"""


def decades(values):
    """The powers of ten around some numbers."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return 10.0 ** low, 10.0 ** max(high, low + 1)


def spread_out(places, gap, low, high):
    """Places at least `gap` apart and within [low, high], near the wanted ones; in the same order as these."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    groups = []  # [sum, count] of places less their rank's gaps; neighbours that overlap share their mean
    for rank, index in enumerate(order):
        groups.append([places[index] - rank * gap, 1])
        while len(groups) > 1 and groups[-2][0] * groups[-1][1] > groups[-1][0] * groups[-2][1]:
            total, count = groups.pop()
            groups[-1] = [groups[-1][0] + total, groups[-1][1] + count]
    first = [total / count for total, count in groups for _ in range(count)]
    new, last = {}, high - (len(order) - 1) * gap
    for rank, index in enumerate(order):
        new[index] = round(max(min(first[rank], last), low) + rank * gap, 1)
    return [new[index] for index in range(len(places))]


class Plot:
    """Draws into a rectangle of the page; x and y turn values into places. `x_range` is None for an axis of names."""

    def __init__(self, title, note, y_range, x_range=None, size=(760, 440), margins=(64, 190, 76, 60)):
        self.width, self.height = size
        self.left, right, self.top, bottom = margins
        self.right, self.bottom = self.width - right, self.height - bottom
        self.x_range, self.y_range = x_range, y_range
        self.labels = []  # of the lines, to the right of the plot: (wanted place, text, colour)
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img" '
                      f'aria-label="{escape(title)}">', f"<style>{style()}</style>",
                      f'<rect class="page" x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" '
                      'rx="6"/>',
                      f'<text class="title" x="{self.left}" y="30">{escape(title)}</text>']
        for line, text in enumerate(note):
            self.text(self.left, 50 + 16 * line, text, "note small")

    def x(self, value):
        return self._place(value, self.x_range, self.left, self.right)

    def y(self, value):
        return self._place(value, self.y_range, self.bottom, self.top)

    @staticmethod
    def _place(value, limits, first, last):
        low, high = map(math.log10, limits)
        return round(first + (math.log10(value) - low) / (high - low) * (last - first), 1)

    def text(self, x, y, text, classes="", anchor="start", turn=0):
        turned = f' transform="rotate({turn} {x} {y})"' if turn else ""
        self.parts.append(f'<text class="{classes}" x="{x}" y="{y}" text-anchor="{anchor}"{turned}>'
                          f'{escape(text)}</text>')

    def y_axis(self, label, ticks):
        """Ticks are (value, text)."""
        for value, text in ticks:
            self.parts.append(f'<path class="grid" d="M{self.left} {self.y(value)}H{self.right}"/>')
            self.text(self.left - 8, self.y(value) + 4, text, "note small", "end")
        middle = (self.top + self.bottom) // 2
        self.text(18, middle, label, "note", "middle", -90)

    def x_axis(self, label, ticks):
        for value, text in ticks:
            self.parts.append(f'<path class="grid" d="M{self.x(value)} {self.top}V{self.bottom}"/>')
            self.text(self.x(value), self.bottom + 18, text, "note small", "middle")
        self.text((self.left + self.right) // 2, self.bottom + 40, label, "note", "middle")

    def path(self, points, classes):
        """A line through places on the page."""
        self.parts.append(f'<path class="{classes}" d="M' + "L".join(f"{x} {y}" for x, y in points) + '"/>')

    def level(self, value, text, colour, kind="dashed", start=None):
        """A horizontal line whose label stands to the right of the plot."""
        self.path([(start or self.left, self.y(value)), (self.right, self.y(value))], f"{colour} {kind}")
        self.labels.append((self.y(value), text, colour))

    def dot(self, x, y, colour, radius=4.5):
        self.parts.append(f'<circle class="{colour}-fill" cx="{x}" cy="{y}" r="{radius}"/>')

    def beside(self, points):
        """Writes a text to the right of each (x, y, text); texts that would cover each other move apart."""
        while points:
            x, *_ = points[0]
            near = [point for point in points if abs(point[0] - x) < 30]
            points = [point for point in points if point not in near]
            places = spread_out([y for _, y, _ in near], 14, self.top, self.bottom)
            for (x, _, text), y in zip(near, places):
                self.text(x + 9, y + 4, text, "small halo")

    def finish(self):
        places = spread_out([place for place, *_ in self.labels], 17, self.top, self.bottom)
        for place, (wanted, text, colour) in zip(places, self.labels):
            self.path([(self.right, wanted), (self.right + 14, place)], f"{colour} leader")
            self.text(self.right + 18, place + 4, text, f"{colour}-fill small")
        return "\n".join(self.parts) + "\n</svg>\n"


def powers(limits, text="{:g}"):
    """Ticks at the powers of ten within limits."""
    low, high = (round(math.log10(limit)) for limit in limits)
    return [(10.0 ** power, text.format(10.0 ** power)) for power in range(low, high + 1)]
