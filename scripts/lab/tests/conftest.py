"""What the lab's tests share. They need no GPU, no nvcc and no PyTorch."""

import os
import stat

import pytest


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
