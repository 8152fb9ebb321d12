"""Which packages a build without downloads asks for (common/cmake/Dependencies.cmake)."""

import subprocess

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
