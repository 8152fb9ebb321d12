#!/usr/bin/env python3
"""The plots of scripts/figures: places on their axes, labels that do not cover each other, and what a picture shows."""

import itertools
import json
import re
import sys
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/lib"))
sys.dont_write_bytecode = True
import bench_svg
from bench_tables import problems_of, rows_of, speed, three_digits
from plot_svg import Plot, decades, powers, spread_out
from scaling_svg import memory_svg, time_svg

RECORD = json.loads((ROOT / "docs/records/bench_h200.json").read_text(encoding="utf-8"))
SCALING = json.loads((ROOT / "docs/records/cpu_scaling.json").read_text(encoding="utf-8"))


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


class Plots(unittest.TestCase):
    def test_axes_are_logarithmic(self):
        plot = Plot("t", [], (1, 100), (1, 10000), size=(500, 300), margins=(100, 100, 50, 50))
        self.assertEqual([plot.x(value) for value in (1, 100, 10000)], [100, 250, 400])
        self.assertEqual([plot.y(value) for value in (1, 10, 100)], [250, 150, 50])  # upwards
        self.assertEqual(decades([3, 40]), (1, 100))
        self.assertEqual(decades([10, 10]), (10, 100))
        self.assertEqual(powers((0.1, 10)), [(0.1, "0.1"), (1, "1"), (10, "10")])

    def test_labels_keep_their_distance_order_and_limits(self):
        for wanted in itertools.product((0, 1, 9, 10, 50, 99, 100), repeat=4):
            places = spread_out(list(wanted), 10, 0, 100)
            ordered = sorted(places)
            self.assertTrue(all(b - a > 9.99 for a, b in zip(ordered, ordered[1:])), (wanted, places))
            self.assertTrue(0 <= ordered[0] and ordered[-1] <= 100, (wanted, places))
            self.assertFalse([1 for a, b in itertools.permutations(range(4), 2)
                              if wanted[a] < wanted[b] and places[a] > places[b]], (wanted, places))
        self.assertEqual(spread_out([20, 50, 80], 10, 0, 100), [20, 50, 80])  # nothing to do
        self.assertEqual(spread_out([50, 50], 10, 0, 100), [45, 55])          # both give way

    def test_the_ladder_shows_every_rung_ceiling_and_library(self):
        svg = bench_svg.ladder_svg(RECORD)
        rungs, libraries = rows_of(RECORD, problems_of(RECORD)[0])
        shown = texts(svg)
        for row in rungs:
            self.assertIn(row["program"].replace("_", " "), shown)
            self.assertIn(three_digits(speed(row) / 1e12), shown)
        for row in libraries:
            self.assertIn(f"{row['program']}, {row['dtype']}: {three_digits(speed(row) / 1e12)}", shown)
        for unit in {row["unit"] for row in rungs}:
            self.assertIn(f"{bench_svg.CEILING[unit]}: {three_digits(RECORD['ceilings'][unit] / 1e12)}", shown)
        self.assertEqual(svg.count("<circle"), len(rungs))

    def test_every_picture_names_its_source_and_fits_light_and_dark_pages(self):
        for svg, source in ((bench_svg.ladder_svg(RECORD), "scripts/bench"),
                            (memory_svg(SCALING), "scripts/measure_cpu"), (time_svg(SCALING), "scripts/measure_cpu"),
                            (bench_svg.roofline_svg(RECORD), "scripts/bench"),
                            (bench_svg.traffic_of_rungs_svg(RECORD), "scripts/bench"),
                            (bench_svg.conflicts_svg(RECORD), "scripts/bench")):
            self.assertTrue([text for text in texts(svg) if source in text])
            light, dark = svg.split("@media (prefers-color-scheme: dark)")
            self.assertEqual(set(re.findall(r"^\.([\w-]+) {[^}]*#", light, re.M)),
                             set(re.findall(r"^\.([\w-]+) {[^}]*#", dark, re.M)))  # each colour has its counterpart

    def test_a_roof_and_a_point(self):
        svg = bench_svg.roofline_svg(RECORD)
        self.assertEqual(svg.count("<circle"), len(RECORD["counters"]))
        self.assertIn(f"DRAM, {three_digits(RECORD['ceilings']['copy_bytes_per_s'] / 1e9)} GB/s", texts(svg))

    def test_bytes_are_summed_over_kernels(self):
        kernel = {"dram_read_bytes": 1, "dram_write_bytes": 2, "l2_read_sectors": 3, "l2_write_sectors": 4}
        self.assertEqual(bench_svg.dram_bytes({"a": kernel, "b": kernel}), 6)
        self.assertEqual(bench_svg.l2_bytes({"a": kernel, "b": kernel}), 32 * 14)


if __name__ == "__main__":
    unittest.main()
