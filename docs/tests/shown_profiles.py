#!/usr/bin/env python3
"""Compares the profiles that the pages show with what is printed today: shown_profiles.py BUILD_FOLDER [PAGE]

BUILD_FOLDER is that of the SIMT backend. A page shows a profile as a block with the command "./scripts/profile RUNG
OPTIONS" alone, and then a block of text. Each line of the text must be printed, in that order; some may be left out.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHOWN = re.compile(
    r"^```sh\n\./scripts/profile (\d[^#\n]*)\n```\n\n```text\n(.*?)^```$", re.M | re.S
)


def printed(build, rung):
    """What scripts/profile says of a rung, number and options."""
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(
            [sys.executable, "-m", "lab", "profile", "--simt-programs", build, *rung.split()],
            cwd=folder,
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")},
        )
    return result.stdout.replace(f"{ROOT}/", "") if result.returncode == 0 else result.stderr


def main(build, only="*"):
    wrong = count = 0
    for page in sorted((ROOT / "docs").glob(f"{only}.md")):
        for rung, text in SHOWN.findall(page.read_text(encoding="utf-8")):
            count, found = count + 1, printed(build, rung)
            lines = iter(found.splitlines())
            told = [
                line for line in text.splitlines() if not line.startswith("GPU left out")
            ]  # not on every machine
            if missing := next((line for line in told if line not in lines), ""):
                print(
                    f"docs/{page.name}: scripts/profile {rung} no longer prints this line, or prints it elsewhere:\n"
                    f"{missing}\n" + found * (len(found) < 300),
                    file=sys.stderr,
                )
                wrong += 1
    print(f"{count} profiles shown, {wrong} of them wrong")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
