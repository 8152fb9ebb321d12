"""Runs a program that is compiled, with its kernels watched, and on a GPU."""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cuda_on_cpu import NAME, ROOT, SimtError, compiling, verdicts
from cuda_on_cpu.verdicts import Verdict

TIMEOUT = 87  # common/simt/report/ending.hpp has the exit codes
GRACE = 15  # seconds for a program to end by itself, and to say where its threads stand


def environment(options: argparse.Namespace, name: str, verdict: Path) -> dict[str, str]:
    """The library's options; what is not said here stays as the environment has it."""
    said = {
        "SCHEDULE": options.schedule,
        "WORKERS": options.workers,
        "KERNEL": options.kernel,
        "LAUNCHES": options.launches,
        "SAMPLE": options.sample,
        "KEEP_GOING": "1" if options.keep_going else "",
        "IGNORE": ",".join(options.ignore),
        "STRICT": "1" if options.strict else "",
        "TIMEOUT": options.timeout,
        "SECONDS": options.seconds,
        "MEMORY_MIB": options.memory,
        "JSON": str(verdict) if options.json or options.sarif else "",
        "PROFILE": f"{name}.profile.json" if options.profile else "",
    }
    return os.environ | {f"FLASH_SIMT_{key}": value for key, value in said.items() if value}


def watched(
    options: argparse.Namespace, file: str, target: Path, arguments: list[str]
) -> tuple[int, Verdict | None]:
    """Runs a program under the detector: the exit code, and the verdict if there is one and it is
    asked for."""
    with TemporaryDirectory() as folder:
        place = Path(folder) / "verdict.json"
        own = environment(options, target.name, place)
        code, crash = execute([target, *arguments], options.seconds, env=own)
        if crash:
            kind = "timeout" if code == TIMEOUT else "crash"
            return code, verdicts.by_us(kind, kind, code, [(file, "0", crash)], options.schedule)
        return code, json.loads(place.read_text()) if place.is_file() else None


def execute(
    command: Sequence[str | Path], seconds: str | None = None, **more: Any
) -> tuple[int, str]:
    """(the exit code, as a shell has it; what ended it, unless it ended itself). Ctrl-C and the end
    are the program's to answer, and so are `seconds`, if it can."""
    patience = int(seconds) + GRACE if seconds and seconds.isdigit() and int(seconds) else None
    is_late = False
    with subprocess.Popen(command, **more) as child:
        answers = {
            signal.SIGINT: lambda *_: None,  # the terminal tells both
            signal.SIGTERM: lambda *_: child.terminate(),
        }
        before = {number: signal.signal(number, answer) for number, answer in answers.items()}
        try:
            code = child.wait(patience)
        except subprocess.TimeoutExpired:
            is_late = True
            child.kill()
            code = child.wait()
        for number, answer in before.items():
            signal.signal(number, answer)
    message = ""
    if is_late:
        message = f"the program has had its {seconds} s (--seconds), and did not end by itself"
    elif code < 0 and -code not in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        message = f"the program was ended by {signal.Signals(-code).name}"
        if -code == signal.SIGKILL:
            message += ", as the system does where memory runs out"
    if message:
        print(f"{NAME}: {message}", file=sys.stderr)
    return TIMEOUT if is_late else code if code >= 0 else 128 - code, message


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
    return execute([f"{target}.gpu", *arguments])[0]
