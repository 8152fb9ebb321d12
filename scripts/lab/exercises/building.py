"""Kernels as programs that judge them: targets of CMake, which docs/exercises/CMakeLists.txt makes
of a list in the build folder.
"""

import contextlib
import functools
import hashlib
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lab import build
from lab.exercises.catalogue import ROOT, Exercise, Refusal
from lab.ladder import Rung

T = TypeVar("T")
Kernel = tuple[Rung, Path]
Command = tuple[str, ...]  # the first words of one that judges a kernel; those that say how follow

preparing = threading.Lock()
prepared: dict[str, set[str]] = {"simt": set(), "cuda": set()}  # targets
in_proofs: dict[Kernel, Command] = {}  # what build_all has built


def once(function: Callable[..., T]) -> Callable[..., T]:
    """As functools.cache, and two threads that ask for the same wait for one of them to find it."""
    results: dict[tuple[Any, ...], T] = {}
    locks: dict[tuple[Any, ...], threading.Lock] = {}
    guard = threading.Lock()

    @functools.wraps(function)
    def wrapped(*key: Any) -> T:
        with guard:
            lock = locks.setdefault(key, threading.Lock())
        with lock:
            if key not in results:
                results[key] = function(*key)
            return results[key]

    return wrapped


def build_folder(preset: str) -> Path:
    return ROOT / f"build-{preset}"


def proofs() -> Path:
    """Where kernels that --prove tries lie. The é is as in a learner's folder: each proof shows
    that CMake and the compilers take it."""
    return build_folder("simt") / "exercises/proof-é"


def prepare(preset: str, *rungs: Rung) -> None:
    """Has everything built that kernels of these rungs are linked with, minutes of work, once."""
    with preparing:
        targets = {f"exercise_{rung.program}" for rung in rungs} - prepared[preset]
        if not targets:
            return
        command = [str(ROOT / "scripts/exercise"), "--build", preset, *targets]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip()
            raise Refusal(f"{said}\nwhat judges {', '.join(targets)} does not build")
        prepared[preset] |= targets


def file_of(exercise: Exercise, text: str) -> Path:
    """A file with this text. Equal kernels are one file, so that they are built and judged once;
    the rung's is its own."""
    if text == exercise.kernel:
        return exercise.rung.kernel_file
    folder = proofs() / hashlib.sha256(text.encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / exercise.file
    if not path.exists():
        # Another thread must not see half of it.
        beside = path.with_name(f"{path.name}.{threading.get_ident()}")
        beside.write_text(text, encoding="utf-8")
        beside.rename(path)
    return path


def judge_of(rung: Rung, kernel: Path) -> str:
    """The target that judges a kernel. The judge of a rung holds the rung's own file; a copy of it
    has another, since messages name the file that was compiled."""
    name = f"exercise_{rung.program}"
    own = kernel == rung.kernel_file
    return name if own else f"{name}_{hashlib.sha256(str(kernel).encode()).hexdigest()[:12]}"


@contextlib.contextmanager
def locked(preset: str) -> Iterator[Path]:
    """The list of kernels, to be changed or built by one thread or process at a time."""
    folder = build_folder(preset) / "exercises"
    folder.mkdir(exist_ok=True)
    with build.locked(build_folder(preset)):
        yield folder / "kernels.txt"


def listed(path: Path, kernels: Iterable[Kernel]) -> None:
    """Adds (rung, kernel) pairs to the list, whose change makes CMake configure anew."""
    add(
        path,
        {
            f"{judge_of(rung, kernel)}|{rung.program}|{kernel}"
            for rung, kernel in kernels
            if kernel != rung.kernel_file
        },
    )


def add(path: Path, wanted: set[str]) -> None:
    """Adds lines to the list."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if new := sorted(wanted - set(lines)):
        path.write_text("\n".join([*lines, *new, ""]), encoding="utf-8")
        if not (path.parents[1] / "build.ninja").exists():  # make reads its targets but once
            subprocess.run(["cmake", str(path.parents[1])], capture_output=True)


# Of the build's own.
NOISE = re.compile(r"^(\[.*\n|FAILED: .*\n.*\n|ninja: .*\n|\S*make.*\n)", re.M)


def built(
    preset: str,
    targets: Iterable[str],
    options: Sequence[str] = (),
    to_the_tool: Sequence[str] = (),
) -> str | None:
    """What the compilers say, where the build fails."""
    command = ["cmake", "--build", str(build_folder(preset)), *options, "--target", *targets]
    command += ["--", *to_the_tool]
    done = subprocess.run(command, capture_output=True, text=True)
    said = NOISE.sub("", done.stdout + done.stderr)
    return said or "it does not build" if done.returncode else None


def in_one_file(rung: Rung, kernels: list[Path]) -> tuple[str, str]:
    """Kernels of a rung, one after the other, as one source for the compiler, and its main.cpp for
    each of them, as another one. Each kernel is in a namespace of its own, and #line says where it
    is from. The program's first word says whose main is meant: its number."""
    header = rung.kernel_file.with_suffix(".hpp")
    include = f'#include "{header.relative_to(ROOT)}"\n'
    sources: list[str] = []
    mains: list[str] = []
    cases: list[str] = []
    for number, kernel in enumerate(kernels):

        def own(path: Path, number: int = number) -> str:
            text = path.read_text(encoding="utf-8").replace("#pragma once\n", "\n")
            text = text.replace(include, "\n").replace("int main(", f"int main_{number}(")
            text = text.replace(f"namespace {rung.name} ", f"namespace {rung.name}_{number} ")
            text = text.replace(f"{rung.name}::", f"{rung.name}_{number}::")
            return f'#line 1 "{path}"\n{text}'

        sources += [own(header), own(kernel)]
        mains += [own(header), own(rung.folder / "main.cpp")]
        cases.append(f'    if (name == "{number}") return main_{number}(argc - 1, argv + 1);\n')
    mains += [
        "#include <string>\nint main(int argc, char** argv) {\n",
        '    const std::string name = argc > 1 ? argv[1] : "";\n',
        *cases,
        "    return 2;\n}\n",
    ]
    return "".join(sources), "".join(mains)


def build_all(kernels: list[Kernel], not_to_compile: list[Kernel], jobs: int) -> None:
    """Builds kernels, (rung, file) pairs, at once: those of a rung in one program, since most of
    what a compiler does for one it does for all. Where that fails they are left to compiled(), as
    are those that are not to compile: one of them would cost its rung's others the program."""
    of_rungs: dict[Rung, list[Path]] = {}
    programs: dict[Rung, str] = {}
    for rung, kernel in kernels:
        if kernel != rung.kernel_file and kernel not in of_rungs.setdefault(rung, []):
            of_rungs[rung].append(kernel)
    with locked("simt") as path:
        listed(path, not_to_compile)  # now, so that CMake configures but once
        for rung, own in of_rungs.items():
            folder = proofs() / rung.program
            folder.mkdir(parents=True, exist_ok=True)
            files = folder / rung.kernel_file.name, folder / "main.cpp"
            for file, text in zip(files, in_one_file(rung, own), strict=True):
                if not file.exists() or file.read_text(encoding="utf-8") != text:
                    file.write_text(text, encoding="utf-8")
            programs[rung] = f"exercise_{rung.program}_proof"
            add(path, {"|".join([programs[rung], rung.program, *map(str, files)])})
        ninja = (build_folder("simt") / "build.ninja").exists()
        every, options = programs.values(), ["--parallel", str(jobs)]
        failed = every and built("simt", every, options, ["-k", "0"] if ninja else ["-k"])
        for rung, program in programs.items():
            if not failed or not built("simt", [program]):
                word = str(build_folder("simt") / "docs/exercises" / program)
                for number, kernel in enumerate(of_rungs[rung]):
                    in_proofs[rung, kernel] = word, str(number)


@once
def compiled(rung: Rung, kernel: Path, preset: str) -> tuple[Command, None] | tuple[None, str]:
    """(the words of the command that judges it, None), or (None, what the compiler said)."""
    if preset == "simt" and (rung, kernel) in in_proofs:
        return in_proofs[rung, kernel], None
    target = judge_of(rung, kernel)
    command = (str(build_folder(preset) / "docs/exercises" / target),)
    if target in prepared[preset]:
        return command, None
    with locked(preset) as path:
        listed(path, [(rung, kernel)])
        complaint = built(preset, [target])
    return (None, complaint) if complaint else (command, None)


def forget_all_but(kernels: Iterable[Kernel]) -> None:
    """Removes what earlier proofs have left: kernels, and their programs."""
    wanted = {kernel.parent for _, kernel in kernels}
    wanted |= {proofs() / rung.program for rung, _ in kernels}
    for folder in proofs().glob("*"):
        if folder not in wanted:
            shutil.rmtree(folder, ignore_errors=True)
    with locked("simt") as path:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = []
        for line in lines:
            target, _, kernel, *mains = line.split("|")
            # Kernels by themselves are of the days before, or do not compile with the others.
            if Path(kernel).exists() and (mains or not kernel.startswith(f"{proofs()}/")):
                kept.append(line)
            else:
                (build_folder("simt") / "docs/exercises" / target).unlink(missing_ok=True)
        if kept != lines:
            path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
