"""steps/ladder.txt: rungs are found, and each has its chapter."""

import pytest
from lab.ladder import ROOT, LabError, cuda_rungs, finished, ladder
from lab.pages import build_commands


def test_the_ladder_is_that_of_the_folders():
    rungs = ladder()
    assert [rung.number for rung in rungs] == sorted({rung.number for rung in rungs})
    for rung in rungs:
        assert rung.parent in ("", *(other.name for other in rungs)), rung.name
        assert rung.folder.is_dir() and rung.idea and rung.types, rung.name
        assert (rung.kernel_file.suffix == ".cu") == rung.cuda, rung.name


def test_rungs_are_found_by_name_or_folder():
    (rung,) = cuda_rungs(["overlap"])
    for text in (rung.program, f"steps/{rung.program}/"):
        assert cuda_rungs([text]) == [rung]
    with pytest.raises(LabError, match="naive_attention is for the CPU, and a CUDA rung is want"):
        cuda_rungs(["naive_attention"])
    with pytest.raises(LabError, match="not by number: '22' is swizzle"):
        cuda_rungs(["22"])
    with pytest.raises(LabError, match="did you mean overlap?"):
        cuda_rungs(["ovrlap"])


def minutes_of_reading(chapter, kernel, storey):
    """At the pace that docs/README.md says."""
    words, code, fence = 0, len([line for line in kernel.splitlines() if line.strip()]), None
    for line in chapter.splitlines():
        if line.startswith("```"):
            fence = line.removeprefix("```") if fence is None else None
        elif fence is None:
            words += len(line.split())
        elif fence in ("cpp", "python", "sh") and line.strip():
            code += 1
    return words / 200 + code / 10 if storey == "0" else words / 150 + code / 7


@pytest.mark.parametrize(
    "rung", [one for one in finished() if one.chapter.is_file()], ids=lambda rung: rung.name
)
def test_a_chapter_takes_as_long_as_it_says(rung):
    chapter = rung.chapter.read_text()
    (head,) = [line for line in chapter.splitlines()[:5] if " minutes. Before it: " in line]
    says = int(head.removeprefix("*").split()[0])
    kernel = rung.kernel_file.read_text()
    assert abs(says - minutes_of_reading(chapter, kernel, rung.number[0])) <= 5
    index = (ROOT / "docs/README.md").read_text()
    (row,) = [line for line in index.splitlines() if line.startswith(f"| [{rung.number} ")]
    assert int(row.split("|")[2]) == says


def test_the_chapters_commands_differ_in_the_rungs_name_alone():
    kinds, problems = build_commands.by_kind(ROOT, finished())
    assert not problems
    # the CPU, SIMT, sm_80 and sm_90, sm_90a; SIMT and sm_90a with MPI
    assert len(kinds) == 6
    for general in kinds:
        assert general.endswith("-o NN_name")
