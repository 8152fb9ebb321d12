"""Kernels as programs that judge them: targets of CMake, which docs/exercises/CMakeLists.txt makes
of a list in the build folder.
"""

import contextlib
import fcntl
import functools
import hashlib
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lab.exercises.catalogue import ROOT, Exercise, Refusal
from lab.ladder import Rung

T = TypeVar("T")
Kernel = tuple[Rung, Path]

preparing = threading.Lock()
prepared: dict[str, set[str]] = {"simt": set(), "cuda": set()}  # targets
up_to_date: set[str] = set()  # targets of preset simt that build_all has built


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
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder / "kernels.txt"


def listed(path: Path, kernels: Iterable[Kernel]) -> None:
    """Adds (rung, kernel) pairs to the list, whose change makes CMake configure anew."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    wanted = {
        f"{judge_of(rung, kernel)}|{rung.program}|{kernel}"
        for rung, kernel in kernels
        if kernel != rung.kernel_file
    }
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


def build_all(kernels: list[Kernel], jobs: int) -> None:
    """Builds kernels, (rung, file) pairs, at once. Those that fail are left to compiled()."""
    of_rungs: dict[Rung, set[str]] = {}
    for rung, kernel in kernels:
        of_rungs.setdefault(rung, set()).add(judge_of(rung, kernel))
    every = sorted(set().union(*of_rungs.values()))
    ninja = (build_folder("simt") / "build.ninja").exists()
    options = ["--parallel", str(jobs)]
    with locked("simt") as path:
        listed(path, kernels)
        if not every or not built("simt", every, options, ["-k", "0"] if ninja else ["-k"]):
            up_to_date.update(every)
            return
        for targets in of_rungs.values():
            if not built("simt", targets, options):
                up_to_date.update(targets)


@once
def compiled(rung: Rung, kernel: Path, preset: str) -> tuple[Path, None] | tuple[None, str]:
    """(the program, None), or (None, what the compiler said)."""
    target = judge_of(rung, kernel)
    program = build_folder(preset) / "docs/exercises" / target
    if target in prepared[preset] or preset == "simt" and target in up_to_date:
        return program, None
    with locked(preset) as path:
        listed(path, [(rung, kernel)])
        complaint = built(preset, [target])
    return (None, complaint) if complaint else (program, None)


def forget_all_but(kernels: Iterable[Kernel]) -> None:
    """Removes what earlier proofs have left: kernels, and their programs."""
    wanted = {str(kernel) for _, kernel in kernels}
    with locked("simt") as path:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = []
        for line in lines:
            target, _, kernel = line.split("|")
            if kernel in wanted or not kernel.startswith(f"{proofs()}/"):
                kept.append(line)
            else:
                (build_folder("simt") / "docs/exercises" / target).unlink(missing_ok=True)
                shutil.rmtree(Path(kernel).parent, ignore_errors=True)
        if kept != lines:
            path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
