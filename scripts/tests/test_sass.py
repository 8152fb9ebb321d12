#!/usr/bin/env python3
"""scripts/sass on a listing made up for the purpose."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SASS = Path(__file__).resolve().parent.parent / "sass"
LISTING = """
	code for sm_90
		Function : _ZN6step106kernelILi64EEEvv
        /*0000*/                   MOV R1, c[0x0][0x28] ;              /* 0x00000a0000017a02 */
                                                                       /* 0x003fde0000000f00 */
        /*0010*/                   IADD3 R2, R2, 0x1, RZ ;             /* 0x0 */
        /*0020*/                   LDSM.16.M88.4 R4, [R3] ;            /* 0x0 */
        /*0030*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ; /* 0x0 */
        /*0040*/              @!P0 FMUL R8, R8, 0.5 ;                  /* 0x0 */
        /*0050*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ; /* 0x0 */
        /*0060*/               @P1 BRA 0x20 ;                          /* 0x0 */
        /*0070*/               @P2 BRA 0x10 ;                          /* 0x0 */
        /*0080*/                   FADD R1, R1, R1 ;                   /* 0x0 */
        /*0090*/               @P3 BRA 0x80 ;                          /* 0x0 */
        /*00a0*/               @P4 BRA 0xb0 ;                          /* 0x0 */
        /*00b0*/                   EXIT ;                              /* 0x0 */
		Function : plain
        /*0000*/                   EXIT ;                              /* 0x0 */
"""


class Sass(unittest.TestCase):
    def run_on(self, text, *options):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernels.sass"
            path.write_text(text, encoding="utf-8")
            return subprocess.run([sys.executable, SASS, path, *options], capture_output=True, text=True)

    def test_innermost_loop_with_products(self):
        done = self.run_on(LISTING)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 1)  # neither the loop around it nor the one without HMMA
        self.assertIn("sm_90: 5 instructions, 2 HMMA, 2.50 for each; 1 LDSM, 1 FMUL, 1 BRA", done.stdout)

    def test_most_and_only(self):
        self.assertTrue(self.run_on(LISTING, "--most", "1").stdout.rstrip().endswith("for each; 1 LDSM"))
        self.assertEqual(self.run_on(LISTING, "--only", "other").returncode, 1)

    def test_nothing_to_count(self):
        done = self.run_on(LISTING.replace("HMMA", "IMMA"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("no loop with HMMA", done.stderr)

    def test_missing_file(self):
        done = subprocess.run([sys.executable, SASS, "/nowhere/at/all"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no file", done.stderr)


if __name__ == "__main__":
    unittest.main()
