"""What the site adds to Sphinx: a page for each source file that a page links to, the place of each
excerpt, recordings of runs (recordings.py), and the language of each page."""

import gettext
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

import sphinx
from docutils import nodes
from markupsafe import escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, find_lexer_class_for_filename
from sphinx import addnodes
from sphinx.application import Sphinx

from lab.ladder import ROOT
from lab.site import recordings

ZH = "docs/zh/"
Page = tuple[str, dict[str, str], str]  # its name, what the template shows, the template


# ---------------------------------------------------------------- sources


def lead_to_sources(app: Sphinx, doctree: nodes.document) -> None:
    """Links to files and folders that are no pages lead to pages that show them, and so does the
    line that is put above each excerpt."""
    page = app.env.docname
    folder = PurePosixPath(page).parent
    shown = app.env.metadata[page].setdefault("sources", set())

    def address(name: str) -> str:
        if (ROOT / name / "README.md").is_file():
            return relpath(name + "/README.html", folder)
        shown.add(name)
        return relpath(name + ".html", folder)

    for link in list(doctree.findall(addnodes.download_reference)) + [
        link for link in doctree.findall(addnodes.pending_xref) if link["reftype"] == "myst"
    ]:
        name = normpath(folder / link["reftarget"])
        if link.get("refdomain") != "doc" and (ROOT / name).exists():
            link.replace_self(nodes.reference("", "", *link.children, refuri=address(name)))

    for comment in list(doctree.findall(nodes.raw)):
        words = comment.astext().strip("<!-> \n").split()
        code = comment.next_node(siblings=True, descend=False)
        if words[:1] != ["excerpt:"] or not isinstance(code, nodes.literal_block):
            continue
        app.env.note_dependency(ROOT / words[1])
        first = line_of(code.astext(), (ROOT / words[1]).read_text(encoding="utf-8"))
        link = nodes.reference("", f"{words[1]}:{first}", refuri=f"{address(words[1])}#L-{first}")
        comment.replace_self(nodes.paragraph("", "", link, classes=["excerpt"]))


def line_of(excerpt: str, source: str) -> int:
    """The line at which an excerpt, up to its first "// ...", begins in the source."""
    lines = [line.strip() for line in source.splitlines()]
    code = [line.strip() for line in excerpt.strip().split("// ...")[0].strip().splitlines()]
    found = (i + 1 for i in range(len(lines)) if lines[i : i + len(code)] == code)
    return next(found, 1)


def source_pages(app: Sphinx) -> Iterator[Page]:
    """Yields a page for each linked file, and for each linked folder and the files in it."""
    linked = set().union(*(of.get("sources", ()) for of in app.env.metadata.values()))
    folders = {name: files_in(ROOT / name) for name in linked if (ROOT / name).is_dir()}
    texts = linked.union(*folders.values()) - set(folders)
    formatter = HtmlFormatter(linenos="inline", linespans="L", cssclass="highlight source")
    for name in sorted(texts):
        path = ROOT / name
        if app.env.path2doc(path) is None and (text := text_of(path)) is not None:
            lexer = find_lexer_class_for_filename(path.name) or TextLexer
            yield page(name, highlight(text, lexer(stripnl=False), formatter))
    for folder, files in folders.items():
        yield page(folder, "".join(entry(app, folder, name) for name in files))


def files_in(folder: Path) -> list[str]:
    """The files below a folder, relative to the root."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path.relative_to(ROOT).as_posix() for path in paths if "__pycache__" not in path.parts]


def text_of(path: Path) -> str | None:
    """The text of a file; None if it holds none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def entry(app: Sphinx, folder: str, name: str) -> str:
    """A line of a folder's page."""
    text = escape(relpath(name, folder))
    if text_of(ROOT / name) is None:
        return f"<p>{text}</p>"
    shown = app.env.path2doc(ROOT / name) or name
    return f'<p><a href="{relpath(shown + ".html", PurePosixPath(folder).parent)}">{text}</a></p>'


def page(name: str, body: str) -> Page:
    """What Sphinx makes an HTML file of."""
    return name, {"title": name, "body": f"<h1>{escape(name)}</h1>\n{body}"}, "page.html"


# ---------------------------------------------------------------- pictures


def copy_moving_pictures(app: Sphinx, exception: Exception | None) -> None:
    """Pictures in HTML, which Sphinx leaves as it is, lie beside the pages as in the repository."""
    folder = Path(app.outdir) / "docs/figures"
    folder.mkdir(parents=True, exist_ok=True)
    for picture in (ROOT / "docs/figures").glob("*.gif"):
        for path in (picture, picture.with_suffix(".png")):  # it, and its still
            shutil.copy(path, folder)


# ---------------------------------------------------------------- languages


def speak(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """A page knows its language and where it stands in the other one."""
    chinese = pagename.startswith(ZH)
    name = pagename.removeprefix(ZH if chinese else "docs/")
    others = [name, f"docs/{name}", app.config.root_doc] if chinese else [ZH + name, ZH + "README"]
    other = next(one for one in others if one in app.env.found_docs)
    context["in_chinese"] = chinese
    context["other_language"] = app.builder.get_relative_uri(pagename, other)
    if chinese:
        translations = gettext.translation(
            "sphinx", Path(sphinx.__file__).parent / "locale", ["zh_CN"]
        )
        context.update(language="zh-CN", _=translations.gettext, gettext=translations.gettext)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", lead_to_sources, priority=400)  # before links become downloads
    app.connect("doctree-read", recordings.show)
    app.connect("html-collect-pages", source_pages)
    app.connect("html-page-context", speak, priority=900)  # after the theme
    app.connect("builder-inited", recordings.break_kernels)
    app.connect("env-get-outdated", recordings.outdated)
    app.connect("build-finished", recordings.make)
    app.connect("build-finished", copy_moving_pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
