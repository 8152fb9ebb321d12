"""Runs the build commands that the pages print, from the repository's root: all must build, silently.

A command is a fenced block after the line <!-- build -->. Most commands name the same thirty sources, so each source is
compiled once for all commands that give it the same options, and each command is then linked by itself; with --apart
every command runs exactly as it is printed, which takes minutes each. A command must leave a program behind, and a
rung's program must answer --help. Every chapter of a rung must have a command that builds it.
"""

import concurrent.futures
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from lab.ladder import LabError, ROOT, ladder

BLOCK = re.compile(r"^<!-- build -->[ \t]*\n(?P<fence>`{3,})[^\n]*\n(?P<command>.*?)^(?P=fence)[ \t]*$", re.S | re.M)
SOURCES = ("common", "docs", "reference", "steps")


@dataclass(frozen=True)
class Command:
    page: str
    text: str

    def words(self):
        return shlex.split(self.text.replace("\\\n", " "))

    def compiler(self):
        return self.words()[0]

    def label(self):
        return f"{self.page}: {' '.join(self.text.split())[:90]}"


def read_pages(root, names):
    """The commands of all pages, and what is wrong with pages of rungs that should have one."""
    commands, problems = [], []
    for page in sorted(root.glob("docs/*.md")) + [root / "README.md"]:
        text = page.read_text(encoding="utf-8")
        found = [Command(str(page.relative_to(root)), match["command"].strip()) for match in BLOCK.finditer(text)]
        commands += found
        if page.stem in names and not any(f"steps/{page.stem}/" in command.text for command in found):
            problems.append(f"{page.relative_to(root)}: no <!-- build --> block builds steps/{page.stem}")
    return commands, problems


def taken_apart(command, root):
    """(options, [(source, its language)], libraries, program) of a command for g++ or nvcc."""
    options, sources, libraries, program, language = [], [], [], "a.out", ""
    words = iter(command.words()[1:])
    for word in words:
        if word == "-o":
            program = next(words, "")
        elif word == "-x":
            language = next(words, "")
        elif word.startswith("-l"):
            libraries.append(word)
        elif word.endswith((".cpp", ".cu")):
            found = sorted(str(path.relative_to(root)) for path in root.glob(word))
            if not found:
                raise LabError(f"{command.page}: there is no {word}")
            # .cpp is C++ to both compilers, with -x c++ or without: one object serves all commands
            sources += [(one, "" if one.endswith(".cpp") or language == "none" else language) for one in found]
        elif word in ("-Xcompiler", "-Xptxas"):
            options += [word, next(words, "")]
        elif word.startswith("-"):
            options.append(word)
        else:
            raise LabError(f"{command.page}: '{word}' is not understood in: {command.text}")
    return tuple(options), sources, libraries, program


def output_of(command, folder):
    """What a command prints; "" when it was silent and succeeded."""
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace")
    return done.stdout.strip() if done.returncode == 0 else f"exit code {done.returncode}\n{done.stdout}".strip()


class Objects:
    """Compiles each source once for each set of options; the commands wait for what they share."""

    def __init__(self, folder, pool):
        self.folder, self.pool, self.running = folder, pool, {}

    def of(self, compiler, options, source, language):
        key = compiler, options, source, language
        if key not in self.running:
            target = self.folder / f"{len(self.running)}.o"
            command = [compiler, *options, *(["-x", language] if language else []), "-c", source, "-o", str(target)]
            self.running[key] = target, self.pool.submit(output_of, command, ROOT)
        return self.running[key]


def check_program(path):
    """What is wrong with what a command left behind, or ""."""
    if not os.access(path, os.X_OK):
        return "it leaves no program behind"
    if not (ROOT / "steps" / path.name).is_dir():
        return ""
    answer = subprocess.run([path, "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, errors="replace")
    return "" if answer.returncode == 0 and path.name in answer.stdout else f"--help ends with {answer.returncode}:\n{answer.stdout}"


def linked(command, parts, objects, folder):
    """What is wrong with a command whose sources are compiled, or ""."""
    options, _, libraries, program = parts
    for _, compiling in objects:
        if said := compiling.result():
            return said
    path = folder / program
    return (output_of([command.compiler(), *options, *(str(target) for target, _ in objects), *libraries, "-o", str(path)], ROOT)
            or check_program(path))


def apart(command):
    """What is wrong with a command that runs as it is printed, in a folder with links to the sources, or ""."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for source in SOURCES:
            (folder / source).symlink_to(ROOT / source)
        said = output_of(["bash", "-e", "-c", command.text], folder)
        programs = [path for path in folder.iterdir() if path.is_file() and os.access(path, os.X_OK)]
        return said or ("" if programs else "it leaves no program behind") or next(filter(None, map(check_program, programs)), "")


def add_arguments(parser):
    parser.add_argument("--only", metavar="TEXT", default="", help="only commands of pages or texts that contain TEXT")
    parser.add_argument("--jobs", type=int, metavar="N", default=len(os.sched_getaffinity(0)),
                        help="how many compilers run at once (default: one per processor)")
    parser.add_argument("--apart", action="store_true", help="share no object between commands")


def main(options):
    commands, problems = read_pages(ROOT, {rung.name for rung in ladder()})
    commands = [command for command in commands if options.only in command.page + command.text]
    runnable = [command for command in commands if shutil.which(command.compiler())]
    print(f"{len(runnable)} build commands, {options.jobs} compilers at a time", flush=True)
    start, failed = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(max(1, options.jobs)) as pool:
        if options.apart:
            running = [(command, pool.submit(apart, command)) for command in runnable]
            results = ((command, task.result()) for command, task in running)
        else:
            compiled, prepared = Objects(Path(name), pool), []
            for command in runnable:
                parts = taken_apart(command, ROOT)
                prepared.append((command, parts, [compiled.of(command.compiler(), parts[0], *one) for one in parts[1]]))
            results = ((command, linked(command, parts, objects, Path(name))) for command, parts, objects in prepared)
        for command, problem in results:
            print(f"{'failed' if problem else 'builds':<8}{time.monotonic() - start:4.0f} s  {command.label()}", flush=True)
            if problem:
                failed += 1
                print(f"{problem}\n  the command: {command.text}", flush=True)
    for command in commands:
        if command not in runnable:
            print(f"left out: there is no {command.compiler()} here: {command.label()}")
    for problem in problems:
        print(f"failed: {problem}")
    print(f"{len(runnable) - failed} of {len(runnable)} build commands work, {len(commands) - len(runnable)} left out")
    return 1 if failed or problems else 0
