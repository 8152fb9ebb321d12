"""simt-cuda, which is scripts/simt, as a tool of its own: what it takes, and what it makes."""

import os
import subprocess
from pathlib import Path

import pytest
from cuda_on_cpu import SimtError, nvcc_options

ACTION = Path(__file__).resolve().parents[3] / ".github/actions/simt-cuda/check"


@pytest.mark.parametrize(
    "given, kept",
    [
        ("-O3 -arch=sm_80 -std c++17 -lineinfo a.cu --use_fast_math -t4 -m64", "a.cu"),
        ("-gencode arch=compute_80,code=sm_80 -Xptxas -v -o a a.cu --extended-lambda", "a.cu"),
        ("-lcublas -lm -L lib -l cudart,foo", "-l m -L lib -l foo"),
        ("-isystem a,b --define-macro=X=1,2 -I c -DY", "-I a -I b -D X=1,2 -I c -DY"),
        ("-include x.h -U NDEBUG -Xcompiler -Wall,-DZ", "-include x.h -U NDEBUG -DZ"),
        ("--schedule reverse --launches 0 -timeout", "--schedule reverse --launches 0 -timeout"),
    ],
)
def test_options_of_nvcc(given, kept):
    assert [*nvcc_options.taken(given.split())] == kept.split()


@pytest.mark.parametrize(
    "given, said",
    [
        ("-ptx", "nvcc's option -ptx: makes a file and no run"),
        ("--run-args x", "nvcc's option --run-args: arguments of the program come behind --"),
        ("--options-file=x", "nvcc's option --options-file=x: options are taken from the command"),
        ("a.cu -arch", "nvcc's option -arch needs a value"),
    ],
)
def test_options_of_nvcc_that_cannot_be(given, said):
    with pytest.raises(SimtError) as error:
        [*nvcc_options.taken(given.split())]
    assert str(error.value).startswith(said)


def action(here, code=0, **inputs):
    """The action's own step in a repository with three files; simt-cuda but says how it is called.
    Returns (what is called, what the steps behind it are told, how it ends)."""
    (here / "src").mkdir()
    for name in ("a.cu", "src/b c.cu", "src/d.cpp"):
        (here / name).write_text("")
    subprocess.run("git init -q && git add -A", shell=True, cwd=here, check=True)
    (here / "untracked.cu").write_text("")
    simt = here / "simt-cuda/bin/simt-cuda"
    simt.parent.mkdir(parents=True)
    text = f'printf "%s\\n" "$@" >called; echo x >"$RUNNER_TEMP/simt-cuda.sarif"; exit {code}'
    simt.write_text(f"#!/bin/sh\n{text}\n")
    simt.chmod(0o755)
    given = {"FILES": "*.cu", "OPTIONS": "", "SECONDS_EACH": "60"} | inputs
    given |= {"RUNNER_TEMP": str(here), "GITHUB_OUTPUT": str(here / "output")}
    done = subprocess.run(
        [ACTION], cwd=here, env=os.environ | given, capture_output=True, text=True
    )
    told = [here / name for name in ("called", "output")]
    called, output = (path.read_text() if path.exists() else "" for path in told)
    return called.splitlines(), output, done


def test_the_action_checks_the_files_of_a_repository(tmp_path):
    called, output, done = action(tmp_path, OPTIONS="-I include --strict", SECONDS_EACH="5")
    assert called == (
        f"check --run --keep-going --seconds 5 --sarif {tmp_path}/simt-cuda.sarif "
        "-I include --strict a.cu"
    ).split() + ["src/b c.cu"]
    assert output == f"sarif={tmp_path}/simt-cuda.sarif\n"
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "code, wanted, said",
    [
        (86, 86, ""),
        (2, 2, ""),
        (88, 0, "::notice::simt-cuda: a program needs"),
        (89, 0, "::notice"),
    ],
)
def test_the_action_fails_where_a_program_does(tmp_path, code, wanted, said):
    called, output, done = action(tmp_path, code, FILES="a.cu src/*.cpp")
    assert called[-2:] == ["a.cu", "src/d.cpp"]
    assert output and done.returncode == wanted
    assert done.stdout.startswith(said)


def test_the_action_wants_files(tmp_path):
    called, output, done = action(tmp_path, FILES="*.cuh")
    assert (called, output, done.returncode) == ([], "", 2)
    assert done.stdout == "::error::simt-cuda: no file of the repository is called *.cuh\n"
