"""What a caller is told, and what becomes of a build that fails or is wanted twice."""

import multiprocessing
import os
import shutil

import pytest
import torch
from flash_steps import attention, library


def tensors(q=(1, 4, 8, 32), k=(1, 2, 8, 32), v=None, dtype=torch.float32):
    return (
        torch.zeros(q, dtype=dtype),
        torch.zeros(k, dtype=dtype),
        torch.zeros(v or k, dtype=dtype),
    )


@pytest.mark.parametrize(
    "error, q, k, v, options, message",
    [
        (
            TypeError,
            *tensors(dtype=torch.float64),
            {},
            "q is torch.float64; the rungs compute in float32, float16 or bfloat16",
        ),
        (
            TypeError,
            tensors()[0],
            *tensors(dtype=torch.float16)[1:],
            {},
            "q is torch.float32 and k is torch.float16",
        ),
        (
            ValueError,
            *tensors(q=(4, 8, 32)),
            {},
            "q has 3 dimensions; (batch, heads, length, head dim) is expected",
        ),
        (ValueError, *tensors(v=(1, 2, 9, 32)), {}, "k is (1, 2, 8, 32) and v is (1, 2, 9, 32)"),
        (ValueError, *tensors(k=(2, 2, 8, 32)), {}, "batch and head dim must be the same"),
        (
            ValueError,
            *tensors(k=(1, 3, 8, 32)),
            {},
            "q has 4 heads and k has 3; the first must be a multiple of the second",
        ),
        (ValueError, *tensors(q=(1, 4, 0, 32)), {}, "q is empty: its shape is (1, 4, 0, 32)"),
        (
            ValueError,
            tensors(q=(1, 8, 4, 32))[0].mT.mT.transpose(1, 2),
            *tensors()[1:],
            {},
            "q is not contiguous; a rung reads rows that lie one after the other: pass "
            "q.contiguous()",
        ),
        (
            ValueError,
            torch.zeros(1025)[1:].view(1, 4, 8, 32),
            *tensors()[1:],
            {},
            "q does not begin at a multiple of 16 bytes",
        ),
        (ValueError, *tensors(), {"scale": 0.0}, "scale is 0; it must be finite and > 0"),
        (ValueError, *tensors(), {"scale": float("nan")}, "scale is nan"),
        (
            ValueError,
            *tensors(),
            {"rung": "fixed_maximum"},
            "fixed_maximum computes in fp16 and bf16, and these tensors are fp32",
        ),
        (
            ValueError,
            *tensors(),
            {"rung": "99"},
            "there is no forward rung '99'; there are naive_attention, safe",
        ),
        (
            ValueError,
            *tensors(),
            {"rung": "backward_cpu"},
            "there is no forward rung 'backward_cpu'",
        ),
        (
            ValueError,
            *tensors((1, 4, 8, 48), (1, 2, 8, 48)),
            {"rung": "flash_attention_2"},
            "flash_attention_2 takes head dims 32, 64, 128, and these tensors have 48",
        ),
        (
            ValueError,
            *tensors((1, 4, 8, 48), (1, 2, 8, 48), dtype=torch.float16),
            {},
            "no forward rung computes fp16 with head dim 48 on the CPU",
        ),
    ],
)
def test_message(error, q, k, v, options, message):
    with pytest.raises(error) as raised:
        attention(q, k, v, **options)
    text = str(raised.value)
    assert message in text and "\n" not in text


def test_devices():
    """A tensor without memory stands for one on a GPU."""
    q, k, v = tensors()
    with pytest.raises(
        ValueError, match="q is on cpu and k is on meta; they must be on the same device"
    ):
        attention(q, k.to("meta"), v)


def test_backward_rung_that_does_not_fit():
    q, k, v = tensors()
    o = attention(q.requires_grad_(), k, v, backward_rung="backward_two_kernels")
    with pytest.raises(ValueError, match="backward_two_kernels computes in fp16 and bf16"):
        o.sum().backward()


def test_gpu_is_asked_for_its_capability():
    from flash_steps.ladder import choose

    with pytest.raises(
        ValueError, match="wgmma_tma is for GPUs of compute capability 9.0, and this one has 10.0"
    ):
        choose("wgmma_tma", False, "fp16", 64, (10, 0))
    with pytest.raises(
        ValueError, match="one_pass_softmax runs on the CPU, and these tensors are on a GPU"
    ):
        choose("one_pass_softmax", False, "fp32", 64, (9, 0))


def test_a_number_is_refused_with_the_names_behind_it(tmp_path, monkeypatch):
    from flash_steps import ladder

    (tmp_path / "steps").mkdir()
    (tmp_path / "steps/ladder.txt").write_text(
        "22_swizzle | - | fp16 | 64 | 8.0 | .\n34_overlap | - | fp16 | 64 | 9.0 | .\n"
        "35_rest | - | fp16 | 64 | 9.0 | .\n"
    )
    with monkeypatch.context() as patch:
        patch.setattr(ladder, "ROOT", tmp_path)
        ladder.ladder.cache_clear()
        rungs = ladder.ladder()
        assert ladder.why_unknown("22", rungs).endswith("; 22 is swizzle today")
        (tmp_path / "steps/renamed.txt").write_text("# old\n22 overlap overlap\n09 old rest # a\n")
        assert ladder.why_unknown("22", rungs) == (
            "rung 22: a rung goes by its name; 22 was overlap, which is 34_overlap now, "
            "and 22 is swizzle today"
        )
        assert ladder.why_unknown("9", rungs).endswith("; 09 was old, which is 35_rest now")
        assert ladder.why_unknown("22_overlap", rungs).endswith("; it is 34_overlap now")
        assert ladder.why_unknown("overlaps", rungs).endswith("there are swizzle, overlap, rest")
    ladder.ladder.cache_clear()
    with pytest.raises(ValueError, match="rung 8: a rung goes by its name"):
        attention(*tensors(), rung=8)


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "FOLDER", tmp_path / "built")
    return tmp_path / "built"


def a_rung(name):
    from flash_steps.ladder import ladder

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
    with pytest.raises(
        library.BuildError, match="there is no no-such-compiler in PATH; apt-get install g"
    ):
        library.library(a_rung(CPU), None)
    monkeypatch.setenv("NVCC", "no-such-nvcc")
    with pytest.raises(
        library.BuildError, match="there is no no-such-nvcc in PATH; it comes with the CUDA Toolkit"
    ):
        library.library(a_rung(CUDA), (8, 0))


def test_no_cmake(empty_folder, monkeypatch):
    monkeypatch.setenv("CMAKE", "no-such-cmake")
    with pytest.raises(
        library.BuildError, match="there is no no-such-cmake in PATH; apt-get install cmake"
    ):
        library.operator_library()


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


@pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc")
def test_a_gpu_needs_no_boost(empty_folder, monkeypatch):
    """Nor a C++ compiler other than nvcc's own: the SIMT backend has no part in it."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    built = library.library(a_rung(CUDA), (8, 0))
    assert built.is_file() and b"boost" not in built.read_bytes()


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


def test_a_compiler_that_does_not_work(empty_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", a_program(tmp_path / "g++", "echo 'g++: error: broken'; exit 1"))
    with pytest.raises(library.BuildError, match="g\\+\\+ failed: .*error: broken"):
        library.library(a_rung(CPU), None)


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
