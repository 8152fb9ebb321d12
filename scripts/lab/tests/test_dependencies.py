"""Which packages a build without downloads asks for (common/cmake/Dependencies.cmake), and what
needs nothing of the lab.
"""

import os
import shutil
import subprocess
import sys

from lab.ladder import ROOT


def asked_for(tmp_path, *options):
    command = ["cmake", "-S", ROOT, "-B", tmp_path / "build", "--preset", "simt"]
    command += ["-DFLASH_FETCH=OFF", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    lines = done.stdout.splitlines()
    return next(line for line in lines if line.startswith("-- missing packages:"))


def test_headers_of_boost_alone_are_not_enough(tmp_path):
    """Debian's libboost-dev says that Boost is found; SIMT links Boost.Context."""
    (tmp_path / "BoostConfig.cmake").write_text("set(Boost_FOUND TRUE)\n")
    (tmp_path / "BoostConfigVersion.cmake").write_text(
        "set(PACKAGE_VERSION 1.74.0)\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n"
    )
    assert (
        asked_for(tmp_path, f"-DBoost_DIR={tmp_path}")
        == "-- missing packages: libboost-context-dev"
    )


def test_libdw_is_asked_for(tmp_path):
    """The library itself is often there; its headers come with another package."""
    assert asked_for(tmp_path, "-DLIBDW_INCLUDE_DIR=") == "-- missing packages: libdw-dev"


def test_what_stands_without_the_lab(tmp_path):
    for package in ("torch/flash_steps", "simt/cuda_on_cpu"):
        shutil.copytree(ROOT / "common" / package, tmp_path / package.partition("/")[2])
    modules = "flash_steps.ladder, flash_steps.library, cuda_on_cpu.__main__"
    command = [sys.executable, "-B", "-c", f"import {modules}"]
    alone = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
