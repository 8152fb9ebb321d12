"""Stands for g++ and nvcc while lab check-build-commands runs the pages' commands.

A command compiles several sources and links them. So does this, but by sources: each becomes an
object by the command's own compiler and options, side by side, and an object that an earlier
command has made of the same source with the same options is taken over. nvcc hands a .cpp file to
g++ and adds nothing to it, so nvcc's commands share these with those of g++.

    FLASH_OBJECTS   the folder of the objects; PATH without this program
    FLASH_PATH
"""

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = (".cpp", ".cu")
OF_NVCC = "-Xcompiler"  # what follows it is g++'s


def taken_apart(words):
    """(options, [(source, its -x)], what only the linker reads, the program) of a command's words.
    An option and its value are one."""
    options, sources, linked, program, language = [], [], [], "a.out", "none"
    words = iter(words)
    for word in words:
        if word == "-x":
            language = next(words)
        elif word == "-o":
            program = next(words)
        elif word.startswith(("-l", "-L")):
            linked.append(word)
        elif word == OF_NVCC:
            options.append((word, next(words)))
        elif word.endswith(SOURCES):
            sources.append((word, language))
        else:
            options.append((word,))
    return options, sources, linked, program


def for_gxx(options):
    """The options that nvcc gives to g++ with a .cpp file."""
    found = []
    for option in options:
        if option[0] == OF_NVCC:
            found += [(one,) for one in option[1].split(",")]
        elif not option[0].startswith("--generate-code"):
            found.append(option)
    return sorted(found)


def main():
    tool, folder = Path(sys.argv[0]).name, Path(os.environ["FLASH_OBJECTS"])
    environment = os.environ | {"PATH": os.environ["FLASH_PATH"]}
    options, sources, linked, program = taken_apart(sys.argv[1:])

    def compiled(source):
        name, language = source
        compiler, own = tool, options
        if name.endswith(".cpp"):
            compiler, own = "g++", for_gxx(options)
        words = [word for option in own for word in option]
        words += ["-x", language] if language != "none" and name.endswith(".cu") else []
        key = hashlib.sha256(repr((compiler, words, os.path.realpath(name))).encode())
        target = folder / f"{key.hexdigest()[:16]}.o"
        if target.exists():
            return target, 0
        launcher = environment.get("CMAKE_CXX_COMPILER_LAUNCHER", "").split()
        command = [*launcher, compiler, *words, "-c", name, "-o", target]
        return target, subprocess.run(command, env=environment).returncode

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(compiled, sources))
    if any(code for _, code in made):
        return 1
    words = [word for option in options for word in option]
    command = [tool, *words, *(target for target, _ in made), *linked, "-o", program]
    return subprocess.run(command, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
