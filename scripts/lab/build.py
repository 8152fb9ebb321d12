"""Variants of a kernel as shared libraries: a rung's .cu file, as it is or changed.

CMake builds them, by the project of common/torch. They lie in build-lab/ under a name that is a
fingerprint of all that went into them.
"""

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

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
    """A kernel to build: a rung of the ladder or of a folder elsewhere, or another text for it."""

    name: str
    rung: Rung
    text: str = ""
    root: Path = ROOT  # of the sources around it
    architecture: str = ""  # as CMake names it; that of this computer's GPU unless given
    werror: bool = False  # whether a warning is an error
    library: bool = True  # False: its object alone, for what nvcc says of it; a third less time

    def source(self) -> str:
        return self.text or self.rung.kernel_file.read_text(encoding="utf-8")


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


def fingerprint(*texts: object) -> str:
    return hashlib.sha256("\0".join(map(str, texts)).encode()).hexdigest()[:16]


@functools.cache
def sources(root: Path) -> str:
    """Text of everything but the kernel that goes into a library."""
    common = root / "common"
    files = [*common.glob("*.hpp"), *(common / "cuda").rglob("*.[hc]*")]
    files += [*common.rglob("rung_entry.cu"), ROOT / "common/torch/CMakeLists.txt"]
    return "".join(path.read_text(encoding="utf-8") for path in sorted(files))


def file_name(variant: Variant, architecture: str) -> str:
    """Of a variant's library, without its ending: also the name of its target."""
    header = variant.rung.kernel_file.with_suffix(".hpp").read_text(encoding="utf-8")
    key = fingerprint(variant.source(), header, architecture, variant.werror, sources(variant.root))
    return f"{variant.name.replace('@', '-')}-{key}"


def cmake(
    variants: list[Variant],
    root: Path,
    architecture: str,
    werror: bool,
    library: bool,
    jobs: int,
    folder: Path,
) -> dict[Variant, str]:
    """Builds variants of one tree for one GPU: {variant: what went wrong}."""
    of_tree = folder if root == ROOT else root / "build-lab"  # a worktree takes its own along
    kind = architecture + ("-werror" if werror else "") + ("" if library else "-objects")
    where = of_tree / f"cmake-{kind}"
    lines, names = [], {}
    for one in variants:
        names[one] = name = file_name(one, architecture)
        kernel = where / "kernels" / name / one.rung.kernel_file.name
        kernel.parent.mkdir(parents=True, exist_ok=True)
        kernel.write_text(one.source(), encoding="utf-8")
        header, types = one.rung.kernel_file.with_suffix(".hpp"), " ".join(one.rung.types)
        # At some commits it had the rung's number.
        namespace = re.search(r"^namespace (\w+) {", header.read_text(encoding="utf-8"), re.M)
        if not namespace:
            raise LabError(f"{header} has no namespace of the rung")
        about = (name, one.rung.program, namespace[1], types, one.rung.capability, header, kernel)
        lines.append("|".join(map(str, about)) + "\n")
    (where / "variants.txt").write_text("".join(lines), encoding="utf-8")
    options = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_CUDA_ARCHITECTURES": architecture,
        "CMAKE_CUDA_FLAGS": "-Xptxas=-v",
        "CMAKE_LIBRARY_OUTPUT_DIRECTORY": folder.resolve(),
        "FLASH_BACKEND": "cuda",
        "FLASH_ENTRY": "ON" if library else "OFF",
        "FLASH_ROOT": root,
        "FLASH_VARIANTS": where / "variants.txt",
        "FLASH_WERROR": "ON" if werror else "OFF",
    }
    told = [f"-D{name}={value}" for name, value in options.items()]
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    told = ["-S", str(ROOT / "common/torch"), "-B", str(where), *generator, *told]
    configured = subprocess.run(["cmake", *told], capture_output=True, text=True)
    if configured.returncode:
        raise LabError(f"CMake cannot configure common/torch:\n{configured.stderr.strip()}")
    command = ["cmake", "--build", str(where), "--parallel", str(jobs), "--target", *names.values()]
    command += ["--", "-k"] + (["0"] if generator else [])  # keeps going
    said = []
    with subprocess.Popen(
        command, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as done:
        assert done.stdout
        for line in done.stdout:
            said.append(line)
            if line.startswith("["):
                print(line, end="", file=sys.stderr, flush=True)
    wrong = {}
    for one, name in names.items():
        logs = sorted((where / f"CMakeFiles/{name}.dir").rglob(f"{one.rung.kernel_file.name}*.log"))
        if logs and (not library or (folder / f"{name}.so").is_file()):
            shutil.copyfile(logs[0], folder / f"{name}.log")
        else:
            wrong[one] = "".join(said).strip()
    return wrong


def try_all(
    variants: list[Variant], jobs: int | None = None, folder: Path | None = None
) -> tuple[dict[str, tuple[Path, str]], dict[Variant, str]]:
    """({variant's name: (library, what nvcc said)}, {variant: what went wrong}). What was built
    once is taken from build-lab/."""
    require("nvcc")
    folder = folder or FOLDER
    groups: dict[tuple[Path, str, bool, bool], list[Variant]] = {}
    names: dict[Variant, str] = {}
    wrong: dict[Variant, str] = {}
    for one in variants:
        architecture = one.architecture or target(one.rung.capability)
        names[one] = name = file_name(one, architecture)
        ends = (".log", ".so") if one.library else (".log",)
        if not all((folder / f"{name}{end}").is_file() for end in ends):
            groups.setdefault((one.root, architecture, one.werror, one.library), []).append(one)
    folder.mkdir(parents=True, exist_ok=True)
    for of_group, group in groups.items():
        jobs = jobs or len(os.sched_getaffinity(0))
        wrong |= cmake(group, *of_group, jobs, folder)
    built = {
        one.name: (folder / f"{name}.so", (folder / f"{name}.log").read_text(encoding="utf-8"))
        for one, name in names.items()
        if one not in wrong
    }
    return built, wrong


def build_all(
    variants: list[Variant], jobs: int | None = None, folder: Path | None = None
) -> dict[str, tuple[Path, str]]:
    """{name: (library, what nvcc said)}. Raises LabError where one does not compile."""
    built, wrong = try_all(variants, jobs, folder)
    for one, said in wrong.items():
        raise LabError(f"{one.name} does not compile:\n{said}")
    return built


def program(folder: Path, target: str) -> Path | None:
    """The file of a program that a build folder has a target for; None where it cannot be built."""
    if not (folder / "CMakeCache.txt").is_file():
        return None
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
