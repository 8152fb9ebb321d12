#!/usr/bin/env python3
"""For which GPUs a build for CUDA compiles, and scripts/check_architectures: with stand-ins for nvidia-smi and nvcc, and
once with the real nvcc."""

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CUDA_12_4 = "50 60 70 75 80 86 87 89 90"
CUDA_13_0 = "75 80 86 87 88 89 90 100 110 103 120 121"
NVCC = shutil.which("nvcc")
PTXAS = textwrap.dedent("""
    echo "ptxas info    : 0 bytes gmem"
    for d in 64 128; do
        echo "ptxas info    : Compiling entry function '_Z6kernelILi${d}EEvv' for 'sm_xx'"
        echo "ptxas info    : Function properties for _Z6kernelILi${d}EEvv"
        echo "    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads"
        echo "ptxas info    : Used $((d + 40)) registers, used 1 barriers, 8 bytes cumulative stack size, 96 bytes smem"
    done""")


class Architectures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name)
        (self.here / "choose.cmake").write_text(
            "cmake_minimum_required(VERSION 3.25)\n"
            f"include({ROOT}/scripts/cmake/Architectures.cmake)\n"
            f'flash_choose_architectures("{self.here}/nvcc")\n'
            'message(STATUS "chosen: ${CMAKE_CUDA_ARCHITECTURES}, ENV: $ENV{CUDAARCHS}")\n')
        self.stand_in("nvcc", "".join(f"echo compute_{one}\n" for one in CUDA_13_0.split()))

    def stand_in(self, name, body):
        path = self.here / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def gpus(self, *capabilities):
        self.stand_in("nvidia-smi", f'[ "$*" = "--query-gpu=compute_cap --format=csv,noheader" ] || exit 2\n'
                      f'printf "%s\\n" {" ".join(capabilities)}')

    def run_cmake(self, *arguments, path="", **environment):
        inherited = {key: value for key, value in os.environ.items() if key not in ("CUDAARCHS", "CUDACXX")}
        return subprocess.run([shutil.which("cmake"), *arguments], cwd=self.here, capture_output=True, text=True,
                              env={**inherited, "PATH": f"{self.here}{path}", **environment})

    def chosen(self, *arguments, **environment):
        done = self.run_cmake(*arguments, "-P", "choose.cmake", **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split("chosen: ")[1].split(",")[0], done.stdout

    def test_every_gpu_that_the_toolkit_knows(self):
        for capability, architecture in (("8.0", "80"), ("8.6", "86"), ("8.9", "89"), ("9.0", "90"), ("10.0", "100"),
                                         ("12.0", "120")):
            self.gpus(capability)
            self.assertEqual(self.chosen()[0], architecture)

    def test_several_gpus(self):
        self.gpus("9.0", "9.0", "8.6")
        self.assertEqual(self.chosen()[0], "90;86")
        self.gpus("7.5", "8.6")  # the old one is left out
        self.assertEqual(self.chosen()[0], "86")

    def test_no_gpu(self):
        for body in (None, 'echo "NVIDIA-SMI has failed because it could not communicate with the driver"; exit 9',
                     'echo "No devices were found"', "exit 0", 'echo "[N/A]"'):
            if body:
                self.stand_in("nvidia-smi", body)
            chosen, said = self.chosen()
            self.assertEqual(chosen, "80;90", body)
            self.assertIn("nvidia-smi finds no GPU; building for compute capability 8.0 and 9.0", said)

    def test_the_users_choice(self):
        self.gpus("9.0")
        self.assertEqual(self.chosen("-DCMAKE_CUDA_ARCHITECTURES=86;89")[0], "86;89")
        self.assertEqual(self.chosen("-DCMAKE_CUDA_ARCHITECTURES=native")[0], "native")
        chosen, said = self.chosen(CUDAARCHS="86")  # CMake itself reads it when CUDA is enabled
        self.assertEqual(chosen, "")
        self.assertIn("ENV: 86", said)

    def test_a_gpu_that_is_too_old(self):
        for capability in ("7.5", "3.7"):
            self.gpus(capability)
            done = self.run_cmake("-P", "choose.cmake")
            self.assertEqual(done.returncode, 1)
            said = " ".join(done.stderr.split())  # CMake breaks long lines
            self.assertIn(f"The GPU here has compute capability {capability}; the CUDA rungs need 8.0 or newer.", said)
            self.assertIn("cmake --preset simt", said)
            self.assertEqual(self.chosen("-DCMAKE_CUDA_ARCHITECTURES=80")[0], "80")

    def test_a_gpu_that_is_too_new(self):
        self.stand_in("nvcc", "".join(f"echo compute_{one}\n" for one in CUDA_12_4.split()))
        for capability in ("10.0", "12.0"):
            self.gpus(capability)
            chosen, said = self.chosen()
            self.assertEqual(chosen, "90-virtual")
            self.assertIn(f"this nvcc does not know compute capability {capability}; building PTX for compute_90", said)
        self.stand_in("nvcc", "".join(f"echo compute_{one}\n" for one in (*CUDA_12_4.split(), 100, 120)))
        self.gpus("12.1")  # code for 12.0 runs on it
        self.assertEqual(self.chosen()[0], "120")

    def test_a_compiler_that_lists_nothing(self):
        self.stand_in("nvcc", "exit 1")
        self.gpus("8.9")
        self.assertEqual(self.chosen()[0], "89")

    @unittest.skipUnless(NVCC, "there is no nvcc")
    def test_a_whole_configuration(self):
        (self.here / "nvcc").unlink()
        (self.here / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(tiny LANGUAGES NONE)\n"
            f"list(APPEND CMAKE_MODULE_PATH {ROOT}/scripts/cmake)\nadd_library(flash_settings INTERFACE)\n"
            "include(Backend)\nadd_library(kernel OBJECT kernel.cu)\n")
        (self.here / "kernel.cu").write_text("__global__ void kernel() {}\n")
        for gpu, architecture in (("8.6", "86"), (None, "80;90")):
            if gpu:
                self.gpus(gpu)
            else:
                self.stand_in("nvidia-smi", "exit 9")
            done = self.run_cmake("--fresh", "-B", "build", "-DFLASH_BACKEND=cuda", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
                                  path=os.pathsep + os.environ["PATH"])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"CMAKE_CUDA_ARCHITECTURES:STRING={architecture}\n",
                          (self.here / "build/CMakeCache.txt").read_text())
            commands = (self.here / "build/compile_commands.json").read_text()
            for one in architecture.split(";"):
                self.assertIn(f"arch=compute_{one},code=[compute_{one},sm_{one}]", commands)

    def check(self, *arguments, nvcc=None):
        if nvcc:
            self.stand_in("nvcc", f"""
                case "$*" in
                --list-gpu-code) echo sm_80; echo sm_90 ;;
                --version) echo "Cuda compilation tools, release 12.4, V12.4.131" ;;
                *) {nvcc} ;;
                esac""")
        else:
            (self.here / "nvcc").unlink(missing_ok=True)
        return subprocess.run([sys.executable, "-B", ROOT / "scripts/check_architectures", *arguments],
                              env={**os.environ, "PATH": f"{self.here}:/usr/bin:/bin" if nvcc else str(self.here)},
                              capture_output=True, text=True)

    def test_registers_and_spills(self):
        done = self.check("--kernels", nvcc=PTXAS)
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("kernel<128>: 168 registers, 8 bytes of stack, 4 and 12 bytes spilled and fetched, "
                      "96 bytes of static shared memory", "| rung | sm_80 | sm_90 |", "| 13 | 168, 8 B spilled | 168, 8 B spilled |",
                      "left out: sm_120, which this nvcc (12.4.131) does not know"):
            self.assertIn(words, done.stdout)
        self.assertRegex(done.stdout, r"(\d+) of \1 compile without a warning")

    def test_a_kernel_that_does_not_compile(self):
        done = self.check("--only", "13", nvcc='echo "kernel.cu(3): error: no"; exit 1')
        self.assertEqual(done.returncode, 1)
        self.assertIn("kernel.cu(3): error: no", done.stderr)
        self.assertIn("0 of 2 compile", done.stdout)
        self.assertEqual(self.check("--only", "13", nvcc="true").returncode, 1)  # nothing came of it
        self.assertEqual(self.check("--only", "13", nvcc=f"{PTXAS}\nexit 2").returncode, 1)  # a warning is an error

    def test_what_check_architectures_refuses(self):
        self.assertEqual(self.check("--help").returncode, 0)
        self.assertIn("there is no nvcc in PATH", self.check().stderr)
        for wrong in (["--arch", "x"], ["--arch", "120"], ["--only", "no such rung"]):
            done = self.check(*wrong, nvcc="true")
            self.assertEqual((done.returncode, done.stdout), (2, ""))


if __name__ == "__main__":
    unittest.main()
