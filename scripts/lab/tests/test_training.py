"""compare --training: what is timed in which order, and the rows that come of it."""

import contextlib
import math
import sys
from types import SimpleNamespace

import pytest
from lab import pages, records, timing, training
from lab.__main__ import main


def test_programs_take_turns_in_bursts(monkeypatch):
    said = []

    @contextlib.contextmanager
    def within(name):
        said.append(f"{name} begins")
        yield
        said.append(f"{name} ends")

    monkeypatch.setattr(training, "within", within)
    programs = {name: lambda name=name: said.append(name) for name in "abc"}
    found = training.bursts(programs, 20, 2, 1, lambda: said.append("wait"))
    assert {name: len(seconds) for name, seconds in found.items()} == {"a": 40, "b": 40, "c": 40}
    bursts = [tuple(said[first : first + 6]) for first in range(0, len(said), 6)]
    assert all(of == (f"{of[1]} begins", *3 * of[1], f"{of[1]} ends", "wait") for of in bursts)
    order = ["".join(of[1] for of in bursts[first : first + 3]) for first in range(0, 60, 3)]
    assert len(set(order)) > 3 and {"".join(sorted(one)) for one in order} == {"abc"}


class Tensor:
    """Of a program that stands in for PyTorch; says what is done with it."""

    def __init__(self, name, said):
        self.name, self.said = name, said

    def detach(self):
        return self

    def requires_grad_(self):
        return Tensor(f"{self.name} with gradient", self.said)

    def __getitem__(self, _):
        return self

    def item(self):
        self.said.append(f"waits for {self.name}")


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with a GPU, the operator and no FA3. `errors` are of the gradients."""
    said, errors, arguments = [], {}, []

    def grad(o, inputs, do):
        said.append(f"gradients of {o.name} for {', '.join(x.name for x in inputs)} by {do.name}")

    def attention(q, k, v, causal=False, rung=None, backward_rung=None):
        arguments.append((causal, rung, backward_rung))
        return Tensor("O", said)

    generator = SimpleNamespace(manual_seed=lambda seed: seed)
    torch = SimpleNamespace(
        cuda=SimpleNamespace(synchronize=lambda: None),
        bfloat16="bf16",
        __version__="2",
        randn=lambda *_, **__: Tensor("x", said),
        Generator=lambda device: generator,
        backends=SimpleNamespace(cudnn=SimpleNamespace(version=lambda: 9)),
    )
    for name, module in {
        "flash_steps": SimpleNamespace(attention=attention),
        "torch": torch,
        "torch.autograd": SimpleNamespace(grad=grad),
        "fa3_fwd_interface": None,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(training, "within", contextlib.nullcontext)
    monkeypatch.setattr(training, "sdpa", lambda q, k, v, causal: Tensor("O of SDPA", said))
    monkeypatch.setattr(timing, "torch_with_gpu", lambda: torch)
    monkeypatch.setattr(timing, "tensors", lambda *_: [Tensor(name, said) for name in "qkv"])
    monkeypatch.setattr(timing, "with_gradient", lambda *_: [None, None, Tensor("dO", said)])
    monkeypatch.setattr(
        timing,
        "largest_gradient_errors",
        lambda torch, of, *_: {name: errors.get(name, 0.5) for name in of},
    )
    monkeypatch.setattr(timing, "clock_and_power", dict)
    monkeypatch.setattr(records, "RECORDS", tmp_path)
    pages.read_records.clear()
    yield SimpleNamespace(said=said, errors=errors, arguments=arguments)
    pages.read_records.clear()


def test_the_record_of_a_training_loop(machine, capsys):
    arguments = ["compare", "--training", "--lengths", "512,1024", "--head-dims", "64"]
    assert main([*arguments, "--record", "t"]) == 0, capsys.readouterr().err
    rows = records.read("t")["rows"]
    steps = [row for row in rows if row["kind"] != "host"]
    assert [row["program"] for row in steps] == 4 * ["operator", "cuDNN", "FA2"]
    assert {row["repetitions"] for row in steps} == {30} and steps[0]["of_allowed_error"] == 0.5
    assert steps[0]["tflops"] * steps[0]["ms"] == pytest.approx(14 * 16384 * 2048 * 512 / 1e9)
    assert len(pages.by_length("t", "operator", "cuDNN")) == 4
    host = pages.pivot("t", "program", "what", "host_us : .0f", kinds=("host",))
    assert host[0] == "| program | forward alone | for training |" and len(host) == 5
    wanted = ", ".join(f"{name} with gradient" for name in "qkv")
    assert set(zip(machine.said[::2], machine.said[1::2])) == {
        (f"gradients of {one} for {wanted} by dO", f"waits for {one}") for one in ("O", "O of SDPA")
    }
    assert set(machine.arguments) == {(False, None, None), (True, None, None)}
    said = capsys.readouterr().out
    assert "4 of 4: (16, 32, 1024, 64) causal  ms per step: operator" in said
    assert "d = 64, N >= 1024:\n  operator: " in said and "2 cases" in said


def test_rungs_of_the_operator_and_wrong_gradients(machine, capsys):
    arguments = ["compare", "22", "28", "--training", "--lengths", "512", "--mask", "full"]
    machine.errors["operator 22 28"] = math.nan
    assert main(arguments) == 1
    assert "gradients of operator 22 28 are wrong at (32, 32, 512, 64)" in capsys.readouterr().err
    assert set(machine.arguments) == {(False, "34_overlap", "47_backward_ordered")}
    assert main([*arguments, "--dtype", "fp16"]) == main([*arguments, "--group", "8"]) == 2
