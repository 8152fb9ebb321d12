"""Rungs and the operator as shared libraries: built by CMake on first use, into build-torch/."""

import ctypes
import fcntl
import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flash_steps.ladder import ROOT, Rung

FOLDER = ROOT / "build-torch"
RUNGS, OPERATOR = ROOT / "common/torch", ROOT / "common/torch/operator"  # projects of CMake
TOOLKIT = "/usr/local/cuda/bin/nvcc"  # where PATH often does not point
MISSING = re.compile(r"^-- missing packages: (.*)", re.M)  # by common/cmake/Dependencies.cmake
ERROR = re.compile(r"^.*(?:cannot find -l|\b(?:error|fatal|Error) *:).*$", re.M)

one_build = threading.Lock()


class BuildError(RuntimeError):
    """A rung cannot be built here; one line that says why."""


def ran(command: Sequence[str], **more: Any) -> subprocess.CompletedProcess[str]:
    """A command that has ended: `stdout` has what it wrote, stderr among it."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        **more,
    )


def compiler(variable: str, usual: str, comes_with: str) -> list[str]:
    """The words of the command that starts a compiler."""
    words = shlex.split(os.environ.get(variable, usual)) or [usual]
    if words == ["nvcc"] and not shutil.which("nvcc") and shutil.which(TOOLKIT):
        words = [TOOLKIT]
    if not shutil.which(words[0]):
        raise BuildError(
            f"there is no {words[0]} in PATH; {comes_with}. {variable}=... names another one"
        )
    return words


def run(command: list[str], environment: dict[str, str], compiler: str) -> None:
    """Runs CMake."""
    done = ran(command, env=environment)
    if done.returncode == 0:
        return
    said = done.stdout
    if missing := MISSING.search(said):
        raise BuildError(f"a library is not installed: apt-get install {missing[1]}")
    error = ERROR.search(said)
    reason = error[0] if error else (said.strip().splitlines() or ["it said nothing"])[-1]
    raise BuildError(f"{compiler} failed: {reason.strip()}")


def this_processor() -> str:
    """What -march=native depends on: another computer may share this folder."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def built(kind: str, target: str, source: Path, words: list[str], *options: str) -> Path:
    """The file of a target, which is built where it is missing or older than a source.

    `kind` and a fingerprint of compiler, processor and options name the build folder. Two processes
    never build in one folder at the same time.
    """
    cmake = compiler("CMAKE", "cmake", "apt-get install cmake")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    version = ran([words[0], "--version"]).stdout
    told = [str(source), *words, version, this_processor(), *generator, *options]
    fingerprint = hashlib.sha256("\0".join(told).encode()).hexdigest()[:12]
    folder = FOLDER / f"{kind}-{fingerprint}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / "lock", "w")  # noqa: SIM115
    except OSError as error:
        raise BuildError(f"cannot build {target} into {FOLDER}: {error.strerror}") from None
    variable = "CUDACXX" if kind.startswith("sm_") else "CXX"
    environment = {**os.environ, variable: shlex.join(words)}

    made = folder / f"{target}.so"
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
        if not made.exists():
            said = f"flash_steps: building {target} with {words[0]}, once"
            print(said, file=sys.stderr, flush=True)
        if not any((folder / name).exists() for name in ("build.ninja", "Makefile")):
            where = ["-S", str(source), "-B", str(folder)]
            configure = [*cmake, *where, *generator, "-DCMAKE_BUILD_TYPE=Release", *options]
            run(configure, environment, words[0])
        jobs = str(len(os.sched_getaffinity(0)))
        build = [*cmake, "--build", str(folder), "--parallel", jobs, "--target", target]
        run(build, environment, words[0])
    return made


def library(rung: Rung, gpu: tuple[int, ...] | None) -> Path:
    """The rung's library for a GPU of that compute capability, for the CPU if there is none."""
    if gpu:
        words = compiler("NVCC", "nvcc", "it comes with the CUDA Toolkit")
        code = "".join(map(str, gpu))
        options = "-DFLASH_BACKEND=cuda", f"-DCMAKE_CUDA_ARCHITECTURES={code}-real"
        return built(f"sm_{code}", rung.program, RUNGS, words, *options)
    words = compiler("CXX", "g++", "apt-get install g++")
    backend = "simt" if rung.cuda else "cpu"
    return built(backend, rung.program, RUNGS, words, f"-DFLASH_BACKEND={backend}")


def cuda_headers() -> str:
    """The folder of cuda_runtime_api.h; "" without nvcc, or where PyTorch has no use for it."""
    import torch

    nvcc = shutil.which("nvcc") or shutil.which(TOOLKIT)
    folder = Path(nvcc).resolve().parents[1] / "include" if nvcc and torch.version.cuda else None
    return str(folder) if folder and (folder / "cuda_runtime_api.h").is_file() else ""


def operator_library() -> str:
    """The library that tells PyTorch of the operators."""
    import torch

    options = (
        f"-DTORCH={Path(torch.__file__).parent}",
        f"-DTORCH_VERSION={torch.__version__}",
        f"-DTORCH_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f"-DCUDA_HEADERS={cuda_headers()}",
    )
    words = compiler("CXX", "g++", "apt-get install g++")
    return str(built("operator", "operator", OPERATOR, words, *options))


@functools.cache
def load(rung: Rung, gpu: tuple[int, ...] | None) -> ctypes.CDLL:
    return ctypes.CDLL(str(library(rung, gpu)))


def functions_of(rung: Rung, gpu: tuple[int, ...] | None) -> ctypes.CDLL:
    """The rung's functions of C (rung_entry.cu)."""
    with one_build:
        return load(rung, gpu)
