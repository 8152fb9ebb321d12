"""Runs a CUDA program, as it is, on the CPU, under the race detector."""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from argparse import SUPPRESS
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from cuda_on_cpu import NAME, ROOT, SimtError, compiling, nvcc_options, profile_report, unsupported

SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")
DESCRIPTION = """\
Compiles a CUDA program with g++, executes its kernels on the CPU, and stops at the first race or
wrong access. The files stay as they are: <<<>>> and extern __shared__ are rewritten on the way.
"""
NOTES = f"""\
__CUDACC__ is 1, and in kernels __CUDA_ARCH__ is 800; __NVCC__ is not defined.
Not supported: textures, Thrust, CUB, cuRAND, kernels that launch kernels, and what
docs/simt_reference.md lists.

Options of nvcc (-arch, -O3, -std=, -lcublas ...) are taken; those that say how to compile mean
nothing here.

exit code: the program's own; 86 a kernel has a fault, 87 a launch makes no progress, 88 the program
needs what is not supported, 89 (for 0) no launch was watched, 130 interrupted, 2 it does not
compile, a wrong option, or a file that cannot be written

examples:
  {NAME} run docs/examples/vector_add.cu
  {NAME} run main.cu kernels.cu -I include -D TILE=16 -- 1024 1024
"""

OPTIONS = (
    ("--show", None, "print the lines that are rewritten, and run nothing"),
    ("--profile", None, "count memory traffic line by line, and write NAME.profile.html here"),
    (
        "--schedule",
        "ORDER",
        "of threads: in-order, reverse, ahead:WARP, shuffle:SEED or starve:THREAD (in-order)",
    ),
    ("--workers", "N", "OS threads that run blocks (one per core)"),
    ("--kernel", "NAME", "watch this kernel alone"),
    ("--launches", "N", "watch the first N launches of each kernel; 0 all (3)"),
    ("--keep-going", None, "tell every fault once; do not stop at the first"),
    ("--strict", None, "warnings are faults"),
    ("--timeout", "SECONDS", "without progress of a launch; 0 none (60)"),
    ("--memory", "MIB", "that buffers of the device may have (a quarter of this computer's)"),
    ("--json", "FILE", "also write the verdict as JSON; - is the standard output"),
    ("--gpu", None, "then compile it with nvcc, and run it on the GPU"),
)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SimtError(f"{message}; see {NAME} --help")


def place(text: str) -> str:
    if not re.fullmatch(r".+:\d+", text):
        raise argparse.ArgumentTypeError(f"FILE:LINE is wanted, not {text}")
    return text


def joined(name: str, value: str) -> str:
    """An option for g++, in one word."""
    return name + (os.path.abspath(value) if name == "-L" else value)


def parser() -> Parser:
    whole = Parser(
        prog=NAME,
        usage=f"{NAME} run FILE.cu [FILE ...] [OPTION ...] [-- ARGUMENT ...]",
        description=DESCRIPTION,
        epilog=NOTES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = whole.add_argument
    add("files", nargs="*", metavar="FILE", help="the program's files; the first names it")
    add("-I", dest="folders", action="append", default=[], metavar="DIR", help="headers lie there")
    add("-D", dest="defined", action="append", default=[], metavar="NAME[=VALUE]", help="a macro")
    for name, told in (("-l", "linked"), ("-L", "linked"), ("-U", "given"), ("-include", "given")):
        add(name, dest=told, action="append", default=[], type=partial(joined, name), help=SUPPRESS)
    for name, value, text in OPTIONS:
        more: dict[str, Any] = {"metavar": value} if value else {"action": "store_true"}
        add(name, help=text, **more)
    text = "leave out what is found there; again for more"
    add("--ignore", action="append", default=[], type=place, metavar="FILE:LINE", help=text)
    whole.set_defaults(launches="3")
    return whole


def environment(options: argparse.Namespace, name: str) -> dict[str, str]:
    """The library's options; what is not said here stays as the environment has it."""
    said = {
        "SCHEDULE": options.schedule,
        "WORKERS": options.workers,
        "KERNEL": options.kernel,
        "LAUNCHES": options.launches,
        "KEEP_GOING": "1" if options.keep_going else "",
        "IGNORE": ",".join(options.ignore),
        "STRICT": "1" if options.strict else "",
        "TIMEOUT": options.timeout,
        "MEMORY_MIB": options.memory,
        "JSON": options.json,
        "PROFILE": f"{name}.profile.json" if options.profile else "",
    }
    return os.environ | {f"FLASH_SIMT_{key}": value for key, value in said.items() if value}


def write_verdict(
    options: argparse.Namespace, kind: str, code: int, said: Iterable[tuple[str, str, str]]
) -> None:
    """The verdict on a program that could not tell its own; common/simt/report/ending.cpp has the
    others. `said` is a list of (file, line, message)."""
    nowhere = {"kernel": "", "block": [0, 0, 0], "thread": [0, 0, 0], "action": "", "hint": ""}
    nothing = {"launches": 0, "launches_watched": 0, "kernels": [], "warnings": []}
    faults = []
    for name, line, message in said:
        fault: dict[str, Any] = {
            "kind": kind,
            "message": message,
            "text": f"{name}:{line}: {message}",
            **nowhere,
        }
        fault |= {"file": compiling.short(name), "line": int(line), "calls": [], "other": None}
        faults.append(fault)
    is_refused = kind == "not_supported"
    verdict = {
        "version": 1,
        "verdict": "unsupported" if is_refused else kind,
        "exit_code": code,
        "program_exit_code": code,
        "schedule": options.schedule or "in-order",
        **nothing,
        "faults": faults,
        "unsupported": [fault["text"] for fault in faults] if is_refused else [],
    }
    text = json.dumps(verdict, indent=2) + "\n"
    try:
        sys.stdout.write(text) if options.json == "-" else Path(options.json).write_text(text)
    except OSError:
        raise SimtError(f"cannot write {options.json}") from None


def tell_why_not(error: SimtError, options: argparse.Namespace) -> None:
    """The verdict on a program that has not begun."""
    if isinstance(error, compiling.NotSupported):
        place, message = str(error).split(": not supported: ")
        file, _, line = place.rpartition(":") if place[-1].isdigit() else (place, "", "0")
        write_verdict(options, "not_supported", error.code, [(file, line, message)])
        return
    said = [
        (one["file"], one["line"], one["said"]) for one in unsupported.ERROR.finditer(str(error))
    ]
    write_verdict(
        options, "does_not_compile", error.code, said or [(options.files[0], "0", str(error))]
    )


def execute(
    command: Sequence[str | Path],
    at_crash: Callable[[int, str], object] = lambda code, message: None,
    **more: Any,
) -> int:
    """The exit code, as a shell has it. Ctrl-C and the end are the program's to answer."""
    with subprocess.Popen(command, **more) as child:
        answers = {
            signal.SIGINT: lambda *_: None,  # the terminal tells both
            signal.SIGTERM: lambda *_: child.terminate(),
        }
        before = {number: signal.signal(number, answer) for number, answer in answers.items()}
        code = child.wait()
        for number, answer in before.items():
            signal.signal(number, answer)
    if code < 0 and -code not in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        message = f"the program was ended by {signal.Signals(-code).name}"
        print(f"{NAME}: {message}", file=sys.stderr)
        at_crash(128 - code, message)
    return code if code >= 0 else 128 - code


def name_of_gpu() -> str:
    """That of the first one; "" where there is none."""
    if not shutil.which("nvidia-smi"):
        return ""
    said = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    first = re.search(r"^GPU \d+: (.*) \(UUID", said, re.M)
    return first[1] if first else ""


def on_gpu(program: compiling.Program, arguments: list[str], target: Path) -> int:
    """The same files by nvcc, with the functions of common/cuda if they are asked for."""
    wanted = os.environ.get("CUDACXX")
    places = [wanted] if wanted else ["nvcc", "/usr/local/cuda/bin/nvcc"]
    nvcc = next(filter(None, map(shutil.which, places)), "")
    gpu = name_of_gpu()
    if not nvcc or not gpu:
        raise SimtError(f"--gpu: there is no {'GPU' if nvcc else 'nvcc'} here")
    print(f"on {gpu}:", flush=True)
    uses_ours = any(b"common/cuda/" in text for text in program.texts.values())
    ours = sorted((ROOT / "common/cuda").glob("*/*.cu")) if uses_ours else []
    given = [f"-I{folder}" for folder in program.folders] + [f"-D{one}" for one in program.defined]
    given += [*program.given, *program.linked]
    command = [nvcc, "-std=c++20", "-O3", "-arch=native", *given, f"-I{ROOT}", *program.mains]
    command += ours
    if subprocess.run([*map(str, command), "-o", f"{target}.gpu"]).returncode:
        raise SimtError("nvcc does not compile it")
    return execute([f"{target}.gpu", *arguments])


def run(options: argparse.Namespace, arguments: list[str]) -> int:
    if not options.files:
        raise SimtError(f"which program? A file that ends in .cu; see {NAME} --help")
    for file in options.files:
        if not file.endswith(SOURCES):
            raise SimtError(f"{file} is no program; its arguments come behind --")
        if not Path(file).is_file():
            raise SimtError(f"there is no file '{file}'")
    program = compiling.Program(
        [Path(os.path.abspath(file)) for file in options.files],
        [Path(os.path.abspath(folder)) for folder in options.folders],
        options.defined,
        options.given,
        options.linked,
    )
    if options.show:
        program.read()
        print(*program.changes(), sep="\n")
        return 0
    try:
        target = compiling.build(program)
        for note in program.notes():
            print(f"{NAME}: {note}", file=sys.stderr)
    except (compiling.NotSupported, compiling.DoesNotCompile) as error:
        if options.json:
            tell_why_not(error, options)
        raise

    def at_crash(code: int, message: str) -> None:
        if options.json:
            write_verdict(options, "crash", code, [(options.files[0], "0", message)])

    code = execute([target, *arguments], at_crash, env=environment(options, target.name))
    if options.profile and Path(f"{target.name}.profile.json").is_file():
        sys.stdout.flush()
        profile_report.show(
            profile_report.load(f"{target.name}.profile.json"), f"{target.name}.profile"
        )
    if options.gpu and code == 0:
        code = on_gpu(program, arguments, target)
    return code


def main(words: list[str]) -> int:
    if "--" in words:
        at = words.index("--")
        words, arguments = words[:at], words[at + 1 :]
    else:
        arguments = []
    try:
        if words[:1] and words[0] not in ("run", "-h", "--help"):
            if words[0].endswith(SOURCES):
                raise SimtError(f"say what to do with it: {NAME} run {words[0]}")
            raise SimtError(f"there is no command '{words[0]}'; see {NAME} --help")
        if not words:
            raise SimtError(f"what is to be done? {NAME} run FILE.cu; see {NAME} --help")
        of_run = words[1:] if words[0] == "run" else words  # else -h or --help
        options, unknown = parser().parse_known_intermixed_args([*nvcc_options.taken(of_run)])
        if unknown:
            raise SimtError(f"neither {NAME} nor nvcc knows {unknown[0]}; see {NAME} --help")
        return run(options, arguments)
    except SimtError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 130


def entry() -> NoReturn:
    """The command that pip installs."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    entry()
