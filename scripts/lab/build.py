"""The one place that builds variants of a kernel: a rung's .cu file, as it is or changed, into a shared library.

What is built lies in build-lab/ under a name that is a fingerprint of all that went into it, so nothing is built twice.
"""

import concurrent.futures
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from lab.ladder import ROOT, LabError
from lab.records import asked, first_line

FOLDER = ROOT / "build-lab"
# What ptxas says of a kernel, with the option -v.
PTXAS = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)'.*?(?P<stack>\d+) bytes stack frame, "
    r"(?P<spill_stores>\d+) bytes spill stores, (?P<spill_loads>\d+) bytes spill loads"
    r".*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.S,
)


@dataclass(frozen=True)
class Variant:
    """A kernel to build: a rung of the ladder or of a folder elsewhere, as it is or with another text."""

    name: str
    rung: object  # ladder.Rung
    text: str = ""
    root: Path = ROOT  # of the sources around it

    def source(self):
        return self.text or self.rung.kernel_file.read_text(encoding="utf-8")


def require(tool, comes_with="the CUDA Toolkit"):
    if not shutil.which(tool):
        raise LabError(f"there is no {tool} in PATH; it comes with {comes_with}")


def target(capability="8.0"):
    """nvcc's option for the GPU of this computer, or for what the rung was written for where there is none. Where nvcc
    does not know the GPU yet: the newest PTX that it can run, which the driver compiles when the program starts."""
    if capability == "9.0":
        return "--generate-code=arch=compute_90a,code=sm_90a"  # wgmma exists in this code alone
    here = asked("compute_cap")[0].replace(".", "")
    if not here.isdigit():
        return "-arch=sm_90"
    listed = subprocess.run(["nvcc", "--list-gpu-arch"], capture_output=True, text=True).stdout
    older = [
        number for number in map(int, re.findall(r"compute_(\d+)", listed)) if number <= int(here)
    ]
    return "-arch=native" if not older or max(older) == int(here) else f"-arch=compute_{max(older)}"


def fingerprint(*texts):
    return hashlib.sha256("\0".join(map(str, texts)).encode()).hexdigest()[:16]


def device_sources(root):
    """What is linked with a kernel, wherever the tree of that commit has it."""
    found = [*root.glob("common/*/entry/rung_entry.cu"), *sorted(root.glob("common/cuda/**/*.cu"))]
    return [str(path.relative_to(root)) for path in found]


@functools.cache
def sources(root):
    """Text of everything but the kernel that goes into a library."""
    headers = [*root.glob("common/*.hpp"), *root.glob("common/cuda/**/*.hpp")]
    files = [*sorted(headers), *(root / one for one in device_sources(root))]
    return "".join(path.read_text(encoding="utf-8") for path in files)


def build(variant, folder=FOLDER):
    """(library, what nvcc said), from build-lab/ if it is there. Raises LabError when it does not compile."""
    rung, text, root = variant.rung, variant.source(), variant.root
    header = rung.kernel_file.with_suffix(".hpp")
    options = [
        "-std=c++20",
        "-O3",
        target(rung.capability),
        "-shared",
        "-Xcompiler=-fPIC",
        "-Xptxas=-v",
        "-I.",
        f'-DRUNG_HEADER="{os.path.relpath(header, root)}"',
        f"-DRUNG={rung.name}",
        *([] if rung.tensor else ["-DRUNG_FP32"]),
        *(["-DRUNG_BACKWARD"] if rung.backward else []),
    ]
    key = fingerprint(
        text,
        header.read_text(encoding="utf-8"),
        options,
        first_line("nvidia-smi", "-L"),
        sources(root),
    )
    library, log = folder / f"{variant.name}-{key}.so", folder / f"{variant.name}-{key}.log"
    if not library.is_file() or not log.is_file():
        require("nvcc")
        kernel = folder / f"{variant.name}-{key}" / rung.kernel_file.name
        kernel.parent.mkdir(parents=True, exist_ok=True)
        kernel.write_text(text, encoding="utf-8")
        beside = library.with_suffix(".new.so")
        command = ["nvcc", *options, "-o", str(beside), str(kernel), *device_sources(root)]
        done = subprocess.run(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if done.returncode:
            raise LabError(
                f"{variant.name} does not compile:\n{' '.join(command)}\n{done.stdout.strip()}"
            )
        log.write_text(done.stdout, encoding="utf-8")
        beside.rename(library)
    return library, log.read_text(encoding="utf-8")


def build_all(variants, jobs=None, folder=FOLDER):
    """{name: (library, what nvcc said)}, several compilers at once."""
    built = {}
    with concurrent.futures.ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0))) as pool:
        start = time.monotonic()
        running = {pool.submit(build, one, folder): one for one in variants}
        for number, done in enumerate(concurrent.futures.as_completed(running), 1):
            name = running[done].name
            try:
                built[name] = done.result()
            except LabError:
                pool.shutdown(cancel_futures=True)
                raise
            print(
                f"{number} of {len(variants)} built: {name} ({time.monotonic() - start:.0f} s)",
                file=sys.stderr,
            )
    return {one.name: built[one.name] for one in variants}


def demangled(names):
    """{mangled: as in the source, without namespaces that say nothing}"""
    if not names or not shutil.which("c++filt"):
        return dict(zip(names, names))
    answer = subprocess.run(
        ["c++filt"], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return {
        name: re.sub(r"^void |\(anonymous namespace\)::|_GLOBAL__N__\w+::", "", line).split("(")[0]
        for name, line in zip(names, answer.splitlines())
    }


def ptxas_rows(said):
    """Columns of a row for each kernel that ptxas speaks of."""
    found = [
        {
            **{
                key: int(value)
                for key, value in match.groupdict().items()
                if key not in ("kernel", "rest")
            },
            "kernel": match["kernel"],
            "static_shared": int((re.search(r"(\d+) bytes smem", match["rest"]) or [0, 0])[1]),
        }
        for match in PTXAS.finditer(said)
    ]
    names = demangled([row["kernel"] for row in found])
    return [row | {"kernel": names[row["kernel"]]} for row in found]
