"""Stands for g++ and nvcc while lab check-build-commands runs the pages' commands.

A command compiles several sources and links them. So does this, but by sources: each becomes an
object by the command's own compiler and options, side by side, and an object that an earlier
command has made of the same source with the same options is taken over. nvcc hands a .cpp file to
g++ and adds nothing to it, so nvcc's commands share these with those of g++. Folders of headers
count by what a source takes from them: MPI's change nothing for one that includes none of its
headers. An object made without -Wno-THIS, in silence, serves a command that says it. A .cpp file
is not optimised, in two thirds of the time: the tests are built of the same files with -O3.

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
    return found


def to_the_object(options, quiet=True):
    """The options that matter behind the preprocessor; without `quiet` but for -Wno-THIS."""
    without = ("-I",) if quiet else ("-I", "-Wno-")
    return sorted(option for option in options if not option[0].startswith(without))


def sha256(value):
    return hashlib.sha256(repr(value).encode()).hexdigest()


def preprocessed(compiler, words, name, environment):
    """What the compiler reads, as a number. None where that is not to be had: of an error, which is
    then the compiler's to report, and of nvcc for several GPUs."""
    command = [compiler, *words, "-E", name]
    if compiler == "g++":
        command.append("-fdirectives-only")  # a tenth of a second, instead of a third
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return None if done.returncode else hashlib.sha256(done.stdout).hexdigest()


def main():
    tool, folder = Path(sys.argv[0]).name, Path(os.environ["FLASH_OBJECTS"])
    environment = os.environ | {"PATH": os.environ["FLASH_PATH"]}
    options, sources, linked, program = taken_apart(sys.argv[1:])

    def compiled(source):
        name, language = source
        compiler, own = tool, options
        if name.endswith(".cpp"):
            compiler, own = "g++", for_gxx(options)
            own = [("-O0",) if option == ("-O3",) else option for option in own]
        of_source = ["-x", language] if language != "none" and name.endswith(".cu") else []
        words = [word for option in own for word in option] + of_source
        text = preprocessed(compiler, words, name, environment) or words
        where = os.path.realpath(name)
        target, loud = (
            folder / f"{sha256((compiler, kept, of_source, where, text))[:16]}.o"
            for kept in (to_the_object(own), to_the_object(own, quiet=False))
        )
        for made in (target, loud):
            if made.exists():
                return made, 0
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
