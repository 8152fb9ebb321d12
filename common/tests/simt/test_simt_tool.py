"""simt-cuda, which is scripts/simt, as a tool of its own: what it takes, and what it makes."""

import os
import subprocess
import sys
import zipfile

import pytest
from cuda_on_cpu import (
    ROOT,
    SimtError,
    __main__,
    __version__,
    compiling,
    library,
    nvcc_options,
    running,
    verdicts,
)
from cuda_on_cpu.venv import NO_NETWORK, NO_PYPI

ACTION = ROOT / ".github/actions/simt-cuda/check"


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


def test_a_program_that_does_not_end_by_itself(monkeypatch, capsys):
    monkeypatch.setattr(running, "GRACE", 0)
    code, why = running.execute(["sleep", "60"], "1")
    assert code == 87
    assert why == "the program has had its 1 s (--seconds), and did not end by itself"
    assert capsys.readouterr().err.endswith(f": {why}\n")
    assert running.execute(["sh", "-c", "exit 3"], "60") == (3, "")


@pytest.mark.parametrize(
    "codes, worst",
    [
        ([0, 0], 0),
        ([88, 0, 89], 89),
        ([88, 7, 0], 7),
        ([7, 2, 88], 2),
        ([2, 87, 86, 1], 86),
        ([86, 130], 130),
    ],
)
def test_the_worst_of_several_files(codes, worst):
    assert __main__.worst(codes) == worst


def test_places_in_sarif(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.cu").touch()
    (tmp_path / "main.cu").touch()
    said = [("a b.cu", "3", "x"), (str(tmp_path / "a b.cu"), "4", "y"), ("--launch", "1", "z")]
    verdict = verdicts.by_us("does_not_compile", "does_not_compile", 2, said)
    document = verdicts.sarif([verdict | {"program": "main.cu"}])
    places = [one["locations"][0]["physicalLocation"] for one in document["runs"][0]["results"]]
    assert [place["artifactLocation"]["uri"] for place in places] == [
        "a%20b.cu",
        "a%20b.cu",
        "main.cu",
    ]
    assert [place.get("region") for place in places] == [{"startLine": 3}, {"startLine": 4}, None]
    elsewhere = verdicts.location("/usr/include/x y.h", 1)["physicalLocation"]["artifactLocation"]
    assert elsewhere == {"uri": "file:///usr/include/x%20y.h"}


def test_the_wheel_is_whole_and_alone(tmp_path):
    """It has a licence and a version, all that the library is built of, and nothing of the lab."""
    try:
        compiling.use_grammar()
    except SimtError as error:
        pytest.skip(str(error))
    python = library.folder() / "venv/bin/python3"
    command = [python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and NO_NETWORK.search(done.stderr):
        pytest.skip(NO_PYPI)
    (file,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(file) as wheel:
        names = wheel.namelist()
        wheel.extractall(tmp_path / "installed")
    about = f"flash_steps-{__version__}.dist-info/"
    assert {name.split("/")[0] + "/" for name in names} == {"cuda_on_cpu/", about}
    assert about + "licenses/LICENSE" in names
    assert not [name for name in names if "viewer" in name or "tests" in name]
    sources = [*(ROOT / "common/simt").rglob("*.?pp"), ROOT / "common/error.hpp"]
    assert {f"cuda_on_cpu/{path.relative_to(ROOT)}" for path in sources} <= {*names}
    alone = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    script = "from cuda_on_cpu import SIMT, __main__, library; print(SIMT, library.folder().name)"
    said = subprocess.check_output(
        [sys.executable, "-B", "-c", script], cwd=tmp_path, env=alone, text=True
    )
    assert said.startswith(f"{tmp_path}/installed/cuda_on_cpu/common/simt {__version__}-")


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
