"""A Sphinx extension: a page for each source file and folder that a chapter links to, MathJax without a network, the
language of each page, and a search that finds Chinese."""

import json
import re
import shutil
from importlib.metadata import distribution
from pathlib import Path
from posixpath import relpath

from docutils import nodes
from markdown import ROOT, repository_files
from markupsafe import escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound
from sphinx.search.en import SearchEnglish

LARGEST = 150_000  # bytes that a page shows; a larger file is copied as it is
LEXERS = {".cu": "cuda.cu", ".hpp": "x.cpp", ".txt": "x.txt"}
CHINESE = {
    "Next": "下一页",
    "Previous": "上一页",
    "Home": "首页",
    "On this page": "本页内容",
    "Back to top": "回到顶部",
    "Search": "搜索",
    "Skip to content": "跳到正文",
}


def strip_scheme(app, doctree, docname):
    """A link to a page that Sphinx does not know was written as site:ADDRESS."""
    for node in doctree.findall(nodes.reference):
        if node.get("refuri", "").startswith("site:"):
            node["refuri"] = node["refuri"].removeprefix("site:")
            node["internal"] = True


def source_pages(app):
    """Yields (page, context, template) for each linked file, each linked folder and the text files in it."""
    wanted, shown = json.loads((Path(app.srcdir) / "sources.json").read_text()), set()
    for name in wanted:
        shown.update(repository_files(name + "/") if (ROOT / name).is_dir() else [name])
    folders = {name for name in wanted if (ROOT / name).is_dir()}
    folders |= {
        parent.as_posix()
        for name in shown
        for parent in Path(name).parents
        if parent.as_posix() in folders
        or any(
            folder == parent.as_posix() or parent.as_posix().startswith(folder + "/")
            for folder in folders
        )
    }
    files = set()  # that a listing leads to as they are
    for name in sorted(shown):
        content = (ROOT / name).read_bytes()
        if name.endswith((".md", ".svg", ".png")):
            continue
        if len(content) > LARGEST or not is_text(content):
            target = Path(app.outdir) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
            if name not in wanted:
                files.add(name)
                continue
            body = f'<p>{len(content):,} bytes: <a href="{escape(Path(name).name)}" download>the file</a></p>'
        else:
            body = source(name, content.decode())
        crumbs = [
            f'<a href="{relpath(parent + "/index.html", Path(name).parent)}">{escape(parent)}</a>'
            for parent in [Path(name).parent.as_posix()]
            if parent in folders
        ]
        yield page(name, name, "".join(f'<p class="crumbs">{crumb}</p>' for crumb in crumbs) + body)
    for folder in sorted(folders):
        yield page(folder + "/index", folder, listing(folder, shown, folders, files))


def is_text(content):
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def page(name, title, body):
    return (
        name,
        {"title": title, "body": f"<h1>{escape(title)}</h1>\n{body}", "parents": [], "toc": ""},
        "page.html",
    )


def source(name, text):
    try:
        lexer = get_lexer_for_filename(
            LEXERS.get(Path(name).suffix, Path(name).name), stripnl=False
        )
    except ClassNotFound:
        lexer = TextLexer(stripnl=False)
    return highlight(
        text, lexer, HtmlFormatter(linenos="inline", linespans="L", cssclass="highlight source")
    )


def listing(folder, shown, folders, files):
    items = []
    for path in sorted((ROOT / folder).iterdir()):
        name = path.relative_to(ROOT).as_posix()
        if name in folders:
            items.append((path.name + "/", f"{path.name}/index.html"))
        elif name in files:
            items.append((f"{path.name} ({path.stat().st_size:,} bytes)", path.name))
        elif name in shown:
            items.append(
                (path.name, f"{path.name[:-3] if path.suffix == '.md' else path.name}.html")
            )
    return (
        "<ul>"
        + "".join(f'<li><a href="{escape(link)}">{escape(text)}</a></li>' for text, link in items)
        + "</ul>"
    )


def context(app, pagename, templatename, context, doctree):
    """Each page knows its language and its counterpart; pages of one language do not continue in another."""

    def chinese(name):
        return name.startswith("docs/zh/")

    if pagename == "docs/zh/README":
        other = "README"
    elif chinese(pagename):
        other = "docs/" + pagename.removeprefix("docs/zh/")
    else:
        other = "docs/zh/" + pagename.removeprefix("docs/")
    other = (
        other if other in app.env.found_docs else "index" if chinese(pagename) else "docs/zh/README"
    )
    if other in app.env.found_docs:
        context["other_language"] = app.builder.get_relative_uri(pagename, other)
    context["in_chinese"] = chinese(pagename)
    if chinese(pagename):
        context["language"] = "zh-CN"
        context["_"] = context["gettext"] = lambda text: CHINESE.get(text.strip(), text)
        before, caption, last = context["furo_navigation_tree"].rpartition('<p class="caption"')
        context["furo_navigation_tree"] = (
            caption + last + before
        )  # the section in Chinese comes first
    _, previous, following = app.builder.relations.get(pagename) or (None, None, None)
    for key, neighbour in (("prev", previous), ("next", following)):
        if chinese(neighbour or "") != chinese(pagename):
            context[key] = None


class Search(SearchEnglish):
    """English, and Chinese in pairs of neighbouring characters: Chinese puts no spaces between its words."""

    def split(self, text):
        words = []
        for word in super().split(text):
            words += pairs(word)
        return words

    js_splitter_code = """
const isChinese = (c) => /[\\u3400-\\u9fff]/.test(c);
function splitQuery(query) {
    const words = query.split(/[^\\p{Letter}\\p{Number}_\\p{Emoji_Presentation}]+/gu).filter((word) => word);
    return words.flatMap((word) => word.match(/[\\u3400-\\u9fff]+|[^\\u3400-\\u9fff]+/g)).flatMap((word) =>
        isChinese(word[0]) && word.length > 2 ? [...word].slice(1).map((c, i) => word[i] + c) : [word]);
}
"""


def pairs(word):
    parts = []
    for part in re.findall(r"[\u3400-\u9fff]+|[^\u3400-\u9fff]+", word):
        chinese = "\u3400" <= part[0] <= "\u9fff"
        parts += (
            [part[i : i + 2] for i in range(len(part) - 1)] if chinese and len(part) > 2 else [part]
        )
    return parts


def copy_mathjax(app, exception):
    """Of sphinx-mathjax-offline's 24 MB, the one program and its fonts."""
    if exception is None:
        package = Path(
            distribution("sphinx-mathjax-offline").locate_file(
                "sphinx-mathjax-offline/static/mathjax"
            )
        )
        target = Path(app.outdir) / "_static/mathjax"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package / "tex-chtml-full.js", target / "tex-chtml-full.js")
        shutil.copytree(
            package / "output/chtml/fonts", target / "output/chtml/fonts", dirs_exist_ok=True
        )


def setup(app):
    app.add_search_language(Search)
    app.connect("doctree-resolved", strip_scheme)
    app.connect("html-collect-pages", source_pages)
    app.connect("html-page-context", context, priority=900)  # after the theme's
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
