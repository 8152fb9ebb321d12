"""Plots: labels that keep apart, nothing clipped or covered, and the numbers of the record in them."""

import itertools
import re

import pytest

from lab import figures, pages, plots, records
from lab.__main__ import main
from lab.theme import COLOURS
from test_tables import COUNTS, PROBLEM

BIG = PROBLEM | {"B": 4, "H": 16, "H_kv": 16, "N_q": 4096, "N_kv": 4096, "d": 64}
PROVENANCE = {"command": "./scripts/bench --record", "date": "today", "gpu": "NVIDIA H200", "cuda": "13.0", "cores": 4,
              "commit": "c", "processor": "a CPU", "memory": "1000 MiB"}
RUNGS = [(rung, "fp32" if "fp32" in rung.types else "bf16") for rung in pages.ladder.ladder() if not rung.backward]


def timed(program, dtype, number, **more):
    unit = "cpu_fma_flops" if program < "06" else "ffma_flops" if dtype == "fp32" else "mma_sync_flops"
    tflops = 0.4 * 2 ** min(number, 9) + 30 * max(number - 8, 0)
    return {"program": program, "kind": "rung" if program < "A" else "library", "dtype": dtype, **BIG, "unit": unit,
            "ms": 275 / tflops, "tflops": tflops, "compulsory_bytes": 10 ** 8, "extra_bytes": 10 ** 6, **more}


def ladder_rows():
    """A record of scripts/bench, of the manifest's rungs: the last ones close to each other."""
    rows = [timed(rung.name, dtype, n) for n, (rung, dtype) in enumerate(RUNGS)] + [timed("cuDNN", "bf16", 16)]
    rows += [{"program": name, "kind": "ceiling", "value": value} for name, value in (
        ("cpu_fma_flops", 1e12), ("ffma_flops", 6e13), ("mma_sync_flops", 6e14), ("copy_bytes_per_s", 4e12))]
    rows += [{"program": rung.name, "kind": "kernel", "kernel": "k", **BIG, **COUNTS, "blocks": 100,
              "dram_write_bytes": 0, "dram_read_bytes": 10 ** 10 if n < 7 else 10 ** 8 * (2 + n % 3)}
             for n, (rung, _) in enumerate(RUNGS) if rung.cuda]
    return rows


def against_N(**more):
    return [timed(rung.name, dtype, number, **{**more, "N_q": N, "ms": N / 1.5 ** number, "B": 16384 // N})
            for number, (rung, dtype) in enumerate(RUNGS) for N in (512, 1024, 2048, 4096)]


def memory():
    last = {"01": 1024, "05": 1024, "06": 2048, "08": 4096, RUNGS[-1][0].number: 4096}
    return [timed(rung.name, dtype, 1, N_q=N, compulsory_bytes=N << 14,
                  extra_bytes=64 * N * N * (rung.number in ("01", "06")))
            for rung, dtype in RUNGS for N in (512, 1024, 2048, 4096) if N <= last.get(rung.number, 0)] + [
        {"program": "06_cuda_naive", "kind": "left out", "N_q": 4096, "reason": "does not fit"}]


def against_sigma():
    return [timed(program, dtype, 10, N_q=16384, d=d, sigma=sigma, tflops=300 + sigma) for d in (64, 128)
            for sigma in (1, 4, 24) for program, dtype in [("FA2", "bf16"), ("cuDNN", "bf16"), ("cuDNN", "fp16"), *(
                (rung.name, dtype) for rung, of in RUNGS if of == "bf16" for dtype in ("fp16", "bf16"))]]


def crowd():
    """Eight rungs and two libraries, most of them equally fast."""
    programs = [f"{number}_rung" for number in range(10, 18)] + ["FA2", "cuDNN"]
    return [timed(program, "bf16", 10, d=d, N_q=N, tflops=min(100 * place, 400) + 2 * place) for d in (64, 128)
            for N in (1024, 4096) for place, program in enumerate(programs, 1)]


CASES = {"ladder": (plots.ladder, ladder_rows), "traffic": (plots.traffic, ladder_rows),
         "roofline": (plots.roofline, ladder_rows), "time": (plots.time, against_N), "memory": (plots.memory, memory),
         "spread": (plots.spread, against_sigma), "comparison": (plots.comparison, crowd)}


@pytest.fixture(params=CASES)
def figure(request):
    plot, rows = CASES[request.param]
    made = plot(PROVENANCE, rows())
    made.name = request.param
    return made


def test_nothing_is_clipped(figure):
    assert plots.outside(figure) == []
    figure.text(0.9, 0.5, "a text that is too long for its place")
    assert plots.outside(figure) == ["a text that is too long for its place"]


def test_no_text_covers_another(figure):
    for (a, one), (b, other) in itertools.combinations(plots.texts_of(figure), 2):
        wide, high = min(one.x1, other.x1) - max(one.x0, other.x0), min(one.y1, other.y1) - max(one.y0, other.y0)
        assert wide < 1 or high < 4, (a, b)


def test_a_figure_names_its_source_and_follows_the_page(figure):
    text = plots.svg(figure)
    assert "scripts/bench, today; NVIDIA H200 (CUDA 13.0)" in text
    light, dark = text.split("@media (prefers-color-scheme: dark)")
    dark, body = dark.split("</style>", 1)
    assert all(f"--{name}: {pair[0]};" in light and f"--{name}: {pair[1]};" in dark for name, pair in COLOURS.items())
    assert not re.search(r"#[0-9a-f]{6}\b", body.split("</metadata>")[1]), "a colour that stays the same on dark pages"
    assert text == plots.svg(CASES[figure.name][0](PROVENANCE, CASES[figure.name][1]()))  # no date, no random id
    assert plots.data_of(text) == plots.data(figure) and plots.data_of("<svg/>") is None


def test_the_ladder_shows_every_rung_and_ceiling():
    drawn = plots.data(plots.ladder(PROVENANCE, ladder_rows()))
    places = [x for x, _ in drawn["lines"]]
    for row in ladder_rows()[:len(RUNGS) + 1]:
        assert [float(f"{row['tflops']:.4g}")] in places and pages.three_digits(row["tflops"]) in drawn["texts"]
    assert [600.0, 600.0] in places


def test_memory_says_what_does_not_fit_and_without_a_GPU_nothing_of_one():
    assert "rung 06 does not fit" in plots.data(plots.memory(PROVENANCE, memory()))["texts"]
    rows = [row for row in memory() if row["kind"] == "rung"]
    assert "GPU" not in " ".join(plots.data(plots.memory({**PROVENANCE, "memory": None}, rows))["texts"])


def test_spread_shows_the_last_two_rungs_in_both_types_and_libraries_once():
    texts = plots.data(plots.spread(PROVENANCE, against_sigma()))["texts"]
    for rung in [rung for rung, dtype in RUNGS if dtype == "bf16"][-2:]:
        assert all(texts.count(f"{rung.number}, {dtype}") == 2 for dtype in ("fp16", "bf16"))
    assert texts.count("cuDNN, bf16") == 2 and "cuDNN, fp16" not in texts
    with pytest.raises(ValueError, match="no row of this record has a sigma"):
        plots.spread(PROVENANCE, ladder_rows())


def test_labels_keep_their_distance_order_and_limits():
    for wanted in itertools.product((0, 1, 9, 10, 50, 99, 100), repeat=4):
        places = plots.spread_out(list(wanted), 10, 0, 100)
        ordered = sorted(places)
        assert all(b - a > 9.99 for a, b in zip(ordered, ordered[1:])) and 0 <= ordered[0] and ordered[-1] <= 100
        assert not any(wanted[a] < wanted[b] and places[a] > places[b] for a, b in itertools.permutations(range(4), 2))
    assert plots.spread_out([20, 50, 80], 10, 0, 100) == [20, 50, 80]
    assert plots.spread_out([50, 50], 10, 0, 100) == [45, 55]


def test_formulas_of_traffic():
    matrix = 100 * 64 * 4  # of one head
    row = {"dtype": "fp32", "B": 2, "H": 3, "N_q": 100, "d": 64, "compulsory_bytes": 4 * 6 * matrix + 6 * 100 * 4}
    own = row["compulsory_bytes"]
    assert plots.formulas({**row, "program": "06_x"}, {"blocks": 6}) == (None, 4 * 6 * 100 * 100 * 4 + own)
    assert plots.formulas({**row, "program": "07_x"}, {"blocks": 6}) == (6 * matrix * 9,) * 2  # two tiles of keys
    assert plots.formulas({**row, "program": "08_x"}, {"blocks": 12}) == (24 * matrix + own, own)
    kernel = next(rung for rung, _ in RUNGS if rung.number == "07").kernel_file.read_text(encoding="utf-8")
    assert f"int Bc = {plots.BC_OF_07};" in kernel
    assert plots.l2_bytes({"l2_read_sectors": 3, "l2_write_sectors": 4}) == 224
    assert plots.counted(ladder_rows() * 2)[RUNGS[-1][0].name]["registers"] == 2 * 64  # summed over kernels


def test_the_page_of_scripts_bench(tmp_path):
    for command, file in (("scripts/bench --quick", "ladder.svg"), ("scripts/bench --series", "time.svg"),
                          ("scripts/bench --memory", "memory.svg")):
        rows = ladder_rows() if file == "ladder.svg" else memory() if file == "memory.svg" else against_N()
        rows = [{"spread": 0, "backend": "cuda", **row} if "ms" in row else row for row in rows]
        page = plots.bench_page({"provenance": {**PROVENANCE, "command": command}, "rows": rows}, tmp_path).read_text()
        assert f"]({file})" in page and (tmp_path / file).read_text().startswith("<svg")
        assert f"| {RUNGS[-1][0].name} | bf16 |" in page
        assert ("compare nothing with it" in page) == ("--quick" in command)


def test_figures_check(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(records, "RECORDS", tmp_path)
    monkeypatch.setattr(figures, "RECORDS", tmp_path)
    monkeypatch.setattr(figures, "FIGURES", tmp_path)
    monkeypatch.setattr(figures, "PLOTS", {"ladder.svg": (plots.ladder, "r")})

    def run(*arguments):
        pages.read_records.clear()
        return main(["figures", *arguments]), *capsys.readouterr()
    assert "ladder.svg: not drawn, there is no record r" in run()[1]
    records.save("r", PROVENANCE, ladder_rows())
    assert run()[0] == 0 and (tmp_path / "ladder.svg").exists()
    code, out, _ = run("--check")
    assert code == 0 and "1 figures are as the records" in out
    records.save("r", PROVENANCE, [{**row, "tflops": 1.1 * row.get("tflops", 0)} for row in ladder_rows()])
    code, _, err = run("--check")
    assert code == 1 and "ladder.svg: not what the record says" in err, err
    assert run("other.svg")[0] == 2
