#!/usr/bin/env python3
"""scripts/bench on a build folder, a GPU and compilers that are stand-ins, and the tables made from its records."""

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/lib"))
sys.dont_write_bytecode = True
import bench_tables
import benched
import gpu_records
import records

# A rung that answers as the harness does. $HERE is the folder of the stand-ins; files there steer it.
RUNG = """#!/usr/bin/env python3
import json, os, sys, time
name, here, arguments = os.path.basename(sys.argv[0]), "{here}", sys.argv[1:]
with open(here + "/calls", "a") as calls:
    print(name, *arguments, file=calls)
types = "bf16, fp16" if name.startswith("10") else "fp32"
if "--help" in arguments:
    print("  --dtype TYPE                Type of Q, K, V and O: " + types + " (x)")
    sys.exit(0)
def value(option):
    return int(arguments[arguments.index(option) + 1])
if os.path.exists(here + "/refuse_" + name) and value("--q-len") >= int(open(here + "/refuse_" + name).read() or 0):
    print(name + ": not enough memory", file=sys.stderr)
    sys.exit(2)
if os.path.exists(here + "/stop_" + name) and "--bench" in arguments:
    import signal
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(20)
timed = "--bench" in arguments or "--repetitions" in arguments
flops = 4.0 * value("--batch") * value("--heads") * value("--q-len") ** 2 * value("--head-dim")
wrong = os.path.exists(here + "/wrong_" + name)
times = {{"01": [1, 1, 1.2], "02": [0.5] * 3, "06": [0.04] * 3, "08": [0.02] * 3, "09": [0.01, 0.01, 0.0101],
         "10": [0.002] * 3}}
times = times[name[:2]]
print(json.dumps({{
    "rung": name, "idea": "an idea", "ok": not wrong, "backend": "cpu", "description": "here", "dtype": "fp32",
    "seconds": times[0], "flops": flops, "damage": "", "compiler": "12",
    "benchmark": {{"seconds": times, "cut_short": True,
                  "peak_memory_bytes": 4 * value("--q-len") ** 2}} if timed else None,
    "check": None if "--no-check" in arguments
             else {{"o_error": 1e-6, "o_bound": 1e-4,
                   "rows": value("--check-rows") if "--check-rows" in arguments else 9,
                   "message": "O differs" if wrong else ""}}}}))
sys.exit(1 if wrong else 0)
"""
# A compiler whose programs print ceilings, and what nvidia-smi and ncu answer.
STAND_INS = {
    "g++": 'if [ "$1" = --version ]; then echo "g++ 12"; exit; fi\n'
           'for last; do :; done; printf \'#!/bin/sh\\necho "{\\\\"cpu_fma_flops\\\\": 2e12}"\\n\' > "$last"\n'
           'chmod +x "$last"',
    "nvcc": 'if [ "$1" = --version ]; then echo "release 13.0, V13"; exit; fi\n'
            'if [ "$1" = --list-gpu-arch ]; then echo "compute_80 compute_90 compute_120"; exit; fi\n'
            'for last; do :; done\n'
            'printf \'#!/bin/sh\\necho "{\\\\"ffma_flops\\\\": 6e13, \\\\"mma_sync_flops\\\\": 6e14}"\\n\' > "$last"\n'
            'chmod +x "$last"',
    "nvidia-smi": 'if [ ! -e "$HERE/gpu" ]; then exit 9; fi\n'
                  'case "$*" in -L) echo "GPU 0: NVIDIA RTX 1" ;; *compute_cap*) echo 9.0 ;;\n'
                  '*clocks.mem*) echo "1980 MHz, 2619 MHz, 100 W, 40" ;;\n'
                  '*) echo "NVIDIA RTX 1, 580, 1980 MHz, 700 W, 24000 MiB" ;; esac',
}
# ncu: one kernel, in which every metric is 8, but no conflict is counted.
NCU = """#!/usr/bin/env python3
import sys
metrics = sys.argv[sys.argv.index("--metrics") + 1].split(",")
for row in (["ID", "Kernel Name", *metrics], [""] * (len(metrics) + 2),
            ["0", "a::kernel<1>(int)", *("0" if "conflicts" in name else "8" for name in metrics)]):
    print(",".join(f'"{cell}"' for cell in row))
"""


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name).resolve()
        self.build = self.here / "build"
        self.build.mkdir()
        for name, body in STAND_INS.items():
            self.program(self.here / name, f'#!/bin/sh\nHERE="{self.here}"\n{body}\n')
        self.program(self.here / "ncu", NCU)
        self.tsv = ""
        for name in ("01_naive_attention", "02_safe_softmax", "08_flash_attention_2", "09_register_tiling",
                     "10_mma_sync"):
            self.program(self.build / name, RUNG.format(here=self.here))
            self.tsv += f"{name}\tbuilt\t{self.build / name}\n"
        (self.build / "rungs.tsv").write_text(self.tsv)
        self.backend("cuda")
        (self.here / "gpu").touch()

    def program(self, path, text):
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IEXEC)

    def backend(self, name):
        (self.build / "CMakeCache.txt").write_text(f"FLASH_BACKEND:STRING={name}\nCMAKE_CXX_FLAGS_RELEASE:STRING=-O3\n")

    def bench(self, *arguments):
        environment = {**os.environ, "PATH": f"{self.here}:{os.environ['PATH']}"}
        command = [sys.executable, "-B", ROOT / "scripts/bench", "--programs", self.build,
                   "--output", self.here / "record.json", *arguments]
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        done.table = re.sub(r" +", " ", done.stdout)  # without what aligns the columns
        return done

    def record(self):
        return json.loads((self.here / "record.json").read_text())

    def calls(self):
        return (self.here / "calls").read_text().splitlines()

    def test_a_run_on_a_gpu(self):
        done = self.bench()
        self.assertEqual(done.returncode, 0, done.stderr)
        record = self.record()
        ours = [row for row in record["rows"] if not row.get("library")]
        self.assertEqual(len(ours), 10)  # five rungs, two problems
        self.assertEqual([row["dtype"] for row in ours[:5]], ["fp32"] * 4 + ["bf16"])
        self.assertEqual([row["unit"] for row in ours[:5]],
                         ["cpu_fma_flops"] * 2 + ["ffma_flops"] * 2 + ["mma_sync_flops"])
        self.assertEqual((record["gpu"], record["cuda"], record["before"]["power"]), ("NVIDIA RTX 1", "13.0", "100 W"))
        self.assertEqual(record["flags"], {"CMAKE_CXX_FLAGS_RELEASE": "-O3"})
        self.assertEqual(record["ceilings"], {"cpu_fma_flops": 2e12, "ffma_flops": 6e13, "mma_sync_flops": 6e14})
        self.assertEqual(list(record["counters"]), ["08_flash_attention_2", "09_register_tiling", "10_mma_sync"])
        self.assertEqual(record["counters"]["10_mma_sync"]["kernel"]["dram_read_bytes"], 8)
        self.assertIn("| 10 kernel | 1.60e-08 | 1.0 | 1.0 | 1.00 | 8% |", done.table)
        self.assertEqual([row["noisy"] for row in ours[:5]], [True, False, False, False, False])
        self.assertIn("1 of 10: 01_naive_attention", done.stderr)
        self.assertIn("about 92 s, and the check", done.stderr)  # 16 times N = 1024's second; 5.75 times
        timed = [call for call in self.calls() if "--bench" in call]
        self.assertFalse([call for call in timed if "--no-check" in call])
        self.assertTrue([call for call in timed if "--batch 100 --heads 1 --q-len 4096 --head-dim 32" in call])
        self.assertTrue([call for call in timed if call.startswith("10_mma_sync") and "--dtype bf16" in call])

        # The numbers of the table: 4 B H N^2 d / s, and the factors between rows.
        first = [line.split(" | ") for line in done.table.splitlines() if line.startswith("| ")][2:7]
        self.assertEqual(first[0][2:5], ["1000 (noisy)", "20.0%", "0.275"])
        self.assertEqual(first[3][0:2] + first[3][4:5] + first[3][6:8],
                         ["| 09_register_tiling", "fp32", "27.5", "45.8%", "2.00"])
        self.assertEqual(first[4][1:2] + first[4][4:5] + first[4][7:8], ["bf16", "137", "5.00"])

    def test_without_a_gpu_the_cuda_rungs_are_left_out(self):
        (self.here / "gpu").unlink()
        for backend, words in (("cuda", "needs a GPU"), ("simt", "SIMT backend")):
            self.backend(backend)
            done = self.bench()
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"left out: 09_register_tiling {words}" if backend == "cuda" else words, done.stderr)
            self.assertEqual([row["program"][:2] for row in self.record()["rows"]], ["01", "02"] * 2)
            self.assertNotIn("gpu", self.record())
            self.assertNotIn("ffma_flops", self.record()["ceilings"])

    def test_a_rung_that_is_not_built_is_left_out(self):
        (self.build / "09_register_tiling").unlink()
        (self.build / "rungs.tsv").write_text(self.tsv + "14_warp_specialization\tleft out\tneeds sm_90\n")
        done = self.bench("--no-counters")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("left out: 09_register_tiling is not built yet: cmake --build", done.stderr)
        self.assertIn("left out: 14_warp_specialization needs sm_90", done.stderr)
        self.assertEqual(len(self.record()["rows"]), 8)

    def test_a_rung_that_refuses_is_left_out_with_its_words(self):
        (self.here / "refuse_08_flash_attention_2").touch()
        done = self.bench()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("left out: not enough memory", done.stderr)
        self.assertEqual({entry["reason"] for entry in self.record()["left_out"]}, {"not enough memory"})

    def test_a_wrong_result_is_no_time(self):
        (self.here / "wrong_09_register_tiling").touch()
        done = self.bench()
        self.assertEqual(done.returncode, 1)
        self.assertIn("its result is wrong: O differs", done.stderr)
        self.assertNotIn("09_register_tiling", [row["program"] for row in self.record()["rows"]])

    def test_quick_is_smaller_and_says_so(self):
        done = self.bench("--quick", "--only", "09")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--quick: smaller problems", done.stdout)
        self.assertTrue(self.record()["quick"])
        self.assertNotIn("--q-len 4096", (self.here / "calls").read_text())

    def test_an_interrupted_run_keeps_what_it_measured(self):
        (self.here / "stop_09_register_tiling").touch()
        done = self.bench("--record")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("interrupted: 3 rows", done.stderr)
        self.assertTrue(self.record()["interrupted"])
        self.assertEqual([row["program"][:2] for row in self.record()["rows"]], ["01", "02", "08"])
        self.assertFalse((ROOT / "docs/records/bench_rtx_1.json").exists())  # that is no record

    def test_resuming(self):
        self.assertEqual(self.bench("--resume").returncode, 2)  # there is nothing yet
        (self.here / "stop_09_register_tiling").touch()
        self.assertEqual(self.bench().returncode, 1)
        (self.here / "stop_09_register_tiling").unlink()
        (self.here / "calls").unlink()
        refused = self.bench("--resume", "--series")  # of another kind
        self.assertEqual((refused.returncode, refused.stdout), (2, ""))
        self.assertIn("leave --resume out", refused.stderr)

        kept = self.build / "bench/bench.json"
        record = json.loads(kept.read_text())
        record["rows"][1]["code"] = "of another version"
        record["rows"][0]["median_s"] = 77.0
        record["ceilings"]["ffma_flops"] = 9e13  # more than the stand-in has
        kept.write_text(json.dumps(record))
        done = self.bench("--resume")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 rows are kept", done.stderr)
        self.assertEqual(len(self.record()["rows"]), 10)
        self.assertEqual((self.record()["rows"][0]["median_s"], self.record()["rows_of_an_earlier_run"]), (77, 2))
        self.assertNotIn("interrupted", self.record())
        ceilings = self.record()["ceilings"]
        self.assertEqual((ceilings["ffma_flops"], ceilings["cpu_fma_flops"]), (9e13, 2e12))
        self.assertEqual([row["program"][:2] for row in self.record()["rows"]], ["01", "02", "08", "09", "10"] * 2)
        first = [call[:2] for call in self.calls() if "--bench" in call and "--batch 4 " in call]
        self.assertEqual(first, ["02", "09", "10"])

    def test_a_series_over_N(self):
        done = self.bench("--series")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row["problem"]["N"] for row in self.record()["rows"][::5]],
                         [512, 1024, 2048, 4096, 8192, 16384])
        self.assertNotIn("counters", self.record())
        runs = [call for call in self.calls() if "--q-len 16384" in call and "--batch 1 " in call]
        self.assertEqual(["--bench" in call for call in runs], [False] * 2 + [True] * 3)  # the processor's run once
        self.assertEqual({row["checked_rows"] for row in self.record()["rows"]}, {256})
        self.assertIn("| 10_mma_sync | bf16 | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 |", done.table)
        self.assertIn("| 10_mma_sync | bf16 | 34.4 | 68.7 | 137 | 275 | 550 | 1100 |", done.table)

    def test_memory_over_N(self):
        self.program(self.build / "06_cuda_naive", RUNG.format(here=self.here))
        (self.build / "rungs.tsv").write_text(self.tsv + f"06_cuda_naive\tbuilt\t{self.build}/06_cuda_naive\n")
        (self.here / "refuse_06_cuda_naive").write_text("8192")
        done = self.bench("--memory")
        self.assertEqual(done.returncode, 0, done.stderr)
        record = self.record()
        lengths = {name: [row["problem"]["N"] for row in record["rows"] if row["program"][:2] == name]
                   for name in ("01", "02", "06", "08", "10")}
        self.assertEqual(lengths, {"01": [1024, 2048, 4096, 8192, 16384], "02": [], "06": [1024, 2048, 4096],
                                   "08": [1024 << i for i in range(8)], "10": []})  # 06 is asked once more, at 8192
        self.assertEqual(len([call for call in self.calls() if call.startswith("06") and "--json" in call]), 4)
        self.assertEqual(bench_tables.footprint(record["rows"][0]), 8 * 1024 * (4 * 64 + 1) * 4 + 4 * 1024 ** 2)
        self.assertIn("| 06_cuda_naive | fp32 | 12.6 MB | 33.6 MB | 101 MB | does not fit | | | | |", done.table)
        picture = (self.build / "bench/memory.svg").read_text()
        self.assertIn("from here on rung 06 does not fit", picture)
        self.assertIn("all memory of the GPU, 25 GB", picture)

    def test_a_page_with_pictures_is_left_in_the_build_folder(self):
        for arguments, kind, names in (((), "bench", ("ladder", "traffic", "conflicts")),
                                       (("--series",), "series", ("time",))):
            done = self.bench(*arguments)
            self.assertIn(f"bench/{kind}.md", done.stderr)
            page = (self.build / f"bench/{kind}.md").read_text()
            for name in names:
                self.assertIn(f"]({name}.svg)", page)
                self.assertIn("10 mma sync", (self.build / f"bench/{name}.svg").read_text())
            self.assertIn("| 10_mma_sync | bf16 |", page)
            self.assertIn("NVIDIA RTX 1", page)
            self.assertEqual(json.loads((self.build / f"bench/{kind}.json").read_text()), self.record())

    def test_wrong_options(self):
        for wrong in (["--quick", "--record"], ["--memory", "--series"], ["--only", "09", "--record"], ["--nonsense"],
                      ["--only", "nothing"], ["--programs", str(self.here)],
                      ["--output", str(self.here / "nowhere/record.json")]):
            done = self.bench(*wrong)
            self.assertEqual((done.returncode, done.stdout), (2, ""), wrong)
        self.assertEqual(self.bench("--help").returncode, 0)

    def test_libraries_and_the_ladder(self):
        def torch(command):
            times = {"fp32": {"memory-efficient": [0.008] * 3}, "bf16": {"cuDNN": [0.001] * 3}}[command[-1]]
            return json.dumps({"version": "2", "seconds": times})
        done = self.bench("--no-counters")
        self.assertEqual(done.returncode, 0, done.stderr)
        record = self.record()
        record["rows"] = [row for row in record["rows"] if not row.get("library")]
        problem = record["rows"][0]["problem"]
        with mock.patch.object(benched, "output_of", torch):
            rows, version = benched.time_libraries(problem, record["rows"][0]["flops"])
        record["rows"] += rows
        self.assertEqual(version, "2")
        details = "\n".join(bench_tables.details(record, problem))
        self.assertIn("| PyTorch, cuDNN | bf16 | 1.00 |", details)
        of = {line.split(" | ")[0]: line for line in details.splitlines()}
        self.assertTrue(of["| 09_register_tiling"].endswith("| 0.800 |"))  # of the memory-efficient kernel
        self.assertTrue(of["| 10_mma_sync"].endswith("| 0.500 |"))         # of cuDNN
        ladder = bench_tables.ladder(record, problem, [("08_flash_attention_2", "loops"), ("99_new", "not measured"),
                                                       ("09_register_tiling", "tiles")])
        self.assertTrue(ladder[2].startswith("| [08_flash_attention_2](steps/08_flash_attention_2) | loops | "))
        self.assertEqual(ladder[3], "| [99_new](steps/99_new) | not measured |  |  |  |  |  |  |")
        self.assertTrue(ladder[4].endswith("| 27.5 | 45.8% | 2.00 |"))

    def test_code_that_was_measured_before_it_changed_is_marked(self):
        row = {"program": "09_register_tiling", "code": benched.code_of("09_register_tiling"), "median_s": 0.5,
               "noisy": True}
        self.assertEqual(bench_tables.milliseconds(row), "500 (noisy)")
        self.assertEqual(bench_tables.milliseconds({**row, "code": "another"}), "500 (noisy) (older code)")

    def test_of_a_ceiling_the_best_counts(self):
        (self.here / "speeds").write_text("1 3 2")
        self.program(self.here / "g++", '#!/bin/sh\nfor last; do :; done\n'
                     f'printf \'#!/bin/sh\\nset -- $(cat {self.here}/speeds); '
                     f'echo "{{\\"cpu_fma_flops\\": $1}}"; shift; echo "$@" > {self.here}/speeds\\n\' > "$last"; chmod +x "$last"\n')
        with mock.patch.dict(os.environ, {"PATH": f"{self.here}:{os.environ['PATH']}"}):
            ceilings = benched.Ceilings(gpu=False)
            self.addCleanup(ceilings.folder.cleanup)
            self.assertEqual([ceilings.measure() for _ in range(3)],
                             [{"cpu_fma_flops": 1}, {"cpu_fma_flops": 3}, {"cpu_fma_flops": 3}])

    def test_nvcc_compiles_for_a_gpu_that_it_does_not_know(self):
        with mock.patch.dict(os.environ, {"PATH": f"{self.here}:{os.environ['PATH']}"}):
            for capability, target in (("9.0", "native"), ("12.0", "native"), ("12.1", "compute_120"),
                                       ("10.3", "compute_90"), ("8.6", "compute_80"), ("", "native")):
                self.program(self.here / "nvidia-smi", f"#!/bin/sh\necho {capability}\n")
                self.assertEqual(gpu_records.nvcc_target(), f"-arch={target}", capability)

    def test_a_fingerprint_ignores_comments_and_spaces(self):
        with mock.patch.object(benched, "ROOT", self.here):
            folder = self.here / "steps/77_x"
            folder.mkdir(parents=True)

            def code(kernel):
                (folder / "x.cu").write_text(kernel)
                return benched.code_of("77_x")
            self.assertEqual(code("int a; // one\n"), code("// two\nint  a;"))
            self.assertNotEqual(code("int a;"), code("int b;"))
            before = code("int a;")
            (folder / "main.cpp").write_text("int main() {}")
            self.assertEqual(code("int a;"), before)
            (folder / "x.hpp").write_text("int c;")
            self.assertNotEqual(code("int a;"), before)

    def test_columns_of_a_table_stand_below_each_other(self):
        table = bench_tables.left_aligned(records.markdown_table(["", "ms"], [["a rung", "7"], ["b", "12.5"]]))
        self.assertEqual(records.aligned(table).splitlines(),
                         ["|        |   ms |", "| ------ | ---: |", "| a rung |    7 |", "| b      | 12.5 |"])

    def test_three_digits(self):
        for value, text in ((1234.5, "1234"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.8, "0.800"),
                            (0.01234, "0.0123")):
            self.assertEqual(bench_tables.three_digits(value), text)

    def test_every_rung_of_the_ladder_has_an_idea(self):
        self.assertFalse([name for name, idea in bench_tables.ladder_rungs() if not idea])


if __name__ == "__main__":
    unittest.main()
