"""./scripts/step --new: a rung is copied and renamed, and what it lacks is said."""

import shutil
import subprocess

import pytest
from lab import new_rung
from lab.ladder import DRAFT, ROOT, LabError, find, finished, ladder, parse


@pytest.fixture
def tree(tmp_path):
    """A copy of the rungs, but for drafts, and of the pages that a rung needs."""
    drafts = [rung.program for rung in ladder() if rung.draft]
    for folder in ("steps", "docs"):
        left = shutil.ignore_patterns("figures", "records", "zh", "tests", "site", *drafts)
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=left)
    manifest = tmp_path / "steps/ladder.txt"
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join(line for line in lines if line.split("|")[0].strip() not in drafts))
    shutil.copy(ROOT / "CHANGELOG.md", tmp_path)
    return tmp_path


def text_of(folder):
    return "".join(path.read_text() for path in sorted(folder.iterdir()))


def files_below(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_rung_is_copied_renamed_and_stands_behind_its_parent(tree):
    first = new_rung.create("swizzle", "trivial_idea", tree)
    second = new_rung.create("22_swizzle", "another", tree)
    rungs = parse((tree / "steps/ladder.txt").read_text(), tree)
    of_22 = [rung.name for rung in rungs if rung.number.startswith("22")]
    assert of_22[0] == "swizzle" and of_22[-2:] == ["trivial_idea", "another"]
    assert [rung.number for rung in rungs] == sorted(rung.number for rung in rungs)
    assert first.number[:2] == second.number[:2] == "22" and first.parent == "swizzle"
    assert first.draft and first.types == find("swizzle", rungs).types
    text = text_of(first.folder)
    for wanted in (
        f'#include "steps/{first.program}/trivial_idea.hpp"',
        "namespace trivial_idea {",
        "trivial_idea::attention<flash::Half>",
        '.name = "trivial_idea"',
        "swizzled(",
        "// Parent: swizzle.",
    ):
        assert wanted in text, wanted
    assert "namespace swizzle" not in text and "trivial_idead" not in text


def test_files_of_other_folders_and_comments_keep_their_names(tree):
    text = text_of(new_rung.create("paged_kv", "my_pages", tree).folder)
    parent = find("swizzle", ladder())
    assert new_rung.renamed("swizzle(); // swizzle\n", parent, "22a", "it") == "it(); // swizzle\n"
    assert '"common/paged_kv.hpp"' in text and '_my_pages/my_pages.hpp"' in text


def test_every_rung_can_be_a_parent():
    for parent in ladder():
        files = new_rung.files_of(parent, "99a", "brand_new")
        assert f"brand_new{parent.kernel_file.suffix}" in files and "brand_new.hpp" in files
        text = "".join(files.values())
        assert "namespace brand_new " in text and f"namespace {parent.name} " not in text
        assert f'"{parent.name}"' not in text and f"steps/{parent.program}/" not in text


@pytest.mark.parametrize(
    "parent, name, says",
    [
        ("swizle", "brand_new", "no rung 'swizle'; did you mean swizzle?"),
        ("swizzle", "overlap", "there is a rung overlap already"),
        ("swizzle", "2fast", "'2fast' is no name for a rung"),
        ("swizzle", "My-Rung", "is no name for a rung"),
        ("swizzle", "", "is no name for a rung"),
        ("swizzle", "double", "'double' is a word of C++"),
        ("swizzle", "backward_brand_new", "swizzle is no backward rung"),
        ("backward_cpu", "brand_new", "backward_cpu is a backward rung"),
    ],
)
def test_bad_input_writes_nothing(tree, parent, name, says):
    before = files_below(tree)
    with pytest.raises(LabError, match=says):
        new_rung.create(parent, name, tree)
    assert files_below(tree) == before


def test_the_command_says_bad_input_in_one_line():
    for words in (["--new", "swizzle"], ["--new", "swizzle", "no name"], ["--missing", "nothing"]):
        command = [ROOT / "scripts/step", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/")
        assert done.returncode == 2 and done.stdout == "", words
        assert done.stderr.startswith("scripts/step: ") and done.stderr.count("\n") == 1, words


def test_a_draft_needs_nothing_and_another_rung_all_of_it(tree):
    assert new_rung.complaints(tree) == []
    rung = new_rung.create("swizzle", "my_rung", tree)
    assert new_rung.complaints(tree) == []
    manifest = tree / "steps/ladder.txt"
    manifest.write_text(manifest.read_text().replace(DRAFT, "no draft:"))
    said = new_rung.complaints(tree)
    for words in ("header", f"docs/{rung.program}.md: its chapter", "README", "Next", "exercises"):
        assert any(words in line for line in said), words
    assert all(line.endswith("(of my_rung, which is no draft)") for line in said)

    (tree / f"docs/{rung.program}.md").write_text("# A chapter\n")
    for page, old, new in (
        ("docs/README.md", "\n# ", f"\n[22a]({rung.program}.md)\n# "),
        ("docs/22_swizzle.md", "\nNext: ", f"\nNext: [`my_rung`]({rung.program}.md), then "),
        ("CHANGELOG.md", "\n# ", "\nmy_rung\n# "),
    ):
        text = (tree / page).read_text()
        (tree / page).write_text(f"\n{text}".replace(old, new, 1))
    for number in (1, 2):
        exercise = tree / f"docs/exercises/my_rung/{number}_one/exercise.toml"
        exercise.parent.mkdir(parents=True)
        exercise.touch()
    kernel = rung.kernel_file
    kernel.write_text(kernel.read_text().replace(new_rung.IDEA, "news").replace("...", "it"))
    assert new_rung.complaints(tree) == []


def test_drafts_are_left_out_of_tables_and_chapters():
    assert [rung for rung in ladder() if not rung.draft] == finished()
