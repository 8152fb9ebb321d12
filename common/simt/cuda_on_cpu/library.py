"""The emulator's own library: built once for a compiler, and again when its sources change.

A checkout has it in build-simt, among the rungs'. What pip has installed keeps it in the user's
cache, in a folder for each version, compiler and set of flags.
"""

import fcntl
import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cuda_on_cpu import DOOR, IS_INSTALLED, NAME, ROOT, SIMT, SimtError, __version__

NEEDED = "g++ cmake make libboost-context-dev libdw-dev nlohmann-json3-dev"
BY_APT = f"Debian and Ubuntu have all that it takes: apt-get install {NEEDED}"
MISSING = re.compile(r"^-- missing packages: (.*)", re.M)  # by Alone.cmake
TOO_OLD = re.compile(r"CMake \S+ or higher is required\.\s+You are running version \S+")
FIRST_USE = "building the SIMT backend, once for this compiler, which takes a minute or two"
KEPT = 3  # folders of libraries in the user's cache
# What a program is compiled with, the library apart.
OPTIONS = ["-std=gnu++20", "-O1", "-g1", "-fsanitize=thread", "-U_FORTIFY_SOURCE", "-w"]
OPTIONS += ["--param", "tsan-distinguish-volatile=1"]


def digest(*parts: object) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part if isinstance(part, bytes) else str(part).encode())
        whole.update(b"\0")
    return whole.hexdigest()[:16]


def environment() -> dict[str, str]:
    """Ours, in English; CMake may come from PyPI, and is then beside this Python."""
    path = os.environ.get("PATH", os.defpath)
    return os.environ | {"LC_ALL": "C", "PATH": f"{path}{os.pathsep}{Path(sys.executable).parent}"}


def find(program: str) -> str | None:
    return shutil.which(program, path=environment()["PATH"])


def run(command: Iterable[object]) -> subprocess.CompletedProcess[str]:
    """What it said is in `stdout`, stderr among it."""
    return subprocess.run(
        [*map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment(),
    )


def compiler() -> list[str]:
    """The words that start g++: those of CXX, if it is set."""
    words = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    if not find(words[0]):
        raise SimtError(f"there is no {words[0]}; CXX=... names another one. {BY_APT}")
    return words


def stamp() -> str:
    """Of the compiler, its flags and the library's sources, by what is in them."""
    programs = [Path(found).resolve() for found in map(find, compiler()) if found]
    files = sorted((*(ROOT / "common").glob("*.hpp"), *(ROOT / "common/cuda").rglob("*.hpp")))
    here = Path(__file__).parent
    files += [path for path in sorted(SIMT.rglob("*")) if here not in path.parents]
    paths = [path for path in [*programs, *files] if path.is_file()]
    flags = [os.environ.get(name, "") for name in ("CXX", "CXXFLAGS", "LDFLAGS")]
    return digest(*flags, *(part for path in paths for part in (path, path.read_bytes())))


@functools.cache
def folder() -> Path:
    """Where the library is, and the programs that were made with it."""
    if not IS_INSTALLED:
        return ROOT / "build-simt"
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(caches) / "simt-cuda" / f"{__version__}-{stamp()}"


def own() -> Path:
    """Of a reader's programs."""
    return folder() / "own"


def jobs() -> int:
    """How many compilers may run at once: one a processor, and a gigabyte of memory for each."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        memory = int(text.split("MemAvailable:")[1].split()[0]) // 1_000_000
    except (OSError, IndexError, ValueError):
        memory = 1
    return max(1, min(len(os.sched_getaffinity(0)), memory))


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """One process at a time; another one waits."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = open(place / "simt.lock", "w")  # noqa: SIM115
    except OSError as error:
        hint = "; XDG_CACHE_HOME=... names another cache" if IS_INSTALLED else ""
        raise SimtError(f"cannot write into {place} ({error.strerror}){hint}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{NAME}: another process builds; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_slowly(command: Iterable[object], what: str, log: Path) -> bool:
    """Whether it went well. Says what is done, a dot every two seconds, and how long it took: one
    line on stderr, be that a terminal or not."""
    start = time.monotonic()
    print(f"{NAME}: {what} ", end="", file=sys.stderr, flush=True)
    words = [*map(str, command)]
    with open(log, "wb") as said:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment()
        )
        with child:
            while child.poll() is None:
                try:
                    child.wait(2)
                except subprocess.TimeoutExpired:
                    print(".", end="", file=sys.stderr, flush=True)
    how = "failed" if child.returncode else "done"
    print(f" {how} ({time.monotonic() - start:.0f} s)", file=sys.stderr, flush=True)
    return child.returncode == 0


def require_tools() -> None:
    """Raises SimtError, in one line, where g++ is none or too old, or CMake cannot work."""
    if not find("cmake"):
        raise SimtError(f"there is no CMake, which pip can install, too. {BY_APT}")
    if not find("ninja") and not find("make"):
        raise SimtError(f"there is neither make nor Ninja, which pip can install. {BY_APT}")
    done = run([*compiler(), *OPTIONS, "-fsyntax-only", "-x", "c++", "/dev/null"])
    if done.returncode:
        raise SimtError(f"{shlex.join(compiler())} is no g++ from 11 on; CXX=... names another one")


def configure() -> None:
    """CMake's first stage."""
    if DOOR:
        if code := subprocess.run([DOOR, "--configure"]).returncode:
            sys.exit(code)
        return
    require_tools()
    is_new = not any((folder() / name).exists() for name in ("build.ninja", "Makefile"))
    generator = ["-G", "Ninja"] if is_new and find("ninja") else []
    # One folder in a home or a cache may serve computers with other instructions.
    anywhere = ["-DFLASH_NATIVE=OFF"] if IS_INSTALLED else []
    done = run(["cmake", "-S", SIMT, "-B", folder(), *generator, *anywhere])
    if done.returncode == 0:
        return
    if is_new:
        (folder() / "CMakeCache.txt").unlink(missing_ok=True)
    if missing := MISSING.search(done.stdout):
        raise SimtError(f"libraries are missing. Debian and Ubuntu: apt-get install {missing[1]}")
    if old := TOO_OLD.search(" ".join(done.stdout.split())):
        raise SimtError(f"{old[0]}. PyPI has a newer one: {sys.executable} -m pip install cmake")
    raise SimtError(f"{done.stdout}CMake cannot configure the SIMT backend")


def build(target: str = "flash_simt") -> str:
    """Builds one of the libraries, where it is missing or of other sources. Returns the stamp of
    what it is made of."""
    now, file = stamp(), archive(target)
    built = file.with_suffix(".stamp")
    with locked(folder()):
        if not (file.is_file() and built.is_file() and built.read_text() == now):
            configure()
            log = folder() / "simt.log"
            command = ["cmake", "--build", folder(), "--parallel", jobs(), "--target", target]
            if not run_slowly(command, FIRST_USE, log):
                said = log.read_text(encoding="utf-8", errors="replace")
                if target == "flash_simt_cublas" and "flash_simt_cublas" in said[-300:]:
                    raise SimtError("cuBLAS is computed by Eigen: apt-get install libeigen3-dev")
                raise SimtError(f"{said}the SIMT backend does not build")
            built.write_text(now)
    if IS_INSTALLED:
        os.utime(folder())
        forget_others()
    return now


def archive(target: str) -> Path:
    return folder() / f"common/simt/lib{target}.a"


def forget_others() -> None:
    """Libraries of versions and compilers that were in use long ago."""
    found = [path for path in folder().parent.iterdir() if path.is_dir()]
    for path in sorted(found, key=last_used)[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def last_used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process has renamed or removed it
        return 0
