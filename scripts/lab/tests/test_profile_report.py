"""scripts/profile on a profile that is made up."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2]
NONE = dict.fromkeys(("requests", "bytes", "sectors", "wavefronts", "ideal"), 0)
GOOD = NONE | {"requests": 96, "bytes": 12288, "sectors": 384, "wavefronts": 96, "ideal": 96}
TRAFFIC = ("global_load", "global_store", "shared_load", "shared_store", "async_store")
EVENTS = ("barriers", "collectives", "mma", "ldmatrix", "cp_async", "atomics")
COUNTS = dict.fromkeys(TRAFFIC, NONE) | dict.fromkeys(EVENTS, 0)
COUNTS |= {"uncoalesced": False, "conflicted": False}


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name).resolve()
        (self.here / "k.cu").write_text("a < b;\nbarrier();\nend\n")

    def line(self, number, **counts):
        return COUNTS | {"file": str(self.here / "k.cu"), "line": number} | counts

    def shown(self, document):
        (self.here / "k.profile.json").write_text(json.dumps(document))
        command = [sys.executable, "-Bm", "lab", "profile", "k.profile.json"]
        own = {"cwd": self.here, "env": os.environ | {"PYTHONPATH": str(SCRIPTS)}}
        return subprocess.run(command, capture_output=True, text=True, **own)

    def test_lines_with_their_counts(self):
        bad = self.line(
            1,
            global_load=GOOD | {"ideal": 384},
            shared_store=GOOD | {"wavefronts": 3072},
            conflicted=True,
        )
        engines = self.line(
            2, barriers=3, tma_load={"requests": 1, "bytes": 8192}, wgmma={"m64n96k16": 1024}
        )
        kernel = {
            "name": "k<1>",
            "launches": 2,
            "grid": [3, 1, 1],
            "block": [32, 1, 1],
            "shared_bytes": 4096,
            "total": engines | bad | {"barriers": 3},
            "buffers": [],
            "lines": [bad, engines],
        }
        done = self.shown({"kernels": [kernel], "unknown_lines": "compile with -g"})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in (
            "k<1>: 2 launches of 3 x 1 x 1 blocks",
            "384 sectors (4.00 per request), 12 kB asked for",
            "3,072 wavefronts, 96 without conflicts (32.00 ways)",
            "  TMA loads      1 requests, 8,192 B of global memory",
            "  events         3 barriers, 1 TMA load, 1,024 wgmma m64n96k16",
            "    k.cu:1  100% of sectors  100% of wavefronts, 32.00 ways  <- bank conflicts",
            "some lines are not known: compile with -g",
        ):
            self.assertIn(words, done.stdout)
        text = (self.here / "k.profile.txt").read_text().splitlines()
        self.assertEqual(" ".join(text[3].split()), "96 4.00 3,072 32.00! 1 | a < b;")
        self.assertIn("barrier(); << 3 barriers, 1 TMA load", " ".join(text[4].split()))
        page = (self.here / "k.profile.html").read_text()
        for words in ("<tr class=bad>", "barrier();", "a &lt; b;", "k&lt;1&gt;"):
            self.assertIn(words, page)

    def test_a_file_that_holds_no_profile(self):
        for document in ({"version": 1}, [1], {"kernels": [{"name": "x"}]}):
            done = self.shown(document)
            said = (done.returncode, done.stdout, done.stderr.count("\n"))
            self.assertEqual(said, (2, "", 1), document)
            self.assertIn("k.profile.json cannot be shown", done.stderr)
