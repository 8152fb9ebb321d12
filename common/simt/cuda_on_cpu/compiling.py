"""From CUDA files to a program: rewriting, g++, and a cache of what it has made."""

import codecs
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cuda_on_cpu import DOOR, IS_INSTALLED, ROOT, SIMT, SimtError, library, rewriting, unsupported
from cuda_on_cpu.library import OPTIONS, digest, last_used, run
from cuda_on_cpu.venv import LeftOut, prepare

HEADERS = SIMT / "headers"
INCLUDE = re.compile(
    rb'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|([A-Za-z_]\w*))', re.M
)
# nvcc defines the first; the second is that of the GPU that is emulated. Functions that the host
# may call read it only where they run on the device (rewriting.py).
MACROS = ("__CUDACC__=1", "__CUDA_ARCH__=800", "FLASH_SIMT_ON_DEVICE=::flash::simt::on_device()")
# Folders beside what is rewritten, of empty headers: in the place of CUDA's, and of libraries that
# may be installed.
LEFT_OUT, IF_MISSING = "left_out", "if_missing"
# Libraries of many headers, of which we have one.
WHOLE = {"thrust": '#include "common/simt/headers/thrust.hpp"\n'}
KEPT = 200  # programs and objects in the cache


class DoesNotCompile(SimtError):
    """What g++ says of the program."""


class NotWhole(DoesNotCompile):
    """Its files compile, and something is missing for a program."""


class NotSupported(SimtError):
    """One line with file, line and what to use instead."""

    code = 88


@dataclass
class Program:
    """The files that make a program, and those of its own that they include."""

    mains: list[Path]
    folders: list[Path] = field(default_factory=list)  # of -I
    defined: list[str] = field(default_factory=list)  # of -D
    given: list[str] = field(default_factory=list)  # other options for g++, and for its linker
    linked: list[str] = field(default_factory=list)
    texts: dict[Path, bytes] = field(default_factory=dict)  # {path: as it is}
    rewritten: dict[Path, rewriting.Rewritten] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    # Headers of what is not supported, and where they are included. Empty ones take their place:
    # a program may include what it does not use.
    left_out: dict[str, str] = field(default_factory=dict)
    of_whole: set[str] = field(default_factory=set)  # headers that are parts of WHOLE
    called: Path | None = None  # in messages, unless by its first file
    is_open: bool = False  # it includes what only the preprocessor knows

    def name(self) -> str:
        return short(self.called or self.mains[0])

    def read(self) -> None:
        """Finds the files and rewrites them."""
        self.is_open = any(option.startswith("-include") for option in self.given)
        found = list(self.mains)
        for path in found:
            if path not in self.texts:
                self.texts[path] = path.read_bytes().removeprefix(codecs.BOM_UTF8)
            for include in INCLUDE.finditer(self.texts[path]):
                quoted, bracketed, macro = include.groups()
                self.is_open |= bool(macro)
                places = [path.parent, *self.folders] if quoted else self.folders
                name = (quoted or bracketed or b"").decode(errors="replace")
                for place in places if name else ():
                    candidate = Path(os.path.normpath(place / name))
                    if candidate.is_file():
                        if candidate not in found and not is_ours(candidate):
                            found.append(candidate)
                        break
                else:
                    if name.partition("/")[0] in WHOLE and ".." not in name:
                        self.of_whole.add(name)
                    elif is_unsupported(name) and b"__has_include" not in self.texts[path]:
                        line = self.texts[path].count(b"\n", 0, include.start(0)) + 1
                        self.left_out.setdefault(name, f"{short(path)}:{line}")
        known = rewriting.Known()
        if any(rewriting.WORTH_A_LOOK.search(text) for text in self.texts.values()):
            use_grammar()
            known = rewriting.learn(self.texts.values())
        for path, text in self.texts.items():
            self.rewritten[path] = rewriting.rewrite(text, known, self.refused)

    def is_c_with_cuda(self, path: Path) -> bool:
        """A file in C that asks for CUDA's headers, which are in C++ here."""
        found = [
            b"".join(one).decode(errors="replace") for one in INCLUDE.findall(self.texts[path])
        ]
        return path.suffix == ".c" and any((HEADERS / name).is_file() for name in found)

    def uses_openmp(self) -> bool:
        """Who includes this asks nvcc's host compiler for it, too."""
        return any(re.search(rb"#\s*include\s*<omp\.h>", text) for text in self.texts.values())

    def notes(self) -> Iterator[str]:
        """What to know of the files before they run, a line each."""
        for path, one in self.rewritten.items():
            for number, text in one.notes:
                yield f"{short(path)}:{number}: warning: {text}"

    def changes(self) -> Iterator[str]:
        """Of each file, the lines that were rewritten."""
        for path, text in self.texts.items():
            before, after = text.split(b"\n"), self.rewritten[path].text.split(b"\n")
            for number, (old, new) in enumerate(zip(before, after), 1):
                new = new.partition(rewriting.NEW_LINE)[0]
                if old != new:
                    yield f"{short(path)}:{number}"
                    yield from (f"- {line(old)}", f"+ {line(new)}")


def line(text: bytes) -> str:
    return text.decode(errors="replace").rstrip()


def short(path: str | Path) -> str:
    """As one would type it here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def is_ours(path: Path) -> bool:
    """Headers of this repository run as they are; so do CUDA's, which ours take the place of."""
    return path.is_relative_to(ROOT / "common") or (path.parent / "cuda_runtime.h").is_file()


def is_unsupported(name: str) -> bool:
    """Whether a header belongs to what is not supported."""
    if ".." in name or name.startswith("/") or (HEADERS / name).is_file():
        return False
    return unsupported.what_of(name) is not None


def install(package: str) -> None:
    """A package of the system. Raises LeftOut where nobody in front can install one."""
    # stdout is that of the program which needs it
    if not DOOR or subprocess.run([DOOR, "--install", package], stdout=sys.stderr).returncode:
        raise LeftOut(f"there is no {package}")


def use_grammar() -> None:
    """Makes tree-sitter's CUDA grammar importable."""
    if IS_INSTALLED:  # with what the wheel depends on
        return
    try:
        wanted = Path(__file__).with_name("requirements.txt")
        python = prepare(library.folder() / "venv", wanted, "tree-sitter's CUDA grammar", install)
    except LeftOut as reason:
        raise SimtError(
            f"{reason}, and the first use needs tree-sitter's CUDA grammar from there "
            "(common/simt/cuda_on_cpu/requirements.txt); flash::launch of common/cuda does "
            "without it"
        ) from None
    packages = next((python.parents[1] / "lib").glob("python3*/site-packages"))
    if str(packages) not in sys.path:
        sys.path.insert(0, str(packages))


def include_options(program: Program, mirror: Path) -> list[str | Path]:
    """Rewritten headers first, except where CUDA's are shadowed."""
    folders = [folder for folder in program.folders if not (folder / "cuda_runtime.h").is_file()]
    beside = dict.fromkeys(path.parent for path in program.mains)
    options: list[str | Path] = [f"-I{HEADERS}"]
    options += [f"-I{mirrored(folder, mirror)}" for folder in folders]
    options += [f"-I{folder}" for folder in folders]
    options += [word for folder in beside for word in ("-iquote", folder)]
    # Those of CUDA's samples: where the real ones are missing.
    options += [f"-I{HEADERS / 'samples'}", f"-I{ROOT}", f"-I{mirror / LEFT_OUT}"]
    return [*options, "-idirafter", mirror / IF_MISSING]


def mirrored(path: Path, mirror: Path) -> Path:
    return mirror / str(path).lstrip("/")


def compile_one(program: Program, mirror: Path, path: Path, target: Path) -> str:
    """An object file, unless the cache has it. Returns what g++ says if it is not content."""
    if target.is_file() and not program.is_open:
        os.utime(target)
        return ""
    is_cuda = path.suffix in (".cu", ".cuh") or program.is_c_with_cuda(path)
    options: list[str | Path] = [f"-D{macro}" for macro in program.defined]
    if is_cuda:
        options += [f"-D{macro}" for macro in MACROS]
        options += ["-include", HEADERS / "cuda_runtime.h"]
        options += ["-include", SIMT / "language/launch_syntax.hpp"]
        if any(one.uses_ptx for one in program.rewritten.values()):
            options += ["-include", SIMT / "instructions/inline_ptx.hpp"]
    else:
        options.append("-DFLASH_SIMT_ON_DEVICE=0")
    options += program.given
    # so that an error in a macro of ours is one of the line that uses it
    options.append("-ftrack-macro-expansion=0")
    language = "c" if path.suffix == ".c" and not is_cuda else "c++"
    standard = OPTIONS[1:] if language == "c" else OPTIONS
    if program.uses_openmp():
        options.append("-fopenmp")
    if path.suffix == ".c" and is_cuda:
        standard = [*OPTIONS, "-fpermissive"]
    partial = target.with_suffix(f".{os.getpid()}")
    done = run(
        [*(library.compiler() if language == "c++" else ["gcc"]), *standard, *options]
        + [*include_options(program, mirror), "-x", language, "-c", mirrored(path, mirror)]
        + ["-o", partial]
    )
    if done.returncode:
        return done.stdout
    os.replace(partial, target)
    return ""


def build(program: Program, whole: bool = True) -> Path:
    """The file of the program, compiled and linked. What is not `whole` is but compiled."""
    made_of = library.build()
    program.read()
    texts = [part for path in program.texts for part in (path, program.rewritten[path].text)]
    settings = [*OPTIONS, *MACROS, *program.folders, *program.defined, *program.refused]
    settings += [*program.left_out, *sorted(program.of_whole), *program.given, *program.linked]
    folder = library.own() / digest(made_of, *settings, *texts)
    target = folder / program.mains[0].stem
    if whole and target.is_file() and not program.is_open:
        os.utime(folder)
        return target
    included = [path for path in program.texts if path not in program.mains]
    headers = [part for path in included for part in (path, program.rewritten[path].text)]
    objects = []
    for path in program.mains:
        key = digest(made_of, *settings, *headers, path, program.rewritten[path].text)
        objects.append(library.own() / "objects" / f"{key}.o")
    objects[0].parent.mkdir(parents=True, exist_ok=True)
    mirror = folder / f"rewritten.{os.getpid()}"
    write_rewritten(program, mirror)
    try:
        with ThreadPoolExecutor(library.jobs()) as workers:
            said = list(workers.map(partial(compile_one, program, mirror), program.mains, objects))
    finally:
        shutil.rmtree(mirror)
    for complaint in filter(None, said):
        if reason := unsupported.explain(complaint, program.refused, program.left_out):
            raise NotSupported(reason.removeprefix(f"{os.getcwd()}/"))
    if any(said):
        raise DoesNotCompile(
            "".join(map(unsupported.without_ours, said)) + f"{program.name()} does not compile"
        )
    if whole:
        link(program, objects, target)
    clean()
    return target


def write_rewritten(program: Program, mirror: Path) -> None:
    """The files as g++ gets them, and the empty headers."""
    for path, one in program.rewritten.items():
        place = mirrored(path, mirror)
        place.parent.mkdir(parents=True, exist_ok=True)
        text = f'#line 1 "{path}"\n'.encode() + one.text.replace(rewriting.NEW_LINE, b"\n")
        if program.is_c_with_cuda(path):  # its functions stay those of C
            text = b'extern "C" {\n' + text + b"\n}\n"
        place.write_bytes(text)
    for name in program.left_out:
        place = mirror / (IF_MISSING if unsupported.is_no_part_of_cuda(name) else LEFT_OUT) / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    for name in program.of_whole:
        place = mirror / LEFT_OUT / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(WHOLE[name.partition("/")[0]])


def link(program: Program, objects: list[Path], target: Path) -> None:
    if not re.search(r" T main$", run(["nm", *objects]).stdout, re.M):
        files = ", ".join(map(short, program.mains))
        raise NotWhole(f"none of the files has a main: {files}")
    fast = ["-fuse-ld=gold"] if shutil.which("ld.gold") else []
    libraries: list[str | Path] = ["-Wl,--wrap=main"]
    if any(b"cublas" in text for text in program.texts.values()):
        library.build("flash_simt_cublas")
        libraries.append(library.archive("flash_simt_cublas"))
    if program.uses_openmp():
        libraries.append("-fopenmp")
    libraries += program.linked
    libraries += [library.archive("flash_simt"), "-lboost_context", "-ldw", "-pthread", "-lm"]
    partial = target.with_suffix(f".{os.getpid()}")
    done = run([*library.compiler(), *fast, *objects, *libraries, "-o", partial])
    if done.returncode:
        missing = dict.fromkeys(re.findall(r"undefined reference to [`'](.*)'", done.stdout))
        for name in missing:
            if what := unsupported.what_of(re.split(r"\W", name)[0]):
                raise NotSupported(f"{program.name()}: not supported: {what}")
        named = ", ".join(list(missing)[:3])
        if named:
            raise NotWhole(f"no file here defines {named}: name the file that does, too")
        raise DoesNotCompile(done.stdout)
    os.replace(partial, target)


def clean() -> None:
    """Leaves what was used last."""
    for folder in (library.own(), library.own() / "objects"):
        found = [path for path in folder.iterdir() if path.name != "objects"]
        for path in sorted(found, key=last_used)[:-KEPT]:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
