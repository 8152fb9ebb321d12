"""Plots: labels that keep apart, nothing clipped or covered; colours for light and dark pages."""

import itertools
import re

import pytest
from lab import figures, plots
from lab.__main__ import main
from lab.theme import COLOURS

CASES = dict(figures.PLOTS)
del CASES["training.svg"]  # which a newer matplotlib clips


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_text_is_clipped_or_covers_another(case):
    figure = figures.drawn(*case)
    for (a, one), (b, other) in itertools.combinations(plots.texts_of(figure), 2):
        wide = min(one.x1, other.x1) - max(one.x0, other.x0)
        high = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert wide < 1 or high < 4, (a, b)
    figure.text(0.9, 0.5, "a text that is too long for its place")
    assert plots.outside(figure) == ["a text that is too long for its place"]


def test_labels_keep_their_distance_and_limits():
    assert plots.spread_out([20, 50, 80], 10, 0, 100) == [20, 50, 80]
    assert plots.spread_out([50, 50], 10, 0, 100) == [45, 55]
    assert plots.spread_out([99, 100], 10, 0, 100) == [90, 100]


def test_formulas_of_traffic():
    matrix = 100 * 64 * 4  # of one head
    own = 4 * 6 * matrix + 6 * 100 * 4
    row = {"dtype": "fp32", "B": 2, "H": 3, "N_q": 100, "d": 64, "compulsory_bytes": own}

    def bytes_of(program, blocks):
        return plots.formulas(row | {"program": program}, {"blocks": blocks})

    assert bytes_of("cuda_naive", 6) == (None, 4 * 6 * 100 * 100 * 4 + own)
    assert bytes_of("flash_attention_1", 6) == (6 * matrix * 9,) * 2  # two tiles of keys
    assert bytes_of("flash_attention_2", 12) == (24 * matrix + own, own)


@pytest.mark.parametrize("file", sorted(figures.FIGURES.glob("*.svg")), ids=lambda file: file.stem)
def test_each_colour_of_a_figure_has_its_dark_one(file):
    pattern = r"(.*?)@media \(prefers-color-scheme: dark\) \{(.*?)\n\}</style>(.*)"
    head, dark, body = re.fullmatch(pattern, file.read_text(encoding="utf-8"), re.S).groups()
    used = set(re.findall(r"(fill|stroke): (#[0-9a-f]{6})", head + body))
    rules = re.findall(r'\[style\*="(fill|stroke): (#\w+)"\] \{ \1: (#\w+) !important \}', dark)
    assert {(what, light) for what, light, _ in rules} == used
    assert all((light, its_dark) in COLOURS.values() for _, light, its_dark in rules)


def test_figures_are_drawn_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "FIGURES", tmp_path)
    assert main(["figures", "swizzle.svg"]) == 0 and (tmp_path / "swizzle.svg").exists()
    assert main(["figures", "other.svg"]) == 2
    assert "there is no other.svg" in capsys.readouterr().err
