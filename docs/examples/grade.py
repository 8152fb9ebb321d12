"""Grades CUDA programs: docs/teaching.md explains it. Usage: grade.py FILE.cu..."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # of flash-steps

for file in sys.argv[1:]:
    if not Path(file).is_file():
        sys.exit(f"{file}: no such file")
    verdict = Path(file).with_suffix(".json")
    options = ["--strict", "--keep-going", "--json", str(verdict)]
    subprocess.run([ROOT / "scripts/simt", "run", file, *options], capture_output=True)
    run = json.loads(verdict.read_text("utf-8"))
    passed = run["verdict"] == "clean" and run["program_exit_code"] == 0
    points = 100 if passed else 50 if run["kernels"] else 0
    print(f"{file}: {points} points, {run['verdict']}")
    for fault in run["faults"]:
        print(f"    {fault['file']}:{fault['line']}: {fault['message']}")
