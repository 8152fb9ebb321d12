"""The chapters' build commands: taken apart, shared, and each mistake found."""

import shutil
from types import SimpleNamespace

import pytest
from lab.__main__ import main
from lab.pages import build_commands


def test_a_build_command_is_taken_apart(tmp_path):
    for name in ("a/main.cpp", "a/kernel.cu", "b/x.cpp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    objects, *link = build_commands.taken_apart(
        "g++ -O1 -x c++ a/*.cu a/*.cpp b/*.cpp -x none -lm -o a", tmp_path
    )
    assert objects == [
        ("g++", ("-O1",), "a/kernel.cu", ("-x", "c++")),
        ("g++", ("-O1",), "a/main.cpp", ()),
        ("g++", ("-O1",), "b/x.cpp", ()),
    ]
    assert link == ["g++", ["-O1"], ["-lm"], "a"]
    objects, *_ = build_commands.taken_apart(
        "g++ -g -x c++ -c a/kernel.cu -o k.o\ng++ k.o b/x.cpp -o a", tmp_path
    )
    assert objects == [("g++", ("-g",), "a/kernel.cu", ("-x", "c++")), ("g++", (), "b/x.cpp", ())]
    assert build_commands.taken_apart("cmake --preset cpu", tmp_path) is None


@pytest.mark.parametrize(
    "compiler, source, wanted",
    [
        ("nvcc", "steps/01_a/main.cpp", ("g++", ("-O0", "-fopenmp", "-g"))),
        ("g++", "steps/01_a/a.cu", ("g++", ("-O0", "-fopenmp", "-g"))),
        (
            "nvcc",
            "steps/01_a/a.cu",
            ("nvcc", ("-O3", "--generate-code=arch=compute_80", "-Xcompiler", "-fopenmp", "-g")),
        ),
        ("nvcc", "common/cuda/a.cu", ("nvcc", ("-O3", "-Xcompiler", "-fopenmp", "-g"))),
    ],
)
def test_sources_are_shared_where_options_do_not_matter(compiler, source, wanted, monkeypatch):
    monkeypatch.setattr(build_commands, "fast", lambda: ["--fast"])
    two = ["-O3", "--generate-code=80", "--generate-code=90"]
    assert build_commands.what_matters("nvcc", two, "steps/01_a/a.cu") == ("nvcc", (*two, "--fast"))
    given = {
        "g++": ["-g", "-fopenmp", "-O3"],
        "nvcc": ["-O3", "--generate-code=arch=compute_80", "-Xcompiler", "-fopenmp", "-g"],
    }
    assert build_commands.what_matters(compiler, given[compiler], source) == wanted


def test_pages_without_a_command(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").touch()
    (tmp_path / "docs/01_a.md").write_text(
        "<!-- build -->\n```sh\ng++ \\\n  steps/01_a/*.cpp\n```\n"
    )
    (tmp_path / "docs/02_b.md").write_text("```sh\ng++ steps/02_b/*.cpp\n```\n")
    commands, problems = build_commands.read_pages(tmp_path, {"01_a", "02_b"})
    assert (
        commands == [("docs/01_a.md", "g++    steps/01_a/*.cpp")]
        and len(problems) == 1
        and "02_b" in problems[0]
    )


@pytest.mark.parametrize(
    "commands, code, says",
    [
        (["g++ -O1 steps/01_a/*.cpp common/*.cpp -o 01_a"], 0, "1 of 1"),
        (
            [
                "g++ -O1 steps/01_a/*.cpp common/*.cpp -o 01_a",
                "g++ -O1 -DWRONG steps/01_a/*.cpp common/*.cpp -o 01_a",
            ],
            1,
            "1 of 2",
        ),
        (["g++ -O1 steps/01_a/*.cpp common/*.cpp -o 01_a"] * 2, 0, "2 of 2"),
        (["false # steps/01_a/"], 1, "exit code 1"),
        (["true # steps/01_a/"], 1, "no program"),
        (["echo steps/01_a/"], 1, "steps/01_a/"),
        (["true"], 1, "builds steps/01_a"),
    ],
)
def test_build_commands_share_objects_and_not_mistakes(
    tmp_path, stand_in, monkeypatch, capsys, commands, code, says
):
    real = shutil.which("g++")
    stand_in("g++", f'echo "$*" >> {tmp_path}/calls\nexec {real} "$@"')
    for name, text in {
        "docs/01_a.md": "".join(f"<!-- build -->\n```sh\n{one}\n```\n" for one in commands),
        "README.md": "",
        "common/part.cpp": "int part() { return 0; }\n",
        "reference/.keep": "",
        "steps/01_a/main.cpp": '#include <cstdio>\nint part();\nint main() {\n#ifndef WRONG\nputs("01_a");\n#endif\nreturn part(); }\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.delenv("CMAKE_CXX_COMPILER_LAUNCHER", raising=False)
    monkeypatch.setattr(build_commands, "ROOT", tmp_path)
    monkeypatch.setattr(
        build_commands,
        "output_of",
        lambda command, folder=tmp_path, run=build_commands.output_of: run(command, folder),
    )
    monkeypatch.setattr(build_commands, "ladder", lambda: [SimpleNamespace(name="01_a")])
    assert main(["check-build-commands"]) == code
    assert says in capsys.readouterr().out
    if commands[0].startswith("g++"):
        assert (tmp_path / "calls").read_text().count("-c common/part.cpp") == len(set(commands))


def test_a_command_that_fails_speaks_or_leaves_nothing(tmp_path):
    (tmp_path / "a").mkdir()
    assert "exit code 3" in build_commands.output_of(["sh", "-c", "exit 3"])
    assert build_commands.output_of(["sh", "-c", "echo a warning"]) == "a warning"
    assert (
        build_commands.apart("true")
        == build_commands.check_programs(tmp_path)
        == "it leaves no program behind"
    )
    assert build_commands.apart("cp /bin/true program") == ""
