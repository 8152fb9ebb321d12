#!/usr/bin/env python3
"""Stands in for a compiler in scripts/check_build_commands: compiles each source of a command by itself, and keeps the object.

Chapters build a rung with one command that names some thirty sources, most of them the same in every chapter. With the
same options the same source gives the same object, so it is compiled once for all commands:
    COMPILER OPTIONS source.cpp ... -o program   =   COMPILER OPTIONS -c source.cpp -o kept.o, ..., and a link
Called by the compiler's name; SHARED_COMPILER_OBJECTS is the folder for objects, SHARED_COMPILER_PATH finds the compiler.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCES = {".cpp", ".cu"}


def taken_apart(arguments):
    """(options, [(source, options of its own)], output), with `-x LANGUAGE` where it applies."""
    options, sources, output, language = [], [], "a.out", []
    rest = iter(arguments)
    for argument in rest:
        if argument == "-o":
            output = next(rest, "")
        elif argument == "-x":
            language = ["-x", next(rest, "none")]
        elif Path(argument).suffix in SOURCES:
            plain = argument.endswith(".cpp") or language == ["-x", "none"]  # whose language is clear without -x
            sources.append((argument, [] if plain else language))
        else:
            options.append(argument)
    return options, sources, output


def compile_once(compiler, options, source, folder, wait):
    """The object of a source; None when another command is at it and we do not want to wait."""
    name = hashlib.sha256("\0".join([compiler, *options, os.path.realpath(source)]).encode()).hexdigest()[:24]
    path = folder / f"{name}.o"
    with open(folder / f"{name}.lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return None
        if not path.exists():
            beside = folder / f"{name}.new.o"
            done = subprocess.run([compiler, *options, "-c", source, "-o", str(beside)])
            if done.returncode:
                sys.exit(done.returncode)
            beside.rename(path)
    return path


def main():
    compiler = shutil.which(Path(sys.argv[0]).name, path=os.environ["SHARED_COMPILER_PATH"])
    options, sources, output = taken_apart(sys.argv[1:])
    if not sources or "-c" in options or "-E" in options or "-S" in options:
        os.execv(compiler, [compiler, *sys.argv[1:]])
    folder = Path(os.environ["SHARED_COMPILER_OBJECTS"])
    libraries = [option for option in options if option.startswith("-l")]
    inputs = [option for option in options if Path(option).suffix in (".o", ".a")]
    flags = [option for option in options if option not in libraries and option not in inputs]
    objects = {}
    for wait in (False, True):  # first what nobody else is at
        for source, language in sources:
            if source not in objects:
                found = compile_once(compiler, [*flags, *language], source, folder, wait)
                if found:
                    objects[source] = str(found)
    return subprocess.run([compiler, *flags, *inputs, *(objects[source] for source, _ in sources), *libraries,
                           "-o", output]).returncode


if __name__ == "__main__":
    sys.exit(main())
