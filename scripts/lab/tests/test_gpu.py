"""What scripts/lib says of the GPU of a machine, by what nvidia-smi answers."""

import subprocess

import pytest
from lab.ladder import ROOT

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
