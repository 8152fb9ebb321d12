"""Figures: plots are drawn, and dark pages."""

import re

import pytest
from lab import figures, plots
from lab.__main__ import main
from lab.theme import COLOURS

OF_BOTH = "#dd6b10"  # attention's, whose opacity tells


def test_labels_keep_their_distance_and_limits():
    assert plots.spread_out([50, 50], 10, 0, 100) == [45, 55]
    assert plots.spread_out([99, 100], 10, 0, 100) == [90, 100]


@pytest.mark.parametrize("file", sorted(figures.FIGURES.glob("*.svg")), ids=lambda file: file.stem)
def test_each_colour_of_a_figure_has_its_dark_one(file):
    pattern = r"(.*?)@media \(prefers-color-scheme: dark\) \{(.*?)\n\}</style>(.*)"
    head, dark, body = re.fullmatch(pattern, file.read_text(encoding="utf-8"), re.S).groups()
    used = set(re.findall(r'(fill|stroke)="((?!none")[^"]+)"', head + body))
    rules = re.findall(r'\[(fill|stroke)="(#\w+)"\] \{ \1: (#\w+) \}', dark)
    assert {(what, light) for what, light, _ in rules} == used - {("fill", OF_BOTH)}
    assert all((light, its_dark) in COLOURS.values() for _, light, its_dark in rules)


def test_plots_are_drawn_compactly_and_checked(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "FIGURES", tmp_path)
    assert main(["figures", "--check", "memory.svg"]) == 0 and not list(tmp_path.iterdir())
    monkeypatch.setattr(figures, "compact", lambda svg: svg)  # scour is there where one draws
    assert main(["figures", "memory.svg"]) == 0
    text = (tmp_path / "memory.svg").read_text(encoding="utf-8")
    assert '[style*="fill: #ffffff"] { fill: #0d1117 !important }' in text
    (tmp_path / "swizzle.svg").write_text("<svg/>")
    assert main(["figures", "swizzle.svg"]) == 2
    assert "is a drawing: docs/figures/swizzle.svg" in capsys.readouterr().err
    assert main(["figures", "memry.svg"]) == 2
    assert "did you mean memory.svg?" in capsys.readouterr().err
