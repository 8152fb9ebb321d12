"""Kernels as shared libraries, a rung's or those of a folder elsewhere: targets of CMake's project
common/torch, built in build-lab/.
"""

import contextlib
import fcntl
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.cli import JOBS
from lab.ladder import ROOT, LabError, Rung
from lab.records import Row, asked

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
    """A kernel to build."""

    name: str
    rung: Rung  # of the ladder, or of a folder elsewhere
    architecture: str = ""  # as CMake names it; that of this computer's GPU unless given
    werror: bool = False  # whether a warning is an error
    library: bool = True  # False: its object alone, for what nvcc says of it; a third less time

    @property
    def target(self) -> str:
        return self.name.replace("@", "-")


def require(tool: str, comes_with: str = "the CUDA Toolkit") -> None:
    if not shutil.which(tool):
        raise LabError(f"there is no {tool} in PATH; it comes with {comes_with}")


def target(capability: str = "8.0") -> str:
    """What CMake calls the GPU of this computer, or what the rung was written for where there is
    none. Where nvcc does not know the GPU yet: the newest PTX that it can run, which the driver
    compiles when the program starts."""
    if capability == "9.0":
        return "90a-real"  # wgmma exists in this code alone
    here = asked("compute_cap")[0].replace(".", "")
    if not here.isdigit():
        return "90"
    listed = subprocess.run(["nvcc", "--list-gpu-arch"], capture_output=True, text=True).stdout
    older = [
        number for number in map(int, re.findall(r"compute_(\d+)", listed)) if number <= int(here)
    ]
    return f"{here}-real" if not older or max(older) == int(here) else f"{max(older)}-virtual"


def cmake(
    variants: list[Variant], architecture: str, werror: bool, library: bool, jobs: int
) -> tuple[dict[str, tuple[Path, str]], dict[Variant, str]]:
    """Builds variants for one GPU: ({variant's name: (its library, what nvcc said of its kernel)},
    {variant: what went wrong})."""
    kind = architecture + ("-werror" if werror else "") + ("" if library else "-objects")
    where = FOLDER / kind
    where.mkdir(parents=True, exist_ok=True)
    lines = []
    for one in variants:
        rung, kernel = one.rung, one.rung.kernel_file
        types, header = " ".join(rung.types), kernel.with_suffix(".hpp")
        about = (one.target, rung.program, rung.name, types, rung.capability, header, kernel)
        lines.append("|".join(map(str, about)) + "\n")
    (where / "variants.txt").write_text("".join(lines), encoding="utf-8")
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CUDA_ARCHITECTURES": architecture,
        "CMAKE_CUDA_FLAGS": "-Xptxas=-v",
        "FLASH_BACKEND": "cuda",
        "FLASH_ENTRY": "ON" if library else "OFF",
        "FLASH_VARIANTS": where / "variants.txt",
        "FLASH_WERROR": "ON" if werror else "OFF",
    }
    told = [f"-D{name}={value}" for name, value in options.items()]
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    configure = ["cmake", "-S", str(ROOT / "common/torch"), "-B", str(where), *generator, *told]
    done = subprocess.run(configure, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"CMake cannot configure common/torch:\n{done.stderr.strip()}")
    targets = [one.target for one in variants]
    command = ["cmake", "--build", str(where), "--parallel", str(jobs), "--target", *targets]
    command += ["--", "-k"] + (["0"] if generator else [])  # keeps going
    with subprocess.Popen(
        command, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as every:
        assert every.stdout
        for line in every.stdout:
            if line.startswith("["):
                print(line, end="", file=sys.stderr, flush=True)
    built: dict[str, tuple[Path, str]] = {}
    wrong: dict[Variant, str] = {}
    for one in variants:
        if every.returncode:  # which of them is it?
            alone = ["cmake", "--build", str(where), "--target", one.target]
            done = subprocess.run(
                alone, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            if done.returncode:
                wrong[one] = done.stdout.strip()
                continue
        logs = (where / f"CMakeFiles/{one.target}.dir").rglob(f"{one.rung.kernel_file.name}*.log")
        built[one.name] = where / f"{one.target}.so", next(logs).read_text(encoding="utf-8")
    return built, wrong


def try_all(
    variants: list[Variant], jobs: int = JOBS
) -> tuple[dict[str, tuple[Path, str]], dict[Variant, str]]:
    """({variant's name: (library, what nvcc said)}, {variant: what went wrong})."""
    require("nvcc")
    groups: dict[tuple[str, bool, bool], list[Variant]] = {}
    built: dict[str, tuple[Path, str]] = {}
    wrong: dict[Variant, str] = {}
    for one in variants:
        architecture = one.architecture or target(one.rung.capability)
        groups.setdefault((architecture, one.werror, one.library), []).append(one)
    for of_group, group in groups.items():
        more_built, more_wrong = cmake(group, *of_group, jobs)
        built |= more_built
        wrong |= more_wrong
    return built, wrong


def build_all(variants: list[Variant]) -> dict[str, tuple[Path, str]]:
    """{name: (library, what nvcc said)}. Raises LabError where one does not compile."""
    built, wrong = try_all(variants)
    for one, said in wrong.items():
        raise LabError(f"{one.name} does not compile:\n{said}")
    return built


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """A build folder, for one process at a time, as in scripts/lib/build.sh: two would both write
    its build files anew when a list of CMake's has changed."""
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def program(folder: Path, target: str) -> Path | None:
    """The file of a program that a build folder has a target for; None where it cannot be built."""
    if not (folder / "CMakeCache.txt").is_file():
        return None
    with locked(folder):
        done = subprocess.run(["cmake", "--build", folder, "--target", target], capture_output=True)
    places = [path for path in folder.glob(f"*/{target}") if path.is_file()]
    return places[0] if done.returncode == 0 and places else None


def demangled(names: list[str]) -> dict[str, str]:
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


def ptxas_rows(said: str) -> list[Row]:
    """Columns of a row for each kernel that ptxas speaks of."""
    rows = []
    for match in PTXAS.finditer(said):
        row = match.groupdict()
        kernel, rest = row.pop("kernel"), row.pop("rest")
        shared = re.search(r"(\d+) bytes smem", rest)
        row = {name: int(value) for name, value in row.items()}
        rows.append(row | {"kernel": kernel, "static_shared": int(shared[1]) if shared else 0})
    names = demangled([row["kernel"] for row in rows])
    return [row | {"kernel": names[row["kernel"]]} for row in rows]
