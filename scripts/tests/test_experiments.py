#!/usr/bin/env python3
"""The patches of docs/experiments and their record, and scripts/experiments with stand-ins for nvcc and cuobjdump."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/lib"))
sys.dont_write_bytecode = True
import experiment_tables
import experimented

PTXAS = """
ptxas info    : Compiling entry function '_ZN6step1214async_pipelineIN5flash8Bfloat16ELi128EEEvv' for 'sm_90'
ptxas info    : Function properties for _ZN6step1214async_pipelineIN5flash8Bfloat16ELi128EEEvv
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers
ptxas info    : Compiling entry function '_ZN6step1214async_pipelineIN5flash8Bfloat16ELi64EEEvv' for 'sm_90'
ptxas info    : Function properties for _ZN6step1214async_pipelineIN5flash8Bfloat16ELi64EEEvv
    512 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 221 registers, used 1 barriers
ptxas info    : Compiling entry function '_ZN6step1214async_pipelineIN5flash4HalfELi64EEEvv' for 'sm_90'
ptxas info    : Function properties for _ZN6step1214async_pipelineIN5flash4HalfELi64EEEvv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 99 registers, used 1 barriers
"""
SASS = """
        code for sm_90
                Function : _ZN6step1214async_pipelineIN5flash8Bfloat16ELi128EEEvv
        /*0000*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ;
        /*0010*/                   FADD R1, R1, R1 ;
        /*0020*/               @P1 BRA 0x0 ;
        /*0030*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ;
        /*0040*/               @P1 BRA 0x30 ;
"""


def git_apply(patch, *options, folder):
    return subprocess.run(["git", "apply", *options, str(patch)], cwd=folder, capture_output=True, text=True,
                          env=os.environ | {"GIT_CEILING_DIRECTORIES": str(Path(folder).parent)})


class Patches(unittest.TestCase):
    def test_each_applies_to_the_kernel_of_today(self):
        for one in experimented.experiments():
            with self.subTest(one.name):
                path, text = one.source()
                self.assertNotEqual(text, (ROOT / path).read_text(encoding="utf-8"))

    @unittest.skipUnless(shutil.which("git"), "there is no git")
    def test_git_makes_the_same_of_them(self):
        for one in experimented.experiments():
            path, text = one.source()
            with self.subTest(one.name), tempfile.TemporaryDirectory() as folder:
                (Path(folder) / path).parent.mkdir(parents=True)
                shutil.copy(ROOT / path, Path(folder) / path)
                done = git_apply(experimented.FOLDER / f"{one.name}.patch", folder=folder)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual((Path(folder) / path).read_text(encoding="utf-8"), text)

    def test_the_record_is_of_these_patches(self):
        record = json.loads((ROOT / "docs/records/gpu_experiments.json").read_text(encoding="utf-8"))
        recorded = {one["program"]: (one["what"], one["predicted"], one["wrong_on_purpose"], one["patch"])
                    for one in record["variants"] if one["what"]}
        there = {one.name: (one.what, one.predicted, one.wrong, one.fingerprint())
                 for one in experimented.experiments()}
        self.assertEqual(recorded, there)
        self.assertEqual(record["wrong"], [])
        timed = {row["program"] for row in record["rows"]}
        self.assertEqual(set(there) - timed, set())

    def read(self, head, path="steps/12_async_pipeline/async_pipeline.cu", name="12_idea"):
        with tempfile.TemporaryDirectory() as folder:
            patch = Path(folder) / f"{name}.patch"
            patch.write_text(f"{head}\ndiff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n"
                             "@@ -1,2 +1,2 @@\n-a line that no kernel has\n+another\n")
            return experimented.read_experiment(patch)

    def test_what_a_patch_says_of_itself(self):
        one = self.read("What: an idea\nPredicted: nothing\nWrong on purpose: yes\n")
        self.assertEqual((one.rung, one.what, one.predicted, one.wrong),
                         ("12_async_pipeline", "an idea", "nothing", True))
        kernel = "steps/12_async_pipeline/async_pipeline.cu"
        for head, path, name, says in (
                ("What: an idea\n", kernel, "12_idea", "Predicted"),
                ("What: a\nPredicted: b\nBecause: c\n", kernel, "12_idea", "should be"),
                ("What: a\nPredicted: b\n", "common/cuda/mma.hpp", "12_idea", "should change steps/12"),
                ("What: a\nPredicted: b\n", kernel, "98_idea", "no rung 98")):
            with self.assertRaisesRegex(experimented.Wrong, says):
                self.read(head, path, name)

    def test_one_that_does_not_apply(self):
        with self.assertRaisesRegex(experimented.Wrong, "12_idea.patch does not apply: what it changes at line 1"):
            self.read("What: a\nPredicted: b\n").source()

    def test_lines_that_stand_in_several_places_are_changed_where_the_patch_says(self):
        one = experimented.Variant("12_x", "12_async_pipeline", diff="@@ -7,2 +7,2 @@\n same\n-old\n+new\n")
        self.assertEqual(experimented.patched("same\nold\n" * 4, one), "same\nold\n" * 3 + "same\nnew\n")

    def test_a_fingerprint_is_of_what_changes(self):
        def fingerprint(diff):
            return experimented.Variant("12_x", "12_async_pipeline", diff=diff).fingerprint()
        first = fingerprint("--- a/x\n+++ b/x\n@@ -7,2 +7,2 @@\n around\n-old\n+new\n")
        self.assertEqual(first, fingerprint("--- a/x\n+++ b/x\n@@ -9,2 +9,2 @@\n elsewhere\n-old\n+new\n"))
        self.assertNotEqual(first, fingerprint("--- a/x\n+++ b/x\n@@ -7,2 +7,2 @@\n around\n-old\n+newer\n"))


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name)

    def stand_in(self, name, body):
        path = self.here / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run_script(self, *options):
        path = f"{self.here}{os.pathsep}/usr/bin{os.pathsep}/bin"
        command = [sys.executable, "-B", ROOT / "scripts/experiments", "--build", self.here / "build", *options]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PATH": path})

    def compilers(self):
        (self.here / "ptxas").write_text(PTXAS)
        (self.here / "sass").write_text(SASS)
        self.stand_in("nvcc", f'echo "$@" >> "{self.here}/calls"; cat "{self.here}/ptxas"\n'
                      'while [ "$1" != -o ]; do shift; done; printf "\\177ELF" > "$2"')
        self.stand_in("cuobjdump", f'cat "{self.here}/sass"')

    def test_list(self):
        done = self.run_script("--list", "07")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("07_256_threads: blocks of 256 threads; predicted: ", done.stdout)
        self.assertNotIn("async_pipeline", done.stdout)

    def test_names_that_do_not_exist(self):
        for name in ("12_no_such_idea", "10"):
            done = self.run_script(name)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"there is no experiment '{name}'", done.stderr)

    def test_options_that_contradict(self):
        self.assertIn("leave the names out", self.run_script("--record", "12").stderr)
        self.assertIn("nothing to record", self.run_script("--record", "--build-only").stderr)
        self.assertIn("at least 1", self.run_script("--rounds", "0").stderr)

    def test_builds_the_rung_and_its_variant(self):
        self.compilers()
        done = self.run_script("--build-only", "--jobs", "1", "12_one_loop")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [" ".join(line.split()) for line in done.stdout.splitlines()[2:]]
        self.assertEqual(rows, ["| 12_async_pipeline | 255, 221 | 12 at 128, stack 512 at 64 | 2.00 |",
                                "| 12_one_loop | 255, 221 | 12 at 128, stack 512 at 64 | 2.00 |"])
        kernel = (self.here / "build/12_one_loop/async_pipeline.cu").read_text(encoding="utf-8")
        self.assertIn("every tile is masked", kernel)
        calls = (self.here / "calls").read_text().splitlines()
        self.assertIn('-DRUNG_HEADER="steps/12_async_pipeline/async_pipeline.hpp" -DRUNG=step12', calls[0])

    def test_without_cuobjdump_there_are_registers(self):
        self.compilers()
        (self.here / "cuobjdump").unlink()
        if shutil.which("cuobjdump", path="/usr/bin:/bin"):
            self.skipTest("there is a cuobjdump")
        done = self.run_script("--build-only", "--jobs", "1", "12_one_loop")
        self.assertIn("| 255, 221 | 12 at 128, stack 512 at 64 | |", " ".join(done.stdout.split()))

    def test_one_that_does_not_compile(self):
        self.stand_in("nvcc", "echo 'error: no such thing'; exit 2")
        done = self.run_script("--build-only", "12_one_loop")
        self.assertEqual(done.returncode, 1)
        self.assertIn("does not compile:\nerror: no such thing", done.stderr)


def a_record():
    """Rung 09 and 12, each with a variant: times are made up so that the ratios are round numbers."""
    variants = [{"program": name, "rung": rung, "what": what, "predicted": "p" if what else "",
                 "wrong_on_purpose": wrong, "counts": counts, "kernels": [
                     {"d": 128, "registers": 255, "stack": 0, "spill_stores": 4, "instructions": 30, "products": 10}]}
                for name, rung, what, wrong, counts in (
                    ("09_r", "09_r", "", False, {"shared_load_requests": 2, "shared_load_wavefronts": 5}),
                    ("09_idea", "09_r", "an idea", True, None),
                    ("12_r", "12_r", "", False, None), ("12_idea", "12_r", "another", False, None))]
    rows = []
    for d in (64, 128, 32):
        for causal in (False, True):
            for name, seconds in (("FA2", 4e-3), ("12_r", 2e-3), ("12_idea", 1e-3)):
                rows.append({"program": name, "flops": 2e11, "median_s": seconds,
                             "problem": {"batch": 1, "heads": 1, "N": 512, "d": d, "causal": causal}})
    for name, seconds in (("09_r", 1e-2), ("09_idea", 5e-3)):
        rows.append({"program": name, "flops": 2e11, "median_s": seconds,
                     "problem": {"batch": 4, "heads": 1, "N": 512, "d": 64, "causal": False}})
    return {"variants": variants, "rows": rows}


class Tables(unittest.TestCase):
    def test_tables(self):
        tables = experiment_tables.experiment_tables(a_record())
        self.assertEqual(list(tables), ["rung 09", "rung 12"])
        self.assertEqual(tables["rung 09"][1], "|---|---|---:|---:|---:|---:|")
        self.assertEqual(tables["rung 09"][2:], ["| rung 09 |  | 255 | 4 at 128 | 2.50 | 20.0 |",
                                                 "| an idea (wrong on purpose) | p | 255 | 4 at 128 |  | 40.0 |"])
        self.assertEqual(tables["rung 12"][2:], [
            "| rung 12 |  | 255 | 4 at 128 | 3.00 | 100, 100 | 100, 100 | 2.000 | 2.000 |",
            "| another | p | 255 | 4 at 128 | 3.00 | 200, 200 | 200, 200 | 4.000 | 4.000 |"])

    def test_one_problem(self):
        record = a_record()
        for one in record["variants"]:
            one["rung"] = one["rung"].replace("09", "08")
        self.assertEqual(experiment_tables.experiment_tables(record)["rung 08"][3],
                         "| an idea (wrong on purpose) | p | 5.0 | 40.0 | 2.00 |")

    def test_variants_that_were_not_timed_are_left_out(self):
        record = a_record()
        record["rows"] = [row for row in record["rows"] if row["program"] != "09_idea"]
        self.assertEqual(len(experiment_tables.experiment_tables(record)["rung 09"]), 3)


if __name__ == "__main__":
    unittest.main()
