#!/usr/bin/env python3
"""scripts/compare-runs on records that differ in one thing each."""

import copy
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROBLEM = {"batch": 4, "heads": 16, "N": 4096, "d": 64, "causal": False}


def row(name, median, spread=0.001, **others):
    return {"program": name, "problem": PROBLEM, "dtype": "fp32", "median_s": median, "spread": spread,
            "code": "a", **others}


RECORD = {"gpu": "G", "processor": "P",
          "rows": [row("06_cuda_naive", 0.1), row("08_flash_attention_2", 0.02, 0.1), row("09_register_tiling", 0.01),
                   row("unfused", 0.05, library=True, code=None)]}


class CompareRuns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def compare(self, after, *options):
        for name, content in (("a.json", RECORD), ("b.json", after)):
            (self.folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
        command = [sys.executable, "-B", ROOT / "scripts/compare-runs", self.folder / "a.json", self.folder / "b.json"]
        return subprocess.run([*command, *options], capture_output=True, text=True)

    def changed(self, place, **values):
        record = copy.deepcopy(RECORD)
        record["rows"][place].update(values)
        return record

    def row_of(self, done, name):
        return [cell.strip() for line in done.stdout.splitlines() if line.startswith(f"| {name}")
                for cell in line.strip("|").split("|")]

    def test_equal_runs(self):
        done = self.compare(RECORD)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.row_of(done, "09"),
                         ["09_register_tiling", "fp32", "10.0", "10.0", "0.0%", "3.0%", "", ""])
        self.assertNotIn("faster", done.stdout)
        self.assertIn("0 of 4 slower beyond the noise", done.stdout)

    def test_a_rung_that_became_slower_or_faster(self):
        slower = self.compare(self.changed(2, median_s=0.011))
        self.assertEqual(slower.returncode, 1)
        self.assertEqual(self.row_of(slower, "09")[2:7], ["10.0", "11.0", "+10.0%", "3.0%", "slower"])
        faster = self.compare(self.changed(2, median_s=0.009))
        self.assertEqual(faster.returncode, 0)
        self.assertEqual(self.row_of(faster, "09")[4:7], ["-10.0%", "3.0%", "faster"])

    def test_a_change_within_the_noise(self):
        self.assertEqual(self.compare(self.changed(2, median_s=0.0102)).returncode, 0)  # 2%
        self.assertEqual(self.compare(self.changed(2, median_s=0.0102), "--noise", "1").returncode, 1)
        self.assertEqual(self.compare(self.changed(1, median_s=0.0218, spread=0)).returncode, 0)  # 9%; A has 10%
        self.assertEqual(self.compare(self.changed(2, median_s=0.0105, spread=0.06)).returncode, 0)

    def test_a_slower_library_is_no_fault_of_ours(self):
        done = self.compare(self.changed(3, median_s=0.1))
        self.assertEqual(done.returncode, 0)
        self.assertIn("PyTorch, unfused", done.stdout)

    def test_what_else_differs_is_said(self):
        done = self.compare({**self.changed(0, code="b"), "gpu": "another"})
        self.assertIn("gpu: G before, another after", done.stdout)
        self.assertEqual(self.row_of(done, "06")[7], "changed")
        self.assertEqual(self.row_of(done, "09")[7], "")

    def test_rungs_of_one_record_alone(self):
        done = self.compare({**RECORD, "rows": RECORD["rows"][1:] + [row("14_new", 1)]})
        self.assertIn("only before: 06_cuda_naive, fp32, at (4, 16, 4096, 64) full", done.stdout)
        self.assertIn("only after: 14_new", done.stdout)

    def test_bad_input(self):
        elsewhere = self.changed(0)
        elsewhere["rows"] = [{**row("06_cuda_naive", 1), "problem": {**PROBLEM, "N": 1024}}]
        for after in ("", "[]", "{}", '{"rows": []}', '{"rows": [{"program": "x"}]}', elsewhere):
            done = self.compare(after)
            self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (2, "", 1), after)
        self.assertEqual(self.compare(RECORD, "--noise", "-1").returncode, 2)
        (self.folder / "a.json").unlink()
        command = [sys.executable, "-B", ROOT / "scripts/compare-runs", self.folder / "a.json", self.folder / "b.json"]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1))
        self.assertEqual(subprocess.run([*command[:3], "--help"], capture_output=True).returncode, 0)


if __name__ == "__main__":
    unittest.main()
