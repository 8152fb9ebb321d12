"""The chapters' build commands are those of their kind, and each mistake is found."""

import subprocess
from types import SimpleNamespace

import pytest
from lab.__main__ import main
from lab.ladder import ROOT, ladder
from lab.pages import build_commands


def test_the_chapters_commands_differ_in_the_rungs_name_alone():
    kinds, problems = build_commands.by_kind(ROOT, ladder())
    assert not problems
    # the CPU, SIMT, sm_80 and sm_90, sm_90a; SIMT and sm_90a with MPI
    assert len(kinds) == 6
    for general in kinds:
        assert general.endswith("-o NN_name")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Builds a tree with chapters of two rungs on the CPU, of these commands."""

    def made(*commands):
        sources = {
            "common/part.cpp": "int part() { return 0; }\n",
            "reference/.keep": "",
            "README.md": "",
        }
        for number, command in enumerate(commands, 1):
            name = f"0{number}_a"
            block = f"<!-- build -->\n```sh\n{command}\n```\n" if command else ""
            sources[f"docs/{name}.md"] = block
            sources[f"steps/{name}/main.cpp"] = (
                "#include <cstdio>\nint part();\nint main() {\n#ifndef WRONG\n"
                f'std::puts("{name}");\n#endif\nreturn part(); }}\n'
            )
        for name, text in sources.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        rungs = [
            SimpleNamespace(program=f"0{number}_a", processes=False, capability="")
            for number in range(1, len(commands) + 1)
        ]
        monkeypatch.setattr(build_commands, "ROOT", tmp_path)
        monkeypatch.setattr(build_commands, "ladder", lambda: rungs)

    return made


GOOD = "g++ -O1 steps/01_a/*.cpp \\\n  common/*.cpp -o 01_a"


@pytest.mark.parametrize(
    "commands, code, says",
    [
        ([GOOD], 0, "1 of 1 build"),
        ([GOOD, GOOD.replace("01_a", "02_a")], 0, "1 of 1 build"),
        ([GOOD, GOOD.replace("01_a", "02_a").replace("O1", "O2")], 1, "not those of 01_a.md"),
        ([""], 1, "no <!-- build --> block builds steps/01_a"),
        (["g++ -DWRONG" + GOOD[3:]], 1, "--help ends with 0"),
        (["true # steps/01_a/"], 1, "no program"),
        (["echo a warning # steps/01_a/"], 1, "a warning"),
        (["no-such-compiler steps/01_a/"], 0, "left out: there is no no-such-compiler here"),
    ],
)
def test_one_command_of_each_kind_runs(tree, capsys, commands, code, says):
    tree(*commands)
    assert main(["check-build-commands"]) == code
    assert says in capsys.readouterr().out


def test_commands_share_an_object_if_they_compile_the_same_text(tmp_path):
    """Folders of headers and -Wno-THIS change nothing for a source that does not feel them."""
    for name, text in {
        "plain.cpp": "int plain() { return 0; }\n",
        "sized.cpp": '#include "size.hpp"\nint sized() { return size; }\n',
        "main.cpp": "int plain(); int sized();\nint main() { return plain() + sized(); }\n",
        "one/size.hpp": "constexpr int size = 1;\n",
        "two/size.hpp": "constexpr int size = 2;\n",
        "objects/.keep": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    environment = build_commands.stand_ins(tmp_path / "objects")

    def objects_after(command, result):
        words = f"g++ {command} plain.cpp sized.cpp main.cpp -o program".split()
        subprocess.run(words, cwd=tmp_path, env=environment, check=True)
        assert subprocess.run([tmp_path / "program"]).returncode == result
        return len(list((tmp_path / "objects").glob("*.o")))

    assert objects_after("-O1 -Ione", 1) == 3
    assert objects_after("-O1 -Ione -Iobjects", 1) == 3
    assert objects_after("-O1 -Ione -Wno-psabi", 1) == 3
    assert objects_after("-O1 -Itwo -Ione", 2) == 4  # of sized.cpp, whose header is another one
    assert objects_after("-O0 -Ione", 1) == 7
