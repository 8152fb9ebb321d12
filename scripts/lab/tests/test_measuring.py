"""What is timed and counted: ratios, counters, and lab bench on a program that is a stand-in."""

import argparse
import importlib.metadata
import json
import subprocess
import sys
import types
import warnings

import pytest
from lab import bench, compare, counters, harness, record_tables, records, texts, timing
from lab.__main__ import VERBS, main
from lab.ladder import ROOT, LabError


@pytest.mark.parametrize("verb", set(VERBS) - {"golden-data", "golden-lines"})  # PyTorch
def test_help_and_bad_input(verb, capsys):
    for option, code in (("--help", 0), ("--no-such-option", 2)):
        with pytest.raises(SystemExit) as left:
            main([verb, option])
        assert left.value.code == code
    own = verb in ("bench", "profile", "watch")  # these have scripts
    printed = capsys.readouterr()
    for text in printed:  # of --help, and of the error
        assert f"usage: {'scripts/' if own else 'lab '}{verb} " in text


def test_a_newer_cudnn_comes_before_pytorchs(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\n"
        "before = os.environ.get('LD_PRELOAD')\n"
        "from lab import timing\n"
        "timing.prefer_newer_cudnn()\n"
        "now = os.environ.get('LD_PRELOAD')\n"
        "print(before, now, os.environ.get('LD_LIBRARY_PATH'), *sys.argv)\n"
    )
    paths = f"{tmp_path}:{ROOT / 'scripts'}"
    environment = {"PYTHONPATH": paths, "LD_LIBRARY_PATH": "/other"}

    def said():
        command = [sys.executable, str(program), "--rounds", "20"]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return run.stdout.split()

    assert said() == ["None", "None", "/other", str(program), "--rounds", "20"]
    library = tmp_path / "nvidia/cudnn_jit/lib/libcudnn.so.9"
    library.parent.mkdir(parents=True)
    library.touch()
    assert said() == [
        str(library),
        "None",
        f"{library.parent}:/other",
        *(str(program), "--rounds", "20"),
    ]


def test_texts_fill_a_line_and_are_counted_by_their_visible_pairs():
    lengths = texts.lengths_of(512)
    assert sum(lengths) == texts.TOKENS and len(lengths) == 22 and max(lengths) == 2022
    assert texts.flops_of([3, 1], heads=2, d=64, causal=False) == 4 * 2 * 64 * 10
    assert texts.flops_of([3, 1], heads=2, d=64, causal=True) == 4 * 2 * 64 * 7


def test_bench_without_a_gpu_leaves_what_is_built_for_one(tmp_path, monkeypatch):
    for folder in ("build-cuda", "build-simt"):
        program = tmp_path / folder / "steps/34_overlap"
        program.parent.mkdir(parents=True)
        program.touch(0o755)
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    options = argparse.Namespace(record=False, programs=None)
    for has_gpu, chosen in ((True, "build-cuda"), (False, "build-simt")):
        monkeypatch.setattr(records, "has_gpu", lambda has_gpu=has_gpu: has_gpu)
        assert bench.checked(options) == tmp_path / chosen


def test_what_makes_no_sense_is_one_line(capsys):
    for wrong in (
        "compare --rounds 19",
        "compare --pattern rising:x",
        "compare nowhere/12_no_such_rung",
        "compare backward_roles --decode",
        "compare overlap --problem 1,2,64,192 --head-dim-v 128",
        "compare two_head_dims --problem 1,2,64,192 --head-dim-v 0",
        "compare overlap --window 128",
        "compare window --window -1",
        "compare window --window 128 --decode",
        "ring --ranks 1",
        "bench --quick --record",
    ):
        assert main(wrong.split()) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1, wrong


@pytest.mark.parametrize(
    "command", ["backward_window --window 128", "two_head_dims --head-dim-v 128"]
)
def test_a_record_has_a_column_for_what_makes_a_problem(command, tmp_path):
    parser = argparse.ArgumentParser()
    compare.add_arguments(parser)
    options = parser.parse_args([*command.split(), "--problem", "1,2,64,192"])
    measured = {"tflops": 1.0, "rms_error": 0.1, "of_allowed_error": 0.5}
    rows = [{"program": "a", "kind": "rung", **one, **measured} for one in compare.cases(options)]
    assert records.read(records.write(tmp_path / "a.json", {}, rows))["rows"] == rows


def test_ratios_are_of_the_same_problem():
    case = {"dtype": "bf16", **harness.problem(1, 2, 64, 32), "sigma": 1.0, "pattern": "random"}
    of_rung, of_library = {"program": "a", "kind": "rung"}, {"program": "FA2", "kind": "library"}
    rows = [case | of_rung | {"N_q": N, "ms": 1.0} for N in (64, 128, 256)]
    rows += [case | of_library | {"N_q": N, "ms": N / 16} for N in (64, 128)]
    assert timing.summary(rows)[1] == "  a: 5.657 x FA2 (least 4.00, 2 cases)"
    assert timing.flops_of({**case, "causal": True}) == 2 * 2 * 64 * 64 * 32
    assert timing.flops_of({**case, "d_v": 16}) == 2 * 2 * 64 * 64 * (32 + 16)
    assert harness.title({**case, "d_v": 16}) == "(1, 2, 64, 32/16) full"


def test_what_ncu_prints():
    lines = [
        "==PROF== noise",
        '"ID","Kernel Name","gpu__time_duration.sum","launch__grid_size"',
        '"","","nsecond",""',
        '"0","void double_buffer::tiles<float, (int)64>(float const*)","1,500","8"',
    ]
    assert counters.parsed("\n".join(lines)) == [("tiles", {"seconds": 1.5e-6, "blocks": 8})]
    metrics = counters.COMPARED | counters.HOPPER
    executed = "16 (HGMMA.64x80x16.F32: 8; LDG.E.STRONG.GPU: 9)"
    lines = [f'"ID","Kernel Name","{counters.OPCODES}"', f'"0","wide(int)","{executed}"']
    ((_, counts),) = counters.parsed("\n".join(lines), metrics | {"instructions": "none"})
    assert counts == {"wgmma m64n80k16": 8, "polls": 1}


def test_the_kernel_that_empties_L2_is_not_the_rungs(monkeypatch):
    ran = [("read_all", {"blocks": 2048}), ("tiles", {"blocks": 8}), ("tiles", {"blocks": 9})]
    monkeypatch.setattr(counters, "ncu", lambda *command, **options: ran)
    assert counters.count("a program") == {"tiles": {"blocks": 8}}


# What both sides count of a kernel with 6 mma and, of each kind of access, 8 requests; 2 of 16
# wavefronts are conflicts.
GPU = dict.fromkeys(records.METRICS, 8) | {
    "tensor_pipe_moves": 2,
    "shared_load_conflicts": 2,
    "shared_store_conflicts": 2,
}
ACCESS = {"requests": 8, "sectors": 8, "wavefronts": 8, "ideal": 6, "bytes": 8}
SIMT = {
    "mma": 6,
    "ldmatrix": 8,
    "async_store": dict.fromkeys(ACCESS, 0),
    **dict.fromkeys(("global_load", "global_store", "shared_load", "shared_store"), ACCESS),
}
HOPPER = {"tma_load": {"requests": 1, "bytes": 1000}, "wgmma": {"m64n96k16": 4}}
ON_HOPPER = {"TMA_load_requests": 1, "TMA_load_bytes": 1000, "wgmma m64n96k16": 4}


@pytest.mark.parametrize(
    "gpu, simt, differs",
    [
        ({}, {}, []),
        ({}, {"mma": 7}, ["mma"]),
        ({}, {"shared_load": ACCESS | {"wavefronts": 80}}, [counters.WAYS]),
        ({"global_load_sectors": 9}, {}, ["global load sectors"]),
        ({"global_load_sectors": 9, "polls": 1}, {}, []),
        (ON_HOPPER | {"tensor_pipe": 12}, HOPPER, []),
        (ON_HOPPER | {"tensor_pipe": 12, "TMA_load_bytes": 1}, HOPPER, ["TMA load bytes"]),
    ],
)
def test_counts_that_agree_and_that_do_not(gpu, simt, differs):
    rows = counters.compared("09_a", "", {"tiles": GPU | gpu}, {"tiles": SIMT | simt})
    assert [row["counter"] for row in rows if not counters.agrees(row)] == differs
    with pytest.raises(LabError, match="the GPU ran"):
        counters.compared("09_a", "", {"tiles": GPU}, {"other": SIMT})


REPORT = {
    "ok": True,
    "seconds": 0.5,
    "flops": 2e9,
    "damage": "",
    "benchmark": {"seconds": [0.01] * 20, "peak_memory_bytes": 100},
    "check": {"o_error": 1e-6, "o_bound": 1e-5, "rows": 64, "message": "O is nan"},
}


ANSWER = f"echo '{json.dumps(REPORT)}'"


@pytest.fixture
def bench_on(stand_in, tmp_path, monkeypatch, capsys):
    """bench_on(*arguments) runs lab bench on one_pass_softmax; `answer` is what it does."""
    ceilings = {"cpu_fma_flops": 1e12}
    monkeypatch.setattr(bench, "measure_ceilings", lambda gpu, best: best.update(ceilings))
    monkeypatch.setattr(bench, "write_page", lambda path: None)
    stand_in("nvidia-smi", "exit 9")

    def run(*arguments, answer=ANSWER):
        stand_in("build/steps/05_one_pass_softmax", answer)
        own = ["--programs", str(tmp_path / "build"), "--only", "one_pass_softmax"]
        code = main(["bench", *own, *arguments])
        return code, capsys.readouterr()

    return run


def test_bench_on_the_cpu(bench_on, tmp_path):
    code, said = bench_on("--problem", "1,2,64,32")
    assert code == 0, said.err
    rows = records.read(tmp_path / "build/bench/bench.json")["rows"]
    row = next(row for row in rows if row["kind"] == "rung")
    wanted = {"ms": 10, "of_allowed_error": 0.1, "extra_bytes": 100}
    assert row | wanted == row and row["unit"] == "cpu_fma_flops"
    assert "20.0%" in said.out


def test_bench_leaves_out_what_refuses_and_fails_on_wrong_results(bench_on):
    code, said = bench_on("--quick", answer="echo '05_one_pass_softmax: no memory' >&2; exit 2")
    assert code == 2 and "left out: no memory" in said.err
    code, said = bench_on("--quick", answer=f"echo '{json.dumps(REPORT | {'ok': False})}'; exit 1")
    assert code == 1 and "its result is wrong: O is nan" in said.err


@pytest.mark.parametrize(
    "module, of_library",
    [
        ("fa3_fwd_interface", timing.flash_attention_3),
        ("flash_attn.cute.interface", timing.flash_attention_4),
    ],
)
def test_a_wheel_that_is_not_there_is_one_line(module, of_library, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, module, None)  # an import of it fails
    assert of_library() == ({}, {})
    said = capsys.readouterr().err
    assert "left out" in said and "pip install" in said and said.count("\n") == 1


class Laid:
    """A tensor that knows whether its heads come first, and no numbers."""

    shape = (2, 4, 16, 64)
    copies = 0

    def __init__(self, name, heads_first=True):
        self.name, self.heads_first = name, heads_first

    def __eq__(self, other):
        return (self.name, self.heads_first) == (other.name, other.heads_first)

    def transpose(self, one, other):
        assert (one, other) == (1, 2)
        return Laid(self.name, not self.heads_first)

    def contiguous(self):
        Laid.copies += 1
        return self


@pytest.fixture
def flash_attention_4(monkeypatch):
    """What a stand-in for the wheel is called with, returns and raises."""
    found = {"calls": [], "forward": Laid("o", False), "error": None}
    monkeypatch.setattr(Laid, "copies", 0)

    def called(*tensors, **options):
        warnings.warn("Argument aux_data (position 9) cannot be converted", stacklevel=1)
        found["calls"].append((tensors, options))
        if found["error"]:
            raise found["error"]

    def forward(*tensors, **options):
        called(*tensors, **options)
        return found["forward"]

    def backward(*tensors, **options):
        called(*tensors, **options)
        return [Laid(name, False) for name in ("dq", "dk", "dv", "dsink")]

    module = types.SimpleNamespace(
        flash_attn_func=forward, flash_attn_varlen_func=forward, _flash_attn_bwd=backward
    )
    for name in ("flash_attn", "flash_attn.cute"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "flash_attn.cute.interface", module)
    monkeypatch.setattr(importlib.metadata, "version", {"flash-attn-4": "4.0"}.get)
    return found


def test_flash_attention_4_gets_rows_before_heads_and_copies_once(flash_attention_4):
    programs, version = timing.flash_attention_4()
    assert version == {"fa4": "4.0"} and list(programs) == ["FA4"]
    first, second = ([Laid(name) for name in "qkv"] for _ in range(2))
    o = flash_attention_4["forward"]
    for inputs, copies, returned in ((first, 3, o), (first, 3, (o, "lse")), (second, 6, o)):
        flash_attention_4["forward"] = returned
        with warnings.catch_warnings(record=True) as warned:
            assert programs["FA4"](*inputs, True, "o", "lse") == Laid("o")
            warnings.warn("something else", stacklevel=1)
        assert [str(one.message) for one in warned] == ["something else"]
        assert Laid.copies == copies
    tensors, options = flash_attention_4["calls"][-1]
    assert list(tensors) == [Laid(name, False) for name in "qkv"] and options == {"causal": True}


def test_both_backward_passes_of_flash_attention_4(flash_attention_4):
    programs, _ = timing.flash_attention_4(gradients=True)
    q, k, v, o, do = (Laid(name) for name in ("q", "k", "v", "o", "do"))
    for program in programs.values():
        found = program(q, k, v, False, o, "lse", do, "dq", "dk", "dv")
        assert found == [Laid(name) for name in ("dq", "dk", "dv")]
    rows_first = [Laid(name, False) for name in ("q", "k", "v", "o", "do")]
    for (tensors, options), deterministic in zip(flash_attention_4["calls"], (False, True)):
        assert list(tensors) == [*rows_first, "lse"]
        about = {"softmax_scale": 1 / 8, "causal": False, "deterministic": deterministic}
        assert options == about
    labels = ["FlashAttention-4", "FlashAttention-4 deterministic"]
    assert [record_tables.label(name) for name in programs] == labels


def test_flash_attention_4_counts_the_keys_before_a_querys_own(flash_attention_4):
    q, k, v, o, do = (Laid(name) for name in ("q", "k", "v", "o", "do"))
    timing.flash_attention_4(window=128)[0]["FA4"](q, k, v, True, o, "lse")
    timing.flash_attention_4(True, window=128)[0]["FA4"](q, k, v, True, o, "lse", do)
    (_, forward), (_, backward) = flash_attention_4["calls"]
    assert forward == {"causal": True, "window_size": (127, 0)}
    assert (backward["window_size_left"], backward["window_size_right"]) == (127, 0)


def test_flash_attention_4_gets_lines_and_where_their_texts_end(flash_attention_4):
    programs, version = texts.flash_attention_4()
    assert version == {"fa4": "4.0"}
    q, k, v, o, do = (Laid(name) for name in ("q", "k", "v", "o", "do"))
    line = q, k, v, "ends", 70, True
    for returned in (o, (o, "lse")):
        flash_attention_4["forward"] = returned
        assert programs["FA4"](*line) == {"o": o}
    gradients = {name: Laid(name, False) for name in ("dq", "dk", "dv")}
    assert programs["FA4"](*line, o, "lse", do) == gradients
    (_, forward), (tensors, backward) = flash_attention_4["calls"][-2:]
    tables = {"cu_seqlens_q": "ends", "cu_seqlens_k": "ends"}
    how = tables | {"max_seqlen_q": 70, "max_seqlen_k": 70, "causal": True}
    assert forward == how and backward == how | {"softmax_scale": 1 / 8}
    assert list(tensors) == [q, k, v, o, do, "lse"]


def test_a_library_that_refuses_a_line_is_left_out(capsys):
    def refuses():
        raise AssertionError("head_dim\nmore")

    rung = dict.fromkeys(texts.RUNGS[1:], lambda: {"dq": 1})
    assert texts.results_of({"FA4": refuses, **rung}) == {"backward_packed": {"dq": 1}}
    assert "FA4 left out: AssertionError: head_dim\n" in capsys.readouterr().err
    with pytest.raises(AssertionError):
        texts.results_of(dict.fromkeys(texts.RUNGS[1:], refuses))


def test_a_window_has_the_flops_of_its_pairs():
    case = harness.problem(2, 3, 5, 64, True)
    assert harness.title(case | {"window": 2}) == "(2, 3, 5, 64) window 2"
    assert timing.flops_of(case) == 4 * 2 * 3 * 64 * 12.5
    assert timing.flops_of(case | {"window": 2}) == 4 * 2 * 3 * 64 * 9  # 1 + 2 + 2 + 2 + 2
    assert timing.flops_of(case | {"window": 9}, backward=True) == 10 * 2 * 3 * 64 * 15
    more = {"N_q": 5, "N_kv": 3, "window": 2}
    assert timing.flops_of(case | more) == 4 * 2 * 3 * 64 * 5  # 0 + 0 + 1 + 2 + 2


def test_a_case_that_flash_attention_4_refuses_is_left_out(flash_attention_4):
    for error in (AssertionError("head_dim"), ValueError("no"), TypeError()):
        flash_attention_4["error"] = error
        with pytest.raises(RuntimeError, match=type(error).__name__):
            timing.flash_attention_4()[0]["FA4"](*map(Laid, "qkv"), False)


class SlowingGpu:
    """A stand-in for PyTorch whose GPU lowers its clock with each program. A launch takes 3 us."""

    def __init__(self):
        self.cuda, self.ms, self.MHz = self, 0.0, 1980.0

    def zeros(self, *_, **__):
        pass

    empty = sum = zeros

    def Event(self, enable_timing):
        gpu = self

        class Recorded:
            def record(self):
                self.ms = gpu.ms

            def elapsed_time(self, later):
                return later.ms - self.ms

        return Recorded()

    def _sleep(self, clocks):
        self.ms += 0.003 + clocks / self.MHz / 1e3

    def program(self):
        self.MHz -= 10
        self.ms += 1

    def synchronize(self):
        pass


def test_the_clock_is_that_of_the_rounds(monkeypatch):
    monkeypatch.setattr(timing, "clock_and_power", lambda: {"clock": 1980.0, "power": 700.0})
    gpu = SlowingGpu()
    milliseconds, state = timing.interleaved(gpu, {"a": gpu.program, "b": gpu.program}, 5)
    # two programs lower it in each of 1 + 5 rounds, and the first does not count
    assert state == {"clock": 1980 - 2 * 10 * 4, "power": 700.0}
    assert milliseconds == {"a": pytest.approx([1] * 5), "b": pytest.approx([1] * 5)}
