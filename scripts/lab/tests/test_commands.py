"""scripts/tour, test and step on a small clone whose compiler, CMake and apt are stand-ins that
write down their calls.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

# What stands in for each program. $HERE is the folder of the stand-ins; files there steer them.
STAND_INS = {
    "cmake": """
        case "$1" in
        --version) echo "cmake version $(cat "$HERE/cmake_version" 2>/dev/null || echo 3.30.0)" ;;
        --preset)
            if [ -e "$HERE/missing" ]; then
                echo "-- missing packages: $(cat "$HERE/missing")"; exit 1
            fi
            mkdir -p "build-$2"
            echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" > "build-$2/CMakeCache.txt"
            touch "build-$2/Makefile"
            built="built\\t$HERE/rung"
            second="$built"
            if [ "$2" = cpu ]; then second="left out\\tneeds a backend"; fi
            printf "01_first\\t$built\\n02_second\\t$second\\n99_last\\t$built\\n" \\
                > "build-$2/rungs.tsv" ;;
        --build) if [ "$4" = help ]; then printf "... 01_first\\n... test_01_first\\n"; exit; fi
            if [ -e "$HERE/slow" ]; then touch "$HERE/building"; sleep 30; fi
            if [ -e "$HERE/broken" ]; then echo "error: broken"; exit 1; fi ;;
        esac""",
    "ctest": """
        echo "1/12 Test #1: one ......***Skipped   0.01 sec"
        log=build-simt/Testing/Temporary
        if [ -e "$HERE/log" ]; then mkdir -p "$log"; cp "$HERE/log" "$log/LastTest.log"; fi
        if [ -e "$HERE/nothing_matches" ]; then echo "No tests were found!!!"; exit 8; fi
        if [ -e "$HERE/failing" ]; then echo "92% tests passed, 1 tests failed"; exit 8; fi
        echo "100% tests passed, 0 tests failed out of 12" """,
    "apt-get": """
        if [ -e "$HERE/offline" ]; then
            echo "E: Failed to fetch a.deb  Temporary failure resolving 'mirror'"; exit 100
        fi
        case "$*" in
        *install*) rm -f "$HERE/missing" ;;
        esac""",
    "apt-cache": 'echo "  Candidate: 3.7.1"',
    "sudo": 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"',
    "nvidia-smi": """
        case "$*" in
        -L) cat "$HERE/gpu" 2>/dev/null ;;
        *compute_cap*) cat "$HERE/capability" 2>/dev/null ;;
        esac""",
    "c++": "exit 0",
    "make": "exit 0",
    "rung": """
        case "$*" in *--json*) cat "$HERE/report" ;; *) printf '<%s>' "$@" ;; esac
        echo "from the rung" >&2
        exit "$(cat "$HERE/exit_code" 2>/dev/null || echo 0)" """,
}

CHECK = {"o_error": 1e-6, "o_bound": 1e-4, "lse_error": 2e-6, "lse_bound": 3e-5, "message": ""}
REPORT = {"ok": True, "backend": "cpu", "seconds": 0.002, "gflops_per_s": 7.5, "damage": ""}
REPORT |= {"rung": "01_first", "check": CHECK}


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.clone = Path(folder.name).resolve() / "José's clone"  # with all that a name may hold
        shutil.copytree(
            ROOT / "scripts", self.clone / "scripts", ignore=shutil.ignore_patterns("__pycache__")
        )
        read = "common/torch/flash_steps"  # the ladder
        shutil.copytree(ROOT / read, self.clone / read)
        read = "common/simt/cuda_on_cpu"
        shutil.copytree(ROOT / read, self.clone / read)
        for rung in ("01_first", "02_second"):
            (self.clone / "steps" / rung).mkdir(parents=True)
        (self.clone / "steps/03_not_registered").mkdir()
        self.ladder = self.clone / "steps/ladder.txt"
        self.ladder.write_text(
            "# comment | with | columns | - | x | y\n01_first | - | fp32 | any | - | an idea\n"
            "02_second|first|fp16 bf16|32 64|8.0|another, with (signs): a, b\n"
        )
        self.here = self.clone / "stand-ins"
        self.here.mkdir()
        for name, body in STAND_INS.items():
            self.put(
                name, f'#!/bin/sh\nHERE="{self.here}"\necho "{name} $*" >> "$HERE/calls"\n{body}\n'
            )
        (self.here / "calls").touch()
        self.put("report", json.dumps(REPORT))

    def put(self, name, text=""):
        (self.here / name).write_text(text)
        (self.here / name).chmod(0o755)

    def calls(self, program):
        lines = (self.here / "calls").read_text().splitlines()
        return [line for line in lines if line.split()[0] == program]

    def environment(self, **variables):
        here = {"PATH": f"{self.here}:{os.environ['PATH']}", "CUDACXX": "stand-in-nvcc"}
        return {**os.environ, **here, **variables}

    def run_script(self, name, *arguments, **variables):
        return subprocess.run(
            [self.clone / "scripts" / name, *arguments],
            cwd="/",
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    def test_help_and_wrong_options(self):
        for script in ("tour", "test", "step"):
            self.assertEqual(self.run_script(script, "--help").returncode, 0)
            self.assertIn(f"Usage: scripts/{script}", self.run_script(script, "--help").stdout)
            for wrong in (["--nonsense"], ["--preset"], ["--preset", "nonsense"]):
                done = self.run_script(script, *wrong)
                self.assertEqual(done.returncode, 2)
                self.assertEqual(done.stdout, "")
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_simt_says_what_is_wrong(self):
        (self.here / "a.cu").write_text("int main() {}\n")
        for words, said in (
            ([], "what is to be done?"),
            (["walk"], "there is no command 'walk'"),
            (["a.cu"], "say what to do with it: scripts/simt run a.cu"),
            (["run"], "which program?"),
            (["run", "none.cu"], "there is no file 'none.cu'"),
            (["run", self.here / "a.cu", "100"], "100 is no program; its arguments come behind --"),
            (["run", self.here / "a.cu", "--wacth"], "unrecognized arguments: --wacth"),
            (["run", self.here / "a.cu", "--ignore", "7"], "FILE:LINE is wanted, not 7"),
        ):
            done = self.run_script("simt", *words)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertIn(said, done.stderr)
        self.assertIn("usage: scripts/simt run FILE.cu", self.run_script("simt", "--help").stdout)

    def test_step_finds_a_rung_and_gets_out_of_its_way(self):
        self.put("exit_code", "1")
        for name in ("1", "01", "01_first", "first"):
            done = self.run_script("step", name, "--causal", "a b")
            self.assertEqual(
                (done.returncode, done.stdout, done.stderr),
                (1, "<--causal><a b>", "from the rung\n"),
            )

    def test_step_refuses_what_is_no_rung(self):
        self.put("broken")
        for name, said in (
            ("3", "there are first, second"),
            ("03_not_registered", "there are first, second"),
            ("1000", "there are first, second"),
            ("firs", "did you mean first?"),
            ("", "there is no rung ''"),
            ("-1", "unknown option"),
            ("2 --diff junk", "nothing comes behind --diff, and 'junk' does"),
            ("--preset cuda 2", "02_second needs a GPU, and nvidia-smi finds none; --preset simt"),
            ("1", "error: broken"),
        ):
            done = self.run_script("step", *(name.split() or [""]), CUDACXX="true")
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(said, done.stderr)
        self.assertEqual([call for call in self.calls("cmake") if "--preset cuda" in call], [])
        self.assertIn(
            "02_second needs a backend", self.run_script("step", "--preset", "cpu", "2").stderr
        )

    def test_only_some_tests(self):
        (self.clone / "steps/CMakeLists.txt").write_text('add_test(NAME "harness: something")')
        for name, code, built in (
            ("01_fir", 0, "--target 01_first --target test_01_first"),
            ("harness", 0, "--parallel"),
            ("harness: .*thing", 0, "--parallel"),
        ):
            (self.here / "calls").write_text("")
            self.assertEqual(self.run_script("test", "--only", name).returncode, code)
            self.assertIn(built, self.calls("cmake")[-1])
            self.assertEqual("--target" in self.calls("cmake")[-1], name == "01_fir")
            self.assertIn(f"-R {name}", self.calls("ctest")[0])

    def test_only_what_is_no_test_is_said_at_once(self):
        (self.here / "calls").write_text("")
        for name in ("05_typo", "harmess"):
            done = self.run_script("test", "--only", name)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertIn(f"there is no test '{name}'; the tests of a rung begin", done.stderr)
        self.assertEqual(self.calls("cmake") + self.calls("ctest"), [])
        done = self.run_script("test", "--preset", "cpu", "--only", "02_second")
        self.assertEqual((done.returncode, self.calls("ctest")), (2, []))
        self.assertIn("preset cpu does not build it: 02_second needs a backend", done.stderr)
        self.put("nothing_matches")  # what only the built programs can tell
        done = self.run_script("test", "--only", "simt: nonsense")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no test 'simt: nonsense'", done.stderr)

    def test_what_is_missing_is_installed(self):
        self.run_script("test")
        self.assertEqual(self.calls("apt-get") + self.calls("sudo"), [])  # as nothing is missing
        self.put("missing", "libeigen3-dev catch2")
        done = self.run_script("test")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Installing with apt: libeigen3-dev catch2", done.stdout)
        installed = [call for call in self.calls("apt-get") if " install " in call]
        self.assertEqual(len(installed), 1)
        self.assertTrue(installed[0].endswith(" libeigen3-dev catch2"), installed)

    def test_one_line_says_what_a_machine_lacks(self):
        python = "there is no no-such-python"
        for script, lack, message in (
            ("step 1", "../build-simt", "build-simt cannot be written; please work in a clone"),
            ("bench", "", python),
            ("site", "", python),
            ("exercise", "", python),
            ("exercise --gpu overlap.1", "", "needs nvcc"),
            ("test", "offline", "apt cannot download the packages (Temporary failure resolving"),
            (
                "test",
                "cmake_version",
                "/cmake, which comes first in PATH, is older than CMake 3.25",
            ),
        ):
            self.put("missing", "catch2")
            self.put(lack or "nothing", "3.22.1")
            done = self.run_script(*script.split(), FLASH_PYTHON="no-such-python")
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertIn(message, done.stderr)
            (self.here / (lack or "nothing")).unlink(missing_ok=True)

    def test_a_sudo_that_cannot_be_asked(self):
        """As somebody who is not root."""
        self.put("id", "#!/bin/sh\necho 1000\n")
        self.put("missing", "catch2")
        self.put("sudo", "#!/bin/sh\nexit 1\n")
        self.put("apt-cache", "#!/bin/sh\necho '  Candidate: 2.13.10-1'\n")
        done = self.run_script("test")
        self.assertEqual((done.returncode, self.calls("apt-get")), (2, []))
        self.assertIn("sudo would ask for a password. Please run: sudo apt-get", done.stderr)
        self.assertIn("Its Catch2 is older than 3", done.stderr)
        # And where there is none: no PATH but that of the stand-ins and what scripts need.
        (self.here / "sudo").unlink()
        tools = "bash sh env awk sed grep cat head tail sort paste dirname basename mktemp chmod rm"
        for tool in [*tools.split(), "mkdir"]:
            (self.here / tool).symlink_to(shutil.which(tool))
        (self.here / "python3").symlink_to(sys.executable)
        done = self.run_script("test", PATH=str(self.here))
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no sudo. Please run as root: apt-get install", done.stderr)

    def test_an_old_catch2_is_downloaded_by_cmake(self):
        self.put("missing", "catch2")
        self.put("apt-cache", "#!/bin/sh\necho '  Candidate: 2.13.10-1'\n")
        done = self.run_script("test")
        self.assertIn("Catch2 is older than 3; CMake will download its pinned", done.stderr)
        self.assertIn("-DFLASH_FETCH=ON", self.calls("cmake")[-2])

    def test_a_build_folder_of_another_clone_is_made_anew(self):
        self.run_script("step", "1")
        cache = self.clone / "build-simt/CMakeCache.txt"
        cache.write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/another/clone\n")
        (self.here / "calls").write_text("")
        self.assertEqual(self.run_script("step", "1").returncode, 0)
        (configured,) = [call for call in self.calls("cmake") if "--preset" in call]
        self.assertIn("--fresh", configured)
        self.run_script("step", "1")
        self.assertEqual(sum("--preset" in call for call in self.calls("cmake")), 1)

    def test_ctrl_c_during_a_build_leaves_no_half_state(self):
        self.put("slow")
        logs = self.here / "logs"
        logs.mkdir()
        started = subprocess.Popen(
            [self.clone / "scripts/step", "1"],
            env=self.environment(TMPDIR=str(logs)),
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
            # What runs in the background of a shell, as this may, is born deaf to Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        while not (self.here / "building").exists():
            time.sleep(0.05)
        os.killpg(started.pid, signal.SIGINT)
        said = started.communicate()[1]
        self.assertEqual(started.returncode, 130)
        self.assertIn("interrupted; called again, it goes on where it was", said)
        self.assertEqual(list(logs.iterdir()), [])
        (self.here / "slow").unlink()
        self.assertEqual(self.run_script("step", "1").returncode, 0)

    def test_where_cuda_rungs_run(self):
        nvcc = "#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n"
        emulated = "on the CPU by the SIMT backend"
        self.assertIn(emulated, self.run_script("test").stdout)
        self.put("stand-in-nvcc", nvcc)
        said = self.run_script("test", "--preset", "cuda").stdout
        self.assertIn("nvidia-smi finds none here", said)
        self.assertIn(
            "--gpu needs a GPU", self.run_script("exercise", "--gpu", "cuda_naive.1").stderr
        )
        self.put("gpu", "GPU 0: NVIDIA Something (UUID: GPU-1)\n")
        said = self.run_script("test").stdout
        for words in ("NVIDIA Something", "13.0", "on the GPU"):
            self.assertIn(words, said)
        self.put("capability", "7.5\n[N/A]\n")
        said = self.run_script("test").stdout
        self.assertIn("its compute capability is 7.5, and the CUDA rungs need 8.0", said)
        self.assertIn(emulated, said)
        self.put("capability", "7.5\n12.0\n")  # one of them will do
        self.assertIn("on the GPU", self.run_script("test").stdout)

    def test_failures_to_build_and_of_tests(self):
        done = self.run_script("test")
        self.assertIn("100% tests passed, 0 tests failed out of 12", done.stdout)
        self.assertIn("11 test cases passed, 1 were skipped", done.stdout)
        self.put("failing")
        self.assertEqual(self.run_script("test").returncode, 1)
        self.put("broken")
        self.assertIn("error: broken", self.run_script("test").stdout)
        self.assertEqual(self.run_script("tour").returncode, 1)

    def test_what_needs_pypi_is_left_out_with_its_reason(self):
        self.put(
            "log",
            "1/2 Testing: scripts.simt: a first run\n1/2 Test: scripts.simt: a first run\n"
            "scripts/simt: PyPI does not answer, and so on\nPyPI does not answer\n"
            "2/2 Testing: another\n2/2 Test: another\nall is well\n",
        )
        done = self.run_script("test")
        self.assertEqual(done.returncode, 0, done.stderr)
        left_out = [line for line in done.stdout.splitlines() if "PyPI" in line]
        self.assertEqual(
            left_out, ["Left out: scripts.simt: a first run, because PyPI does not answer"]
        )

    def test_a_tour_that_failed_says_so_last(self):
        data = "reference/data/minilm_layer1.safetensors"
        (self.clone / data).parent.mkdir(parents=True)
        shutil.copy(ROOT / data, self.clone / data)
        self.ladder.write_text(
            self.ladder.read_text() + "99_last | - | fp32 | any | - | the last\n"
        )
        self.put("report", json.dumps({**REPORT, "ok": False}))
        done = self.run_script("tour", "--preset", "simt")
        self.assertEqual(done.returncode, 1, done.stderr)
        last = done.stdout.splitlines()[-1]
        self.assertIn("3 of 3 rungs failed: 01_first, 02_second, 99_last.", last)

    def test_the_ladder(self):
        rungs, output = self.here / "rungs.tsv", self.here / "output"
        rungs.write_text(
            f"01_first\tbuilt\t{self.here}/rung\n02_second\tleft out\tneeds a backend\n"
        )
        real = ROOT / "reference/data/minilm_layer1.safetensors"
        command = [sys.executable, "-Bm", "lab.climb", self.ladder, rungs, real, output]
        for report, ended, code, words in (
            (REPORT, 0, 0, ["passed"]),
            ({**REPORT, "ok": False}, 0, 1, ["WRONG"]),
            (REPORT, 2, 1, ["from the rung", "0 of 2 runs passed", "1 of 1 rungs failed: 01"]),
        ):
            self.put("report", json.dumps(report))
            self.put("exit_code", str(ended))
            output.with_suffix(".new").touch()  # what a rung would have written
            done = subprocess.run(command, cwd=ROOT / "scripts", capture_output=True, text=True)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            for text in (*words, "01_first: an idea\n", "02_second needs a backend"):
                self.assertIn(text, done.stdout)
