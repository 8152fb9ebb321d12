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
from series_svg import memory_svg, refused_at, time_svg
from traffic_formula import BC_OF_07, formula_dram_bytes, formula_l2_bytes

RECORD = json.loads((ROOT / "docs/records/bench_h200.json").read_text(encoding="utf-8"))
SERIES = json.loads((ROOT / "docs/records/series_h200.json").read_text(encoding="utf-8"))
MEMORY = json.loads((ROOT / "docs/records/memory_h200.json").read_text(encoding="utf-8"))


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
                            (memory_svg(MEMORY), "scripts/bench --memory"), (time_svg(SERIES), "scripts/bench --series"),
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

    def test_time_against_N_shows_every_rung_and_library_at_every_length(self):
        svg = time_svg(SERIES)
        names = {(row["program"], row["dtype"]) for row in SERIES["rows"]}
        labels = [text for text in texts(svg) if text.endswith(("fp32", "bf16"))]
        self.assertEqual(len(labels), len(names))
        self.assertEqual(svg.count("<circle"), len(SERIES["rows"]))
        places = [float(y) for y in re.findall(r'fill small" x="[\d.]+" y="([\d.]+)"', svg)]
        self.assertTrue(all(b - a > 11 for a, b in zip(sorted(places), sorted(places)[1:])))

    def test_memory_shows_what_does_not_fit(self):
        svg = memory_svg(MEMORY)
        self.assertEqual(refused_at(MEMORY), {"06_cuda_naive": 131072})
        self.assertIn("from here on rung 06 does not fit", texts(svg))
        self.assertEqual(svg.count("<circle"), len(MEMORY["rows"]))
        without = {**MEMORY, "memory": "unknown", "left_out": []}
        self.assertFalse([text for text in texts(memory_svg(without)) if "memory of the GPU" in text])

    def test_formulas_of_traffic(self):
        problem = {"batch": 2, "heads": 3, "N": 100, "d": 64}
        matrix = 100 * 64 * 4  # of one head
        row = {"dtype": "fp32", "compulsory_bytes": 4 * 6 * matrix + 6 * 100 * 4}

        def both(program, kernels):
            whole = {**row, "program": program}
            return formula_l2_bytes(whole, problem, kernels), formula_dram_bytes(whole, problem)
        self.assertEqual(both("06_x", {"a": {"blocks": 6}}), (None, 4 * 6 * 100 * 100 * 4 + row["compulsory_bytes"]))
        self.assertEqual(both("07_x", {"a": {"blocks": 6}}), (6 * matrix * 9,) * 2)  # two tiles of keys
        self.assertEqual(both("08_x", {"a": {"blocks": 12}}),
                         (24 * matrix + row["compulsory_bytes"], row["compulsory_bytes"]))
        kernel = (ROOT / "steps/07_flash_attention_1/flash_attention_1.cu").read_text(encoding="utf-8")
        self.assertIn(f"int Bc = {BC_OF_07};", kernel)

    def test_counted_bytes_are_near_the_formulas(self):
        for row, kernels in bench_svg.counted(RECORD):
            counted, formula = bench_svg.l2_bytes(kernels), formula_l2_bytes(row, RECORD["counted_problem"], kernels)
            self.assertTrue(formula is None or 0.55 < counted / formula < 1.1, (row["program"], counted, formula))

    def test_bytes_are_summed_over_kernels(self):
        kernel = {"dram_read_bytes": 1, "dram_write_bytes": 2, "l2_read_sectors": 3, "l2_write_sectors": 4}
        self.assertEqual(bench_svg.dram_bytes({"a": kernel, "b": kernel}), 6)
        self.assertEqual(bench_svg.l2_bytes({"a": kernel, "b": kernel}), 32 * 14)


if __name__ == "__main__":
    unittest.main()
