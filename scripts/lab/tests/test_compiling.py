"""Variants, what ptxas says, and the kernels' architectures."""

import pytest
from lab import build
from lab.__main__ import main
from lab.ladder import LabError, cuda_rungs

PTXAS = "\n".join(
    f"""ptxas info    : Compiling entry function '_Z6kernelILi{d}EEvv' for 'sm_90'
ptxas info    : Function properties for _Z6kernelILi{d}EEvv
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used {d + 40} registers, used 1 barriers, 96 bytes smem"""
    for d in (64, 128)
)
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
