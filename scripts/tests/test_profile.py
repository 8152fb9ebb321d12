#!/usr/bin/env python3
"""scripts/profile on programs, a GPU and an ncu that are stand-ins."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PART = {"requests": 10, "bytes": 320, "sectors": 40, "wavefronts": 30, "ideal": 20}
TOTAL = {"cp_async": 0, "atomics": 0, "global_load": PART, "global_store": {**PART, "sectors": 20}, "shared_load": PART, "shared_store": PART,
         "async_store": {**PART, "wavefronts": 60}, "barriers": 5, "collectives": 0, "mma": 7, "ldmatrix": 0}

# A program of the SIMT backend: writes its counts beside itself. Counts of ncu: 8 of everything, twice 8 sectors.
SIMT = """#!/usr/bin/env python3
import json, os, sys
if "--head-dim 48" in " ".join(sys.argv):
    print("no version for head dim 48", file=sys.stderr)
    sys.exit(2)
print(*sys.argv[1:], file=open("{here}/calls", "a"))
total = json.loads('{total}')
kernel = {{"name": "step09::tiles<float, 64>", "launches": 1, "grid": [3, 1, 1], "block": [32, 1, 1], "shared_bytes": 4096,
           "total": total, "buffers": [{{"name": "Q", "bytes": 51200, "load": total["global_load"],
                                         "store": total["global_store"]}}],
           "lines": [{{"file": "{here}/a b.cu", "line": 2, **total, "uncoalesced": True, "conflicted": False}},
                     {{"file": "{here}/a b.cu", "line": 3, **{{name: 0 if isinstance(value, int) else dict.fromkeys(value, 0)
                                                              for name, value in total.items()}}, "barriers": 5,
                      "uncoalesced": False, "conflicted": False}}]}}
json.dump({{"kernels": [kernel]}}, open(os.path.basename(sys.argv[0]) + ".profile.json", "w"))
"""
NCU = """#!/usr/bin/env python3
import sys
print(*sys.argv[1:], file=open("{here}/calls", "a"))
metrics = sys.argv[sys.argv.index("--metrics") + 1].split(",")
def value(name):
    return "2" if "conflicts" in name or "hfma2" in name else "16" if "t_sectors_pipe_lsu_mem_global" in name else "8"
for row in (["ID", "Kernel Name", *metrics], [""] * (len(metrics) + 2),
            ["0", "step09::tiles<float, 64>(int)", *map(value, metrics)]):
    print(",".join(f'"{{cell}}"' for cell in row))
"""


class Profile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name).resolve()
        self.executable("ncu", NCU.format(here=self.here))
        self.executable("nvidia-smi", f'#!/bin/sh\n[ -e {self.here}/gpu ] && echo "GPU 0: G"\n')
        (self.here / "gpu").touch()
        for backend in ("simt", "cuda"):
            self.executable(f"{backend}/steps/09_register_tiling", SIMT.format(here=self.here, total=json.dumps(TOTAL)))
            (self.here / backend / "CMakeCache.txt").write_text(f"FLASH_BACKEND:STRING={backend}\n")

    def executable(self, name, text):
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IEXEC)

    def profile(self, *arguments):
        command = [sys.executable, "-B", ROOT / "scripts/profile", "--programs", self.here / "cuda",
                   "--simt-programs", self.here / "simt", *arguments]
        environment = {**os.environ, "PATH": f"{self.here}:{os.environ['PATH']}"}
        return subprocess.run(command, cwd=self.here, env=environment, capture_output=True, text=True)

    def cells(self, done):
        return {row[0]: row[1:] for row in ([cell.strip() for cell in line.strip("|").split("|")]
                                            for line in done.stdout.splitlines() if line.startswith("|"))}

    def test_both_sides(self):
        done = self.profile("9", "--q-len", "100", "--causal")
        self.assertEqual(done.returncode, 0, done.stderr)
        cells = self.cells(done)
        self.assertEqual(cells[""], ["GPU", "SIMT"])
        self.assertEqual(cells["global load sectors"], ["16", "40"])
        self.assertEqual(cells["sectors a load request"], ["2.00", "4.00"])
        self.assertEqual(cells["sectors a store request"], ["2.00", "2.00"])
        self.assertEqual(cells["mma instructions"], ["6", "7"])  # less the tensor pipe's moves
        self.assertEqual(cells["shared wavefronts over the ideal"], ["1.33", "2.00"])  # 16 / (16 - 4), 120 / 60
        self.assertEqual(cells["registers a thread"], ["8", ""])
        self.assertEqual(cells["sectors of spilled registers"], ["16", ""])
        self.assertEqual(cells["barriers"], ["", "5"])
        self.assertNotIn("warp collectives", cells)  # none on any side
        calls = (self.here / "calls").read_text().splitlines()
        self.assertEqual(len([call for call in calls if "--q-len 100 --causal" in call]), 2)

    def test_the_lines_of_the_source(self):
        (self.here / "a b.cu").write_text('// one < two\nx = y[i]; // "both"\n__syncthreads();\nlast\n')
        done = self.profile("9")
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("step09::tiles<float, 64>: 1 launch of 3 x 1 x 1 blocks, 32 x 1 x 1 threads, 4,096 bytes of shared",
                      "  global loads   10 requests, 40 sectors (4.00 per request), 320 B asked for",
                      "  cp.async into  10 requests, 60 wavefronts, 20 without conflicts (3.00 ways), 320 B",
                      "  events         5 barriers, 7 mmas", "  Q (51 kB): 320 B read, 320 B written",
                      "    a b.cu:2  100% of sectors  100% of wavefronts, 2.00 ways  <- uncoalesced",
                      "written  09_register_tiling.profile.txt, 09_register_tiling.profile.html"):
            self.assertIn(words, done.stdout)
        self.assertNotIn("a b.cu:3", done.stdout)
        text = (self.here / "09_register_tiling.profile.txt").read_text().splitlines()
        self.assertEqual([" ".join(line.split()) for line in text[3:7]], [
            "1 | // one < two", '20 3.00! 120 2.00 2 | x = y[i]; // "both" << 5 barriers, 7 mmas',
            "3 | __syncthreads(); << 5 barriers", "4 | last"])
        self.assertEqual({line.index("|") for line in text[3:7]}, {text[4].index("|")})
        page = (self.here / "09_register_tiling.profile.html").read_text()
        for words in ("<title>09_register_tiling: memory traffic by line</title>", "prefers-color-scheme: dark",
                      "// one &lt; two", '<a href="#L1-2">line 2</a>', "<tr class=bad id=L1-2>", "<tr id=L1-3>",
                      'title="loads: 10 requests, 40 sectors, 20 at best; stores: 10 requests, 20 sectors, 20 at best"',
                      "<span class=mark>uncoalesced</span>", "<span class=comment>// &quot;both&quot;</span>"):
            self.assertIn(words, page)
        for words in ("<script", "<link", "<img", "bank conflicts</span>"):
            self.assertNotIn(words, page)
        again = self.profile(self.here / "09_register_tiling.profile.json")  # what was written is what a program writes
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("100% of wavefronts, 2.00 ways  <- uncoalesced", again.stdout)
        (self.here / "a b.cu").unlink()
        self.assertEqual(self.profile("9").returncode, 0)
        self.assertIn("a b.cu (cannot be read here)", (self.here / "09_register_tiling.profile.txt").read_text())

    def test_a_file_that_holds_no_profile(self):
        (self.here / "other.json").write_text('{"version": 1}')
        (self.here / "list.json").write_text("[1]")
        (self.here / "half.json").write_text('{"kernels": [{"name": "x"}]}')
        for name in ("other.json", "list.json", "half.json", "absent.json"):
            done = self.profile(name)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), name)
            self.assertIn(f"{name} cannot be shown", done.stderr)

    def test_without_a_gpu_the_simt_part_alone(self):
        (self.here / "gpu").unlink()
        done = self.profile("09_register_tiling")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.cells(done)[""], ["SIMT"])
        self.assertIn("GPU left out: nvidia-smi finds no GPU", done.stderr)
        self.assertIn("--q-len 200", (self.here / "calls").read_text())

    def test_a_program_of_another_backend_is_not_taken(self):
        (self.here / "simt/CMakeCache.txt").write_text("FLASH_BACKEND:STRING=cuda\n")
        done = self.profile("9")
        self.assertEqual(self.cells(done)[""], ["GPU"])
        self.assertIn("cmake --preset simt && cmake --build --preset simt --target 09_register_tiling", done.stderr)

    def test_bad_input(self):
        for wrong, words in (([], "RUNG"), (["5"], "has no CUDA kernel"), (["77"], "there is no rung '77'"),
                             (["-1"], ""), (["register"], "there is no rung 'register'"),
                             (["09_register"], "there is no rung"), (["8"], "left out")):
            done = self.profile(*wrong)
            self.assertEqual((done.returncode, done.stdout), (2, ""), wrong)
            self.assertIn(words, done.stderr)
        (self.here / "gpu").unlink()
        done = self.profile("9", "--head-dim", "48")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no version for head dim 48", done.stderr)
        self.assertEqual(self.profile("--help").returncode, 0)


if __name__ == "__main__":
    unittest.main()
