"""The colours of every figure, on light pages and on dark ones, and how a file has both."""

COLOURS = {
    "page": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#f0f6fc"),
    "note": ("#59636e", "#9198a1"),
    "grid": ("#d1d9e0", "#3d444d"),
    "blue": ("#0969da", "#4493f8"),
    "orange": ("#bc4c00", "#f0883e"),
    "green": ("#1a7f37", "#3fb950"),
    "purple": ("#8250df", "#ab7df8"),
    "red": ("#cf222e", "#ff7b72"),
    "brown": ("#9a6700", "#d29922"),
    "teal": ("#1b7c83", "#39c5cf"),
    "pink": ("#bf3989", "#f778ba"),
    "pale-blue": ("#ddf4ff", "#0c2d6b"),
    "pale-green": ("#dafbe1", "#033a16"),
    "pale-yellow": ("#fff8c5", "#4b2900"),
    "pale-purple": ("#fbefff", "#3c1e70"),
}
LIGHT = {name: pair[0] for name, pair in COLOURS.items()}
# of a file's first element
FONT = "font-family=\"-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif\""


def themed(svg: str) -> str:
    """The text of a figure whose elements have the light colours, in attributes or a style="...",
    made to follow dark pages: a rule for each colour. What knows no such rules (PDF, previews, some
    Git hosts) shows the light figure."""
    rules = []
    for light, dark in COLOURS.values():
        for what in ("fill", "stroke"):
            if f'{what}="{light}"' in svg:
                rules.append(f'[{what}="{light}"] {{ {what}: {dark} }}')
            if f"{what}: {light}" in svg:
                rules.append(f'[style*="{what}: {light}"] {{ {what}: {dark} !important }}')
    head = svg.index(">") + 1
    return (
        f"{svg[:head]}\n<style>@media (prefers-color-scheme: dark) {{\n"
        + "\n".join(rules)
        + f"\n}}</style>{svg[head:]}"
    )
