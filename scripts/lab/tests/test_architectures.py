"""For which GPUs a build for CUDA compiles (common/cmake/Architectures.cmake), and what scripts/lib
says of the GPU that is there, with stand-ins for nvidia-smi and nvcc.
"""

import os
import subprocess

import pytest
from lab.ladder import ROOT

# What CUDA 12.4 and 13.0 know.
OLD, NEW = ("50 60 70 75 80 86 87 89 90", "75 80 86 87 88 89 90 100 110 103 120 121")


@pytest.mark.parametrize(
    "gpus, known, arguments, chosen, says",
    [
        ("echo 8.0", NEW, [], "80", ""),
        ("echo 8.9", NEW, [], "89", ""),
        ("echo 12.0", NEW, [], "120", ""),
        ("echo 9.0; echo 9.0; echo 8.6", NEW, [], "90;86", ""),
        ("echo 7.5; echo 8.6", NEW, [], "86", ""),
        ("exit 9", NEW, [], "80;90", "nvidia-smi finds no GPU"),
        ("echo No devices were found", NEW, [], "80;90", "finds no GPU"),
        ("echo 9.0", NEW, ["-DCMAKE_CUDA_ARCHITECTURES=86;89"], "86;89", ""),
        ("echo 8.9", "", [], "89", ""),
        (
            "echo 12.0",
            OLD,
            [],
            "90-virtual",
            "does not know compute capability 12.0; building PTX for",
        ),
        ("echo 12.1", f"{OLD} 100 120", [], "120", ""),
        ("echo 7.5", NEW, [], None, "compute capability 7.5; the CUDA rungs need 8.0"),
    ],
)
def test_architectures(stand_in, tmp_path, gpus, known, arguments, chosen, says):
    stand_in("nvidia-smi", gpus)
    nvcc = stand_in("nvcc", "".join(f"echo compute_{one}\n" for one in known.split()) or "exit 1")
    (tmp_path / "choose.cmake").write_text(
        f"cmake_minimum_required(VERSION 3.25)\ninclude({ROOT}/common/cmake/Architectures.cmake)\n"
        f'flash_choose_architectures("{nvcc}")\n'
        f'message(STATUS "chosen: ${{CMAKE_CUDA_ARCHITECTURES}},")\n'
    )
    environment = {
        key: value for key, value in os.environ.items() if key not in ("CUDAARCHS", "CUDACXX")
    }
    done = subprocess.run(
        ["cmake", *arguments, "-P", "choose.cmake"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    said = " ".join((done.stdout + done.stderr).split())  # CMake breaks long lines
    assert says in said
    assert done.returncode == 1 if chosen is None else f"chosen: {chosen}," in said


SAYS = '. "$0/scripts/lib/build.sh"; inspect; echo "${GPU:-none}$TOO_OLD"'


@pytest.mark.parametrize(
    "gpu, capabilities, said",
    [
        ("", "", "none"),
        ("GPU 0: NVIDIA H200 (UUID: GPU-1)", "9.0", "NVIDIA H200"),
        ("GPU 0: Old (UUID: GPU-1)", "7.5\n[N/A]", "Old; its compute capability is 7.5, and the"),
        ("GPU 0: Old (UUID: GPU-1)", "7.5\n12.0", "Old\n"),  # one of two will do
    ],
)
def test_which_gpu_there_is(stand_in, gpu, capabilities, said):
    stand_in("nvidia-smi", f"case $1 in -L) echo '{gpu}' ;; *) echo '{capabilities}' ;; esac")
    done = subprocess.run(["bash", "-c", SAYS, ROOT], capture_output=True, text=True)
    assert done.stdout.startswith(said), done.stderr
