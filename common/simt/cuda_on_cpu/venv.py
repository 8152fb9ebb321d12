"""Packages of PyPI in a virtual environment of a build folder."""

import fcntl
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cuda_on_cpu import ROOT

NO_NETWORK = re.compile(
    r"connection broken|resolution|NewConnection|timed out|unreachable|No matching", re.I
)
NO_PYPI = "PyPI does not answer"  # what tests are left out for; scripts/test says so at its end


class LeftOut(Exception):
    """Why this machine cannot have them."""


def prepare(folder: Path, requirements: Path, what: str, install: Callable[[str], None]) -> Path:
    """The environment's Python, made anew if this Python or the requirements have changed.

    `install` has a package of the system installed, or raises LeftOut."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second one waits, and finds what the first has made
        return prepared(folder, requirements, what, install)


def prepared(folder: Path, requirements: Path, what: str, install: Callable[[str], None]) -> Path:
    python, stamp = folder / "bin/python3", folder / "requirements.txt"
    wanted = f"{requirements.read_text(encoding='utf-8')}# for Python {sys.version.split()[0]}\n"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    place = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    print(f"Installing {what} from PyPI into {place}", file=sys.stderr, flush=True)
    make = [sys.executable, "-m", "venv", "--clear", str(folder)]
    if subprocess.run(make, capture_output=True).returncode:
        install("python3-venv")
        subprocess.run(make, check=True)
    pip = [
        str(python),
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--retries",
        "2",
    ]
    done = subprocess.run([*pip, "-r", str(requirements)], capture_output=True, text=True)
    if done.returncode and NO_NETWORK.search(done.stderr):
        raise LeftOut(NO_PYPI)
    if done.returncode:
        raise LeftOut(f"pip cannot install {requirements}\n{done.stderr.strip()}")
    stamp.write_text(wanted, encoding="utf-8")
    return python
