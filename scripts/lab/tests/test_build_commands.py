"""The chapters' build commands are those of their kind."""

from lab.ladder import ROOT, ladder
from lab.pages import build_commands


def test_the_chapters_commands_differ_in_the_rungs_name_alone():
    kinds, problems = build_commands.by_kind(ROOT, ladder())
    assert not problems
    # the CPU, SIMT, sm_80 and sm_90, sm_90a; SIMT and sm_90a with MPI
    assert len(kinds) == 6
    for general in kinds:
        assert general.endswith("-o NN_name")
