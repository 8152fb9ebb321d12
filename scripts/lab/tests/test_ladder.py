"""steps/ladder.txt, and how it is read."""

import pytest
from lab.ladder import LabError, ladder, parse


def test_the_ladder_is_that_of_the_folders():
    rungs = ladder()
    assert [rung.number for rung in rungs] == sorted({rung.number for rung in rungs})
    for rung in rungs:
        assert rung.parent in ("", *(other.name for other in rungs)), rung.name
        assert rung.folder.is_dir() and rung.idea and rung.types, rung.name
        assert (rung.kernel_file.suffix == ".cu") == rung.cuda, rung.name


def test_lines_of_the_ladder():
    one, two = parse(
        "# comment\n\n01_a | - | fp32 | any | - | an idea\n12c_b|a|fp16 bf16|32 64|9.0|more | "
        "less\n"
    )
    assert (one.number, one.name, one.parent) == ("01", "a", "")
    assert (one.head_dims, one.cuda, one.dtype) == ((), False, "fp32")
    assert (two.number, two.parent, two.program) == ("12c", "a", "12c_b")
    assert (two.types, two.head_dims, two.capability, two.dtype, two.idea) == (
        ("fp16", "bf16"),
        (32, 64),
        "9.0",
        "bf16",
        "more | less",
    )
    with pytest.raises(LabError, match="ladder.txt:1: "):
        parse("01_a | - | fp32 | any | -\n")
