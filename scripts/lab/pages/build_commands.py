"""Runs the build commands that the pages print, from the repository's root: all must build, silently.

A command is a fenced block after the line <!-- build -->. A command must leave a program behind, and a rung's program
must answer --help. Every chapter of a rung must have a command that builds it. With --apart, and for a block that is more
than compiler commands, it runs exactly as it is printed. Else it is made cheaper:
- Most commands name the same sixty sources, so each source is compiled once for all commands that give it the same
  options, and each command is then linked by itself. nvcc hands .cpp files to g++, so they share its objects.
- What g++ compiles is compiled without optimisation: the tests' build has compiled it with -O3 and more warnings.
- Kernels for several architectures are compiled for each of them by --Ofast-compile, where nvcc knows it; lab
  architectures compiles them with all optimisation. Not those for 9.0a: ptxas would warn that their wgmma cannot overlap.
"""

import concurrent.futures
import functools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from lab import cli
from lab.ladder import ROOT, ladder

BLOCK = re.compile(
    r"^<!-- build -->[ \t]*\n(?P<fence>`{3,})[^\n]*\n(?P<command>.*?)^(?P=fence)[ \t]*$",
    re.S | re.M,
)


def read_pages(root, names):
    """[(page, command)], and what is wrong with pages of rungs that should have one."""
    commands, problems = [], []
    for page in sorted(root.glob("docs/*.md")) + [root / "README.md"]:
        found = [
            match["command"].strip().replace("\\\n", " ")
            for match in BLOCK.finditer(page.read_text(encoding="utf-8"))
        ]
        commands += [(str(page.relative_to(root)), command) for command in found]
        if page.stem in names and not any(f"steps/{page.stem}/" in command for command in found):
            problems.append(
                f"{page.relative_to(root)}: no <!-- build --> block builds steps/{page.stem}"
            )
    return commands, problems


@functools.cache
def fast():
    """nvcc's option for less optimisation, where it has one: that halves the time."""
    known = subprocess.run(
        ["nvcc", "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    ).stdout
    return ["--Ofast-compile=max"] if "--Ofast-compile" in known else []


def what_matters(compiler, options, source):
    """The compiler that makes a source's object, and the options that it makes it with."""
    if compiler == "nvcc" and not source.startswith(
        ("steps/", "docs/")
    ):  # whose code no GPU runs here
        options = [one for one in options if not one.startswith("--generate-code=")]
    elif (
        compiler == "nvcc"
        and source.endswith(".cu")
        and sum(one.startswith("--generate-code=") for one in options) > 1
    ):
        options = [*options, *fast()]
    if compiler == "nvcc" and source.endswith(".cpp"):
        compiler, options = (
            "g++",
            [
                word
                for one in options
                if not one.startswith(("--generate-code=", "-Xcompiler"))
                for word in one.split(",")
            ],
        )
    if compiler == "g++":
        options = sorted("-O0" if one == "-O3" else one for one in options)
    return compiler, tuple(options)


def taken_apart(block, root):
    """([(compiler, options, source, options of its own)], the last compiler's name, options, libraries and program);
    None of a block that is more than compiler commands, one per line, of which the last links."""
    objects, link = {}, None
    for line in block.splitlines():
        compiler, *words = shlex.split(line)
        options, wanted, libraries, program, language = [], [], [], "a.out", []
        words = iter(words)
        for word in words:
            if word == "-o":
                program = next(words, "")
            elif word == "-x":
                language = ["-x", next(words, "none")]
            elif word.endswith((".cpp", ".cu")):
                # .cpp is C++ to both compilers, with -x c++ or without: one object serves all commands
                plain = word.endswith(".cpp") or language == ["-x", "none"]
                own = () if plain else tuple(language)
                wanted += [(str(path.relative_to(root)), own) for path in sorted(root.glob(word))]
            elif word in objects:
                wanted.append(word)
            elif word.startswith("-l"):
                libraries.append(word)
            elif word.startswith("-"):
                options += (
                    [word, next(words, "")] if word == "-Xcompiler" else [word] * (word != "-c")
                )
            else:
                return None
        wanted = [
            objects[one]
            if isinstance(one, str)
            else (*what_matters(compiler, options, one[0]), *one)
            for one in wanted
        ]
        if "-c" in shlex.split(line) and len(wanted) == 1:
            objects[program] = wanted[0]
        else:
            link = wanted, compiler, options, libraries, program
    return link


def output_of(command, folder=ROOT):
    """What a command prints; "" when it was silent and succeeded."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return (
        done.stdout.strip()
        if done.returncode == 0
        else f"exit code {done.returncode}\n{done.stdout}".strip()
    )


def check_programs(folder):
    """What is wrong with what a command left in a folder of its own, or ""."""
    programs = [path for path in folder.iterdir() if path.is_file() and os.access(path, os.X_OK)]
    for path in programs:
        if (ROOT / "steps" / path.name).is_dir():
            answer = subprocess.run(
                [path, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            if answer.returncode or path.name not in answer.stdout:
                return f"{path.name} --help ends with {answer.returncode}:\n{answer.stdout}{answer.stderr}"
    return "" if programs else "it leaves no program behind"


def linked(objects, compiler, options, libraries, program):
    """What is wrong with a command whose sources are being compiled, or ""."""
    with tempfile.TemporaryDirectory() as name:
        return (
            next(filter(None, (compiling.result() for _, compiling in objects)), "")
            or output_of(
                [
                    compiler,
                    *options,
                    *(path for path, _ in objects),
                    *libraries,
                    "-o",
                    f"{name}/{program}",
                ]
            )
            or check_programs(Path(name))
        )


def apart(command):
    """What is wrong with a command that runs as it is printed, in a folder with links to the sources, or ""."""
    with tempfile.TemporaryDirectory() as name:
        for source in ("common", "docs", "reference", "steps"):
            (Path(name) / source).symlink_to(ROOT / source)
        return output_of(["bash", "-e", "-c", command], name) or check_programs(Path(name))


def add_arguments(parser):
    parser.add_argument(
        "--only",
        metavar="TEXT",
        default="",
        help="only commands of pages or texts that contain TEXT",
    )
    parser.add_argument("--apart", action="store_true", help="share no object between commands")
    cli.add(parser, "--jobs")


def main(options):
    commands, problems = read_pages(ROOT, {rung.program for rung in ladder()})
    commands = [(page, command) for page, command in commands if options.only in page + command]
    runnable = [(page, command) for page, command in commands if shutil.which(command.split()[0])]
    print(f"{len(runnable)} build commands, {options.jobs} compilers at a time", flush=True)
    start, failed, shared, checks = time.monotonic(), 0, {}, []
    launcher = shlex.split(
        os.environ.get("CMAKE_CXX_COMPILER_LAUNCHER", "")
    )  # ccache, as the build takes it
    with (
        tempfile.TemporaryDirectory() as name,
        concurrent.futures.ThreadPoolExecutor(max(1, options.jobs)) as pool,
    ):

        def compiled(compiler, flags, source, own):
            key = compiler, flags, source, own
            if key not in shared:
                path = f"{name}/{len(shared)}.o"
                shared[key] = (
                    path,
                    pool.submit(
                        output_of, [*launcher, compiler, *flags, *own, "-c", source, "-o", path]
                    ),
                )
            return shared[key]

        for page, command in runnable:
            parts = None if options.apart else taken_apart(command, ROOT)
            if parts:
                objects = [compiled(*one) for one in parts[0]]
                checks.append((page, command, lambda of=(objects, *parts[1:]): linked(*of)))
            else:
                checks.append((page, command, pool.submit(apart, command).result))
        for page, command, check in checks:
            problem = check()
            failed += bool(problem)
            print(
                f"{'failed' if problem else 'builds':<8}{time.monotonic() - start:4.0f} s  {page}: "
                + " ".join(command.split())[:90],
                flush=True,
            )
            if problem:
                print(f"{problem}\n  the command: {command}", flush=True)
    for page, command in commands:
        if (page, command) not in runnable:
            print(
                f"left out: there is no {command.split()[0]} here: {page}: {' '.join(command.split())[:90]}"
            )
    for problem in problems:
        print(f"failed: {problem}")
    print(
        f"{len(runnable) - failed} of {len(runnable)} build commands work, {len(commands) - len(runnable)} left out"
    )
    return 1 if failed or problems else 0
