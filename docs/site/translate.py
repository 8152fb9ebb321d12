"""The pages of docs/zh, made of the originals and of the gettext catalogues in docs/zh/catalogue, one for each page.

A message is a paragraph, a heading, an item of a list or a cell of a table; code and formulas come from the original.
A passage that has no translation, or whose original has changed since, stands in English.
To translate: scripts/site --translate, then fill in msgstr (where it says fuzzy, mend it and take the word out), and
scripts/site --translate again. A new page begins as an empty catalogue with the page's name.
"""

import io
import re
import sys
from pathlib import PurePosixPath
from posixpath import relpath

from babel.messages import Catalog
from babel.messages.pofile import read_po, write_po
from markdown import ROOT, SiteError, fenced_lines, replace_links, resolve, without_comments

TARGET = "docs/zh"
CATALOGUES = ROOT / TARGET / "catalogue"
HEADER_NOISE = re.compile(
    r"^\"(?:POT-Creation-Date|PO-Revision-Date|Last-Translator|Language-Team|Report-Msgid-Bugs-To|"
    r"Generated-By): [^\n]*\n",
    re.M,
)
ITEM = re.compile(r"(\s*(?:[-*+]|\d+[.)])\s+)(.*)")
COMMENT_LINE = re.compile(r"\s*<!--(.*?)-->\s*$")
SUMMARY = re.compile(r"(.*<summary>)(.*?)(</summary>.*)")
CODE_OR_FORMULA = re.compile(r"(`+).*?\1|\$[^$]+\$")
NO_WORDS = re.compile(
    r"(`+).*?\1|\$[^$]*\$|\]\([^)]*\)|https?:\S+|\d[\d.,]* ?(?:[KMGT]i?B|ms|ns|[GT]FLOP/s|[GT]B/s)\b"
)


class Page:
    """An original, as a list of parts: a string that stays, or a (before, message, after, required) that is translated."""

    def __init__(self, name, text):
        self.name, self.parts, self.names = name, [], {}
        lines = text.split("\n")
        code, i, table_made, in_list = fenced_lines(lines), 0, False, False
        while i < len(lines):
            line = lines[i]
            indent = len(line) - len(line.lstrip())
            comment = COMMENT_LINE.match(line) if not code[i] else None
            begin, i = i, i + 1
            if comment:
                table_made = comment[1].strip().startswith("table:")
                if comment[1].strip().startswith("excerpt:"):
                    self.parts.append(line + "\n")
                continue
            if code[begin] or not line.strip():
                table_made = False
                self.parts.append(line + "\n")
                continue
            item = ITEM.match(line)
            if indent >= 4 and not item and not in_list:  # code by its indentation
                self.parts.append(line + "\n")
                continue
            if line.lstrip().startswith("|"):
                self.row(line, required=not table_made)
                continue
            if match := re.match(r"(#{1,6} )(.*)", line):
                self.parts.append(("anchor", self.anchor(match[2])))
                self.message(match[1], match[2], "\n")
                in_list = False
            elif match := SUMMARY.match(line):
                self.message(match[1], match[2], match[3] + "\n")
            elif line.lstrip().startswith("<"):
                self.parts.append(line + "\n")
            else:
                before, first = (
                    (item[1], item[2]) if item else re.match(r"(\s*(?:> ?)?)(.*)", line).groups()
                )
                in_list = bool(item) or in_list and indent > 0
                taken = [first]
                while i < len(lines) and not (
                    code[i]
                    or not lines[i].strip()
                    or ITEM.match(lines[i])
                    or re.match(r"\s*(#{1,6} |\||<(?!!--))", lines[i])
                    or COMMENT_LINE.match(lines[i])
                ):
                    taken.append(
                        lines[i].strip().removeprefix(">" if ">" in before else "").strip()
                    )
                    i += 1
                self.message(before, " ".join(part.strip() for part in taken), "\n")

    def row(self, line, required):
        cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
        self.parts.append("|")
        for cell in cells:
            self.message(
                " ", cell.strip(), " |", required and not re.fullmatch(r"\s*:?-+:?\s*", cell)
            )
        self.parts.append("\n")

    def message(self, before, text, after, required=True):
        text = without_comments(text)
        if re.search(r"[A-Za-z]{2}", NO_WORDS.sub("", text)):
            self.parts.append((before, text, after, required))
        else:
            self.parts.append(before + text + after)

    def anchor(self, heading):
        """The name that a Git host gives to a heading."""
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", without_comments(heading))
        name = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        self.names[name] = self.names.get(name, -1) + 1
        return f"{name}-{self.names[name]}" if self.names[name] else name

    def messages(self):
        return [
            (part[1], part[3]) for part in self.parts if len(part) == 4 and isinstance(part, tuple)
        ]


def translated_name(original):
    return f"{TARGET}/{PurePosixPath(original).name}"


def catalogue(page, old):
    """The catalogue of a page: what the old one has, and for what has changed the nearest that it had, as fuzzy."""
    template, new, known = Catalog(locale="zh_CN"), Catalog(locale="zh_CN"), {}
    for text, _ in page.messages():
        template.add(text)
    if old:
        new = read_po(io.StringIO(old), locale="zh_CN")
        for message in new.obsolete.values():  # a passage that went away and has come back
            new[message.id] = message
        new.obsolete.clear()
        known = {
            message.id: message.clone()
            for message in new
            if message.id and message.string and not message.fuzzy
        }
        required = {text for text, required in page.messages() if required}
        new.update(template)
        for message in new:
            if (
                message.fuzzy and message.id and message.id not in required
            ):  # a near cell of a measured table is another
                message.flags.discard("fuzzy")
                message.string = ""
    else:
        new.update(template)
    for message in new:
        message.flags -= {"python-format", "python-brace-format"}  # Babel takes formulas for them
    new.project, new.version, new.fuzzy = page.name, "", False
    new.header_comment = (
        f"# {page.name} in Chinese. docs/site/translate.py says how to work with it."
    )
    out = io.BytesIO()
    new.obsolete = {text: message for text, message in known.items() if text not in new}
    write_po(out, new, width=118)
    return HEADER_NOISE.sub("", out.getvalue().decode())


def render(page, text, originals, linked):
    """(the translated page, how many required passages there are, how many have no translation)."""
    translations = {
        message.id: message.string
        for message in read_po(io.StringIO(text), locale="zh_CN")
        if message.id and message.string and not message.fuzzy
    }
    out, required, missing = [], 0, 0
    for part in page.parts:
        if isinstance(part, str):
            out.append(part)
        elif len(part) == 2:
            out.append(f'<a id="{part[1]}"></a>\n\n' if (page.name, part[1]) in linked else "")
        else:
            before, message, after, wanted = part
            translation = translations.get(message)
            required += wanted
            missing += wanted and not translation
            out.append(before + spaced(translation or message) + after)
    body = replace_links("".join(out), lambda target: moved(page.name, target, originals))
    note = f"> 本页译自[英文原文]({relpath(page.name, TARGET)})。"
    if missing:
        note += f"原文有 {missing} 段是新写的或已经改动，暂以英文显示。"
    heading, _, rest = body.partition("\n")
    while not heading.startswith("# "):
        line, _, rest = rest.partition("\n")
        heading += "\n" + line
    made = f"<!-- Made of {page.name} and {TARGET}/catalogue by scripts/site --translate: mend those. -->\n"
    rest = re.sub(r"\n{3,}", "\n\n", rest).strip("\n")
    return f"{made}{heading}\n\n{note}\n\n{rest}\n", required, missing


def spaced(text):
    """GitHub takes $...$ for a formula only if no Chinese character or punctuation stands directly before it."""

    def change(match):
        if not match[0].startswith("$"):
            return match[0]
        before, after = text[: match.start()][-1:], text[match.end() :][:1]
        return " " * (before >= "\u2018") + match[0] + " " * ("\u3400" <= after <= "\u9fff")

    return CODE_OR_FORMULA.sub(change, text)


def moved(original, target, originals):
    """A link of the original, as it is from docs/zh: to the translation, if there is one."""
    where, anchor = resolve(original, target)
    where = translated_name(where) if where in originals else where
    if where == translated_name(original) and anchor:
        return f"#{anchor}"
    return relpath(where, TARGET) + (f"#{anchor}" if anchor else "")


def originals_of_catalogues():
    names = []
    for path in sorted(CATALOGUES.glob("*.po")):
        name = "README.md" if path.stem == "README" else f"docs/{path.stem}.md"
        if not (ROOT / name).is_file():
            raise SiteError(f"{path.relative_to(ROOT)}: there is no {name} to translate")
        names.append(name)
    return names


def main():
    write = sys.argv[1:] == ["--write"]
    originals = originals_of_catalogues()
    pages = [Page(name, (ROOT / name).read_text(encoding="utf-8")) for name in originals]
    linked = set()
    for name in originals:
        replace_links(
            (ROOT / name).read_text(encoding="utf-8"),
            lambda target: linked.add(resolve(name, target)) or target,
        )
    wanted, lagging = {}, []
    for page in pages:
        path = CATALOGUES / f"{PurePosixPath(page.name).stem}.po"
        wanted[path] = catalogue(page, path.read_text(encoding="utf-8"))
        translation = translated_name(page.name)
        wanted[ROOT / translation], required, missing = render(
            page, wanted[path], originals, linked
        )
        if missing:
            lagging.append(
                f"{translation} lags behind {page.name}: {missing} of {required} passages are in English"
            )
    stale = [
        path
        for path, content in wanted.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != content
    ]
    unknown = sorted(set((ROOT / TARGET).glob("*.md")) - set(wanted))
    for path in stale if write else []:
        path.write_text(wanted[path], encoding="utf-8")
    for line in lagging:
        print(line)
    print(
        f"{len(pages) - len(lagging)} of {len(pages)} translated pages are what their originals say"
    )
    for path in unknown:
        print(f"{path.relative_to(ROOT)}: no catalogue makes this page", file=sys.stderr)
    if stale and not write:
        print(
            "not what the originals and the catalogues make: "
            + " ".join(str(path.relative_to(ROOT)) for path in stale)
            + "\nscripts/site --translate writes them anew",
            file=sys.stderr,
        )
    return 1 if unknown or stale and not write else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SiteError as problem:
        sys.exit(f"scripts/site: {problem}")
