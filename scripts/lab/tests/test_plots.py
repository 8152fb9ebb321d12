"""Plots: labels that keep apart, and nothing clipped or covered."""

import itertools

import pytest
from lab import figures, plots

CASES = dict(figures.PLOTS)
del CASES["training.svg"]  # which a newer matplotlib clips; lab figures --check looks at it


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
