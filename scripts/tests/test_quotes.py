#!/usr/bin/env python3
"""Figures in prose: a sound page passes; each way in which a figure can be wrong, or come from nowhere, is found."""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/lib"))
import figures_of
import quotes
from made_tables import tables_of

SOUND = """\
# A heading of 5 ms

The rung takes 12.5 ms, which is
1,250 times as long as 10 µs. Again: 12.5 ms. It was built with g++ 13.3 and CUDA 13.0. Rows of 128 bytes, 3 rungs,
$N = 4096$ bytes, `7 ms` in code, and [a link](page.md#of-8-ms). In practice 2 to 3% were expected. The log says 0.25.

```text
about 0.2468 s
```

    9 ms
    10 ms

| change | ms |
|---|---:|
| none | 12.5 |
| another | 14 |

<!-- table: cpu_scaling: time in ms -->
| N | 01 |
|---:|---:|
| 1024 | 12.4 |

Below the table 2 GB.
"""

ENTRIES = """\
[names]
whole = "12.5"

[quoted."page.md"]
'rung takes {} ms' = "whole"
'which is {:,} times as long as {:.0f} µs' = ["whole / 0.01", "sum(k for k in (4, 6))"]
'Again: {:.1f} ms' = "25 / 2"
'| none | {:.1f} |' = "whole"
'Below the table {} GB' = "2**31 / 2**30"

[given."page.md"]
'2 to 3% were' = "prediction"
'says 0.25' = "listing"
'| change | ms |' = "command"

[given."*"]
'128 bytes' = "definition"
'that stands on other pages' = "words"
"""


class Prose(unittest.TestCase):
    def check(self, page=SOUND, entries=ENTRIES):
        """(new text, complaints) of a page."""
        text, differ, wrong = quotes.check("page.md", page, quotes.Entries(entries))
        return text, differ + wrong

    def complaint(self, *replacements, entries=ENTRIES):
        """The one complaint about the sound page with replacements."""
        page = SOUND
        for old, new in replacements:
            self.assertIn(old, page)
            page = page.replace(old, new)
        complaints = self.check(page, entries)[1]
        self.assertEqual(len(complaints), 1, complaints)
        self.assertEqual(len(complaints[0].splitlines()), 1)
        return complaints[0]

    def test_a_sound_page(self):
        self.assertEqual(self.check(), (SOUND, []))

    def test_a_figure_that_differs(self):
        self.assertEqual(self.complaint(("takes 12.5 ms", "takes 12.4 ms")),
                         "page.md:3: says 12.4, the record gives 12.5: whole")
        self.assertEqual(self.complaint(("10 µs", "11 µs")),
                         "page.md:4: says 11, the record gives 10: sum(k for k in (4, 6))")
        self.assertEqual(self.complaint(("| none | 12.5", "| none | 12.6")),
                         "page.md:16: says 12.6, the record gives 12.5: whole")

    def test_every_place_of_a_text(self):
        page = SOUND + "\nThe rung takes 13 ms.\n"
        self.assertEqual(self.check(page)[1], ["page.md:26: says 13, the record gives 12.5: whole"])

    def test_a_figure_that_nobody_gave(self):
        for figure in ("384 TFLOP/s", "3 GFLOP/s", "4 T/s", "4214 GB/s", "4.2 TB/s", "16 ms", "7 s", "7 seconds",
                       "8 us", "8 µs", "9 ns", "141 GB", "64 MiB", "32 KiB", "12%", "3 times", "168 registers",
                       "3 spills", "16 wavefronts", "4 sectors", "1,553 instructions", "2 requests", "17 clocks",
                       "0.876", "16-way", "40 bytes", "528 collectives", "2,400 repeats"):
            with self.subTest(figure):
                complaint = self.complaint(("Below the table", f"It is {figure}. Below the table"))
                self.assertTrue(complaint.startswith(f"page.md:24: {re.match('[0-9.,]+', figure)[0]} comes from no"))
        entries = ENTRIES.replace("'Below", "'14 to {} ms' = \"15\"\n'Below")
        self.assertIn(" 14 comes from no", self.complaint(("Below", "Or 14 to 15 ms. Below"), entries=entries))

    def test_figures_of_a_table_that_is_written_by_hand(self):
        without = ENTRIES.replace("'| change | ms |' = \"command\"\n", "")
        self.assertIn("page.md:17: 14 comes from no record", self.complaint(entries=without))

    def test_only_the_placeholders_of_a_text_are_quoted(self):
        complaint = self.complaint(("Below the table 2 GB", "Below the table, 3 GB, are 2 GB"),
                                   entries=ENTRIES.replace("Below the table {}", "Below the table, 3 GB, are {}"))
        self.assertIn("page.md:24: 3 comes from no record", complaint)

    def test_entries_that_do_not_fit_the_page(self):
        self.assertIn("no such text: 'rung takes long'",
                      self.complaint(entries=ENTRIES.replace("[given.\"page.md\"]",
                                                             "[given.\"page.md\"]\n'rung takes long' = \"words\"")))
        self.assertIn("no such text: 'Nothing takes {} ms'",
                      self.complaint(entries=ENTRIES.replace("[given.\"page.md\"]",
                                                             "'Nothing takes {} ms' = \"1\"\n\n[given.\"page.md\"]")))
        page, complaints = self.check(SOUND.replace("says 0.25", "says 0.26"), ENTRIES.replace("0.25", "0.26"))
        self.assertIn("page.md:5: 0.26 stands in no listing of the page", complaints[0])

    def test_entries_that_are_wrong_by_themselves(self):
        new = "\n[given.\"page.md\"]"
        for entry, words in (("'rung {} ms' = \"1 / 0\"", "ZeroDivisionError"),
                             ("'rung {} ms' = \"wholly\"", "NameError"),
                             ("'rung {} ms' = \"tflops('none', '01')\"", "no record none"),
                             ("'rung {} ms' = \"open('/etc/hostname')\"", "NameError"),
                             ("'The rung takes' = \"1\"", "0 placeholders and 1 expressions"),
                             ("'rung {} ms' = [\"1\", \"2\"]", "1 placeholders and 2 expressions")):
            with self.subTest(entry):
                self.assertIn(words, self.complaint(entries=ENTRIES.replace(new, f"{entry}\n{new}")))
        self.assertIn("no such reason as 'because'",
                      self.complaint(entries=ENTRIES.replace('"*"]', '"*"]\n\'Again\' = "because"')))
        for text in ("[names\n", "[names]\nx = \"1 / 0\"\n"):
            self.assertRaises(ValueError, quotes.Entries, text)

    def test_entries_without_a_place(self):
        entries = quotes.Entries(ENTRIES)
        other = "Here it is 128 bytes that stands on other pages."
        self.assertEqual(entries.without_place({"page.md": SOUND, "other.md": other}), [])
        self.assertEqual(entries.without_place({"page.md": SOUND}),
                         ["quoted.toml: no page has the text 'that stands on other pages'"])
        self.assertEqual(entries.without_place({"other.md": other}), ["quoted.toml: there is no page page.md"])

    def test_writing(self):
        page = SOUND.replace("takes 12.5 ms", "takes 999 ms").replace("1,250", "1")
        text, complaints = self.check(page)
        self.assertEqual((text, len(complaints)), (SOUND, 2))


class Figures(unittest.TestCase):
    def test_of_rows(self):
        rows = json.loads((ROOT / "docs/records/gpu_fp32.json").read_text())["rows"]
        here = {"batch": 4, "heads": 16, "N": 4096, "d": 64, "causal": False}
        of = {row["program"]: row for row in rows if row["shape"] == here}
        self.assertEqual(figures_of.ms("gpu_fp32", "08"), of["08_flash_attention_2"]["median_s"] * 1e3)
        self.assertEqual(figures_of.field("gpu_fp32", "08", "repetitions"), of["08_flash_attention_2"]["repetitions"])
        self.assertAlmostEqual(figures_of.tflops("gpu_fp32", "08"), of["08_flash_attention_2"]["flops"] / 1e12 /
                               of["08_flash_attention_2"]["median_s"])
        self.assertGreater(figures_of.faster("gpu_fp32", "08", "07"), 1)
        causal = [row for row in rows if row["shape"] == {**here, "causal": True} and row["program"] == "unfused"][0]
        self.assertEqual(figures_of.ms("gpu_fp32", "unfused", causal=True), causal["median_s"] * 1e3)
        for program, where in (("0", {}), ("14", {}), ("08", {"d": 63})):
            self.assertRaises(ValueError, figures_of.row_of, "gpu_fp32", program, **where)

    def test_of_counters(self):
        record = json.loads((ROOT / "docs/records/gpu_fp32.json").read_text())["counters"]["06_cuda_naive"]
        self.assertEqual(figures_of.counter("gpu_fp32", "06", "seconds", "softmax"), record["softmax"]["seconds"])
        self.assertEqual(figures_of.counter("gpu_fp32", "06", "seconds"), sum(of["seconds"] for of in record.values()))
        self.assertRaises(ValueError, figures_of.counter, "gpu_fp32", "06", "seconds", "maximum")
        row = json.loads((ROOT / "docs/records/gpu_counters.json").read_text())["rows"][0]
        self.assertEqual(figures_of.counted("gpu", row["rung"], row["counter"], row["kernel"]), row["gpu"])
        self.assertRaises(ValueError, figures_of.counted, "gpu", "06", "coffee")

    def test_of_the_machine(self):
        record = json.loads((ROOT / "docs/records/bench_h200.json").read_text())
        self.assertEqual(figures_of.ceiling("bench_h200", "ffma_flops"), record["ceilings"]["ffma_flops"])
        self.assertEqual(f"{figures_of.stated('bench_h200', 'max_sm_clock')} MHz", record["max_sm_clock"])

    def test_of_tables(self):
        table = tables_of("cpu_comparison")["rung 05 and PyTorch"]
        value = figures_of.cell("cpu_comparison", "rung 05 and PyTorch", "(1, 8, 4096, 64)", "ratio of medians")
        self.assertIn(f"{value:.2f}", table[2])
        for row, column in (("(1, 8", "ratio of medians"), ("(1, 8, 4096, 64)", "ratio"), ("(2", "ratio of medians")):
            self.assertRaises(ValueError, figures_of.cell, "cpu_comparison", "rung 05 and PyTorch", row, column)
        self.assertRaises(ValueError, figures_of.cell, "cpu_comparison", "rung 06", "(1, 8, 4096, 64)", "rung 05, ms")
        self.assertRaises(ValueError, figures_of.cell, "gpu_fp32", "traffic in GB", "08", "written")  # two such columns


class Command(unittest.TestCase):
    def test_check_and_write(self):
        with tempfile.TemporaryDirectory() as folder:
            page, entries = Path(folder) / "page.md", Path(folder) / "quoted.toml"
            entries.write_text('[quoted."page.md"]\n\'It took {:.1f} ms\' = "12.5"\n')
            page.write_text("It took 12.4 ms.\n")

            def tables(*options):
                command = [sys.executable, "-B", ROOT / "scripts/tables", "--quoted", entries, *options, page]
                return subprocess.run(command, capture_output=True, text=True)
            run = tables()
            self.assertEqual(run.returncode, 1)
            self.assertIn("page.md:1: says 12.4, the record gives 12.5", run.stderr)
            self.assertEqual(page.read_text(), "It took 12.4 ms.\n")
            run = tables("--write")
            self.assertEqual((run.returncode, page.read_text()), (0, "It took 12.5 ms.\n"))
            self.assertIn("says 12.4, the record gives 12.5", run.stdout)  # so that the sentence is read again
            self.assertEqual((tables().returncode, tables("--help").returncode), (0, 0))
            page.write_text("It took 12.5 ms, or 13 ms.\n")
            self.assertEqual(tables("--write").returncode, 1)  # nothing can be written in place of 13
            entries.write_text("[quoted")
            self.assertEqual(tables().returncode, 1)


if __name__ == "__main__":
    unittest.main()
