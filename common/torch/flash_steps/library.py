"""Rungs and the operator as shared libraries: built on first use, into build-torch/, and loaded.

A file there is named after a fingerprint of all that went into it, so nothing is built twice, and a changed source is
built anew.
"""

import concurrent.futures
import contextlib
import ctypes
import fcntl
import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from flash_steps.ladder import ROOT

FOLDER = ROOT / "build-torch"
ENTRY = "common/harness/entry/rung_entry.cu"
CXX = ["-std=c++20", "-O3", "-march=native", "-fPIC", "-Wno-unknown-pragmas", "-I."]
# What the kernels of CUDA rungs stand on where there is no GPU. Detectors and reports are for the rungs' own programs.
SIMT = ("common/simt/machine", "common/simt/vocabulary")
TOOLKIT = "/usr/local/cuda/bin/nvcc"  # where PATH often does not point
# What comes with which package, where a compiler says that it is missing.
PACKAGES = {"Eigen": "libeigen3-dev", "boost": "libboost-context-dev"}
OPERATOR = "common/torch/operator"

one_build = threading.Lock()


class BuildError(RuntimeError):
    """A rung cannot be built here; one line that says why."""


def compiler(variable, usual, comes_with):
    """The words of the command that starts a compiler."""
    words = shlex.split(os.environ.get(variable, usual)) or [usual]
    if words == ["nvcc"] and not shutil.which("nvcc") and shutil.which(TOOLKIT):
        words = [TOOLKIT]
    if not shutil.which(words[0]):
        raise BuildError(
            f"there is no {words[0]} in PATH; {comes_with}. {variable}=... names another one"
        )
    return words


def run(command):
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        said = done.stdout.strip().splitlines()
        # The linker names what it misses ahead of the line with "error", which does not.
        reason = next(
            (
                line
                for wanted in ("cannot find -l", "error", "Error")
                for line in said
                if wanted in line
            ),
            said[-1] if said else "it said nothing",
        )
        package = next((package for word, package in PACKAGES.items() if word in reason), None)
        hint = f"; apt-get install {package}" if package else ""
        raise BuildError(f"{command[0]} failed: {reason.strip()}{hint}")


def texts(*folders):
    """Path and text of every source in these folders."""
    for folder in folders:
        for path in sorted((ROOT / folder).glob("*.[hc]*")):
            yield path.name + "\0" + path.read_text(encoding="utf-8")


def this_processor():
    """-march=native means another instruction set on another computer, which may share this folder."""
    with (
        contextlib.suppress(OSError),
        open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file,
    ):
        return next((line for line in file if line.startswith(("flags", "Features"))), "")
    return ""


def fingerprint(command, *folders):
    version = subprocess.run([command[0], "--version"], stdout=subprocess.PIPE, text=True).stdout
    return hashlib.sha256(
        "\0".join([*command, version, this_processor(), *texts(*folders)]).encode()
    ).hexdigest()[:16]


def compile_each(command, sources, into):
    """Object files of these sources, several compilers at once."""
    objects = [f"{into}/{number}.o" for number in range(len(sources))]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(
            pool.map(
                run, ([*command, "-c", source, "-o", to] for source, to in zip(sources, objects))
            )
        )
    return objects


def built(name, command, folders, build):
    """The library's file. `build(temporary name)` makes it, unless it is there; two processes never make it at once."""
    path = FOLDER / f"{name}-{fingerprint(command, *folders)}.so"
    if path.exists():
        return path
    try:
        FOLDER.mkdir(exist_ok=True)
        lock = open(FOLDER / f"{name}.lock", "w")
    except OSError as error:
        raise BuildError(f"cannot build {name} into {FOLDER}: {error.strerror}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
        if not path.exists():  # nobody has built it while we waited
            print(
                f"flash_steps: building {name} with {command[0]}, once", file=sys.stderr, flush=True
            )
            scratch = path.with_suffix(f".{os.getpid()}")
            scratch.mkdir()
            try:
                build(scratch)
                (scratch / "library.so").rename(path)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return path


def simt_machine():
    """The SIMT backend, one library that all rungs share."""
    command = [*compiler("CXX", "g++", "apt-get install g++"), *CXX, "-DFLASH_SIMT_WITHOUT_LIBDW"]

    def build(scratch):
        sources = [
            str(path.relative_to(ROOT))
            for folder in SIMT
            for path in sorted((ROOT / folder).glob("*.cpp"))
        ]
        run(
            [
                command[0],
                "-shared",
                *compile_each(command, sources, scratch),
                "-lboost_context",
                "-pthread",
                "-o",
                f"{scratch}/library.so",
            ]
        )

    return built("simt", command, ("common", "common/cuda", *SIMT), build)


def library(rung, gpu):
    """The rung's library for a GPU of that compute capability, for the CPU if there is none."""
    folder = f"steps/{rung.name}"
    code = [path for path in sorted((ROOT / folder).glob("*.c*")) if path.stem != "main"]
    defines = [
        f'-DRUNG_HEADER="{folder}/{code[0].stem}.hpp"',
        f"-DRUNG=step{rung.number}",
        *(["-DRUNG_FP32"] if "fp32" in rung.types else []),
        *(["-DRUNG_BACKWARD"] if rung.backward else []),
    ]
    sources = [ENTRY, *(str(path.relative_to(ROOT)) for path in code)]
    folders = ["common", "common/cuda", "common/cpu", "common/harness/entry", folder]
    if gpu:
        target = "90a" if rung.capability == "9.0" else "".join(map(str, gpu))
        sources += [
            str(path.relative_to(ROOT)) for path in sorted((ROOT / "common/cuda").glob("*.cu"))
        ]
        command = [
            *compiler("NVCC", "nvcc", "it comes with the CUDA Toolkit"),
            "-std=c++20",
            "-O3",
            "-shared",
            "-I.",
            f"--generate-code=arch=compute_{target},code=sm_{target}",
            "-Xcompiler=-fPIC",
            *defines,
            *sources,
        ]
        name = f"{rung.name}-sm_{target}"
    else:
        command = [*compiler("CXX", "g++", "apt-get install g++"), *CXX, "-shared", *defines]
        if rung.capability:
            machine = simt_machine()
            folders += SIMT
            command += [
                "-DRUNG_ON_SIMT",
                "-x",
                "c++",
                *sources,
                "-x",
                "none",
                str(machine),
                f"-Wl,-rpath,{machine.parent}",
            ]
        else:
            command += ["-fopenmp", "-I/usr/include/eigen3", "-x", "c++", *sources]
        name = rung.name
    return built(
        name, command, folders, lambda scratch: run([*command, "-o", f"{scratch}/library.so"])
    )


def cuda_headers():
    """The folder of cuda_runtime_api.h beside nvcc, "" if PyTorch has no use for it, or there is no nvcc."""
    import torch

    nvcc = shutil.which("nvcc") or shutil.which(TOOLKIT)
    folder = Path(nvcc).resolve().parents[1] / "include" if nvcc and torch.version.cuda else None
    return str(folder) if folder and (folder / "cuda_runtime_api.h").is_file() else ""


def operator_library():
    """The library that tells PyTorch of the operators, made by CMake."""
    import torch

    words = compiler("CXX", "g++", "apt-get install g++")
    cmake = compiler("CMAKE", "cmake", "apt-get install cmake")
    options = [
        f"-DCMAKE_CXX_COMPILER={words[0]}",
        f"-DCMAKE_CXX_FLAGS={' '.join(words[1:])}",
        f"-DTORCH={Path(torch.__file__).parent}",
        f"-DTORCH_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f"-DCUDA_HEADERS={cuda_headers()}",
    ]

    def build(scratch):
        run([*cmake, "-S", OPERATOR, "-B", str(scratch), "-DCMAKE_BUILD_TYPE=Release", *options])
        run([*cmake, "--build", str(scratch)])

    script = (ROOT / OPERATOR / "CMakeLists.txt").read_text(encoding="utf-8")
    return str(built("operator", [*words, *options, torch.__version__, script], (OPERATOR,), build))


@functools.cache
def load(rung, gpu):
    return ctypes.CDLL(str(library(rung, gpu)))


def functions_of(rung, gpu):
    """The rung's functions of C (common/harness/entry/rung_entry.cu)."""
    with one_build:
        return load(rung, gpu)
