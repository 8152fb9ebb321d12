"""lab excerpts accepts a sound page, rejects each way in which a page can be wrong, and refreshes
excerpts.
"""

from types import SimpleNamespace

import pytest
from lab.pages import excerpts

SOURCE = "int f() {\n    if (ready) {\n\n        return 1;\n    }\n    return 2;\n}\n"
SOUND = """\
# One page

See [the other](other.md#second-part-twice), [here](#one-page), [text broken
over lines](../README.md), ![picture](a%20b.svg), ![figure](figures/a.svg), but not
`[this](absent.md)`.

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
  }
  ```

</details>

<!-- illustration -->
```cpp
never_compiled();
```

<!-- run -->
```python
print(6 * 7)
```

```text
42
```
"""
OTHER = "# `Second` part, twice\n\nBack to [one](one.md).\n"
ONE, TWO = "docs/one.md", "docs/other.md"
FILES = {
    "src/f.cpp": SOURCE,
    ONE: SOUND,
    TWO: OTHER,
    "docs/a b.svg": "<svg/>",
    "docs/figures/a.svg": "<svg/>",
    "docs/README.md": "[one](one.md) [other](other.md)\n",
    "README.md": "[docs](docs/one.md) [folder](docs)\n",
}


@pytest.fixture
def check(tmp_path, monkeypatch):
    """check(FILES): the exit code of a repository that differs in these from a sound one."""
    monkeypatch.setattr(excerpts, "ROOT", tmp_path)

    def checked(files, write=False):
        for path, text in (FILES | files).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return excerpts.main(SimpleNamespace(write=write))

    return checked


def test_sound_pages_pass(check, capsys):
    assert check({}) == 0
    assert capsys.readouterr().out == (
        "4 pages: 2 excerpts, 1 illustrations, 1 programs run, 10 relative links; no problems\n"
    )


@pytest.mark.parametrize(
    "path, text, words",
    [
        (ONE, SOUND.replace("    return 1;", "  return 1;"), "does not have these lines one after"),
        (ONE, SOUND.replace("src/f.cpp -->\n```", "src/g.cpp -->\n```"), "there is no file"),
        (TWO, OTHER + "\n```CUDA\nint f() {\n```\n", "this cuda block says neither"),
        (TWO, OTHER + "\n```sh\ntrue\n", "other.md:5: this fenced block is never closed"),
        (TWO, OTHER + "[x](absent.md)", "no such file"),
        (TWO, OTHER + "[x](one.md#absent)", "no such heading"),
        (TWO, OTHER + "[x](../src/f.cpp#L9)", "its lines move"),
        (ONE, SOUND.replace("42", "41"), "this program prints something else:\n42"),
        ("docs/third.md", "# Third\n", "docs/README.md:1: there is no link to third.md"),
        ("docs/figures/b.svg", "<svg/>", "docs/figures/b.svg:1: no page shows this figure"),
        (TWO, OTHER + "Spoilt: $a \\cdot\nb\\,c$.\n", "Markdown drops the backslash of \\,"),
    ],
)
def test_what_is_wrong_is_found(check, capsys, path, text, words):
    assert check({path: text}) == 1
    assert words in capsys.readouterr().err


def test_excerpts_follow_the_source(check, tmp_path, capsys):
    changed = SOURCE.replace("return 1", "count();\n        return 3")
    assert check({"src/f.cpp": changed}) == 1
    assert "src/f.cpp does not have these lines; this one first: return 1;" in (
        capsys.readouterr().err
    )
    of_before = SOUND[SOUND.index("<!-- excerpt") :]  # a translation, which may lag behind
    assert check({"src/f.cpp": changed, "docs/zh/one.md": of_before}, write=True) == 0
    wanted = SOUND.replace("    return 1;", "    count();\n    return 3;")
    assert (tmp_path / ONE).read_text() == wanted
    assert (tmp_path / "docs/zh/one.md").read_text() == of_before
    first = SOURCE.replace("if (ready)", "if (set)")  # the first line of the part has changed
    assert check({"src/f.cpp": first}, write=True) == 1
    assert (tmp_path / ONE).read_text() == SOUND  # a hand must do it
