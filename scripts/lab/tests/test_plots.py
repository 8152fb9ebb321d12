"""Figures: `--check` sees what has changed, and dark pages."""

import re

import pytest
from lab import figures, plots
from lab.__main__ import main
from lab.theme import COLOURS


def test_labels_keep_their_distance_and_limits():
    assert plots.spread_out([50, 50], 10, 0, 100) == [45, 55]
    assert plots.spread_out([99, 100], 10, 0, 100) == [90, 100]


@pytest.mark.parametrize("file", sorted(figures.FIGURES.glob("*.svg")), ids=lambda file: file.stem)
def test_each_colour_of_a_figure_has_its_dark_one(file):
    pattern = r"(.*?)@media \(prefers-color-scheme: dark\) \{(.*?)\n\}</style>(.*)"
    head, dark, body = re.fullmatch(pattern, file.read_text(encoding="utf-8"), re.S).groups()
    used = set(re.findall(r"(fill|stroke): (#[0-9a-f]{6})", head + body))
    rules = re.findall(r'\[style\*="(fill|stroke): (#\w+)"\] \{ \1: (#\w+) !important \}', dark)
    assert {(what, light) for what, light, _ in rules} == used
    assert all((light, its_dark) in COLOURS.values() for _, light, its_dark in rules)


def test_figures_are_drawn_and_checked(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "FIGURES", tmp_path)
    assert main(["figures", "swizzle.svg"]) == 0
    assert main(["figures", "--check", "swizzle.svg"]) == 0
    (tmp_path / "swizzle.svg").write_text("another")
    assert main(["figures", "--check", "swizzle.svg"]) == 1
    assert "swizzle.svg: it is drawn otherwise now" in capsys.readouterr().err
    assert main(["figures", "swizle.svg"]) == 2
    assert "did you mean swizzle.svg?" in capsys.readouterr().err
