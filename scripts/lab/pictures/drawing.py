"""What the pictures are drawn with: SVG whose colours follow the reader's page. Every picture is
narrow, so that a phone can show it."""

from lab.theme import FONT, LIGHT, themed

PALE = "pale-blue", "pale-green", "pale-yellow", "pale-purple"
PAIRS = tuple(zip(PALE, ("blue", "green", "brown", "purple")))  # each with what goes around it


class Drawing:
    """A page with a title and notes, on which the methods draw. Places and sizes are in pixels,
    colours are names of lab.theme."""

    width = 560  # a phone shows its text at 8 pixels

    def __init__(self, height, title, notes, width=None):
        width = width or self.width
        size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}" '
            f'{FONT} font-size="13" style="fill: {LIGHT["ink"]}">'
        ]
        self.rect(0.5, 0.5, width - 1, height - 1, "page", "grid", 'rx="6"')
        self.text(24, 32, title, style="font-size: 16px; font-weight: 600")
        self.lines(24, 54, notes.split("\n"), 18, 13)

    def rect(self, x, y, width, height, fill=None, stroke="grid", more=""):
        """A rectangle, filled or not."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'style="fill: {LIGHT[fill] if fill else "none"}; stroke: {LIGHT[stroke]}" {more}/>'
        )

    def dot(self, x, y, size, colour):
        """A small square around a point."""
        x, y = round(x - size / 2, 1), round(y - size / 2, 1)
        self.rect(x, y, size, size, colour, colour)

    def box(self, x, y, width, height, fill, stroke, text="", colour="ink"):
        """A rectangle with rounded corners and a text in its middle."""
        self.rect(x, y, width, height, fill, stroke, 'rx="3"')
        if text != "":
            self.text(x + width / 2, y + height / 2 + 4, text, colour, "middle", 11)

    def mark(self, x, y, width, height, colour="red"):
        """A frame that stands out."""
        self.rect(x, y, width, height, None, colour, 'stroke-width="2.25"')

    def bar(self, x, y, length, height, colour, text):
        """A bar and what stands at its end."""
        self.rect(x, y, max(length, 0.5), height, colour, "page")
        self.note(x + length + 6, y + 10, text)

    def text(self, x, y, text, colour="ink", anchor="start", size=13, turn=0, style=""):
        """A text; anchor says which of its ends, or its middle, stands at x."""
        turned = f' transform="rotate({turn} {x:g} {y:g})"' if turn else ""
        style += f"; fill: {LIGHT[colour]}" * (colour != "ink")
        style += f"; font-size: {size}px" * (size != 13)
        place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"{turned}'
        self.parts.append(f'<text {place} style="{style.strip("; ")}">{text}</text>')

    def bold(self, x, y, text, colour="ink"):
        """A caption."""
        self.text(x, y, text, colour, style="font-weight: 600")

    def note(self, x, y, text, anchor="start", size=12, turn=0):
        """A text that keeps in the background."""
        self.text(x, y, text, "note", anchor, size, turn)

    def lines(self, x, y, texts, apart=18, size=12, colour="note"):
        """Texts, one below the other."""
        for number, text in enumerate(texts):
            self.text(x, y + apart * number, text, colour, size=size)

    def path(self, d, colour="note", width=1):
        """A line, as SVG describes it."""
        self.parts.append(
            f'<path d="{d}" style="fill: none; stroke: {LIGHT[colour]}; stroke-width: {width}"/>'
        )

    def curve(self, points, colour, steps=False):
        """A thick line through points; with steps each value holds until the next point."""
        (x, y), *others = points
        step = "H{:.1f}V{:.1f}" if steps else "L{:.1f} {:.1f}"
        path = f"M{x:.1f} {y:.1f}" + "".join(step.format(*point) for point in others)
        self.path(path, colour, 2)

    def arrow(self, x, y, to_x, to_y, colour="note", width=1.5):
        """A line to the right or downwards, with a head."""
        head = "l-4 -7m4 7l4 -7" if x == to_x else "l-7 -4m7 4l-7 4"
        self.path(f"M{x:g} {y:g}L{to_x:g} {to_y:g}{head}", colour, width)

    def time(self, x, to_x, y, text="time"):
        """An axis of time."""
        self.arrow(x, y, to_x, y, width=1)
        self.note(to_x, y + 19, text, "end", 13)

    def svg(self):
        """The text of the file."""
        return themed("\n".join(self.parts) + "\n</svg>\n")


class Narrow(Drawing):
    """One with less on it."""

    width = 520
