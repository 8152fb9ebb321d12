"""lab excerpts must accept a sound page and reject each way in which a page can be wrong."""

import excerpts
import pytest
from lab.ladder import LabError

SOURCE = "int f() {\n    if (ready) {\n\n        return 1;\n    }\n    return 2;\n}\n"
SOUND = """\
# One page

See [the other](other.md#second-part-twice), [its second heading](other.md#same-1), [here](#one-page),
[a line](../src/f.cpp#L7), [text broken
over lines](../README.md), ![picture](a%20b.svg), <img src="figures/a.svg">, but not `[this](absent.md)`.
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
ONE, TWO = "docs/one.md", "docs/other.md"


def said(folder, capsys, files):
    """Exit code, output and complaints of a repository that differs in some files from a sound one."""
    for path, text in (
        {
            "src/f.cpp": SOURCE,
            ONE: SOUND,
            TWO: OTHER,
            "docs/a b.svg": "<svg/>",
            "docs/figures/a.svg": "<svg/>",
            "docs/README.md": "[one](one.md) [other](other.md)\n",
            "README.md": "[docs](docs/one.md) [folder](docs)\n",
        }
        | files
    ).items():
        if text is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)

    class Options:
        root = folder

    return excerpts.main(Options), *capsys.readouterr()


def test_sound_pages_pass(tmp_path, capsys):
    sound = "A $ alone.\n\nSound: $a b$, `$x\\,y$`, \\*.\n\n```math\na\\,b\n```\n"
    assert said(tmp_path, capsys, {TWO: OTHER + sound}) == (
        0,
        "4 pages: 2 excerpts, 1 illustrations, 1 programs run, 13 relative links; no problems\n",
        "",
    )


@pytest.mark.parametrize(
    "path, text, words",
    [
        (
            "src/f.cpp",
            SOURCE.replace("return 1", "return 3"),
            "one.md:9: src/f.cpp does not have these lines; this one first: return 1;",
        ),
        (
            ONE,
            SOUND.replace("    return 1;", "  return 1;"),
            "one.md:9: src/f.cpp does not have these lines one after the other",
        ),
        (
            "src/f.cpp",
            SOURCE.replace("        return 1;", "        count();\n        return 1;"),
            "one.md:9: ",
        ),  # not said: "// ..."
        (
            ONE,
            SOUND.replace("      return 2;", "      if (ready) {\n      // ...\n  int f() {"),
            "one.md:19: ",
        ),  # wrong order
        (
            ONE,
            SOUND.replace("src/f.cpp -->\n```", "src/g.cpp -->\n```"),
            "one.md:9: there is no file 'src/g.cpp'",
        ),
        (
            TWO,
            OTHER + "<!-- excerpt: src/f.cpp -->\n```cpp\n\n```\n",
            "other.md:9: this excerpt is empty",
        ),
        (
            TWO,
            OTHER + "\n<!-- exerpt: src/f.cpp -->\n~~~CUDA\nint f() {\n~~~\n",
            "other.md:10: this cuda block says neither",
        ),
        (
            TWO,
            OTHER + "\n<!-- excerpt: src/f.cpp -->\n\n```sh\ntrue\n```\n",
            "other.md:9: <!-- excerpt --> is not followed by a fenced",
        ),
        (TWO, OTHER + "\n```sh\ntrue\n", "other.md:9: this fenced block is never closed"),
        (TWO, OTHER + "[x](absent.md)", "no such file"),
        (TWO, OTHER + "![x](figures/absent.svg)", "no such file"),
        (TWO, OTHER + "[x](one.md#absent)", "no such heading"),
        (TWO, OTHER + "[x](#absent)", "no such heading"),
        (
            TWO,
            OTHER + "[x](one.md#%6fne-page) [y](one.md#One-Page)",
            "one.md#One-Page: the page has no such",
        ),
        (TWO, OTHER + "[x](../src/f.cpp#L99)", "fewer lines"),
        (TWO, OTHER + "[x](../src/f.cpp#f)", "an anchor into a source"),
        (TWO, OTHER + "[x](/docs/one.md)", "relative to the page"),
        (TWO, OTHER + "[x](../../etc)", "leads out"),
        (TWO, OTHER + '<img src="absent.svg">', "no such file"),
        (TWO, OTHER + "[x]\n\n[x]: absent.md", "no such file"),
        (TWO, OTHER + "[![x](absent.svg)](one.md)", "no such file"),
        (TWO, OTHER + "[broken\nline](absent.md)", "no such file"),
        ("README.md", "[docs](doc/one.md)\n", "README.md:1: link to doc/one.md: no such file"),
        (ONE, SOUND.replace("42", "41"), "one.md:42: this program prints something else:\n42"),
        (
            ONE,
            SOUND.replace("```text", "```sh"),
            "one.md:42: <!-- run --> wants a python block, and then a text block",
        ),
        (ONE, SOUND.replace("6 * 7", "1 / 0"), "one.md:42: this program fails: ZeroDivisionError"),
        ("docs/third.md", "# Third\n", "docs/README.md:1: there is no link to third.md"),
        ("docs/figures/b.svg", "<svg/>", "docs/figures/b.svg:1: no page shows this figure"),
        (
            TWO,
            OTHER + "Took @TIME_05@ ms, me@example.org.\n",
            "other.md:8: @TIME_05@ is left to be filled in",
        ),
        (
            TWO,
            OTHER + "Spoilt: $a \\cdot\nb\\,c$.\n",
            "other.md:9: Markdown drops the backslash of \\, in a formula",
        ),
    ],
)
def test_what_is_wrong_is_found(tmp_path, capsys, path, text, words):
    code, out, err = said(tmp_path, capsys, {path: text})
    assert code == 1 and words in err and "1 problem\n" in out, err


def test_no_docs_folder(tmp_path):
    class Options:
        root = tmp_path

    with pytest.raises(LabError, match="has no folder docs"):
        excerpts.main(Options)
