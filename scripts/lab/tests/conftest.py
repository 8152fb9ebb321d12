"""The lab's tests: pytest scripts/lab/tests. They need no GPU, no nvcc and no PyTorch."""

import os
import stat
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """stand_in(NAME, TEXT) puts an executable of that name first in PATH; it lies in tmp_path."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def make(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        return path
    return make
