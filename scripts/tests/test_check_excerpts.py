#!/usr/bin/env python3
"""check_excerpts must accept a sound page and reject each way in which a page can be wrong."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parent.parent / "check_excerpts"

SOURCE = """\
int f() {
    if (ready) {

        return 1;
    }
    return 2;
}
"""

SOUND = """\
# One page

See [the other](other.md#second-part-twice), [its second heading](other.md#same-1), [here](#one-page),
[a line](../src/f.cpp#L7), [text broken
over lines](../README.md), ![picture](a%20b.svg), <img src="a b.svg">, but not `[this](absent.md)`.
[![badge](a%20b.svg)](https://example.org/no-need-to-exist)

<!-- excerpt: src/f.cpp -->
```cpp
if (ready) {

    return 1;
}
```

<details><summary>Folded</summary>

  <!-- excerpt: src/f.cpp -->
  ```cuda
  int f() {
      // ...
      return 2;
  ```

</details>

<!-- illustration -->
```cpp
never_compiled();
```

```sh
echo [no](link.md)
```

<!-- build -->
```sh
true
```

<!-- run -->
```python
print(6 * 7)
```

```text
42
```
"""

OTHER = "# `Second` part, twice\n\n## Same\n\n## Same\n\nBack to [one](one.md).\n"


class CheckExcerpts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("src/f.cpp", SOURCE)
        self.write("docs/one.md", SOUND)
        self.write("docs/other.md", OTHER)
        self.write("docs/a b.svg", "<svg/>")
        self.write("docs/README.md", "[one](one.md) [other](other.md)\n")
        self.write("README.md", "[docs](docs/one.md) [folder](docs)\n")

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def check(self):
        return subprocess.run([sys.executable, str(CHECK), "--root", str(self.root)], capture_output=True, text=True)

    def assert_rejected(self, *fragments):
        result = self.check()
        self.assertEqual(result.returncode, 1, result.stdout)
        for fragment in fragments:
            self.assertIn(fragment, result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)

    def test_sound_pages_pass(self):
        result = self.check()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("4 pages: 2 excerpts, 1 illustrations, 1 programs run, 13 relative links; no problems",
                      result.stdout)

    def test_source_changed(self):
        self.write("src/f.cpp", SOURCE.replace("return 1", "return 3"))
        self.assert_rejected("docs/one.md:9: src/f.cpp does not have these lines; this one first: return 1;")

    def test_inner_indentation_differs(self):
        self.write("docs/one.md", SOUND.replace("    return 1;", "  return 1;"))
        self.assert_rejected("docs/one.md:9: src/f.cpp does not have these lines one after the other")

    def test_line_left_out_without_saying_so(self):
        self.write("src/f.cpp", SOURCE.replace("        return 1;", "        count();\n        return 1;"))
        self.assert_rejected("docs/one.md:9")

    def test_parts_in_the_wrong_order(self):
        self.write("docs/one.md", SOUND.replace("      return 2;", "      if (ready) {\n      // ...\n  int f() {"))
        self.assert_rejected("docs/one.md:19")

    def test_source_is_gone(self):
        (self.root / "src/f.cpp").rename(self.root / "src/g.cpp")
        moved = SOUND.replace("src/f.cpp#L7", "src/g.cpp#L7").replace("f.cpp -->\n  ```", "g.cpp -->\n  ```")
        self.write("docs/one.md", moved)
        self.assert_rejected("docs/one.md:9: there is no file 'src/f.cpp'")

    def test_empty_excerpt(self):
        self.write("docs/other.md", OTHER + "<!-- excerpt: src/f.cpp -->\n```cpp\n\n```\n")
        self.assert_rejected("docs/other.md:9: this excerpt is empty")

    def test_unmarked_code(self):
        self.write("docs/other.md", OTHER + "\n<!-- exerpt: src/f.cpp -->\n~~~CUDA\nint f() {\n~~~\n")
        self.assert_rejected("docs/other.md:10: this cuda block says neither")

    def test_comment_without_block(self):
        self.write("docs/other.md", OTHER + "\n<!-- excerpt: src/f.cpp -->\n\n```cpp\nint f() {\n```\n")
        result = self.check()
        self.assertEqual(result.returncode, 1)
        self.assertIn("docs/other.md:9: <!-- excerpt --> is not followed by a fenced block", result.stderr)

    def test_unclosed_block(self):
        self.write("docs/other.md", OTHER + "\n```sh\ntrue\n")
        self.assert_rejected("docs/other.md:9: this fenced block is never closed")

    def test_broken_links(self):
        for link, why in (("[x](absent.md)", "no such file"), ("![x](figures/absent.svg)", "no such file"),
                          ("[x](one.md#absent)", "no such heading"), ("[x](#absent)", "no such heading"),
                          ("[x](../src/f.cpp#L99)", "fewer lines"), ("[x](../src/f.cpp#f)", "an anchor into a source"),
                          ("[x](/docs/one.md)", "relative to the page"), ("[x](../../etc)", "leads out"),
                          ('<img src="absent.svg">', "no such file"), ("[x]\n\n[x]: absent.md", "no such file"),
                          ("[![x](absent.svg)](one.md)", "no such file"), ("[broken\nline](absent.md)", "no such file"),
                          ("[x](one.md#%6fne-page) [y](one.md#One-Page)", "one.md#One-Page: the page has no such")):
            with self.subTest(link):
                self.write("docs/other.md", OTHER + link + "\n")
                self.assert_rejected("docs/other.md:", why)

    def test_readme_links(self):
        self.write("README.md", "[docs](doc/one.md)\n")
        self.assert_rejected("README.md:1: link to doc/one.md: no such file")

    def test_output_differs(self):
        self.write("docs/one.md", SOUND.replace("42", "41"))
        result = self.check()
        self.assertEqual(result.returncode, 1)
        self.assertIn("docs/one.md:42: this program prints something else:\n42\n", result.stderr)

    def test_program_without_output(self):
        self.write("docs/one.md", SOUND.replace("```text", "```sh"))
        self.assert_rejected("docs/one.md:42: <!-- run --> wants a python block, and then a text block")

    def test_program_that_fails(self):
        self.write("docs/one.md", SOUND.replace("6 * 7", "1 / 0"))
        self.assert_rejected("docs/one.md:42: this program fails: ZeroDivisionError")

    def test_page_that_the_index_forgets(self):
        self.write("docs/third.md", "# Third\n")
        self.assert_rejected("docs/README.md:1: there is no link to third.md")

    def test_placeholder(self):
        self.write("docs/other.md", OTHER + "Took @TIME_05@ ms, me@example.org.\n")
        self.assert_rejected("docs/other.md:8: @TIME_05@ is left to be filled in")

    def test_formula_that_markdown_spoils(self):
        sound = "A $ alone.\n\nSound: $a b$, `$x\\,y$`, \\*.\n\n```math\na\\,b\n```\n"
        self.write("docs/other.md", OTHER + sound + "Spoilt: $a \\cdot\nb\\,c$.\n")
        self.assert_rejected("docs/other.md:16: Markdown drops the backslash of \\, in a formula")

    def test_no_docs_folder(self):
        result = subprocess.run([sys.executable, str(CHECK), "--root", str(self.root / "src")],
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)


if __name__ == "__main__":
    unittest.main()
