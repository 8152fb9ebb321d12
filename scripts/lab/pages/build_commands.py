"""Runs build commands that the pages print, from the repository's root: they must build, silently.

A command is a fenced block after the line <!-- build -->. It must leave a program behind, and a
rung's program must answer --help. The commands of two rungs of a kind differ in the rung's name
alone, so one command of each kind is run: a rung on the CPU, one through the SIMT backend, one for
8.0 and 9.0, one for Hopper. With --all every command of every page runs. g++ and nvcc are
stand-ins in these runs, which compile sources side by side, behind ccache (compiler.py).
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from lab import cli
from lab.ladder import ROOT, Rung, finished

Command = tuple[str, str]  # the page, and what it prints
BLOCK = re.compile(
    r"^<!-- build -->[ \t]*\n(?P<fence>`{3,})[^\n]*\n(?P<command>.*?)^(?P=fence)[ \t]*$",
    re.S | re.M,
)


def commands_of(page: Path) -> list[str]:
    """The build commands that a page prints."""
    text = page.read_text(encoding="utf-8")
    return [match["command"].strip() for match in BLOCK.finditer(text)]


def by_kind(root: Path, rungs: Iterable[Rung]) -> tuple[dict[str, list[Command]], list[str]]:
    """{command with NN_name in place of a rung's name: its chapters' [(page, command)]}, and what
    is wrong with chapters: none may lack a command, or have another than those of its kind."""
    kinds: dict[str, list[Command]] = {}
    of_kind: dict[tuple[str, bool], tuple[str, list[str]]] = {}
    problems = []
    for rung in rungs:
        page = root / f"docs/{rung.program}.md"
        if not page.is_file():
            problems.append(f"{page.name}: there is no such chapter")
            continue
        commands = commands_of(page)
        general = [command.replace(rung.program, "NN_name") for command in commands]
        for kind, command in zip(general, commands, strict=True):
            kinds.setdefault(kind, []).append((page.name, command))
        of = rung.capability, rung.processes
        first, expected = of_kind.setdefault(of, (page.name, general))
        if not general or not all("steps/NN_name/" in command for command in general):
            problems.append(f"{page.name}: no <!-- build --> block builds steps/{rung.program}")
        elif general != expected:
            problems.append(f"{page.name}: its build commands are not those of {first}")
    return kinds, problems


def check_programs(folder: Path) -> str:
    """What is wrong with what a command left in a folder of its own, or ""."""
    programs = [path for path in folder.iterdir() if path.is_file() and os.access(path, os.X_OK)]
    for path in programs:
        if (ROOT / "steps" / path.name).is_dir():
            answer = cli.ran([path, "--help"])
            if answer.returncode or path.name.partition("_")[2] not in answer.stdout:
                return f"{path.name} --help ends with {answer.returncode}:\n{answer.stdout}"
    return "" if programs else "it leaves no program behind"


def stand_ins(folder: Path) -> dict[str, str]:
    """The environment in which commands find g++ and nvcc of compiler.py, if there are any."""
    text = Path(__file__).with_name("compiler.py").read_text(encoding="utf-8")
    for tool in filter(shutil.which, ("g++", "nvcc")):
        (folder / tool).write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
        (folder / tool).chmod(0o755)
    path = os.environ["PATH"]
    # What compiles without a word serves a command with -Wno-THIS, too.
    own = {"PATH": f"{folder}:{path}", "FLASH_PATH": path, "CCACHE_IGNOREOPTIONS": "-Wno-*"}
    return os.environ | own


def built(command: str, environment: dict[str, str]) -> str:
    """What is wrong with a command that runs as it is printed, in a folder with links to the
    sources, or ""."""
    with tempfile.TemporaryDirectory() as name:
        for source in (
            "common",
            "docs",
            "reference",
            "steps",
            "build-simt",
        ):  # some take its libraries
            (Path(name) / source).symlink_to(ROOT / source)
        done = cli.ran(["bash", "-e", "-c", command], cwd=name, env=environment)
        if done.returncode:
            return f"exit code {done.returncode}\n{done.stdout}".strip()
        return done.stdout.strip() or check_programs(Path(name))


def run(commands: Iterable[Command], environment: dict[str, str]) -> tuple[int, int]:
    """(how many commands fail, how many are left out)"""
    failed, left_out = 0, 0
    for page, command in commands:
        compiler, title = command.split()[0], f"{page}: {' '.join(command.split())[:80]}"
        if not shutil.which(compiler):
            left_out += 1
            print(f"left out: there is no {compiler} here: {title}", flush=True)
            continue
        start = time.monotonic()
        problem = built(command, environment)
        failed += bool(problem)
        said = "failed" if problem else "builds"
        print(f"{said:<8}{time.monotonic() - start:4.0f} s  {title}", flush=True)
        if problem:
            print(f"{problem}\n  the command: {command}", flush=True)
    return failed, left_out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    every = "every command of every page, not one of each kind"
    parser.add_argument("--all", action="store_true", help=every)


def main(options: argparse.Namespace) -> int:
    kinds, problems = by_kind(ROOT, finished())
    commands = [chapters[0] for chapters in kinds.values()]
    if options.all:
        pages = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
        commands = [(page.name, command) for page in pages for command in commands_of(page)]
    with tempfile.TemporaryDirectory() as folder:
        failed, left_out = run(commands, stand_ins(Path(folder)))
    for problem in problems:
        print(f"failed: {problem}")
    tried = len(commands) - left_out
    print(f"{tried - failed} of {tried} build commands work, {left_out} left out")
    return 1 if failed or problems else 0
