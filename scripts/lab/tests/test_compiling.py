"""What ptxas says of kernels."""

from lab import build
from lab.__main__ import main

PTXAS = "\n".join(
    f"""ptxas info    : Compiling entry function '_Z6kernelILi{d}EEvv' for 'sm_90'
ptxas info    : Function properties for _Z6kernelILi{d}EEvv
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used {d + 40} registers, used 1 barriers, 96 bytes smem"""
    for d in (64, 128)
)


def test_what_ptxas_says():
    rows = build.ptxas_rows(PTXAS)
    assert [row["registers"] for row in rows] == [104, 168]
    wanted = {"stack": 8, "spill_stores": 4, "spill_loads": 12, "static_shared": 96}
    assert rows[0] | wanted == rows[0]


def test_architectures_are_numbers(capsys):
    assert main(["architectures", "--arch", "x"]) == 2
    assert "numbers like 86 or 120" in capsys.readouterr().err
