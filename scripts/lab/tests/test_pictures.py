"""The pictures in docs/figures are what lab/pictures draws."""

import pytest
from lab.pictures import PICTURES
from lab.records import ROOT


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_it_is_drawn(name):
    committed = (ROOT / "docs/figures" / name).read_text(encoding="utf-8")
    assert PICTURES[name]() == committed, f"./scripts/lab/run figures {name} draws it anew"
