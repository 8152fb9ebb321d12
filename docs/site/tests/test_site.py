"""The tests of what makes and checks the site: scripts/site --check runs them, with a browser where there is one."""

import asyncio
import os
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import check
import translate
from markdown import SiteError, replace_links, without_comments
from sources import pairs
from stage import Stage, lines_of, sections

RUNGS = [SimpleNamespace(name=name) for name in ("01_first", "02_second", "03_third")]
PAGE = """# A title

Some *words* with $x$ and
46.0 TFLOP/s, see [there](other.md#part).

```cpp
int code; // stays
```

    code | too

## A part

1. First
   and more.
2. `code` only: $y$

<!-- table: of(a, record) -->
| rung | ms |
|---|---:|
| a measured cell | 5.98 |

| by hand | 12 |
"""


class Tree(unittest.TestCase):
    def test_rungs_come_from_the_ladder_and_patterns_take_the_rest(self):
        pages = [
            "README.md",
            "docs/01_first.md",
            "docs/02_second.md",
            "docs/03_third.md",
            "docs/notes_a.md",
        ]
        tree = "# comment\n[Start]\nREADME.md = The project\ndocs/not_yet.md\n[Up]\nrungs to 01_first\n[On]\nrungs\ndocs/n*.md"
        self.assertEqual(
            sections(tree, pages, RUNGS),
            [
                ("Start", [("README.md", "The project")]),
                ("Up", [("docs/01_first.md", "")]),
                (
                    "On",
                    [("docs/02_second.md", ""), ("docs/03_third.md", ""), ("docs/notes_a.md", "")],
                ),
            ],
        )

    def test_a_page_without_a_place_and_an_unknown_rung_are_named(self):
        with self.assertRaisesRegex(SiteError, "no place on the site for docs/lost.md"):
            sections("[Start]\nREADME.md", ["README.md", "docs/lost.md"], RUNGS)
        with self.assertRaisesRegex(SiteError, "there is no rung '09_none'"):
            sections("[Up]\nrungs to 09_none", [], RUNGS)


class Pages(unittest.TestCase):
    def test_links_and_comments_in_code_stay(self):
        text = "[a](b.md) `[c](d.md)` <!-- gone -->\n```\n[e](f.md) <!-- stays -->\n```\n[g](https://h.org)"
        self.assertEqual(
            without_comments(replace_links(text, lambda target: "x/" + target)),
            "[a](x/b.md) `[c](d.md)` \n```\n[e](f.md) <!-- stays -->\n```\n[g](https://h.org)",
        )

    def test_an_excerpt_is_found_where_it_stands(self):
        source = ["a", "    b", "    c", "d", "e"]
        self.assertEqual(lines_of(["b", "c"], source), (2, 3))
        self.assertEqual(lines_of(["a", "// ...", "e"], source), (1, 5))
        self.assertIsNone(lines_of(["b", "d"], source))

    def test_a_picture_that_adapts_is_there_for_both_themes(self):
        stage = Stage.__new__(Stage)
        stage.pages, stage.problems = [], []
        self.assertEqual(
            stage.page("docs/a.md", "![A [b]](figures/c.svg)"),
            "![A [b]](figures/c.light.svg){.only-light}![A [b]](figures/c.dark.svg){.only-dark}",
        )
        element = '<picture><source media="(prefers-color-scheme: dark)" srcset="d.png"><img src="l.png" alt="A"></picture>'
        self.assertEqual(
            stage.page("docs/a.md", element),
            '<img src="l.png" alt="A" class="only-light"><img src="d.png" alt="A" class="only-dark">',
        )

    def test_a_link_to_nothing_is_a_problem(self):
        stage = Stage.__new__(Stage)
        stage.pages, stage.problems, stage.sources = [], [], set()
        stage.page("docs/a.md", "[x](../nowhere.hpp) [y](../LICENSE)")
        self.assertEqual(
            (stage.problems, stage.sources),
            (["docs/a.md: link to ../nowhere.hpp: no such file"], {"LICENSE"}),
        )

    def test_chinese_is_searched_in_pairs(self):
        self.assertEqual(pairs("softmax注意力"), ["softmax", "注意", "意力"])


class Translations(unittest.TestCase):
    def messages(self, text):
        return [message for message, _ in translate.Page("docs/a.md", text).messages()]

    def translated(self, page, **catalogue):
        text = translate.catalogue(page, None)
        for message, translation in catalogue.values():
            text = text.replace(
                f'msgid "{message}"\nmsgstr ""', f'msgid "{message}"\nmsgstr "{translation}"'
            )
        return text

    def test_a_message_is_a_passage(self):
        self.assertEqual(
            self.messages(PAGE),
            [
                "A title",
                "Some *words* with $x$ and 46.0 TFLOP/s, see [there](other.md#part).",
                "A part",
                "First and more.",
                "`code` only: $y$",
                "rung",
                "ms",
                "a measured cell",
                "by hand",
            ],
        )

    def test_a_page_is_made_of_its_translations_and_the_rest_stays_english(self):
        page = translate.Page("docs/a.md", PAGE)
        text = self.translated(page, a=("A part", "一部分"), b=("First and more.", "第一"))
        made, required, missing = translate.render(
            page, text, ["docs/a.md"], {("docs/a.md", "a-part")}
        )
        self.assertEqual(
            (required, missing), (6, 4)
        )  # the three cells of the measured table may stay English
        for wanted in (
            '<a id="a-part"></a>\n\n## 一部分',
            "1. 第一\n",
            "and 46.0 TFLOP/s",
            "](../other.md#part)",
            "int code; // stays",
            "    code | too",
            "有 4 段",
            "| 5.98 |",
        ):
            self.assertIn(wanted, made)

    def test_a_formula_has_the_space_that_a_git_host_wants(self):
        self.assertEqual(
            translate.spaced("设（$O$，$l$）与$m$的 `，$x$`"), "设（ $O$， $l$）与 $m$ 的 `，$x$`"
        )

    def test_a_changed_original_takes_the_translation_back(self):
        page = translate.Page("docs/a.md", PAGE)
        old = self.translated(page, a=("First and more.", "第一"))
        changed = translate.Page("docs/a.md", PAGE.replace("and more.", "and even more."))
        new = translate.catalogue(changed, old)
        self.assertIn('#, fuzzy\nmsgid "First and even more."\nmsgstr "第一"', new)
        self.assertNotIn("第一", translate.render(changed, new, [], set())[0])
        self.assertEqual(
            translate.catalogue(changed, new), new
        )  # and stays so until somebody mends it
        self.assertIn(
            '\n\nmsgid "First and more."\nmsgstr "第一"', translate.catalogue(page, new)
        )  # the original is back


@unittest.skipUnless(os.environ.get("CHROMIUM"), "there is no browser")
class Browser(unittest.TestCase):
    def problems(self, body):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "page.html").write_text(
                f"<meta charset=utf-8><body><article>{body}</article>", encoding="utf-8"
            )
            dead, _ = check.dead_links(Path(folder))
            seen, _ = asyncio.run(check.open_all(Path(folder), os.environ["CHROMIUM"]))
            return dead.get("page.html", []) + seen.get("page.html", [])

    def test_each_kind_of_mistake_is_seen(self):
        self.assertEqual(self.problems('<p id="a"><a href="#a">fine</a> <code>$x$</code></p>'), [])
        found = "\n".join(
            self.problems("""
            <a href="nowhere.html">x</a> <a href="#b">x</a> <img src="data:," alt="a picture"> <span class="math">x</span>
            <p>a price in $x + y$, 是*《书》*的</p> <div style="width: 2000px">x</div>
            <script>console.error("an error"); undefined_function();</script>
            <script src="http://192.0.2.1/far.js"></script>""")
        )
        for part in (
            "a dead link: nowhere.html",
            "an anchor that is not there: #b",
            "a picture does not load",
            "1 of 1 formulas are not rendered",
            "a formula as text: $x + y$",
            "an emphasis as text",
            "wide in a window of 390",
            "on the console: an error",
            "a script fails",
            "a request fails: http://192.0.2.1/far.js",
        ):
            self.assertIn(part, found)


if __name__ == "__main__":
    unittest.main()
