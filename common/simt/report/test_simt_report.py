#!/usr/bin/env python3
"""simt_report.py on a profile that is made up."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "simt_report.py"
NONE = {"requests": 0, "bytes": 0, "sectors": 0, "wavefronts": 0, "ideal": 0}
GOOD = {**NONE, "requests": 96, "bytes": 12288, "sectors": 384, "wavefronts": 96, "ideal": 96}
COUNTS = {
    "global_load": NONE,
    "global_store": NONE,
    "shared_load": NONE,
    "shared_store": NONE,
    "async_store": NONE,
    "barriers": 0,
    "collectives": 0,
    "mma": 0,
    "ldmatrix": 0,
    "cp_async": 0,
    "atomics": 0,
    "uncoalesced": False,
    "conflicted": False,
}


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name).resolve()
        (self.here / "k.cu").write_text("a < b;\nbarrier();\nend\n")

    def shown(self, document):
        (self.here / "k.profile.json").write_text(json.dumps(document))
        return subprocess.run(
            [sys.executable, "-B", PROGRAM, "k.profile.json"],
            cwd=self.here,
            capture_output=True,
            text=True,
        )

    def test_a_line_with_conflicts(self):
        bad = {
            **COUNTS,
            "file": str(self.here / "k.cu"),
            "line": 1,
            "global_load": {**GOOD, "ideal": 384},
            "shared_store": {**GOOD, "wavefronts": 3072},
            "conflicted": True,
        }
        barrier = {**COUNTS, "file": str(self.here / "k.cu"), "line": 2, "barriers": 3}
        unknown = {**COUNTS, "file": "", "line": 0}
        done = self.shown(
            {
                "kernels": [
                    {
                        "name": "k<1>",
                        "launches": 2,
                        "grid": [3, 1, 1],
                        "block": [32, 1, 1],
                        "shared_bytes": 4096,
                        "total": {**bad, "barriers": 3},
                        "buffers": [],
                        "lines": [unknown, bad, barrier],
                    }
                ],
                "unknown_lines": "compile with -g",
            }
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in (
            "k<1>: 2 launches of 3 x 1 x 1 blocks",
            "384 sectors (4.00 per request), 12 kB asked for",
            "3,072 wavefronts, 96 without conflicts (32.00 ways)",
            "  events         3 barriers",
            "    k.cu:1  100% of sectors  100% of wavefronts, 32.00 ways  <- bank conflicts",
            "some lines are not known: compile with -g",
        ):
            self.assertIn(words, done.stdout)
        self.assertNotIn("uncoalesced", done.stdout)
        text = (self.here / "k.profile.txt").read_text().splitlines()
        self.assertEqual(
            [" ".join(line.split()) for line in text[3:6]],
            ["96 4.00 3,072 32.00! 1 | a < b;", "2 | barrier(); << 3 barriers", "3 | end"],
        )
        page = (self.here / "k.profile.html").read_text()
        for words in (
            "<tr class=bad id=L1-1>",
            "<tr id=L1-2>",
            "a &lt; b;",
            "<span class=mark>bank conflicts</span>",
            'title="loads: 96 requests, 384 sectors, 384 at best"',
            "k&lt;1&gt;",
        ):
            self.assertIn(words, page)

    def test_counts_of_hopper(self):
        line = {
            **COUNTS,
            "file": str(self.here / "k.cu"),
            "line": 2,
            "tma_load": {"requests": 1, "bytes": 8192},
            "wgmma": {"m64n96k16": 1024},
        }
        done = self.shown(
            {
                "kernels": [
                    {
                        "name": "k",
                        "launches": 1,
                        "grid": [1, 1, 1],
                        "block": [128, 1, 1],
                        "shared_bytes": 0,
                        "total": line,
                        "buffers": [],
                        "lines": [line],
                    }
                ]
            }
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in (
            "  TMA loads      1 requests, 8,192 B of global memory",
            "1 TMA load, 1,024 wgmma m64n96k16",
        ):
            self.assertIn(words, done.stdout)
        self.assertIn(
            "barrier(); << 1 TMA load, 1,024 wgmma m64n96k16",
            " ".join((self.here / "k.profile.txt").read_text().split()),
        )

    def test_a_file_that_holds_no_profile(self):
        for document in ({"version": 1}, [1], {"kernels": [{"name": "x"}]}):
            done = self.shown(document)
            self.assertEqual(
                (done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), document
            )
            self.assertIn("k.profile.json cannot be shown", done.stderr)


if __name__ == "__main__":
    unittest.main()
