"""What is timed and counted: cases, ratios, counters, and lab bench on programs that are stand-ins."""

import json

import pytest
from lab import bench, compare, counters, harness, records, sanitize, timing
from lab.__main__ import VERBS, main
from lab.ladder import LabError, cuda_rungs


@pytest.mark.parametrize("verb", set(VERBS) - {"golden-data"})  # which needs PyTorch
def test_help_and_bad_input(verb, capsys):
    with pytest.raises(SystemExit) as left:
        main([verb, "--help"])
    assert left.value.code == 0 and verb in capsys.readouterr().out
    with pytest.raises(SystemExit) as left:
        main([verb, "--no-such-option"])
    assert left.value.code == 2


@pytest.mark.parametrize(
    "wrong",
    [
        ["compare", "--rounds", "19"],
        ["compare", "--head-dims", "48"],
        ["compare", "--sigma", "0"],
        ["compare", "--pattern", "rising:x"],
        ["compare", "--group", "3"],
        ["compare", "--problem", "1,2,3"],
        ["compare", "nowhere/12_no_such_rung"],
        ["bench", "--quick", "--record"],
        ["bench", "--problem", "1,2"],
        ["bench", "--output", "/nowhere/at/all.json"],
    ],
)
def test_cases_that_make_no_sense(wrong, capsys):
    assert main(wrong) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


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
        counters.metrics_of(cuda_rungs(["wgmma_tma"])[0]),
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
    assert not set(counters.HOPPER) & set(counters.metrics_of(cuda_rungs(["warp_tiles"])[0]))


def test_profile_of_both_sides(stand_in, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # where it leaves its files
    rung, total = cuda_rungs(["double_buffer"])[0], json.dumps({"kernels": [PROFILED]})
    header, units = (
        ",".join(f'"{name}"' for name in ("ID", "Kernel Name", *records.METRICS.values())),
        '""' + ',""' * 27,
    )
    launch = ",".join(f'"{cell}"' for cell in ("0", "tiles<64>(int)", *COUNTS.values()))
    stand_in("ncu", f"echo '{header}'; echo '{units}'; echo '{launch}'")
    stand_in("nvidia-smi", 'echo "GPU 0: G"')
    for folder in ("cuda", "simt"):
        stand_in(f"{folder}/steps/{rung.program}", f"echo '{total}' > {rung.name}.profile.json")
    arguments = ["--programs", str(tmp_path / "cuda"), "--simt-programs", str(tmp_path / "simt")]
    assert main(["profile", *arguments, "double_buffer", "--q-len", "100"]) == 0
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
    assert main(["counters", *arguments, "double_buffer"]) == 0
    said = capsys.readouterr()
    assert "21 of 21 counts" in said.out and all(
        f"--head-dim {d}" in said.err for d in (64, "32 --causal", "128 --causal")
    )
    stand_in("nvidia-smi", "exit 9")
    assert (
        main(["profile", *arguments, "double_buffer"]) == 0
        and "GPU left out" in capsys.readouterr().err
    )
    assert (
        main(["profile", "naive_attention"])
        == main(["profile", "--simt-programs", "/nowhere", "double_buffer"])
        == 2
    )


def test_compute_sanitizer_must_say_that_it_found_nothing():
    assert sanitize.clean(0, "ERROR SUMMARY: 0 errors\nRACECHECK SUMMARY: 0 hazards displayed")
    for code, said in ((0, ""), (0, "ERROR SUMMARY: 1 error"), (99, "ERROR SUMMARY: 0 errors")):
        assert not sanitize.clean(code, said)


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
        code = main(
            [
                "bench",
                "--programs",
                str(tmp_path / "build"),
                "--only",
                "one_pass_softmax",
                *arguments,
            ]
        )
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
