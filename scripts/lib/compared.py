"""What scripts/compare times: PyTorch's attention backends, and rungs as functions on PyTorch's tensors."""

import ctypes
import math
import os
import re
import subprocess
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from records import ROOT
from gpu_records import nvcc_target, stop

LIBRARIES = {"FA2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}


def library(name):
    """f(q, k, v, causal) -> O of a backend of PyTorch's scaled_dot_product_attention."""
    def attention(q, k, v, causal):
        with sdpa_kernel(LIBRARIES[name]):
            return scaled_dot_product_attention(q, k, v, is_causal=causal)
    return attention


def rung_folder(text):
    """The folder of a rung that is named by its number, its name or its path."""
    found = [text] if "/" in text else sorted(str(path) for path in (ROOT / "steps").glob(f"{text}*"))
    found = [path for path in map(os.path.abspath, found) if len(list_of(path, ".cu")) == 1]
    if len(found) != 1:
        stop(f"'{text}' is not a rung with a kernel: its number, its name or its folder, for example 12")
    return found[0]


def list_of(folder, ending):
    return [name for name in os.listdir(folder) if name.endswith(ending)] if os.path.isdir(folder) else []


def build(folders, build_folder):
    """Compiles each rung into a shared library, all at once, and returns {name: its function}."""
    build_folder.mkdir(parents=True, exist_ok=True)
    running = {}
    for folder in folders:
        name = os.path.basename(folder)
        header = os.path.relpath(os.path.join(folder, list_of(folder, ".hpp")[0]), ROOT)
        target = build_folder / f"{name}.so"
        command = ["nvcc", "-std=c++20", "-O3", nvcc_target(), "-shared", "-Xcompiler=-fPIC", "-I.",
                   f'-DRUNG_HEADER="{header}"', f"-DRUNG=step{re.match('[0-9]+', name)[0]}", "-o", str(target),
                   "scripts/lib/rung_entry.cu", "common/cuda/launch.cu", os.path.join(folder, list_of(folder, ".cu")[0])]
        print(f"building {name}", file=sys.stderr)
        try:
            running[name] = target, subprocess.Popen(command, cwd=ROOT)
        except FileNotFoundError:
            stop("there is no nvcc in PATH; it comes with the CUDA Toolkit")
    for name, (_, compiler) in running.items():
        if compiler.wait() != 0:
            stop(f"{name} does not compile")
    return {name: load(name, target) for name, (target, _) in running.items()}


def load(name, path):
    """f(q, k, v, causal, o, lse) that starts the rung on the default stream, which is PyTorch's too."""
    function = ctypes.CDLL(str(path)).rung_attention
    message = ctypes.create_string_buffer(1000)

    def attention(q, k, v, causal, o, lse):
        batch, heads, N_q, d = q.shape
        sizes = (ctypes.c_int64 * 6)(batch, heads, k.shape[1], N_q, k.shape[2], d)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (q, k, v, o, lse)]
        if function(int(q.dtype == torch.bfloat16), sizes, ctypes.c_float(1 / math.sqrt(d)), int(causal), *pointers,
                    message, ctypes.c_size_t(len(message))) != 0:
            stop(f"{name}: {message.value.decode()}")
    return attention
