"""Plots: labels that keep apart, nothing clipped or covered, and the numbers of the record in them."""

import itertools
import re

import pytest
from lab import figures, pages, plots, records
from lab.__main__ import main
from lab.theme import COLOURS

RUNGS = [rung for rung in pages.ladder.ladder() if not rung.backward]


def crowd():
    """Eight rungs and two libraries, most of them equally fast."""
    programs = [f"{number}_rung" for number in range(10, 18)] + ["FA2", "cuDNN"]
    row = {"dtype": "bf16", "B": 4, "H": 16, "causal": False, "ms": 1.0}
    return {
        "provenance": pages.loaded("gpu_bf16")[0],
        "rows": [
            row
            | {
                "program": program,
                "kind": "rung" if program < "A" else "library",
                "d": d,
                "N_q": N,
                "tflops": min(100 * place, 400) + 2 * place,
            }
            for d in (64, 128)
            for N in (1024, 4096)
            for place, program in enumerate(programs, 1)
        ],
    }


CASES = figures.PLOTS | {"crowd": (plots.comparison, crowd())}
del CASES["training.svg"]  # which a newer matplotlib clips; lab figures --check looks at it


@pytest.fixture(params=CASES.values(), ids=CASES)
def figure(request):
    made = figures.drawn(*request.param)
    made.again = lambda: figures.drawn(*request.param)
    return made


def test_nothing_is_clipped(figure):
    assert plots.outside(figure) == []
    figure.text(0.9, 0.5, "a text that is too long for its place")
    assert plots.outside(figure) == ["a text that is too long for its place"]


def test_no_text_covers_another(figure):
    for (a, one), (b, other) in itertools.combinations(plots.texts_of(figure), 2):
        wide, high = (
            min(one.x1, other.x1) - max(one.x0, other.x0),
            min(one.y1, other.y1) - max(one.y0, other.y0),
        )
        assert wide < 1 or high < 4, (a, b)


def test_a_figure_names_its_source_and_follows_the_page(figure):
    text = plots.svg(figure)
    assert re.search(
        r">(lab|scripts/bench|docs/examples/train.py)[^<]*, 20\d\d-\d\d-\d\d; [^<]", text
    )
    assert text == plots.svg(figure.again())  # no date, no random id
    assert plots.data_of(text) == plots.data(figure) and plots.data_of("<svg/>") is None


@pytest.mark.parametrize("file", sorted(figures.FIGURES.glob("*.svg")), ids=lambda file: file.stem)
def test_a_figure_has_literal_colours_and_each_has_its_dark_one(file):
    head, dark, body = re.fullmatch(
        r"(.*?)@media \(prefers-color-scheme: dark\) \{(.*?)\n\}</style>(.*)",
        file.read_text(encoding="utf-8"),
        re.S,
    ).groups()
    body = head + re.sub(r"<metadata.*?</metadata>", "", body, flags=re.S)
    assert "var(" not in body  # which nothing but browsers knows
    used = set(re.findall(r"(fill|stroke): (#[0-9a-f]{6})", body))
    rules = re.findall(r'\[style\*="(fill|stroke): (#\w+)"\] \{ \1: (#\w+) !important \}', dark)
    assert {(what, light) for what, light, _ in rules} == used
    assert all((light, its_dark) in COLOURS.values() for _, light, its_dark in rules)
    others = set(re.findall(r"#[0-9a-fA-F]{6}\b", body)) - {light for _, light in used}
    assert others <= {"#dd6b10"}, (
        "a colour that stays the same on dark pages; that one is meant to, in attention_head"
    )


def test_the_ladder_shows_every_rung_and_ceiling():
    drawn = plots.data(plots.ladder(*pages.loaded("bench_h200")))
    for rung in RUNGS:
        speed = pages.rows("bench_h200", rung.name, dtype=rung.dtype)[0]["tflops"]
        assert [float(f"{speed:.4g}")] in [x for x, _ in drawn["lines"]] and pages.three_digits(
            speed
        ) in drawn["texts"]
    limit = float(f"{pages.ceilings_of('bench_h200')['mma_sync_flops'] / 1e12:.4g}")
    assert [limit, limit] in [x for x, _ in drawn["lines"]]


def test_memory_says_what_does_not_fit_and_without_a_GPU_nothing_of_one():
    provenance, rows = pages.loaded("memory_h200")
    assert "cuda_naive does not fit" in plots.data(plots.memory(provenance, rows))["texts"]
    rows = [row for row in rows if row["kind"] == "rung"]
    assert "GPU" not in " ".join(
        plots.data(plots.memory(provenance | {"memory": None}, rows))["texts"]
    )


def test_spread_shows_the_last_two_rungs_in_both_types_and_libraries_once():
    texts = plots.data(figures.drawn(*figures.PLOTS["spread.svg"]))["texts"]
    for number in sorted(
        {row["program"][:2] for row in pages.rows("gpu_spread_bf16", kinds=("rung",))}
    )[-2:]:
        assert all(texts.count(f"{number}, {dtype}") == 2 for dtype in ("fp16", "bf16"))
    assert texts.count("cuDNN, bf16") == 2 and "cuDNN, fp16" not in texts
    with pytest.raises(ValueError, match="no row of this record has a sigma"):
        plots.spread(*pages.loaded("series_h200"))


def test_labels_keep_their_distance_order_and_limits():
    for wanted in itertools.product((0, 1, 9, 10, 50, 99, 100), repeat=4):
        places = plots.spread_out(list(wanted), 10, 0, 100)
        ordered = sorted(places)
        assert (
            all(b - a > 9.99 for a, b in zip(ordered, ordered[1:]))
            and ordered[0] >= 0
            and ordered[-1] <= 100
        )
        assert not any(
            wanted[a] < wanted[b] and places[a] > places[b]
            for a, b in itertools.permutations(range(4), 2)
        )
    assert plots.spread_out([20, 50, 80], 10, 0, 100) == [20, 50, 80]
    assert plots.spread_out([50, 50], 10, 0, 100) == [45, 55]


def test_formulas_of_traffic():
    matrix = 100 * 64 * 4  # of one head
    row = {
        "dtype": "fp32",
        "B": 2,
        "H": 3,
        "N_q": 100,
        "d": 64,
        "compulsory_bytes": 4 * 6 * matrix + 6 * 100 * 4,
    }
    own = row["compulsory_bytes"]
    assert plots.formulas({**row, "program": "06_x"}, {"blocks": 6}) == (
        None,
        4 * 6 * 100 * 100 * 4 + own,
    )
    assert (
        plots.formulas({**row, "program": "07_x"}, {"blocks": 6}) == (6 * matrix * 9,) * 2
    )  # two tiles of keys
    assert plots.formulas({**row, "program": "08_x"}, {"blocks": 12}) == (24 * matrix + own, own)
    kernel = next(rung for rung in RUNGS if rung.number == "07").kernel_file.read_text(
        encoding="utf-8"
    )
    assert f"int Bc = {plots.BC_OF_07};" in kernel
    assert plots.l2_bytes({"l2_read_sectors": 3, "l2_write_sectors": 4}) == 224
    kernels = pages.rows("bench_h200", "06", kinds=("kernel",))  # summed over kernels
    assert plots.counted(kernels)["11_cuda_naive"]["registers"] == sum(
        row["registers"] for row in kernels
    )


@pytest.mark.parametrize(
    "name, more, file",
    [
        ("bench_h200", " --quick", "ladder.svg"),
        ("series_h200", "", "time.svg"),
        ("memory_h200", "", "memory.svg"),
    ],
)
def test_the_page_of_scripts_bench(tmp_path, name, more, file):
    provenance, rows = pages.loaded(name)
    record = {"provenance": provenance | {"command": provenance["command"] + more}, "rows": rows}
    page = plots.bench_page(record, tmp_path).read_text()
    assert f"]({file})" in page and (tmp_path / file).read_text().startswith("<svg")
    assert f"| {max(row['program'] for row in rows if row['kind'] == 'rung')} | " in page and (
        "compare nothing with it" in page
    ) == bool(more)


def test_figures_check(tmp_path, monkeypatch, capsys):
    real = pages.loaded("bench_h200")
    monkeypatch.setattr(records, "RECORDS", tmp_path)
    monkeypatch.setattr(figures, "RECORDS", tmp_path)
    monkeypatch.setattr(figures, "FIGURES", tmp_path)
    monkeypatch.setattr(figures, "PLOTS", {"ladder.svg": (plots.ladder, "r")})

    def run(*arguments):
        pages.read_records.clear()
        return main(["figures", *arguments]), *capsys.readouterr()

    assert "ladder.svg: not drawn, there is no record r" in run()[1]
    records.save("r", *real)
    assert run()[0] == 0 and (tmp_path / "ladder.svg").exists()
    code, out, _ = run("--check")
    assert code == 0 and "1 figures are as the records" in out
    records.save("r", real[0], [row | {"tflops": 1.1 * row.get("tflops", 0)} for row in real[1]])
    code, _, err = run("--check")
    assert code == 1 and "ladder.svg: not what the record says" in err, err
    assert run("other.svg")[0] == 2
