"""Records of measurements on the CPU: what they were measured on, where they lie, and tables made from them."""

import datetime
import json
import os
import platform
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDS = ROOT / "docs/records"


def first_line(*command):
    """The first line that a command prints, or "unknown"."""
    try:
        output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return output.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def processor():
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def instruction_sets():
    """Those of the vector instruction sets that the processor has and Eigen can use."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("flags", 1)[1].splitlines()[0].split()
    except (OSError, IndexError):
        return []
    return [name for name in ("sse2", "avx", "avx2", "fma", "avx512f") if name in flags]


def ladder_names():
    """The rungs' names, in order, as steps/ladder.txt has them."""
    text = (ROOT / "steps/ladder.txt").read_text(encoding="utf-8")
    return re.findall(r"^(\w+) *\|", text, re.M)


def provenance(command, compiler="g++"):
    """Where and how something was measured."""
    return {
        "command": command,
        "date": datetime.date.today().isoformat(),
        "commit": first_line("git", "rev-parse", "--short=12", "HEAD"),
        "processor": processor(),
        "instruction_sets": instruction_sets(),
        "cores": len(os.sched_getaffinity(0)),
        "compiler": first_line(compiler, "--version"),
        "system": f"{platform.system()} {platform.release()}",
    }


def write_json(path, record):
    """Beside, then renamed: a file that is there stays whole whatever happens meanwhile."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    beside.rename(path)


def write_record(name, record):
    """Writes docs/records/NAME.json and returns its path."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    path = RECORDS / f"{name}.json"
    write_json(path, record)
    return path


def read_record(name):
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def markdown_table(header, rows):
    """Lines of a Markdown table; every column is aligned to the right."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---:|" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def aligned(table):
    """The lines of a Markdown table as one text whose columns stand below each other, for a terminal."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    widths = [max(3, *(len(row[column]) for number, row in enumerate(rows) if number != 1))
              for column in range(len(rows[0]))]
    to_the_right = [cell.endswith(":") for cell in rows[1]]
    rows[1] = ["-" * (width - 1) + (":" if right else "-") for width, right in zip(widths, to_the_right)]
    return "\n".join("| " + " | ".join(cell.rjust(width) if right else cell.ljust(width)
                                       for cell, width, right in zip(row, widths, to_the_right)) + " |" for row in rows)
