"""What attention-picture draws with: SVG whose colours follow the reader's page."""

from lab.theme import FONT, LIGHT, themed


class Drawing:
    """A page with a title and notes, on which the methods draw. Places and sizes are in pixels,
    colours are names of lab.theme."""

    def __init__(self, height: float, title: str, notes: str, width: float) -> None:
        size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}" '
            f'{FONT} font-size="13" style="fill: {LIGHT["ink"]}">'
        ]
        self.rect(0.5, 0.5, width - 1, height - 1, "page", "grid", 'rx="6"')
        self.text(24, 32, title, style="font-size: 16px; font-weight: 600")
        self.lines(24, 54, notes.split("\n"), 18, 13)

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str | None = None,
        stroke: str = "grid",
        more: str = "",
    ) -> None:
        """A rectangle, filled or not."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'style="fill: {LIGHT[fill] if fill else "none"}; stroke: {LIGHT[stroke]}" {more}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        colour: str = "ink",
        anchor: str = "start",
        size: float = 13,
        style: str = "",
    ) -> None:
        """A text; anchor says which of its ends, or its middle, stands at x."""
        if colour != "ink":
            style += f"; fill: {LIGHT[colour]}"
        if size != 13:
            style += f"; font-size: {size}px"
        place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
        self.parts.append(f'<text {place} style="{style.strip("; ")}">{text}</text>')

    def bold(self, x: float, y: float, text: str, colour: str = "ink") -> None:
        """A caption."""
        self.text(x, y, text, colour, style="font-weight: 600")

    def note(self, x: float, y: float, text: str) -> None:
        """A text that keeps in the background."""
        self.text(x, y, text, "note", size=12)

    def lines(
        self,
        x: float,
        y: float,
        texts: list[str],
        apart: float = 18,
        size: float = 12,
        colour: str = "note",
    ) -> None:
        """Texts, one below the other."""
        for number, text in enumerate(texts):
            self.text(x, y + apart * number, text, colour, size=size)

    def path(self, d: str, colour: str = "note", width: float = 1) -> None:
        """A line, as SVG describes it."""
        self.parts.append(
            f'<path d="{d}" style="fill: none; stroke: {LIGHT[colour]}; stroke-width: {width}"/>'
        )

    def svg(self) -> str:
        """The text of the file."""
        return themed("\n".join(self.parts) + "\n</svg>\n")
