"""Recordings of runs in the site's pages, where a reader unfolds them.

<!-- watch: PROGRAM#MOMENT TEXT --> is a recording of a rung or of FILE.cu:ARGUMENT, folded;
<!-- watch-here: ... --> is one unfolded. <!-- break: NAME --> is a kernel of docs/site/broken.toml:
a reader takes one of its lines out, guesses, and sees. NAME/1 is its run without the first line.
The recordings are made for the site alone. None of this needs a script but the recording's own."""

import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path, PurePosixPath
from posixpath import relpath

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import SphinxError

from lab import watch
from lab.exercises import building
from lab.ladder import ROOT, cuda_rungs

# What is unfolded loads its recording, and nothing else does.
PLAYER = """<iframe src="{address}" title="{text}" loading="lazy"></iframe>
<p><a href="{address}">On a page of its own</a></p>"""
FOLDED = """<details class="watch"{open}><summary>Watch it run: {text}</summary>
{player}
</details>"""
# Style sheets show what happened once a guess is made.
CHOICE = """<details name="{name}"><summary><code>{line}</code></summary>
<pre>{around}</pre>
<fieldset><legend>What happens without it? Guess first.</legend>
{guesses}
</fieldset>
<div class="outcome">
<pre>{verdict}</pre>
{player}
<pre>{command}</pre>
</div>
</details>"""
GUESS = '<label{right}><input type="radio" name="{group}"> {text}</label>'
AROUND = 3  # lines of a kernel above one that is taken out, and below it

BROKEN = tomllib.loads((ROOT / "docs/site/broken.toml").read_text(encoding="utf-8"))
GUESSES = BROKEN.pop("guesses")
verdicts: dict[str, str] = {}  # {NAME/1: what scripts/watch says of this run}


def show(app: Sphinx, doctree: nodes.document) -> None:
    """Puts recordings into a page. Browser.py sees to it that their moments are there."""
    page = app.env.docname
    told = app.env.metadata[page]
    for comment in list(doctree.findall(nodes.raw)):
        mark, *words = comment.astext().strip("<!-> \n").split() or [""]
        if mark in ("watch:", "watch-here:"):
            program, _, moment = words[0].partition("#")
            told.setdefault("watched", set()).add(program)
            text = escape(" ".join(words[1:]))
            player = PLAYER.format(address=address_of(program, moment, page), text=text)
            opened = " open" if mark == "watch-here:" else ""
            html = FOLDED.format(open=opened, text=text, player=player)
        elif mark == "break:":
            told["breaks"] = "yes"
            choices = "\n".join(choices_of(words[0], page))
            html = f'<div class="break">\n{choices}\n</div>'
        else:
            continue
        comment.replace_self(nodes.raw("", html, format="html"))


def address_of(program: str, moment: str, page: str) -> str:
    """Of a recording, as it is written in a page."""
    address = relpath(f"watch/{recording_of(program)}.html", PurePosixPath(page).parent)
    return escape(f"{address}#{moment}" if moment else address)


def recording_of(program: str) -> str:
    """What the page of RUNG, of FILE.cu:ARGUMENT, or of NAME/1 is called."""
    path = Path(program.partition(":")[0])
    return path.stem if program not in verdicts else program.replace("/", "_without_")


def make(app: Sphinx, exception: Exception | None) -> None:
    """A page for each program that a page shows the recording of. Without MPI there is no ring to
    be recorded, and its place stays empty, which --check does not let pass."""
    watched = set().union(*(of.get("watched", ()) for of in app.env.metadata.values()))
    for program in sorted(watched - set(verdicts)) if exception is None else ():
        output = Path(app.outdir) / f"watch/{recording_of(program)}.html"
        command = [ROOT / "scripts/watch", *program.split(":"), "--no-browser", "--output", output]
        if subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL).returncode:
            print(f"site: without a recording of {program}, see above", file=sys.stderr)


# ---------------------------------------------------------------- kernels without a line


def command_of(name: str, line: str) -> list[str]:
    """Of a run without this line, as a reader types it in the root."""
    kernel = BROKEN[name]
    program = [kernel.get("program", name), *kernel.get("arguments", "").split()]
    return ["./scripts/watch", *program, "--without", line]


def list_copies() -> None:
    """Lists all copies of rungs' kernels at once, since each change has CMake configure anew."""
    copies = [
        (rung, watch.without(line, rung.kernel_file))
        for rung in cuda_rungs([name for name, kernel in BROKEN.items() if "program" not in kernel])
        for line in BROKEN[rung.name]["lines"]
    ]
    watch.configure(building.build_folder("simt"), copies[0][0])
    with building.locked("simt") as path:
        building.listed(path, copies)


def break_kernels(app: Sphinx) -> None:
    """Records each kernel of broken.toml without each of its lines, before any page is read."""
    list_copies()
    for name, kernel in BROKEN.items():
        for number, line in enumerate(kernel["lines"], 1):
            output = Path(app.outdir) / f"watch/{name}_without_{number}.html"
            command = [*command_of(name, line), "--no-browser", "--output", str(output)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            if done.returncode:
                raise SphinxError(f"docs/site/broken.toml, {name}: {done.stderr.strip()}")
            said = [one for one in done.stdout.splitlines() if str(output.parent) not in one]
            verdicts[f"{name}/{number}"] = "\n".join(said)


def outdated(
    app: Sphinx, env: object, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Pages that say what has just been run."""
    return [page for page, told in app.env.metadata.items() if "breaks" in told]


def choices_of(name: str, page: str) -> Iterator[str]:
    """The lines that a reader may take out of a kernel, each with what happens then."""
    if name not in BROKEN:
        raise SphinxError(f"{page}: docs/site/broken.toml has no {name}")
    kernel = BROKEN[name]
    program = kernel.get("program", name)
    source = ROOT / program if program.endswith(".cu") else cuda_rungs([program])[0].kernel_file
    for number, line in enumerate(kernel["lines"], 1):
        verdict = verdicts[f"{name}/{number}"]
        command = shlex.join(command_of(name, line))
        address = address_of(f"{name}/{number}", "", page)
        yield CHOICE.format(
            name=name,
            line=escape(line),
            around=around(line, source.read_text(encoding="utf-8").splitlines()),
            guesses="\n".join(guesses_of(f"{name}-{number}", verdict)),
            verdict=escape(verdict),
            player=PLAYER.format(address=address, text=escape(f"{name} without {line}")),
            command=escape(command),
        )


def around(line: str, lines: list[str]) -> str:
    """The line, struck out, among its neighbours."""
    at = next(i for i, one in enumerate(lines) if one.split() == line.split())
    first = max(0, at - AROUND)
    shown = [escape(one) for one in lines[first : at + AROUND + 1]]
    text = shown[at - first].lstrip()
    shown[at - first] = shown[at - first].replace(text, f"<del>{text}</del>")
    return "\n".join(shown)


def guesses_of(group: str, verdict: str) -> Iterator[str]:
    """What a reader may guess; one of it is what the verdict says."""
    ends = verdict.splitlines()[0], verdict.splitlines()[-1]
    right = [
        text for text, said in GUESSES.items() if any(one in end for one in said for end in ends)
    ]
    if len(right) != 1:
        raise SphinxError(f"docs/site/broken.toml: {len(right)} of its guesses are '{ends[0]}'")
    for text in GUESSES:
        marked = ' class="right"' if text in right else ""
        yield GUESS.format(right=marked, group=group, text=escape(text))
