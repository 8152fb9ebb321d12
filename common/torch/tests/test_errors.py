"""What a caller is told, and what becomes of a build that fails or is wanted twice."""

import multiprocessing
import os

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
            "q is not contiguous; a rung reads rows that lie one after the other: pass q.contiguous()",
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
            {"rung": 17},
            "28_fixed_maximum computes in fp16 and bf16, and these tensors are fp32",
        ),
        (
            ValueError,
            *tensors(),
            {"rung": "99"},
            "there is no forward rung '99'; there are 01_naive_attention, 02",
        ),
        (ValueError, *tensors(), {"rung": "23"}, "there is no forward rung '23'"),
        (
            ValueError,
            *tensors((1, 4, 8, 48), (1, 2, 8, 48)),
            {"rung": "8"},
            "13_flash_attention_2 takes head dims 32, 64, 128, and these tensors have 48",
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
    o = attention(q.requires_grad_(), k, v, backward_rung="24")
    with pytest.raises(ValueError, match="42_backward_two_kernels computes in fp16 and bf16"):
        o.sum().backward()


def test_gpu_is_asked_for_its_capability():
    from flash_steps.ladder import choose

    with pytest.raises(
        ValueError,
        match="31_wgmma_tma is for GPUs of compute capability 9.0, and this one has 10.0",
    ):
        choose("19", False, "fp16", 64, (10, 0))
    with pytest.raises(
        ValueError, match="05_one_pass_softmax runs on the CPU, and these tensors are on a GPU"
    ):
        choose("5", False, "fp32", 64, (9, 0))


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "FOLDER", tmp_path / "built")
    return tmp_path / "built"


def a_rung(number):
    from flash_steps.ladder import ladder

    return next(rung for rung in ladder() if rung.number == number)


def test_no_compiler(empty_folder, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(
        library.BuildError, match="there is no no-such-compiler in PATH; apt-get install g"
    ):
        library.library(a_rung("05"), None)
    monkeypatch.setenv("NVCC", "no-such-nvcc")
    with pytest.raises(
        library.BuildError, match="there is no no-such-nvcc in PATH; it comes with the CUDA Toolkit"
    ):
        library.library(a_rung("17"), (8, 0))


def a_compiler(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_no_cmake(empty_folder, monkeypatch):
    monkeypatch.setenv("CMAKE", "no-such-cmake")
    with pytest.raises(
        library.BuildError, match="there is no no-such-cmake in PATH; apt-get install cmake"
    ):
        library.operator_library()


def test_without_boost_the_message_names_it(empty_folder, tmp_path, monkeypatch):
    """What ld says is no line with "error"; collect2's is, and says nothing."""
    said = "/usr/bin/ld: cannot find -lboost_context: No such file or directory"
    link = f'case "$*" in *-lboost_context*) echo "{said}"; echo "collect2: error: ld returned 1 exit status"; exit 1; esac'
    monkeypatch.setenv("CXX", a_compiler(tmp_path / "g++", f'[ "$1" = --version ] && exit\n{link}'))
    with pytest.raises(library.BuildError) as raised:
        library.library(a_rung("17"), None)
    assert (
        str(raised.value)
        == f"{tmp_path / 'g++'} failed: {said}; apt-get install libboost-context-dev"
    )


def test_a_gpu_needs_no_boost(empty_folder, tmp_path, monkeypatch):
    """Nor a C++ compiler beside nvcc: the SIMT backend has no part in it."""
    calls = tmp_path / "calls"
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv(
        "NVCC",
        a_compiler(
            tmp_path / "nvcc",
            f"""echo "$*" >>{calls}
[ "$1" = --version ] && exit
for to; do :; done
touch "$to"
""",
        ),
    )
    assert library.library(a_rung("22"), (9, 0)).is_file()
    assert "34_overlap" in calls.read_text() and "-lboost" not in calls.read_text()


def test_compiler_that_fails(empty_folder, tmp_path, monkeypatch):
    compiler = a_compiler(
        tmp_path / "g++",
        "echo before\necho 'x.hpp:1: fatal error: Eigen/Dense: No such file or directory'\nexit 1",
    )
    monkeypatch.setenv("CXX", compiler)
    with pytest.raises(library.BuildError) as raised:
        library.library(a_rung("05"), None)
    assert str(raised.value) == (
        f"{compiler} failed: x.hpp:1: fatal error: Eigen/Dense: No such file or directory; "
        "apt-get install libeigen3-dev"
    )
    assert not list(empty_folder.glob("*.so")) and not [
        path for path in empty_folder.iterdir() if path.is_dir()
    ]


def test_folder_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(library, "FOLDER", tmp_path / "file")
    with pytest.raises(
        library.BuildError, match="cannot build 05_one_pass_softmax into .*: File exists"
    ):
        library.library(a_rung("05"), None)


def build_in(folder, compiler, barrier):
    os.environ["CXX"] = compiler
    library.FOLDER = folder
    barrier.wait()
    library.library(a_rung("05"), None)


def test_two_processes_build_once(tmp_path):
    """A compiler that counts its calls, and takes long enough for the second process to come in between."""
    compiler = a_compiler(
        tmp_path / "g++",
        f"""[ "$1" = --version ] && exit
echo call >>{tmp_path}/calls
sleep 0.5
for to; do :; done
touch "$to"
""",
    )
    (tmp_path / "built").mkdir()
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
    assert len(list((tmp_path / "built").glob("*.so"))) == 1
