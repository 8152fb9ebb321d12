"""Grades CUDA programs: docs/teaching.md explains it. Usage: grade.py FILE.cu..."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # of flash-steps

for file in sys.argv[1:]:
    verdict = Path(file).with_suffix(".json")
    verdict.unlink(missing_ok=True)
    command = [ROOT / "scripts/simt", "run", file, "--strict", "--keep-going", "--json", verdict]
    done = subprocess.run(command, capture_output=True, text=True)
    if not verdict.exists():
        print(f"{file}: 0 points: {done.stderr.strip()}")  # it does not compile, for example
        continue
    run = json.loads(verdict.read_text())
    passed = run["verdict"] == "clean" and run["program_exit_code"] == 0
    print(f"{file}: {100 if passed else 50} points, {run['verdict']}")
    for fault in run["faults"]:
        print(f"    {fault['file']}:{fault['line']}: {fault['message']}")
