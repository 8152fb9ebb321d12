"""What the programs in docs/diagrams draw with: SVG whose colours follow the reader's page."""

from lab.theme import FONT, LIGHT, themed


class Drawing:
    def __init__(self, width, height, title, note):
        size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}" {FONT} '
            f'font-size="13" style="fill: {LIGHT["ink"]}">'
        ]
        self.rect(0.5, 0.5, width - 1, height - 1, "page", "grid", 'rx="6"')
        self.text(24, 32, title, style="font-size: 16px; font-weight: 600")
        for line, text in enumerate(note.split("\n")):
            self.text(24, 54 + 18 * line, text, "note")

    def rect(self, x, y, width, height, fill, stroke, more=""):
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'style="fill: {LIGHT[fill] if fill else "none"}; stroke: {LIGHT[stroke]}" {more}/>'
        )

    def text(self, x, y, text, colour="ink", anchor="start", size=13, turn=0, style=""):
        turned = f' transform="rotate({turn} {x:g} {y:g})"' if turn else ""
        style += f"; fill: {LIGHT[colour]}" * (colour != "ink") + f"; font-size: {size}px" * (
            size != 13
        )
        place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"{turned}'
        self.parts.append(f'<text {place} style="{style.strip("; ")}">{text}</text>')

    def path(self, d, colour, width=1):
        self.parts.append(
            f'<path d="{d}" style="fill: none; stroke: {LIGHT[colour]}; stroke-width: {width}"/>'
        )

    def svg(self):
        return themed("\n".join(self.parts) + "\n</svg>\n")
