"""steps/ladder.txt."""

from lab.ladder import ladder


def test_the_ladder_is_that_of_the_folders():
    rungs = ladder()
    assert [rung.number for rung in rungs] == sorted({rung.number for rung in rungs})
    for rung in rungs:
        assert rung.parent in ("", *(other.name for other in rungs)), rung.name
        assert rung.folder.is_dir() and rung.idea and rung.types, rung.name
        assert (rung.kernel_file.suffix == ".cu") == rung.cuda, rung.name
