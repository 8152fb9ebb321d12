"""What a caller is told, and what becomes of a build that fails or is wanted twice."""

import multiprocessing
import os
import shutil

import numpy as np
import pytest
import torch
from flash_steps import attention, library
from flash_steps.ladder import choose, ladder


def tensors(q=(1, 4, 8, 32), k=(1, 2, 8, 32), v=None, dtype=torch.float32):
    return (
        torch.zeros(q, dtype=dtype),
        torch.zeros(k, dtype=dtype),
        torch.zeros(v or k, dtype=dtype),
    )


TWISTED = torch.zeros(1, 8, 4, 32).transpose(1, 2)
SHIFTED = torch.zeros(1025)[1:].view(1, 4, 8, 32)
OF_48 = {"q": (1, 4, 8, 48), "k": (1, 2, 8, 48)}


@pytest.mark.parametrize(
    "inputs, options, message",
    [
        (tensors(dtype=torch.float64), {}, "q is torch.float64; the rungs compute in float32"),
        (tensors(q=(4, 8, 32)), {}, "q has 3 dimensions; (batch, heads, length, head dim)"),
        (tensors(v=(1, 2, 9, 32)), {}, "k is (1, 2, 8, 32) and v is (1, 2, 9, 32)"),
        (tensors(k=(2, 2, 8, 32)), {}, "batch and head dim must be the same"),
        (tensors(k=(1, 3, 8, 32)), {}, "q has 4 heads and k has 3; the first must be a multiple"),
        (tensors(q=(1, 4, 0, 32)), {}, "q is empty: its shape is (1, 4, 0, 32)"),
        ((TWISTED, *tensors()[1:]), {}, "q is not contiguous"),
        ((SHIFTED, *tensors()[1:]), {}, "q does not begin at a multiple of 16 bytes"),
        ((tensors()[0].to("meta"), *tensors()[1:]), {}, "they must be on the same device"),
        (tensors(), {"scale": float("nan")}, "scale is nan; as an fp32 number it must be finite"),
        (tensors(), {"scale": 1e-46}, "scale is 1e-46; as an fp32 number it must be finite"),
        (tensors(), {"scale": 1e39}, "scale is 1e+39; as an fp32 number it must be finite"),
        (tensors(q=(1, 4, 8, 0)), {}, "q is empty: its shape is (1, 4, 8, 0)"),
        (tensors(q=()), {}, "q has 0 dimensions; (batch, heads, length, head dim)"),
        ((np.zeros((1, 4, 8, 32)), *tensors()[1:]), {}, "q is ndarray; a torch.Tensor is expected"),
        ((*tensors()[:2], None), {}, "v is NoneType; a torch.Tensor is expected"),
        (tensors(), {"rung": "fixed_maximum"}, "fixed_maximum computes in fp16 and bf16, and"),
        (tensors(), {"rung": 13}, "not by number: '13' is flash_attention_2"),
        (tensors(), {"rung": "overlp"}, "no forward rung 'overlp'; did you mean overlap?"),
        (tensors(), {"rung": "backward_cpu"}, "there is no forward rung 'backward_cpu'"),
        (tensors(**OF_48), {"rung": "flash_attention_2"}, "takes head dims 32, 64, 128, and"),
        (tensors(v=(1, 2, 8, 48)), {}, "no forward rung computes fp32 with head dim 32/48"),
        (
            tensors(v=(1, 2, 8, 48)),
            {"rung": "one_pass_softmax"},
            "takes head dims that are equal, and these tensors have 32/48",
        ),
        (
            tensors((1, 4, 8, 192), (1, 2, 8, 192), (1, 2, 8, 64), torch.float16),
            {"rung": "two_head_dims"},
            "two_head_dims takes head dims 192/128, and these tensors have 192/64",
        ),
        (
            tensors((1, 4, 8, 64), (1, 2, 8, 64), (1, 2, 8, 128), torch.float16),
            {"window": 3},
            "window takes head dims 64, 128, 256, and these tensors have 64/128",
        ),
        (tensors(), {"window": 0}, "window must be at least 1, the query's own key, got 0"),
        (tensors(), {"window": 3}, "window computes in fp16 and bf16, and these tensors are fp32"),
        (tensors(), {"sink": torch.zeros(2)}, "sink is (2); a logit for each of the 4 heads of q"),
        (tensors(), {"sink": torch.zeros(4).half()}, "sink is torch.float16; torch.float32 is exp"),
        (
            tensors(),
            {"window": 3, "rung": "naive_attention"},
            "knows neither windows nor sinks; the",
        ),
        (tensors(**OF_48, dtype=torch.float16), {}, "no forward rung computes fp16 with head dim"),
    ],
)
def test_message(inputs, options, message):
    with pytest.raises((TypeError, ValueError)) as raised:
        attention(*inputs, **options)
    text = str(raised.value)
    assert message in text and "\n" not in text


def test_backward_rung_that_does_not_fit():
    q, k, v = tensors()
    o = attention(q.requires_grad_(), k, v, backward_rung="backward_two_kernels")
    with pytest.raises(ValueError, match="backward_two_kernels computes in fp16 and bf16"):
        o.sum().backward()


def forward_derivative(function, x):
    return torch.func.jvp(function, (x,), (torch.ones_like(x),))


def with_dual_numbers(function, x):
    with torch.autograd.forward_ad.dual_level():
        return function(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))


@pytest.mark.parametrize("which", ["q", "k", "v"])
@pytest.mark.parametrize("derivative", [forward_derivative, with_dual_numbers])
def test_forward_mode_is_refused(derivative, which):
    given = dict(zip("qkv", tensors()))
    with pytest.raises(NotImplementedError, match="attention has no forward-mode derivative"):
        derivative(lambda x: attention(**given | {which: x}), given[which])


def test_jacfwd_is_refused():
    q, k, v = tensors(q=(1, 1, 1, 2), k=(1, 1, 1, 2))
    with pytest.raises(NotImplementedError, match="attention has no forward-mode derivative"):
        torch.func.jacfwd(lambda x: attention(x, k, v))(q)


def test_gpu_is_asked_for_its_capability():
    with pytest.raises(ValueError, match="of compute capability 9.0, and this one has 10.0"):
        choose("wgmma_tma", False, "fp16", 64, (10, 0))
    with pytest.raises(ValueError, match="runs on the CPU, and these tensors are on a GPU"):
        choose("one_pass_softmax", False, "fp32", 64, (9, 0))


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "FOLDER", tmp_path / "built")
    return tmp_path / "built"


def a_rung(name):
    return next(rung for rung in ladder() if rung.name == name)


CPU, CUDA = "one_pass_softmax", "cuda_naive"


def a_program(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def gxx(tmp_path, script=""):
    """A g++ that first runs a script."""
    return a_program(tmp_path / "g++", f'{script}\nexec {shutil.which("g++")} "$@"')


def test_no_compiler(empty_folder, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(library.BuildError, match="no no-such-compiler in PATH; apt-get install g"):
        library.library(a_rung(CPU), None)
    monkeypatch.setenv("NVCC", "no-such-nvcc")
    with pytest.raises(library.BuildError, match="no no-such-nvcc in PATH; it comes with the CUDA"):
        library.library(a_rung(CUDA), (8, 0))


@pytest.mark.parametrize(
    "rung, package, debian",
    [(CPU, "Eigen3", "libeigen3-dev"), (CUDA, "Boost", "libboost-context-dev")],
)
def test_the_message_names_the_package(rung, package, debian, empty_folder, tmp_path, monkeypatch):
    """Where a library is missing; and nothing is downloaded in its place."""
    without = f"-DCMAKE_DISABLE_FIND_PACKAGE_{package}=ON"
    cmake = a_program(tmp_path / "cmake", f'exec {shutil.which("cmake")} "$@" {without}')
    monkeypatch.setenv("CMAKE", cmake)
    with pytest.raises(library.BuildError) as raised:
        library.library(a_rung(rung), None)
    assert str(raised.value) == f"a library is not installed: apt-get install {debian}"


def test_compiler_that_fails(empty_folder, tmp_path, monkeypatch, capfd):
    said = "x.hpp:1: fatal error: what/it/says: No such file or directory"
    script = f'case "$*" in *one_pass*) echo before; echo "{said}"; exit 1;; esac'
    monkeypatch.setenv("CXX", gxx(tmp_path, script))
    with pytest.raises(library.BuildError) as raised:
        library.library(a_rung(CPU), None)
    assert str(raised.value) == f"{tmp_path / 'g++'} failed: {said}"
    assert not list(empty_folder.rglob("*_one_pass_softmax.so"))
    assert capfd.readouterr().err.count("\n") == 1  # that it builds
    gxx(tmp_path)
    assert library.library(a_rung(CPU), None).is_file()


def test_folder_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(library, "FOLDER", tmp_path / "file")
    with pytest.raises(
        library.BuildError, match="cannot build .*one_pass_softmax into .*: Not a directory"
    ):
        library.library(a_rung(CPU), None)


def build_in(folder, compiler, barrier):
    os.environ["CXX"] = compiler
    os.environ.pop("CMAKE_CXX_COMPILER_LAUNCHER", None)  # ccache calls a compiler twice
    library.FOLDER = folder
    barrier.wait()
    library.library(a_rung(CPU), None)


def test_two_processes_build_once(tmp_path):
    """A compiler that counts its calls for the rung's kernel, and takes its time for each."""
    count = f"echo call >>{tmp_path}/calls; sleep 0.5"
    script = f'case "$*" in *" -c "*one_pass_softmax.cpp*) {count};; esac'
    compiler = gxx(tmp_path, script)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    pair = [
        context.Process(target=build_in, args=(tmp_path / "built", compiler, barrier))
        for _ in range(2)
    ]
    for process in pair:
        process.start()
    for process in pair:
        process.join()
    assert [process.exitcode for process in pair] == [0, 0]
    assert (tmp_path / "calls").read_text() == "call\n"
    assert len(list((tmp_path / "built").glob("*/*.so"))) == 1
