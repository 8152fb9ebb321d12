"""Stands for g++ and nvcc while lab check-build-commands runs the pages' commands.

A command compiles several sources and links them. So does this, but source by source, side by side,
behind CMAKE_CXX_COMPILER_LAUNCHER: with ccache there, commands share what they compile alike. nvcc
hands a .cpp file to g++ and adds nothing to it; so does this.

    FLASH_PATH   PATH without this program
"""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

Source = tuple[str, list[str]]  # its name, and its -x
OF_NVCC = "-Xcompiler"  # what follows it is g++'s


def with_options_of_files(words: Iterable[str]) -> Iterator[str]:
    """A command's words, with those of -optf FILE and @FILE in their place."""
    words = iter(words)
    for word in words:
        if word == "-optf" or word.startswith("@"):
            file = next(words) if word == "-optf" else word[1:]
            yield from shlex.split(Path(file).read_text(encoding="utf-8"))
        else:
            yield word


def taken_apart(words: Iterable[str]) -> tuple[list[tuple[str, ...]], list[Source], list[str], str]:
    """(options, [(source, its -x)], what only the linker reads, the program) of a command's words.
    An option and its value are one."""
    options: list[tuple[str, ...]] = []
    sources: list[Source] = []
    linked: list[str] = []
    language: list[str] = []
    program = "a.out"
    words = iter(words)
    for word in words:
        if word == "-x":
            language = [word, next(words)]
        elif word == "-o":
            program = next(words)
        elif word.startswith(("-l", "-L")) or word.endswith((".o", ".a")):
            linked.append(word)
        elif word == OF_NVCC:
            options.append((word, next(words)))
        elif word.endswith((".cpp", ".cu")):
            sources.append((word, language if word.endswith(".cu") else []))
        else:
            options.append((word,))
    return options, sources, linked, program


def for_gxx(options: list[tuple[str, ...]]) -> list[str]:
    """The options that nvcc gives to g++ with a .cpp file."""
    found = []
    for option in options:
        if option[0] == OF_NVCC:
            found += option[1].split(",")
        elif not option[0].startswith("--generate-code"):
            found.append(option[0])
    return found


def launcher_of(environment: dict[str, str]) -> list[str]:
    return environment.get("CMAKE_CXX_COMPILER_LAUNCHER", "").split()


def main() -> int:
    tool, environment = Path(sys.argv[0]).name, os.environ | {"PATH": os.environ["FLASH_PATH"]}
    if "-c" in sys.argv:  # one file, and nothing to link
        return subprocess.run(
            [*launcher_of(environment), tool, *sys.argv[1:]], env=environment
        ).returncode
    options, sources, linked, program = taken_apart(with_options_of_files(sys.argv[1:]))
    words = [word for option in options for word in option]
    launcher = launcher_of(environment)

    def compiled(source: Source, target: str) -> int:
        name, language = source
        own = ["g++", *for_gxx(options)] if name.endswith(".cpp") else [tool, *words]
        command = [*launcher, *own, *language, "-c", name, "-o", target]
        return subprocess.run(command, env=environment).returncode

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = [f"{folder}/{number}.o" for number in range(len(sources))]
        if any(pool.map(compiled, sources, objects)):
            return 1
        return subprocess.run(
            [tool, *words, *objects, *linked, "-o", program], env=environment
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
