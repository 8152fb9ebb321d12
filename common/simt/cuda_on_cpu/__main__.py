"""Runs CUDA programs, as they are, on the CPU, under the race detector; see --help."""

import argparse
import os
import re
import sys
from argparse import SUPPRESS
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from cuda_on_cpu import (
    NAME,
    SimtError,
    __version__,
    compiling,
    launching,
    nvcc_options,
    profile_report,
    running,
    verdicts,
)
from cuda_on_cpu.compiling import DoesNotCompile, NotSupported, NotWhole
from cuda_on_cpu.verdicts import Verdict

SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")
DESCRIPTION = {
    "run": """\
Compiles a CUDA program with g++, executes its kernels on the CPU, and stops at the first race or
wrong access. The files stay as they are: <<<>>> and extern __shared__ are rewritten on the way.
""",
    "check": """\
Compiles each file by itself, and runs nothing; with --run those that have a main, and with --launch
the kernels of a file that has none.
""",
}
FILES = {"run": "the program's files; the first names it", "check": "each is one by itself"}
NOTES = f"""\
__CUDACC__ is 1, and in kernels __CUDA_ARCH__ is 800; __NVCC__ is not defined.
Not supported: textures, CUB, and what docs/simt_reference.md lists.

Options of nvcc (-arch, -O3, -std=, -lcublas ...) are taken; those that say how to compile mean
nothing here.

exit code: the program's own; 86 a kernel has a fault, 87 a launch makes no progress or the time is
over, 88 the program needs what is not supported, 89 (for 0) no launch was watched, 130 interrupted,
2 it does not compile, a wrong option, or a file that cannot be written. Of several files that are
checked the worst one's, and 88 and 89 only where nothing else is wrong.

examples:
  {NAME} run docs/examples/vector_add.cu
  {NAME} run main.cu kernels.cu -I include -D TILE=16 -- 1024 1024
  {NAME} check --run src/*.cu --sarif simt.sarif
  {NAME} check scale.cu --launch 'scale<<<4, 256>>>(buffer<float>(1000, 1.f), 1000)'
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
    ("--sample", "N", "run N blocks of each launch, where a program is too large; 0 all (0)"),
    ("--keep-going", None, "tell every fault once; do not stop at the first"),
    ("--strict", None, "warnings are faults"),
    ("--timeout", "SECONDS", "without progress of a launch; 0 none (60)"),
    ("--seconds", "SECONDS", "that the program may take; 0 all it likes (0)"),
    ("--memory", "MIB", "that buffers of the device may have (a quarter of this computer's)"),
    ("--json", "FILE", "also write the verdict as JSON; - is the standard output"),
    ("--sarif", "FILE", "also write what was found as SARIF 2.1.0, for code hosts"),
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


def parser(command: str) -> Parser:
    whole = Parser(
        prog=NAME,
        usage=f"{NAME} run FILE.cu [FILE ...] [OPTION ...] [-- ARGUMENT ...]\n"
        f"       {NAME} check FILE.cu [FILE ...] [OPTION ...]",
        description=DESCRIPTION[command],
        epilog=NOTES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = whole.add_argument
    add("files", nargs="*", metavar="FILE", help=FILES[command])
    add("-I", dest="folders", action="append", default=[], metavar="DIR", help="headers lie there")
    add("-D", dest="defined", action="append", default=[], metavar="NAME[=VALUE]", help="a macro")
    for name, told in (("-l", "linked"), ("-L", "linked"), ("-U", "given"), ("-include", "given")):
        add(name, dest=told, action="append", default=[], type=partial(joined, name), help=SUPPRESS)
    for name, value, text in OPTIONS:
        more: dict[str, Any] = {"metavar": value} if value else {"action": "store_true"}
        add(name, help=text, **more)
    text = "leave out what is found there; again for more"
    add("--ignore", action="append", default=[], type=place, metavar="FILE:LINE", help=text)
    if command == "check":
        add("--run", "-run", action="store_true", help="run each file that has a main")
        text = "of a kernel; a statement of the main that the file lacks; again for more"
        add("--launch", action="append", default=[], metavar="STATEMENT", help=text)
    else:
        add("--run", "-run", action="store_true", default=True, help=SUPPRESS)  # as nvcc has it
        whole.set_defaults(launch=[])
    add("--version", action="version", version=f"simt-cuda {__version__}")
    whole.set_defaults(launches="3", command=command)
    return whole


def programs(options: argparse.Namespace) -> list[compiling.Program]:
    """Those that are named: one of all files, or each file by itself."""
    if not options.files:
        raise SimtError(f"which program? A file that ends in .cu; see {NAME} --help")
    for file in options.files:
        if not file.endswith(SOURCES):
            raise SimtError(f"{file} is no program; its arguments come behind --")
        if not Path(file).is_file():
            raise SimtError(f"there is no file '{file}'")
    folders = [Path(os.path.abspath(folder)) for folder in options.folders]
    paths = [Path(os.path.abspath(file)) for file in options.files]
    of_each = [paths] if options.command == "run" else [[path] for path in paths]
    about = folders, options.defined, options.given, options.linked
    found = [compiling.Program(mains, *about) for mains in of_each]
    if options.launch:
        if len(found) > 1:
            raise SimtError("--launch is for the kernels of one file")
        launching.add_main(found[0], options.launch)
    return found


def complain(error: SimtError) -> None:
    """What a compiler says comes first, as it says it."""
    said, _, what = str(error).rpartition("\n")
    print(*filter(None, (said, f"{NAME}: {what}")), sep="\n", file=sys.stderr, flush=True)


def judge(
    options: argparse.Namespace, file: str, program: compiling.Program, arguments: list[str]
) -> tuple[int, Verdict | None]:
    """What becomes of a program: its exit code, and its verdict if it has come to one."""
    is_run = options.run or bool(options.launch)
    try:
        target = compiling.build(program, is_run)
    except (NotSupported, DoesNotCompile) as error:
        if isinstance(error, NotWhole) and options.command == "check" and not options.launch:
            print(f"{file} compiles, and is not run: {error}", file=sys.stderr)
            return 0, verdicts.by_us("compiles", "", 0, [])
        complain(error)
        return error.code, verdicts.not_begun(error, file, options.schedule)
    for note in program.notes():
        print(f"{NAME}: {note}", file=sys.stderr)
    if not is_run:
        print(f"{file} compiles", file=sys.stderr)
        return 0, verdicts.by_us("compiles", "", 0, [])
    code, verdict = running.watched(options, file, target, arguments)
    profile = Path(f"{target.name}.profile.json")
    if options.profile and profile.is_file():
        sys.stdout.flush()
        profile_report.show(profile_report.load(str(profile)), f"{target.name}.profile")
    if options.gpu and code == 0:
        code = running.on_gpu(program, arguments, target)
    return code, verdict


def worst(codes: list[int]) -> int:
    """Of several programs: faults first, and last what says nothing of a program."""
    for code in (130, 143, 86, 87, 2):
        if code in codes:
            return code
    return max((code for code in codes if code not in (88, 89)), default=0) or max(codes)


def judge_all(options: argparse.Namespace, arguments: list[str]) -> int:
    found = programs(options)
    if options.show:
        for program in found:
            program.read()
            print(*program.changes(), sep="\n")
        return 0
    for place in (options.json, options.sarif):
        verdicts.require_writable(place)
    codes, told = [], []
    for file, program in zip(options.files, found):
        if len(found) > 1:
            print(f"{NAME}: {file}", file=sys.stderr, flush=True)
        code, verdict = judge(options, file, program, arguments)
        codes.append(code)
        if verdict:
            told.append(verdict | {"program": file})
        if code in (130, 143):
            break
    if len(found) > 1:
        counts = Counter(one["verdict"].replace("_", " ") for one in told)
        said = ", ".join(f"{verdict} {count}" for verdict, count in counts.most_common())
        print(f"{NAME}: {len(codes)} files: {said}", file=sys.stderr)
    if told:
        verdicts.write(options.json, told if len(found) > 1 else told[0])
        verdicts.write(options.sarif, verdicts.sarif(told))
    return worst(codes)


def main(words: list[str]) -> int:
    if "--" in words:
        at = words.index("--")
        words, arguments = words[:at], words[at + 1 :]
    else:
        arguments = []
    try:
        command, *rest = words or [""]
        if command in ("-h", "--help", "--version"):
            command, rest = "run", words
        if command not in DESCRIPTION:
            if not command:
                raise SimtError(f"what is to be done? {NAME} run FILE.cu; see {NAME} --help")
            if command.endswith(SOURCES):
                raise SimtError(f"say what to do with it: {NAME} run {command}")
            raise SimtError(f"there is no command '{command}'; see {NAME} --help")
        known, unknown = parser(command).parse_known_intermixed_args([*nvcc_options.taken(rest)])
        if unknown:
            raise SimtError(f"neither {NAME} nor nvcc knows {unknown[0]}; see {NAME} --help")
        return judge_all(known, arguments)
    except SimtError as error:
        complain(error)
        return error.code
    except KeyboardInterrupt:
        return 130


def entry() -> NoReturn:
    """The command that pip installs."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    entry()
