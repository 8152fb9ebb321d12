"""What is timed and counted: cases, ratios, counters, and lab bench on programs that are stand-ins."""

import importlib.metadata
import json
import math
import sys
from types import SimpleNamespace

import pytest
from lab import bench, compare, counters, harness, records, sanitize, timeline, timing
from lab.__main__ import VERBS, main
from lab.ladder import LabError, WrongResult, cuda_rungs


def options_of(verb, *arguments):
    import argparse

    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize("verb", VERBS)
def test_help_and_bad_input(verb, capsys):
    with pytest.raises(SystemExit) as left:
        main([verb, "--help"])
    assert left.value.code == 0 and verb in capsys.readouterr().out
    with pytest.raises(SystemExit) as left:
        main([verb, "--no-such-option"])
    assert left.value.code == 2


def test_the_24_cases():
    cases = compare.cases(options_of(compare))
    assert len(cases) == 24 and all(
        case["B"] * case["N_q"] == 16384 and case["H"] * case["d"] == 2048 for case in cases
    )
    more = compare.cases(
        options_of(
            compare,
            "--sigma",
            "1,24",
            "--pattern",
            "random,sink:first",
            "--mask",
            "full",
            "--group",
            "4",
            "--problem",
            "2,8,100,128",
        )
    )
    assert len(more) == 4 and more[-1]["sigma"] == 24 and more[0]["H_kv"] == 2
    assert timing.parse_pattern("low:30") == ("low", 30)
    assert timing.parse_pattern("rising:50") == ("rising", 50) and timing.parse_pattern(
        "sink:last:12.5"
    ) == ("sink", "last", 12.5)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--rounds", "19"],
        ["--lengths", "0"],
        ["--head-dims", "48"],
        ["--sigma", "0"],
        ["7"],
        ["--pattern", "sink"],
        ["--pattern", "rising:x"],
        ["--group", "3"],
        ["--problem", "1,2,3"],
        ["nowhere/12_no_such_rung"],
    ],
)
def test_cases_that_make_no_sense(wrong, capsys):
    assert main(["compare", *wrong]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_rungs_of_the_ladder_and_of_other_folders(tmp_path):
    tensor = [rung.name for rung in cuda_rungs() if rung.tensor and not rung.backward]
    assert [one.name for one in compare.variants(options_of(compare))] == tensor
    (tmp_path / "13_other").mkdir()
    (tmp_path / "13_other/other.cu").touch()
    (other,) = compare.variants(options_of(compare, str(tmp_path / "13_other")))
    assert (
        other.name.startswith("13_other@")
        and other.rung.number == "13"
        and other.rung.kernel_file.name == "other.cu"
    )
    assert compare.variants(options_of(compare, f"steps/{tensor[0]}"))[0].name == tensor[0]


def test_ratios_are_of_the_same_problem():
    case = {"dtype": "bf16", **harness.problem(1, 2, 64, 32), "sigma": 1.0, "pattern": "random"}
    rows = [
        {**case, "N_q": N, "program": name, "kind": kind, "ms": ms}
        for N, name, kind, ms in (
            (64, "12_a", "rung", 1.0),
            (64, "FA2", "library", 2.0),
            (128, "12_a", "rung", 1.0),
            (128, "FA2", "library", 8.0),
            (256, "12_a", "rung", 1.0),
        )
    ]
    assert sorted(compare.ratios(rows, "12_a", "FA2").values()) == [2, 8]
    assert compare.summary(rows)[1] == "  12_a: 4.000 x FA2 (least 2.00, 2 cases)"
    assert timing.flops_of({**case, "causal": True}) == 2 * 2 * 64 * 64 * 32


class Tensor:
    def __init__(self, *shape, contiguous=True):
        self.shape, self.is_contiguous = shape, contiguous

    def transpose(self, *_):
        B, one, other, d = self.shape
        return Tensor(B, other, one, d, contiguous=False)

    def contiguous(self):
        return Tensor(*self.shape)


def test_FA3_has_its_own_layout_made_once(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "fa3_fwd_interface", None)
    assert timing.flash_attention_3() == ({}, {}) and "FA3 left out" in capsys.readouterr().err
    given = []

    def flash_attn_func(*tensors, causal):
        given.append((tensors, causal))
        return tensors[0]

    module = SimpleNamespace(flash_attn_func=flash_attn_func)
    monkeypatch.setitem(sys.modules, "fa3_fwd_interface", module)
    monkeypatch.setattr(importlib.metadata, "version", {"fa3-fwd": "0.0.3"}.get)
    programs, version = timing.flash_attention_3()
    q, k, v = Tensor(2, 8, 100, 64), Tensor(2, 4, 100, 64), Tensor(2, 4, 100, 64)
    assert version == {"fa3": "0.0.3"} and programs["FA3"](q, k, v, True).shape == q.shape
    programs["FA3"](q, k, v, False, None, None)
    (first, causal), (again, full) = given
    assert [x.shape for x in first] == [(2, 100, 8, 64), (2, 100, 4, 64), (2, 100, 4, 64)]
    assert all(x.is_contiguous for x in first) and first == again and causal and not full
    programs["FA3"](Tensor(2, 8, 100, 64), k, v, False)
    assert given[-1][0][0] is not first[0]


def test_rounds_are_queued_and_L2_is_flushed_by_reading(monkeypatch):
    """The order of what a GPU is given. A buffer that is written would need a method of it."""
    said = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            said.append("event")

        def elapsed_time(self, end):
            return 1.0

    cuda = SimpleNamespace(
        Event=Event,
        _sleep=lambda clocks: said.append("sleep"),
        synchronize=lambda: said.append("synchronize"),
    )
    torch = SimpleNamespace(
        cuda=cuda,
        zeros=lambda count, device: 4 * count,
        empty=lambda *_, device: 0,
        sum=lambda size, dim, out: said.append("read" if size >= 100e6 else "too few"),
    )
    monkeypatch.setattr(timing, "clock_and_power", dict)
    programs = {name: lambda: said.append("run") for name in ("a", "b")}
    assert timing.interleaved(torch, programs, 2) == ({"a": [1.0] * 2, "b": [1.0] * 2}, {})
    assert said == 3 * ["sleep", *2 * ["read", "event", "run", "event"], "synchronize"]


def test_a_wrong_library_is_left_out_and_a_wrong_rung_ends_the_run(monkeypatch, capsys):
    torch = SimpleNamespace(
        float32=0, float16=0, bfloat16=0, empty=lambda *_, **__: 0, empty_like=lambda _: 0
    )
    monkeypatch.setattr(timing, "tensors", lambda *_: 3 * [Tensor(1, 2, 64, 32)])
    errors = {"FA2": 0.5, "FA3": math.nan, "12_a": 0.9}
    monkeypatch.setattr(timing, "largest_errors", lambda *_: errors)
    monkeypatch.setattr(
        timing, "interleaved", lambda torch, programs, rounds: (dict.fromkeys(programs, [1.0]), {})
    )
    case = {**harness.problem(1, 2, 64, 32), "sigma": 1.0, "pattern": "random"}
    kinds = {"FA2": "library", "FA3": "library", "12_a": "rung"}
    programs = dict.fromkeys(kinds, lambda *_: None)

    def measure():
        rows = compare.measure(torch, programs, kinds, case, "bf16", 20, None)
        return [row["program"] for row in rows]

    assert measure() == ["FA2", "12_a"]
    assert "left out: FA3 is wrong at (1, 2, 64, 32)" in capsys.readouterr().err
    kinds["FA3"] = "rung"
    with pytest.raises(WrongResult, match="FA3 is wrong"):
        measure()


NCU = "\n".join(
    [
        "==PROF== noise",
        '"ID","Kernel Name","gpu__time_duration.sum","launch__grid_size"',
        '"","","nsecond",""',
        '"0","void double_buffer::tiles<float, (int)64>(float const*)","1,500","8"',
        '"1","softmax(int)","10","2"',
    ]
)
COUNTS = dict.fromkeys(records.METRICS, 8.0) | {
    "tensor_pipe_moves": 2.0,
    "shared_load_conflicts": 2.0,
    "shared_store_conflicts": 2.0,
}
TOTAL = {
    "mma": 6,
    "ldmatrix": 8,
    "barriers": 5,
    "collectives": 0,
    "async_store": {"requests": 0, "wavefronts": 0, "ideal": 0},
    "cp_async": 0,
    "atomics": 0,
    **{
        name: {"requests": 8, "sectors": 8, "wavefronts": 8, "ideal": 6, "bytes": 8}
        for name in ("global_load", "global_store", "shared_load", "shared_store")
    },
}
PROFILED = {
    "name": "double_buffer::tiles<64>",
    "launches": 1,
    "grid": [1],
    "block": [32],
    "shared_bytes": 0,
    "total": TOTAL,
    "buffers": [],
    "lines": [],
}


@pytest.mark.parametrize("program", timeline.PHASES)
def test_phases_end_where_the_next_begin_and_the_clock_may_begin_anew(program):
    names = timeline.PHASES[program][1]
    late = len(names) * (4 * 32 + timeline.INNER[0])  # where the clock begins anew
    stamps = [
        [
            (100 * (number - late) + number**2 // 100 + 7 * wg) % 2**32
            for number in range(320 * len(names))
        ]
        for wg in (0, 1)
    ]
    found = timeline.phases(program, stamps)
    means, rows = found[: len(names)], found[len(names) :]
    assert [row["phase"] for row in means] == list(names) and all(
        100 < row["mean_clocks"] < 140 for row in means
    )
    assert [row["phase"] for row in rows] == list(names) * len(timeline.INNER) * 2
    assert all(
        a["to_clock"] == b["from_clock"]
        for a, b in zip(rows, rows[1:])
        if a["warpgroup"] == b["warpgroup"]
    )
    assert (rows[0]["to_clock"], rows[len(rows) // 2]["to_clock"]) == (0, 7) and 100 < rows[1][
        "to_clock"
    ] < 140
    assert not any(map(records.wrong_with, found))


def test_what_ncu_prints():
    assert counters.parsed(NCU) == [
        ("tiles", {"seconds": 1.5e-6, "blocks": 8}),
        ("softmax", {"seconds": 1e-8, "blocks": 2}),
    ]


def test_counts_that_agree_and_that_do_not():
    rows = counters.compared("09_a", "--heads 1", {"tiles": COUNTS}, {"tiles": TOTAL})
    assert len(rows) == 9 and all(map(counters.agrees, rows))
    different = counters.compared("09_a", "", {"tiles": COUNTS}, {"tiles": TOTAL | {"mma": 7}})
    assert [row["counter"] for row in different if not counters.agrees(row)] == ["mma"]
    conflicts = TOTAL | {"shared_load": {"requests": 8, "sectors": 8, "wavefronts": 80, "ideal": 6}}
    different = counters.compared("09_a", "", {"tiles": COUNTS}, {"tiles": conflicts})
    assert [row["counter"] for row in different if not counters.agrees(row)] == [
        counters.WAYS
    ]  # wavefronts may differ
    with pytest.raises(LabError, match="the GPU ran"):
        counters.compared("09_a", "", {"tiles": COUNTS}, {"other": TOTAL})


HOPPER = (
    TOTAL
    | {
        name: {"requests": n, "sectors": 10 * n, "bytes": 1000 * n}
        for n, name in enumerate(("tma_load", "tma_store", "bulk_reduce", "global_atomic"), 1)
    }
    | {"wgmma": {"m64n96k16": 8}}
)
ON_HOPPER = COUNTS | {
    "instructions": "1,016 (FFMA: 1,000; HGMMA.64x96x16.F32.BF16: 8; LDG.E.128: 8)",
    "tensor_pipe": 16,
    "TMA_load_requests": 1,
    "TMA_store_requests": 2,
    "TMA_add_requests": 3,
    "TMA_load_bytes": "1,000",
    "TMA_store_bytes": "2,000",
    "TMA_add_bytes": "3,000",
    "atomic_requests": 1,
    "atomic_sectors": 39,
    "answered_requests": 3,
    "answered_sectors": 1,
}


@pytest.mark.parametrize(
    "change, differs",
    [
        ({}, []),
        ({"answered_sectors": 2}, ["atomic sectors"]),
        ({"global_load_sectors": 9}, ["global load sectors"]),
        ({"instructions": "16 (HGMMA.64x80x16.F32: 8)"}, ["wgmma m64n80k16", "wgmma m64n96k16"]),
        ({"shared_load_conflicts": 5}, [counters.WAYS]),
        (
            {
                "instructions": "8 (HGMMA.64x96x16.F32: 8; LDG.E.STRONG.GPU: 9)",
                "global_load_sectors": 9,
                "shared_load_conflicts": 5,
            },
            [],
        ),  # it polls
        *(
            ({f"TMA_{one}": 4}, [f"TMA {one}".replace("_", " ")])
            for one in ("load_bytes", "store_requests", "add_bytes")
        ),
    ],
)
def test_hopper_is_compared(change, differs):
    metrics, kernel = (
        counters.metrics_of(cuda_rungs(["19"])[0]),
        "void unnamed>::wide<unnamed>::Tiles<64>>(int)",
    )
    found = {metrics[name]: cell for name, cell in (ON_HOPPER | change).items() if name in metrics}
    text = "\n".join(
        '"' + '","'.join(map(str, line)) + '"'
        for line in (["ID", "Kernel Name", *found], [0, kernel, *found.values()])
    )
    rows = counters.compared("18_a", "", dict(counters.parsed(text, metrics)), {"wide": HOPPER})
    assert [row["counter"] for row in rows if not counters.agrees(row)] == differs and len(
        rows
    ) >= 18
    assert not set(counters.HOPPER) & set(counters.metrics_of(cuda_rungs(["12"])[0]))


def test_profile_of_both_sides(stand_in, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # where it leaves its files
    rung, total = cuda_rungs(["09"])[0], json.dumps({"kernels": [PROFILED]})
    header, units = (
        ",".join(f'"{name}"' for name in ("ID", "Kernel Name", *records.METRICS.values())),
        '""' + ',""' * 27,
    )
    launch = ",".join(f'"{cell}"' for cell in ("0", "tiles<64>(int)", *COUNTS.values()))
    stand_in("ncu", f"echo '{header}'; echo '{units}'; echo '{launch}'")
    stand_in("nvidia-smi", 'echo "GPU 0: G"')
    for folder in ("cuda", "simt"):
        stand_in(f"{folder}/steps/{rung.name}", f"echo '{total}' > {rung.name}.profile.json")
    arguments = ["--programs", str(tmp_path / "cuda"), "--simt-programs", str(tmp_path / "simt")]
    assert main(["profile", *arguments, "9", "--q-len", "100"]) == 0
    cells = {
        line.rsplit(maxsplit=2)[0]: line.split()[-2:]
        for line in capsys.readouterr().out.splitlines()
        if line
    }
    assert cells["mma"] == ["6", "6"] and cells["shared wavefronts over the ideal"] == [
        "1.33",
        "1.33",
    ]
    assert cells["sectors per load request"] == ["1.00", "1.00"] and "warp collectives" not in cells
    assert main(["counters", *arguments, "09"]) == 0
    said = capsys.readouterr()
    assert "21 of 21 counts" in said.out and all(
        f"--head-dim {d}" in said.err for d in (64, "32 --causal", "128 --causal")
    )
    stand_in("nvidia-smi", "exit 9")
    assert main(["profile", *arguments, "09"]) == 0 and "GPU left out" in capsys.readouterr().err
    assert main(["profile", "01"]) == main(["profile", "--simt-programs", "/nowhere", "09"]) == 2


def test_compute_sanitizer_must_say_that_it_found_nothing():
    assert sanitize.clean(0, "ERROR SUMMARY: 0 errors\nRACECHECK SUMMARY: 0 hazards displayed")
    for code, said in ((0, ""), (0, "ERROR SUMMARY: 1 error"), (99, "ERROR SUMMARY: 0 errors")):
        assert not sanitize.clean(code, said)


def test_what_a_tool_reports_of_the_unseen_races_is_recorded(monkeypatch, tmp_path):
    said = iter(
        ["slot: 7 of 4096 numbers are wrong\nRACECHECK SUMMARY: 2 hazards displayed"] * 17
        + ["Segmentation fault"]
    )

    def run(command, **options):
        if command[1] == "--help":
            return SimpleNamespace(
                stdout="Version 2026.4.0.0 (build 1)\n  --check-tensor-ops arg (=no)  Enables checks"
            )
        if command[0] == "nvcc":
            return SimpleNamespace(returncode=0)
        assert command[0] == "newest" and "--check-tensor-ops yes" in " ".join(command)
        return SimpleNamespace(returncode=0, stdout=next(said))

    saved, about, newest = [], {}, SimpleNamespace(unseen=True, sanitizer="newest")
    monkeypatch.setattr(sanitize.build, "require", lambda *tool: None)
    monkeypatch.setattr(sanitize.build, "FOLDER", tmp_path)
    monkeypatch.setattr(sanitize.subprocess, "run", run)
    monkeypatch.setattr(
        sanitize.cli, "save", lambda options, rows, **more: (saved.extend(rows), about.update(more))
    )
    with pytest.raises(LabError, match="fence repaired did not run under synccheck"):
        sanitize.main(newest)
    said = iter(["wait: 5 of 4096 numbers are wrong\nERROR SUMMARY: 1 error"] * 18)
    assert sanitize.main(newest) == 0
    assert about == {"compute_sanitizer": "2026.4.0.0", "checks": "--check-tensor-ops yes"}
    assert len(saved) == 18 and not any(map(records.wrong_with, saved))
    assert saved[0] == {
        "program": "unseen_races slot",
        "kind": "example",
        "tool": "memcheck",
        "reported": 1,
        "value": 5,
    }


REPORT = {
    "ok": True,
    "seconds": 0.5,
    "flops": 2e9,
    "damage": "",
    "benchmark": {"seconds": [0.01] * 20, "peak_memory_bytes": 100},
    "check": {"o_error": 1e-6, "o_bound": 1e-5, "rows": 64, "message": "O is nan"},
}


@pytest.fixture
def bench_on(stand_in, tmp_path, monkeypatch, capsys):
    """bench_on(*arguments) runs lab bench on a folder with rung one_pass_softmax; `answer` is what the rung does."""
    monkeypatch.setattr(
        bench, "measure_ceilings", lambda gpu, best: best.update(cpu_fma_flops=1e12)
    )
    monkeypatch.setattr(bench, "write_page", lambda path: None)
    stand_in("nvidia-smi", "exit 9")

    def run(*arguments, answer=f"echo '{json.dumps(REPORT)}'"):
        stand_in("build/steps/05_one_pass_softmax", f'echo "$*" >> {tmp_path}/calls\n{answer}')
        code = main(["bench", "--programs", str(tmp_path / "build"), "--only", "05", *arguments])
        return code, capsys.readouterr()

    return run


def test_bench_on_the_cpu(bench_on, tmp_path):
    code, said = bench_on(
        "--problem", "1,2,64,32", "--sigma", "4", "--output", str(tmp_path / "out.json")
    )
    assert code == 0, said.err
    row = next(
        row for row in records.read(str(tmp_path / "out.json"))["rows"] if row["kind"] == "rung"
    )
    assert (row["ms"], row["sigma"], row["of_allowed_error"], row["extra_bytes"], row["unit"]) == (
        10,
        4,
        0.1,
        100,
        "cpu_fma_flops",
    )
    assert "20.0%" in said.out and f"--scale {4 / 32**0.5}" in (tmp_path / "calls").read_text()


def test_bench_leaves_out_what_refuses_and_fails_on_wrong_results(bench_on, tmp_path):
    code, said = bench_on("--quick", answer="echo '05_one_pass_softmax: no memory' >&2; exit 2")
    assert code == 2 and "left out: no memory" in said.err
    code, said = bench_on("--quick", answer=f"echo '{json.dumps(REPORT | {'ok': False})}'; exit 1")
    assert code == 1 and "its result is wrong: O is nan" in said.err


@pytest.mark.parametrize(
    "wrong",
    [
        ["--quick", "--record"],
        ["--record"],
        ["--sigma", "0"],
        ["--problem", "1,2"],
        ["--output", "/nowhere/at/all.json"],
    ],
)
def test_bench_refuses(bench_on, wrong):
    code, said = bench_on(*wrong)
    assert code == 2 and len(said.err.splitlines()) == 1
