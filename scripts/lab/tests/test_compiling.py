"""Patches, variants, what ptxas and the SASS say, and the kernels' architectures."""

import pytest
from lab import build, experiments, sass
from lab.__main__ import main
from lab.ladder import LabError, cuda_rungs

PTXAS = "\n".join(
    f"""ptxas info    : Compiling entry function '_Z6kernelILi{d}EEvv' for 'sm_90'
ptxas info    : Function properties for _Z6kernelILi{d}EEvv
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used {d + 40} registers, used 1 barriers, 96 bytes smem"""
    for d in (64, 128)
)
LISTING = """
	code for sm_90
		Function : _ZN6step106kernelILi64EEEvv
        /*0000*/                   MOV R1, c[0x0][0x28] ;              /* 0x00000a0000017a02 */
                                                                       /* 0x003fde0000000f00 */
        /*0010*/                   IADD3 R2, R2, 0x1, RZ ;             /* 0x0 */
        /*0020*/                   LDSM.16.M88.4 R4, [R3] ;            /* 0x0 */
        /*0030*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ; /* 0x0 */
        /*0040*/              @!P0 FMUL R8, R8, 0.5 ;                  /* 0x0 */
        /*0050*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ; /* 0x0 */
        /*0060*/               @P1 BRA 0x20 ;                          /* 0x0 */
        /*0070*/               @P2 BRA 0x10 ;                          /* 0x0 */
        /*0080*/                   FADD R1, R1, R1 ;                   /* 0x0 */
        /*0090*/               @P3 BRA 0x80 ;                          /* 0x0 */
        /*00a0*/               @P4 BRA 0xb0 ;                          /* 0x0 */
		Function : plain
        /*0000*/                   EXIT ;                              /* 0x0 */
"""


def test_experiments_say_what_they_are(tmp_path, capsys):
    assert main(["experiments", "--list"]) == 0
    assert "lean_softmax_exp: " in capsys.readouterr().out
    (tmp_path / "a.patch").write_text(
        "What: an idea\nPredicted: nothing\n\n+++ b/steps/07_a/a.cu\n"
    )
    with pytest.raises(LabError, match="a.patch has no line 'Commit: ...'"):
        experiments.chosen([], tmp_path)
    assert main(["experiments", "lean_softmaxx"]) == 2
    assert "did you mean lean_softmax?" in capsys.readouterr().err


CMAKE = """#!/usr/bin/env python3
import pathlib, sys
words, folder = sys.argv[1:], pathlib.Path({folder!r})
if words[0] == "--build":
    name = words[words.index("--target") + 1]
    if (folder / "broken").exists():
        sys.exit("FAILED: no such kernel")
    log = pathlib.Path(words[1]) / f"CMakeFiles/{{name}}.dir/kernels/{kernel}.o.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text({said!r})
    if not words[1].endswith("-objects"):
        (folder / f"{{name}}.so").touch()
    with open(folder / "calls", "a") as calls:
        calls.write("x")
"""


def test_a_variant_is_built_once(tmp_path, stand_in):
    folder, rung = tmp_path / "built", cuda_rungs(["flash_attention_2"])[0]
    said = CMAKE.format(folder=str(folder), kernel=rung.kernel_file.name, said=PTXAS)
    stand_in("cmake", said)
    stand_in("nvcc", "exit 0")
    stand_in("nvidia-smi", "exit 9")
    one = build.Variant("a", rung)
    library, said = build.build_all([one], 1, folder)["a"]
    assert build.build_all([one], 1, folder)["a"][0] == library
    assert library.is_file() and (folder / "calls").read_text() == "x"
    rows = build.ptxas_rows(said)
    assert [row["registers"] for row in rows] == [104, 168]
    wanted = {"stack": 8, "spill_stores": 4, "spill_loads": 12, "static_shared": 96}
    assert rows[0] | wanted == rows[0]
    other = build.Variant("b", rung, text="another")
    (folder / "broken").touch()
    with pytest.raises(LabError, match="b does not compile:(.|\n)*no such kernel"):
        build.build_all([one, other], 1, folder)


def test_instructions_of_the_innermost_loop_with_products(tmp_path, capsys):
    (tmp_path / "a.sass").write_text(LISTING)  # neither the loop around it nor the one without HMMA
    assert main(["sass", str(tmp_path / "a.sass")]) == 0
    said = capsys.readouterr().out
    assert "sm_90: 5 instructions, 2 mma, 2.50 per mma; 1 LDSM, 1 FMUL, 1 BRA\n" in said
    assert list(sass.best_loops(tmp_path / "a.sass").values()) == [(5, 2)]


def test_architectures(stand_in, tmp_path, monkeypatch, capsys):
    kernel = cuda_rungs(["flash_attention_1"])[0].kernel_file.name
    monkeypatch.setattr(build, "FOLDER", tmp_path / "built")
    build.FOLDER.mkdir()
    stand_in("nvcc", '[ "$1" = --list-gpu-code ] && echo sm_80 sm_90')
    stand_in("cmake", CMAKE.format(folder=str(build.FOLDER), kernel=kernel, said=PTXAS))
    command = ["architectures", "flash_attention_1", "--arch"]
    assert main([*command, "80,120", "--kernels"]) == 0
    said = capsys.readouterr().out
    assert "168, 8 B spilled" in said and "left out: sm_120" in said
    (build.FOLDER / "broken").touch()  # an error; or a warning, which is one
    assert main([*command, "90"]) == 1
    assert main([*command, "x"]) == main([*command, "120"]) == 2
