"""Running the rungs' own programs, as a build folder has them."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from lab.ladder import ROOT, LabError
from lab.records import Row


class Refused(LabError):
    """Why a rung does not run this problem. `wrong`: it ran and its result is wrong."""

    def __init__(self, reason: str, wrong: bool = False) -> None:
        super().__init__(reason)
        self.wrong = wrong


def cache(folder: Path) -> dict[str, str]:
    """What a build folder was configured with."""
    path = folder / "CMakeCache.txt"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return dict(re.findall(r"^(\w+):\w+=(.*)$", text, re.M))


def program(folder: Path, name: str) -> Path | None:
    """The program of a rung in a build folder; None when it is not built."""
    for pattern in (f"[0-9][0-9]_{name}", f"[0-9][0-9][a-z]_{name}"):
        for path in (folder / "steps").glob(pattern):
            if os.access(path, os.X_OK):
                return path.resolve()
    return None


def need(folder: Path, name: str) -> Path:
    if found := program(folder, name):
        return found
    raise LabError(
        f"there is no {name} in {folder}; build it: ./scripts/step --preset "
        f"{folder.name.removeprefix('build-')} {name}"
    )


def problem(B: int, H: int, N: int, d: int, causal: bool = False) -> Row:
    """The columns of a row that name its problem."""
    return {"B": B, "H": H, "H_kv": H, "N_q": N, "N_kv": N, "d": d, "causal": causal}


def title(row: Row) -> str:
    sigma, pattern = row.get("sigma", 1), row.get("pattern", "random")
    heads = f"{row['H']}" if row["H_kv"] == row["H"] else f"{row['H']}/{row['H_kv']}"
    lengths = f"{row['N_q']}" if row["N_kv"] == row["N_q"] else f"{row['N_q']} x {row['N_kv']}"
    dims = f"{row['d']}/{row['d_v']}" if "d_v" in row else f"{row['d']}"
    mask = "causal" if row["causal"] else "full"
    mask = f"window {row['window']}" if row.get("window") else mask
    said = f"({row['B']}, {heads}, {lengths}, {dims}) {mask}"
    if sigma != 1:
        said += f" sigma {sigma:g}"
    return said if pattern == "random" else f"{said} {pattern}"


def arguments_of(case: Row, dtype: str = "fp32") -> list[Any]:
    """Of a row's problem."""
    sizes = {"batch": "B", "heads": "H", "q-len": "N_q", "head-dim": "d"}
    found = [part for option, name in sizes.items() for part in (f"--{option}", case[name])]
    return [*found, "--dtype", dtype, *(["--causal"] if case["causal"] else [])]


def run(path: str | Path, *arguments: object) -> tuple[dict[str, Any] | None, int, list[str]]:
    """(the JSON report or None, the exit code, the lines of stderr) of a rung's program."""
    terminal = os.isatty(2)  # there the rung shows its progress itself
    done = subprocess.run(
        [str(path), *map(str, arguments), "--json"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if terminal else subprocess.PIPE,
        text=True,
    )
    report = json.loads(done.stdout) if done.returncode in (0, 1) and done.stdout else None
    return report, done.returncode, (done.stderr or "").strip().splitlines()


def report_of(path: str | Path, *arguments: object) -> dict[str, Any]:
    """The JSON report of a run. Raises Refused."""
    report, code, words = run(path, *arguments)
    if not report:
        raise Refused(
            words[0].removeprefix(f"{Path(path).name}: ") if words else f"exit code {code}",
            wrong=code not in (0, 2),
        )
    if not report["ok"]:
        raise Refused(
            "its result is wrong: " + (report["damage"] or report["check"]["message"]), wrong=True
        )
    return report
