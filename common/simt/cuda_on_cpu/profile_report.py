"""What the SIMT backend counted, for people: a summary, and counts beside each line of source.

The listing is written as text and as one HTML page. Everything comes from the NAME.profile.json
that a program's --profile writes.
"""

import html
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

GLOBAL = {"global_load": "loads", "global_store": "stores"}
SHARED = {"shared_load": "loads", "shared_store": "stores", "async_store": "cp.async writes"}
EVENTS = {
    "barriers": "barrier",
    "collectives": "collective",
    "atomics": "atomic",
    "mma": "mma",
    "ldmatrix": "ldmatrix",
    "cp_async": "cp.async",
}
ENGINE = {"tma_load": "TMA load", "tma_store": "TMA store", "bulk_reduce": "bulk reduction"}
INSTRUCTIONS = ("mma", "ldmatrix", "cp.async", "wgmma")  # names that have no plural


def load(path: str | Path) -> dict[str, Any]:
    """The document; ValueError when the file does not hold a profile."""
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(document, dict) or "kernels" not in document:
        raise ValueError("it holds no profile")
    return document


def together(counts: Mapping[str, Any], parts: Iterable[str]) -> Counter[str]:
    """Loads and stores of one kind of memory in one sum."""
    return sum((Counter(counts.get(part, {})) for part in parts), Counter())


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0


def ways(shared: Mapping[str, int]) -> float:
    """Wavefronts over those needed without conflict."""
    return ratio(shared["wavefronts"], shared["ideal"])


def size(count: int) -> str:
    return f"{count:,} B" if count < 10_000 else f"{(count + 500) // 1000:,} kB"


def short(file: str) -> str:
    """As one would type it here."""
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative


def events(counts: Mapping[str, Any]) -> str:
    named = [(counts[name], noun) for name, noun in EVENTS.items() if counts.get(name)]
    named += [(counts[name]["requests"], noun) for name, noun in ENGINE.items() if counts.get(name)]
    # By their columns.
    shapes = sorted(counts.get("wgmma", {}), key=lambda shape: (len(shape), shape))
    named += [(counts["wgmma"][shape], f"wgmma {shape}") for shape in shapes]
    return ", ".join(
        f"{count:,} {noun}{'' if count == 1 or noun.startswith(INSTRUCTIONS) else 's'}"
        for count, noun in named
    )


def marks(line: Mapping[str, Any]) -> list[str]:
    return [
        word
        for word, name in (("uncoalesced", "uncoalesced"), ("bank conflicts", "conflicted"))
        if line.get(name)
    ]


def lines_that_matter(kernel: dict[str, Any]) -> list[tuple[dict[str, Any], float, float]]:
    """[(line, its share of sectors, of wavefronts)] of lines with a twentieth, or a mark."""
    sectors = together(kernel["total"], GLOBAL)["sectors"]
    wavefronts = together(kernel["total"], SHARED)["wavefronts"]
    rows = []
    for line in kernel.get("lines", []):
        of_sectors = ratio(together(line, GLOBAL)["sectors"], sectors)
        of_wavefronts = ratio(together(line, SHARED)["wavefronts"], wavefronts)
        if max(of_sectors, of_wavefronts) >= 0.05 or marks(line):
            rows.append((line, of_sectors, of_wavefronts))
    return rows


def totals(total: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, what was counted of it) of what a kernel does."""
    for name in ("load", "store", "atomic"):
        own = total.get(f"global_{name}", {})
        if requests := own.get("requests"):
            per_request = f"{own['sectors'] / requests:.2f} per request"
            said = f"{own['sectors']:,} sectors ({per_request}), {size(own['bytes'])} asked for"
            yield f"global {name}s", f"{requests:,} requests, {said}"
    shared = {"shared_load": "shared loads", "shared_store": "shared stores"}
    for part, name in (shared | {"async_store": "cp.async into"}).items():
        own = total[part]
        if own["requests"]:
            said = f"{own['requests']:,} requests, {own['wavefronts']:,} wavefronts"
            ideal = f"{own['ideal']:,} without conflicts ({ways(own):.2f} ways)"
            yield name, f"{said}, {ideal}, {size(own['bytes'])}"
    for part, noun in ENGINE.items():
        if own := total.get(part):
            yield f"{noun}s", f"{own['requests']:,} requests, {size(own['bytes'])} of global memory"
    if events(total):
        yield "events", events(total)


def summary(document: dict[str, Any]) -> str:
    """Totals of each kernel, and the lines that make up most of its traffic."""
    out = []
    for kernel in document["kernels"]:
        grid, block = (" x ".join(map(str, kernel[name])) for name in ("grid", "block"))
        launches = f"{kernel['launches']:,} launch{'' if kernel['launches'] == 1 else 'es'}"
        shared = f"{kernel['shared_bytes']:,} bytes of shared memory"
        out.append(f"{kernel['name']}: {launches} of {grid} blocks, {block} threads, {shared}")
        out += [f"  {name:<14} {said}" for name, said in totals(kernel["total"])]
        for one in kernel["buffers"]:
            moved = f"{size(one['load']['bytes'])} read, {size(one['store']['bytes'])} written"
            out.append(f"  {one['name']} ({size(one['bytes'])}): {moved}")
        rows = lines_that_matter(kernel)
        if rows:
            out.append("  lines that matter")
        for line, of_sectors, of_wavefronts in rows:
            place = f"{short(line['file'])}:{line['line']}" if line["file"] else "unknown line"
            parts = [f"    {place}"]
            if of_sectors:
                parts.append(f"{of_sectors:.0%} of sectors")
            if of_wavefronts:
                way = ways(together(line, SHARED))
                parts.append(f"{of_wavefronts:.0%} of wavefronts, {way:.2f} ways")
            out.append("  ".join([*parts, *(f"<- {mark}" for mark in marks(line))]))
    if document.get("unknown_lines"):
        out.append(f"some lines are not known: {document['unknown_lines']}")
    return "\n".join(out) + "\n"


def listings(document: dict[str, Any]) -> dict[str, list[tuple[int, str, dict[str, Any]]]]:
    """{file: [(number, source text, counts or {})]}; of an unreadable file, counted lines."""
    of_files: dict[str, dict[int, dict[str, Any]]] = {}
    for kernel in document["kernels"]:
        for line in kernel["lines"]:
            if not line["file"]:
                continue
            known = of_files.setdefault(line["file"], {}).setdefault(line["line"], {})
            for name, value in line.items():
                if isinstance(value, dict):
                    known[name] = Counter(known.get(name, {})) + Counter(value)
                elif name not in ("file", "line"):
                    known[name] = known.get(name, 0) + value
    files = {}
    for file, counted in sorted(of_files.items()):
        try:
            source = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            files[file] = [(number, "", counts) for number, counts in sorted(counted.items())]
            continue
        files[file] = [
            (number, text, counted.get(number, {})) for number, text in enumerate(source, 1)
        ]
    return files


def heading(file: str) -> str:
    return short(file) if Path(file).is_file() else f"{file} (cannot be read here)"


def cells(counts: Mapping[str, Any]) -> list[str]:
    """What stands beside a line: requests, sectors per request, wavefronts, ways, all else."""
    own, shared = together(counts, GLOBAL), together(counts, SHARED)
    found = ["", "", "", "", events(counts)]
    if own["requests"]:
        found[:2] = f"{own['requests']:,}", f"{own['sectors'] / own['requests']:.2f}"
    if shared["requests"]:
        found[2:4] = f"{shared['wavefronts']:,}", f"{ways(shared):.2f}"
    return found


def text(document: dict[str, Any]) -> str:
    """The source files of the kernels, each line with its counts beside it."""
    out = []
    for file, lines in listings(document).items():
        out += [
            heading(file),
            "      global     sectors       shared",
            "    requests per request   wavefronts   ways",
        ]
        for number, source, counts in lines:
            requests, per_request, wavefronts, way, also = cells(counts)
            also = also and f"   << {also}"
            out.append(
                f"{requests:>12}{per_request:>12}{'!' if counts.get('uncoalesced') else ' '}"
                f"{wavefronts:>12}{way:>7}{'!' if counts.get('conflicted') else ' '}"
                f"{number:>5} | {source}{also}"
            )
        out += ["! marks lines with uncoalesced global accesses or bank conflicts", ""]
    return "\n".join(out) + "\n"


PAGE = """<!doctype html>
<html lang=en><meta charset=utf-8>
<meta name=viewport content="width=device-width, initial-scale=1">
<title>@TITLE@</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; }
pre, td { font: 12.5px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre { overflow-x: auto; } p { max-width: 60rem; }
table { border-collapse: collapse; }
th, td { padding: 0 .6rem; text-align: right; white-space: nowrap; }
th { position: sticky; top: 0; background: Canvas; }
.source, .also { text-align: left; white-space: pre; }
.number, .also { color: GrayText; }
.global { color: light-dark(#0a58ca, #8cc0ff); }
.shared { color: light-dark(#6f3cc3, #d0acff); }
.bar { background: linear-gradient(to left, light-dark(#e2e8f5, #26385a) var(--part),
       transparent var(--part)); }
.bad .source { background: light-dark(#ffe9e6, #40201d); }
.red { color: light-dark(#b42318, #ff9a8a); font-weight: 700; }
</style>
<h1>@TITLE@</h1>
<p>Counted while the kernel ran on the CPU, as written: a GPU's compiler may keep a value in a
register and save an access to shared memory. A <b class=global>sector</b> is 32 bytes of global
memory; a request is one instruction of a warp, and 4 sectors per request are ideal when each lane
takes 4 bytes, 16 when it takes 16. A <b class=shared>wavefront</b> is one pass through the 32 banks
of shared memory; <b>ways</b> are wavefronts over those needed without conflict, 1.00 at best.
<span class=red>Red</span> marks more than 1.1 ways, and more than 1.3 times the sectors that the
bytes fill.</p>
"""
HEAD = """<table><thead><tr><th>sectors<th>per request<th>wavefronts<th>ways<th class=also>also
<th>line<th class=source>source</tr></thead>
"""


def page(title: str, document: dict[str, Any]) -> str:
    """The listing as one HTML page: no script, no other file."""
    title = f"{html.escape(title)}: memory traffic by line"
    out = [PAGE.replace("@TITLE@", title), f"<pre>{html.escape(summary(document))}</pre>\n"]
    for file, lines in listings(document).items():
        out += [f"<h2>{html.escape(heading(file))}</h2>\n", HEAD]
        most = [
            max(together(counts, parts)[unit] for *_, counts in lines)
            for parts, unit in ((GLOBAL, "sectors"), (SHARED, "wavefronts"))
        ]
        for number, source, counts in lines:
            _, per_request, _, way, also = cells(counts)
            sectors = together(counts, GLOBAL)["sectors"]
            wavefronts = together(counts, SHARED)["wavefronts"]
            out.append(
                f"<tr{' class=bad' if marks(counts) else ''}>"
                + bar("global", sectors, most[0])
                + f"<td class={'red' if counts.get('uncoalesced') else 'global'}>{per_request}"
                + bar("shared", wavefronts, most[1])
                + f"<td class={'red' if counts.get('conflicted') else 'shared'}>{way}"
                + f"<td class=also>{' '.join([*marks(counts), also])}"
                + f"<td class=number>{number}<td class=source>{html.escape(source)}</tr>\n"
            )
        out.append("</table>\n")
    return "".join(out) + "</html>\n"


def bar(kind: str, count: int, most: int) -> str:
    """A count with a bar behind it, relative to the largest; empty when nothing was counted."""
    if not count:
        return "<td>"
    part = f"{100 * count / most:.0f}%"
    return f'<td class="{kind} bar" style="--part:{part}">{count:,}'


def write(document: dict[str, Any], stem: str) -> tuple[str, str]:
    """Writes the listings; returns their names."""
    title = Path(stem).name.removesuffix(".profile")
    for ending, content in ((".txt", text(document)), (".html", page(title, document))):
        Path(f"{stem}{ending}").write_text(content, encoding="utf-8")
    return f"{stem}.txt", f"{stem}.html"


def show(document: dict[str, Any], stem: str) -> None:
    """Prints the summary and writes the listings beside STEM.json."""
    print(summary(document), end="")
    print(f"written  {', '.join(write(document, stem))}")
