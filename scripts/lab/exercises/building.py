"""A kernel compiled and linked into the program that judges it: one compiler call and one linker call, both taken from
the build that CMake has made, with the kernel's file in the place of the rung's."""

import contextlib
import functools
import hashlib
import json
import re
import shlex
import subprocess
import threading
from pathlib import Path

from lab.exercises.catalogue import ROOT, Refusal, ladder

preparing, prepared = threading.Lock(), {"simt": set(), "cuda": set()}  # targets
KEPT = 200  # programs, each of about a megabyte


def once(function):
    """As functools.cache, and two threads that ask for the same wait for one of them to find it."""
    results, locks, guard = {}, {}, threading.Lock()

    @functools.wraps(function)
    def wrapped(*key):
        with guard:
            lock = locks.setdefault(key, threading.Lock())
        with lock:
            if key not in results:
                results[key] = function(*key)
            return results[key]

    return wrapped


def build_folder(preset):
    return ROOT / f"build-{preset}"


def prepare(preset, *rungs):
    """Has everything built that kernels of these rungs are linked with. The first time this takes a minute or two."""
    with preparing:
        targets = [
            target
            for rung in rungs
            if (target := f"exercise_{rung.program}") not in prepared[preset]
        ]
        done = targets and subprocess.run(
            [str(ROOT / "scripts/exercise"), "--build", preset, *targets],
            capture_output=True,
            text=True,
        )
        if done and done.returncode != 0:
            raise Refusal(
                (done.stdout + done.stderr).strip()
                + f"\nwhat judges {', '.join(targets)} does not build"
            )
        prepared[preset].update(targets)


def file_of(exercise, text):
    """A file with this text. Equal kernels are one file, so that they are built and judged once; the rung's is its own."""
    if text == exercise.kernel:
        return exercise.rung.kernel_file
    folder = (
        build_folder("simt") / "exercises/proof" / hashlib.sha256(text.encode()).hexdigest()[:12]
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / exercise.file
    if not path.exists():
        beside = path.with_name(
            f"{path.name}.{threading.get_ident()}"
        )  # another thread must not see half of it
        beside.write_text(text, encoding="utf-8")
        beside.rename(path)
    return path


def compiler_call(rung, preset):
    """How the build compiles the rung's kernel, as a list of words."""
    commands = json.loads(
        (build_folder(preset) / "compile_commands.json").read_text(encoding="utf-8")
    )
    watched = "_watched_kernel.dir" if rung.cuda and preset == "simt" else "_kernel.dir"
    call = next(
        one
        for one in commands
        if Path(one["file"]) == rung.kernel_file and f"{rung.program}{watched}" in one["command"]
    )
    return shlex.split(call["command"]), Path(call["directory"])


def linker_call(rung, preset):
    """How the build links the program that judges the rung, as a list of words, and the folder where it does so."""
    build, target = build_folder(preset), f"exercise_{rung.program}"
    script = build / f"docs/exercises/CMakeFiles/{target}.dir/link.txt"  # of make
    if script.exists():
        return shlex.split(
            script.read_text(encoding="utf-8").splitlines()[-1]
        ), build / "docs/exercises"
    lines = subprocess.run(
        ["ninja", "-C", str(build), "-t", "commands", target],
        capture_output=True,
        text=True,
        check=True,
    )
    words = shlex.split(lines.stdout.splitlines()[-1])
    return words[words.index("&&") + 1 : -2], build  # between ": &&" and "&& :"


def run(words, folder):
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode else None


def after(words, option):
    return words.index(option) + 1


@once
def precompiled(folder, cuda, cache, *words):
    """The headers that kernels include, compiled once for all kernels with the same options: a path for -include, which
    takes a second or two off each kernel. g++ reads the headers themselves where this does not fit."""
    includes = {
        line
        for rung in ladder()
        if rung.cuda == cuda
        for line in re.findall(
            r'^#include "common/.*', rung.kernel_file.read_text(encoding="utf-8"), re.M
        )
    }
    text = "\n".join(sorted(includes)) + "\n"
    below = b"".join(path.read_bytes() for path in sorted((ROOT / "common").rglob("*.hpp")))
    header = (
        cache / f"headers.{hashlib.sha256(f'{words}{text}'.encode() + below).hexdigest()[:16]}.hpp"
    )
    if not header.exists():
        beside = header.with_suffix(".new")
        beside.write_text(text, encoding="utf-8")
        run([*words, "-x", "c++-header", "-c", str(beside), "-o", f"{header}.gch"], folder)
        beside.rename(header)
    return header


@once
def compiled(rung, kernel, preset):
    """(the program, None), or (None, what the compiler said). A kernel that was built before is not built again, nor is the
    rung's own file. A copy of it is, since messages name the file that was compiled."""
    judge = (
        build_folder(preset) / f"docs/exercises/exercise_{rung.program}"
    )  # built anew when anything below it has changed
    if kernel == rung.kernel_file:
        return judge, None
    words, folder = compiler_call(rung, preset)
    words = [word for word in words if "Werror" not in word]
    if not rung.cuda:
        words.insert(
            words.index("-o"), "-O1"
        )  # a third faster to compile than -O3, and small problems do not need more
    key = hashlib.sha256(
        f"{words} {kernel} {judge.stat().st_mtime_ns}".encode() + kernel.read_bytes()
    ).hexdigest()[:16]
    cache = build_folder(preset) / "exercises"
    cache.mkdir(exist_ok=True)
    program, object_file = cache / f"{rung.name}.{key}", cache / f"{rung.name}.{key}.o"
    if program.exists():
        return program, None
    words[after(words, "-o")] = str(object_file)
    words[after(words, "-c")] = str(kernel)
    if preset == "simt":
        options = words[: words.index("-o")]
        words[len(options) : len(options)] = [
            "-include",
            str(precompiled(folder, rung.cuda, cache, *options)),
        ]
    link, link_folder = linker_call(rung, preset)
    own = rung.kernel_file.name + ".o"
    link = [
        str(object_file) if word.endswith(own) and "_kernel.dir" in word else word for word in link
    ]
    link[after(link, "-o")] = str(program)
    complaint = run(words, folder) or run(link, link_folder)
    object_file.unlink(missing_ok=True)
    make_room(cache)
    return (None, complaint) if complaint else (program, None)


def make_room(cache):
    """Deletes the oldest programs. Other threads build and delete in the same folder meanwhile."""
    programs = []
    for path in cache.glob("[0-9]*"):
        if path.suffix != ".o":
            with contextlib.suppress(FileNotFoundError):  # another thread was faster
                programs.append((path.stat().st_mtime, path))
    for _, old in sorted(programs)[:-KEPT]:
        old.unlink(missing_ok=True)
