"""Rungs as shared libraries: built on first use, into build-torch/, and loaded.

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

from flash_steps.ladder import ROOT

FOLDER = ROOT / "build-torch"
ENTRY = "common/harness/entry/rung_entry.cu"
CXX = ["-std=c++20", "-O3", "-march=native", "-fPIC", "-Wno-unknown-pragmas", "-I."]
# What the kernels of CUDA rungs stand on where there is no GPU. Detectors and reports are for the rungs' own programs.
SIMT = ("common/simt/machine", "common/simt/vocabulary")
TOOLKIT = "/usr/local/cuda/bin/nvcc"  # where PATH often does not point
PACKAGES = "libeigen3-dev libboost-context-dev"

one_build = threading.Lock()


class BuildError(RuntimeError):
    """A rung cannot be built here; one line that says why."""


def compiler(variable, usual, comes_with):
    """The words of the command that starts a compiler."""
    words = shlex.split(os.environ.get(variable, usual)) or [usual]
    if words == ["nvcc"] and not shutil.which("nvcc") and shutil.which(TOOLKIT):
        words = [TOOLKIT]
    if not shutil.which(words[0]):
        raise BuildError(f"there is no {words[0]} in PATH; {comes_with}. {variable}=... names another compiler")
    return words


def run(command):
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode:
        said = done.stdout.strip().splitlines()
        reason = next((line for line in said if "error" in line), said[-1] if said else "it said nothing")
        missing = "No such file" in reason or "cannot find -l" in reason
        hint = f"; apt-get install {PACKAGES} may help" if missing else ""
        raise BuildError(f"{command[0]} failed: {reason.strip()}{hint}")


def texts(*folders):
    """Path and text of every source in these folders."""
    for folder in folders:
        for path in sorted((ROOT / folder).glob("*.[hc]*")):
            yield path.name + "\0" + path.read_text(encoding="utf-8")


def this_processor():
    """-march=native means another instruction set on another computer, which may share this folder."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        return next((line for line in file if line.startswith(("flags", "Features"))), "")
    return ""


def fingerprint(command, *folders):
    version = subprocess.run([command[0], "--version"], stdout=subprocess.PIPE, text=True).stdout
    return hashlib.sha256("\0".join([*command, version, this_processor(), *texts(*folders)]).encode()).hexdigest()[:16]


def compile_each(command, sources, into):
    """Object files of these sources, several compilers at once."""
    objects = [f"{into}/{number}.o" for number in range(len(sources))]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(run, ([*command, "-c", source, "-o", to] for source, to in zip(sources, objects))))
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
            print(f"flash_steps: building {name} with {command[0]}, once", file=sys.stderr, flush=True)
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
    command = [*compiler("CXX", "g++", "apt-get install g++"), *CXX]

    def build(scratch):
        sources = [str(path.relative_to(ROOT)) for folder in SIMT for path in sorted((ROOT / folder).glob("*.cpp"))]
        run([command[0], "-shared", *compile_each(command, sources, scratch), "-lboost_context", "-pthread",
             "-o", f"{scratch}/library.so"])
    return built("simt", command, ("common", "common/cuda", *SIMT), build)


def library(rung, gpu):
    """The rung's library for a GPU of that compute capability, for the CPU if there is none."""
    folder = f"steps/{rung.name}"
    code = [path for path in sorted((ROOT / folder).glob("*.c*")) if path.stem != "main"]
    defines = [f'-DRUNG_HEADER="{folder}/{code[0].stem}.hpp"', f"-DRUNG=step{rung.number}",
               *(["-DRUNG_FP32"] if "fp32" in rung.types else []), *(["-DRUNG_BACKWARD"] if rung.backward else [])]
    sources = [ENTRY, *(str(path.relative_to(ROOT)) for path in code)]
    folders = ["common", "common/cuda", "common/cpu", "common/harness/entry", folder]
    if gpu:
        target = "90a" if rung.capability == "9.0" else "".join(map(str, gpu))
        sources += [str(path.relative_to(ROOT)) for path in sorted((ROOT / "common/cuda").glob("*.cu"))]
        command = [*compiler("NVCC", "nvcc", "it comes with the CUDA Toolkit"), "-std=c++20", "-O3", "-shared", "-I.",
                   f"--generate-code=arch=compute_{target},code=sm_{target}", "-Xcompiler=-fPIC", *defines, *sources]
        name = f"{rung.name}-sm_{target}"
    else:
        command = [*compiler("CXX", "g++", "apt-get install g++"), *CXX, "-shared", *defines]
        if rung.capability:
            machine = simt_machine()
            folders += SIMT
            command += ["-DRUNG_ON_SIMT", "-x", "c++", *sources, "-x", "none", str(machine),
                        f"-Wl,-rpath,{machine.parent}"]
        else:
            command += ["-fopenmp", "-I/usr/include/eigen3", "-x", "c++", *sources]
        name = rung.name
    return built(name, command, folders, lambda scratch: run([*command, "-o", f"{scratch}/library.so"]))


@functools.cache
def load(rung, gpu):
    functions = ctypes.CDLL(str(library(rung, gpu)))
    functions.rung_attention.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_int64), ctypes.c_float, ctypes.c_int,
                                         ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_int,
                                         ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    functions.rung_workspace_bytes.restype = ctypes.c_int64
    return functions


def functions_of(rung, gpu):
    """The rung's functions of C (common/harness/entry/rung_entry.cu)."""
    with one_build:
        return load(rung, gpu)
