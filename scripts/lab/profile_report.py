"""What the SIMT backend counted, for people: a summary, and counts beside each line of source.

The listing is written as text and as one HTML page. Everything comes from the NAME.profile.json
that a program's --profile writes.
"""

import html
import json
import os
import sys
from collections import Counter
from pathlib import Path

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


def load(path):
    """The document; ValueError when the file does not hold a profile."""
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(document, dict) or "kernels" not in document:
        raise ValueError("it holds no profile")
    return document


def together(counts, parts):
    """Loads and stores of one kind of memory in one sum."""
    return sum((Counter(counts.get(part, {})) for part in parts), Counter())


def ratio(part, whole):
    return part / whole if whole else 0


def ways(shared):
    """Wavefronts over those needed without conflict."""
    return ratio(shared["wavefronts"], shared["ideal"])


def size(count):
    return f"{count:,} B" if count < 10_000 else f"{(count + 500) // 1000:,} kB"


def short(file):
    """As one would type it here."""
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative


def events(counts):
    named = [(counts[name], noun) for name, noun in EVENTS.items() if counts.get(name)]
    named += [(counts[name]["requests"], noun) for name, noun in ENGINE.items() if counts.get(name)]
    # By their columns.
    shapes = sorted(counts.get("wgmma", {}), key=lambda shape: (len(shape), shape))
    named += [(counts["wgmma"][shape], f"wgmma {shape}") for shape in shapes]
    return ", ".join(
        f"{count:,} {noun}{'s' * (count != 1 and not noun.startswith(INSTRUCTIONS))}"
        for count, noun in named
    )


def marks(line):
    return [
        word
        for word, name in (("uncoalesced", "uncoalesced"), ("bank conflicts", "conflicted"))
        if line.get(name)
    ]


def lines_that_matter(kernel):
    """[(line, its share of sectors, of wavefronts)] of lines with a twentieth, or a mark."""
    sectors, wavefronts = (
        together(kernel["total"], GLOBAL)["sectors"],
        together(kernel["total"], SHARED)["wavefronts"],
    )
    rows = [
        (
            line,
            ratio(together(line, GLOBAL)["sectors"], sectors),
            ratio(together(line, SHARED)["wavefronts"], wavefronts),
        )
        for line in kernel.get("lines", [])
    ]
    return [row for row in rows if max(row[1:]) >= 0.05 or marks(row[0])]


def launches(kernel):
    grid, block = (" x ".join(map(str, kernel[name])) for name in ("grid", "block"))
    plural = "" if kernel["launches"] == 1 else "es"
    return (
        f"{kernel['launches']:,} launch{plural} of {grid} blocks, {block} threads, "
        f"{kernel['shared_bytes']:,} bytes of shared memory"
    )


def summary(document):
    """Totals of each kernel, and the lines that make up most of its traffic."""
    out = []
    for kernel in document["kernels"]:
        out.append(f"{kernel['name']}: {launches(kernel)}")
        total = kernel["total"]
        for part, name in (
            ("global_load", "global loads"),
            ("global_store", "global stores"),
            ("global_atomic", "global atomics"),
        ):
            if (own := total.get(part, {"requests": 0}))["requests"]:
                out.append(
                    f"  {name:<14} {own['requests']:,} requests, {own['sectors']:,} sectors "
                    f"({own['sectors'] / own['requests']:.2f} per request), {size(own['bytes'])} "
                    "asked for"
                )
        for part, name in (
            ("shared_load", "shared loads"),
            ("shared_store", "shared stores"),
            ("async_store", "cp.async into"),
        ):
            if (own := total[part])["requests"]:
                out.append(
                    f"  {name:<14} {own['requests']:,} requests, {own['wavefronts']:,} wavefronts, "
                    f"{own['ideal']:,} without conflicts ({ways(own):.2f} ways), "
                    f"{size(own['bytes'])}"
                )
        for part, noun in ENGINE.items():
            if own := total.get(part):
                out.append(
                    f"  {noun + 's':<14} {own['requests']:,} requests, {size(own['bytes'])} of "
                    "global memory"
                )
        if events(total):
            out.append(f"  {'events':<14} {events(total)}")
        out += [
            f"  {one['name']} ({size(one['bytes'])}): {size(one['load']['bytes'])} read, "
            f"{size(one['store']['bytes'])} written"
            for one in kernel["buffers"]
        ]
        rows = lines_that_matter(kernel)
        out += ["  lines that matter"] if rows else []
        for line, of_sectors, of_wavefronts in rows:
            text = (
                f"    {short(line['file'])}:{line['line']}" if line["file"] else "    unknown line"
            )
            text += f"  {of_sectors:.0%} of sectors" if of_sectors else ""
            if of_wavefronts:
                text += (
                    f"  {of_wavefronts:.0%} of wavefronts, {ways(together(line, SHARED)):.2f} ways"
                )
            out.append(text + "".join(f"  <- {mark}" for mark in marks(line)))
    if document.get("unknown_lines"):
        out.append(f"some lines are not known: {document['unknown_lines']}")
    return "\n".join(out) + "\n"


def listings(document):
    """{file: [(number, source text, counts or {})]}; of an unreadable file, counted lines."""
    files = {}
    for kernel in document["kernels"]:
        for line in kernel["lines"]:
            if not line["file"]:
                continue
            known = files.setdefault(line["file"], {}).setdefault(line["line"], {})
            for name, value in line.items():
                if isinstance(value, dict):
                    known[name] = Counter(known.get(name, {})) + Counter(value)
                elif name not in ("file", "line"):
                    known[name] = known.get(name, 0) + value
    for file, counted in sorted(files.items()):
        try:
            source = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            files[file] = [(number, "", counts) for number, counts in sorted(counted.items())]
            continue
        files[file] = [
            (number, text, counted.get(number, {})) for number, text in enumerate(source, 1)
        ]
    return dict(sorted(files.items()))


def heading(file):
    return short(file) if Path(file).is_file() else f"{file} (cannot be read here)"


def text(document):
    """The source files of the kernels, each line with its counts beside it."""
    out = []
    for file, lines in listings(document).items():
        out += [
            heading(file),
            "      global     sectors       shared",
            "    requests per request   wavefronts   ways",
        ]
        for number, source, counts in lines:
            own, shared = together(counts, GLOBAL), together(counts, SHARED)
            requests = f"{own['requests']:,}" if own["requests"] else ""
            per = f"{own['sectors'] / own['requests']:.2f}" if own["requests"] else ""
            turns, way = (
                (f"{shared['wavefronts']:,}", f"{ways(shared):.2f}")
                if shared["requests"]
                else ("", "")
            )
            also = f"   << {events(counts)}" if events(counts) else ""
            out.append(
                f"{requests:>12}{per:>12}{'!' if counts.get('uncoalesced') else ' '}"
                f"{turns:>12}{way:>7}"
                f"{'!' if counts.get('conflicted') else ' '}{number:>5} | {source}{also}"
            )
        out += ["! marks lines with uncoalesced global accesses or bank conflicts", ""]
    return "\n".join(out) + "\n"


STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --dim: #59636e; --page: #ffffff; --band: #f3f5f7;
  --rule: #d5dae0;
    --global: #0a58ca; --global-bar: #cfe2ff; --shared: #6f3cc3; --shared-bar: #e6d8fb; --bad:
  #b42318;
  --bad-page: #ffe9e6; --comment: #57694f; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ed; --dim: #99a3ad; --page: #14181d;
  --band: #1c2229;
    --rule: #343c46; --global: #8cc0ff; --global-bar: #1d3a5f; --shared: #d0acff; --shared-bar:
  #41295f; --bad: #ff9a8a;
  --bad-page: #40201d; --comment: #9fb796; } }
body { margin: 0; padding: 1.5rem; font: 15px/1.45 system-ui, sans-serif; color: var(--text);
  background: var(--page); }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p, li { max-width: 60rem; } .dim { color: var(--dim); }
table { border-collapse: collapse; } th, td { padding: 0 .6rem; text-align: right; white-space:
  nowrap; }
th { font-weight: 600; color: var(--dim); background: var(--band); }
.scroll { overflow-x: auto; }
.totals { margin-top: 1rem; } .totals td { border-top: 1px solid var(--rule); padding: .15rem .6rem;
  }
.totals .left, .left { text-align: left; } a { color: inherit; }
.listing, .code { font: 12.5px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.listing th { position: sticky; top: 0; z-index: 1; border-bottom: 1px solid var(--rule); }
.listing .source { text-align: left; white-space: pre; padding-right: 2rem; border-left: 1px solid
  var(--rule); }
.listing .number, .e { color: var(--dim); } .e { text-align: left; }
.listing tr:hover td.source, .listing tr:target td.source { background: var(--band); }
.listing tr { scroll-margin-top: 40vh; } tr:target .number { color: var(--text); font-weight: 700; }
.g { color: var(--global); } .s { color: var(--shared); } .comment { color: var(--comment); }
td.g[style] { background: linear-gradient(to left, var(--global-bar) var(--part), transparent
  var(--part)); }
td.s[style] { background: linear-gradient(to left, var(--shared-bar) var(--part), transparent
  var(--part)); }
.listing tr.bad td.source { background: var(--bad-page); } .bad, .mark { color: var(--bad);
  font-weight: 700; }
tr.bad { color: inherit; font-weight: inherit; }
"""
PREFACE = """<p>Counted while the kernel ran on the CPU, as written: a GPU's compiler may keep a
value in a register and save an access to shared memory. A <b class=g>sector</b> is 32 bytes of
global memory; a request is one instruction of a warp, and 4 sectors per request are ideal when each
lane takes 4 bytes, 16 when it takes 16. A <b class=s>wavefront</b> is one pass through the 32 banks
of shared memory; <b>ways</b> are wavefronts over those needed without conflict, 1.00 at best. <span
class=mark>Red</span> marks more than 1.1 ways, and more than 1.3 times the sectors that the bytes
fill. A line's loads and stores are counted together; resting on a number shows them apart.</p>
"""


def source_html(source):
    """A line of C++, its comment in another colour."""
    code, slashes, comment = source.partition("//")
    return html.escape(code) + (
        f"<span class=comment>{html.escape(slashes + comment)}</span>" if slashes else ""
    )


def bar(kind, counts, parts, unit, most):
    """A count with a bar behind it, relative to the largest; empty when nothing was counted."""
    own = together(counts, parts)
    if not own["requests"]:
        return "<td>"
    apart = "; ".join(
        f"{name}: {counts[part]['requests']:,} requests, {counts[part][unit]:,} {unit}, "
        f"{counts[part]['ideal']:,} at best"
        for part, name in parts.items()
        if counts[part]["requests"]
    )
    part = f"{100 * ratio(own[unit], most):.0f}%"
    return f'<td class={kind} style="--part:{part}" title="{apart}">{own[unit]:,}'


def rates(counts):
    """The cells of sectors per request and of ways."""
    own, shared = together(counts, GLOBAL), together(counts, SHARED)
    return (
        f"<td class={'bad' if counts.get('uncoalesced') else 'g'}>"
        + (f"{ratio(own['sectors'], own['requests']):.1f}" if own["requests"] else ""),
        f"<td class={'bad' if counts.get('conflicted') else 's'}>"
        + (f"{ways(shared):.2f}" if shared["requests"] else ""),
    )


def marks_html(counts):
    return "".join(f"<span class=mark>{mark}</span> " for mark in marks(counts))


def lines_html(kernel, anchors, sources):
    """A table of the lines that matter, each with a link to its place below."""
    yield (
        f"<h2>{html.escape(kernel['name'])}</h2>\n<div class=scroll><table class=totals><tr><th "
        "class=left>"
        "lines that matter<th>of sectors<th>per request<th>of wavefronts<th>ways<th "
        "class=left></tr>\n"
    )
    for line, of_sectors, of_wavefronts in lines_that_matter(kernel):
        if (place := (line["file"], line["line"])) in anchors:
            per_request, way = rates(line)
            sectors, wavefronts = (
                f"{share:.1%}" if share else "" for share in (of_sectors, of_wavefronts)
            )
            yield (
                f'<tr><td class=left><a href="#{anchors[place]}">line {line["line"]}</a> &ensp;'
                f"<span class=code>{source_html(sources[place].strip())}</span><td "
                f"class=g>{sectors}"
                f"{per_request}<td class=s>{wavefronts}{way}<td "
                f"class=left>{marks_html(line)}</tr>\n"
            )
    yield "</table></div>\n"


def page(title, document):
    """The listing as one HTML page: no script, no other file."""
    files = listings(document)
    anchors = {
        (file, number): f"L{index}-{number}"
        for index, (file, lines) in enumerate(files.items(), 1)
        for number, _, _ in lines
    }
    sources = {
        (file, number): source for file, lines in files.items() for number, source, _ in lines
    }
    title = f"{html.escape(title)}: memory traffic by line"
    out = [
        "<!doctype html>\n<html lang=en><meta charset=utf-8>\n"
        '<meta name=viewport content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n{PREFACE}"
    ]
    for kernel in document["kernels"]:
        out += lines_html(kernel, anchors, sources)
    out.append(f"<h2>All counts</h2>\n<pre class=scroll>{html.escape(summary(document))}</pre>\n")
    for file, lines in files.items():
        most_sectors = max(together(counts, GLOBAL)["sectors"] for _, _, counts in lines)
        most_wavefronts = max(together(counts, SHARED)["wavefronts"] for _, _, counts in lines)
        out.append(
            f"<h2>{html.escape(heading(file))}</h2>\n<table "
            "class=listing><thead><tr><th>sectors<th>per request"
            "<th>wavefronts<th>ways<th class=left>also<th>line<th class=left>source</tr></thead>\n"
        )
        for number, source, counts in lines:
            per_request, way = rates(counts)
            out.append(
                f"<tr{' class=bad' if marks(counts) else ''} id={anchors[file, number]}>"
                f"{bar('g', counts, GLOBAL, 'sectors', most_sectors)}{per_request}"
                f"{bar('s', counts, SHARED, 'wavefronts', most_wavefronts)}{way}<td "
                f"class=e>{marks_html(counts)}"
                f"{events(counts)}<td class=number>{number}<td "
                f"class=source>{source_html(source)}</tr>\n"
            )
        out.append("</table>\n")
    return "".join(out) + "</html>\n"


def write(document, stem):
    """Writes the listings; returns their names."""
    title = Path(stem).name.removesuffix(".profile")
    for ending, content in ((".txt", text(document)), (".html", page(title, document))):
        Path(f"{stem}{ending}").write_text(content, encoding="utf-8")
    return f"{stem}.txt", f"{stem}.html"


def show(document, stem):
    """Prints the summary and writes the listings beside STEM.json."""
    print(summary(document), end="")
    print(f"written  {', '.join(write(document, stem))}")


def main(path):
    try:
        show(load(path), str(Path(path).with_suffix("")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"scripts/profile: {path} cannot be shown: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(
        main(*sys.argv[1:2])
        if len(sys.argv) == 2
        else "usage: python3 -m lab.profile_report NAME.profile.json"
    )
