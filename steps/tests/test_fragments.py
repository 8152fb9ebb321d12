#!/usr/bin/env python3
"""The layouts that the chapters draw (layouts.py) against what a program finds by trying.

Usage: test_fragments.py PROGRAM [unittest options]     PROGRAM is steps/tests/show_layouts of a build
Exit code: 0 all agree, 1 they do not, 4 the program has no device to run on.
"""

import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
from layouts import a_element, b_element, c_element, ldmatrix_element, p_source, swizzled

LANES = range(32)
HALVES = range(2)


def numbers(lines, beginning):
    """The numbers of each line that begins so."""
    return [
        tuple(map(int, re.findall(r"\d+", line[len(beginning) :])))
        for line in lines
        if line.startswith(beginning)
    ]


class Layouts(unittest.TestCase):
    lines = []

    def check_same(self, found, expected):
        """Like assertEqual of two dictionaries, which takes minutes to print how these differ."""
        self.assertTrue(found.keys() == expected.keys(), "other elements than expected")
        for key, value in expected.items():
            self.assertEqual(found[key], value, key)

    def check_products(self, beginning):
        """Each element of A meets those of B that have its k, and no others; the sum is in its row and their column."""
        found = {(line[:3], line[3:6]): line[6:] for line in numbers(self.lines, beginning)}
        in_c = {
            c_element(lane, register): (lane, register) for lane in LANES for register in range(4)
        }
        self.assertEqual(len(in_c), 16 * 8)
        expected = {}
        for a in [
            (lane, register, half) for lane in LANES for register in range(4) for half in HALVES
        ]:
            row, k = a_element(*a)
            for b in [
                (lane, register, half) for lane in LANES for register in range(2) for half in HALVES
            ]:
                k_of_b, column = b_element(*b)
                if k == k_of_b:
                    expected[a, b] = in_c[row, column]
        self.assertEqual(len(expected), 16 * 16 * 8)
        self.check_same(found, expected)

    def test_products_of_fp16(self):
        self.check_products("fp16  ")

    def test_products_of_bf16(self):
        self.check_products("bf16  ")

    def test_two_fragments_of_c_are_one_of_a(self):
        """P needs no shuffle: each lane already holds what it has to hold."""
        for lane in LANES:
            for register in range(4):
                for half in HALVES:
                    fragment, of_c = p_source(register, half)
                    row, column = c_element(lane, of_c)
                    self.assertEqual(a_element(lane, register, half), (row, 8 * fragment + column))

    def check_ldmatrix(self, beginning, transposed):
        found = {line[:3]: line[3:] for line in numbers(self.lines, beginning)}
        expected = {
            (lane, register, half): ldmatrix_element(lane, register, half, transposed)
            for lane in LANES
            for register in range(4)
            for half in HALVES
        }
        self.check_same(found, expected)

    def test_ldmatrix(self):
        self.check_ldmatrix("ldmatrix  ", False)

    def test_ldmatrix_transposed(self):
        self.check_ldmatrix("ldmatrix.trans  ", True)

    def test_swizzle(self):
        for d in (32, 64, 128):
            found = {line[:2]: line[2] for line in numbers(self.lines, f"swizzle d {d}  ")}
            expected = {
                (row, chunk): swizzled(d, 16, row, chunk)
                for row in range(16)
                for chunk in range(d // 8)
            }
            self.check_same(found, expected)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        sys.exit(0 if len(sys.argv) > 1 else 2)
    done = subprocess.run([sys.argv.pop(1)], stdout=subprocess.PIPE, text=True)
    if done.returncode == 2:
        sys.exit(4)  # it has said why
    done.check_returncode()
    Layouts.lines = done.stdout.splitlines()
    unittest.main()
