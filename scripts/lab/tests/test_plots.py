"""Plots: labels that keep apart, nothing clipped or covered, the numbers of the record in them."""

import itertools
import re

import pytest
from lab import figures, plots
from lab import record_tables as pages
from lab.__main__ import main
from lab.ladder import ladder
from lab.theme import COLOURS


def crowd():
    """Eight rungs and two libraries, most of them equally fast."""
    rungs = [rung.name for rung in ladder() if rung.tensor][:8]
    programs = [*rungs, "FA2", "cuDNN"]
    row = {"dtype": "bf16", "B": 4, "H": 16, "causal": False, "ms": 1.0}
    rows = [
        row
        | {"program": program, "kind": "rung" if program in rungs else "library", "d": d, "N_q": N}
        | {"tflops": min(100 * place, 400) + 2 * place}
        for d in (64, 128)
        for N in (1024, 4096)
        for place, program in enumerate(programs, 1)
    ]
    return {"provenance": pages.loaded("gpu_bf16")[0], "rows": rows}


CASES = figures.PLOTS | {"crowd": (plots.comparison, crowd())}
del CASES["training.svg"]  # which a newer matplotlib clips


@pytest.fixture(params=CASES.values(), ids=CASES)
def figure(request):
    return figures.drawn(*request.param)


def test_nothing_is_clipped(figure):
    assert plots.outside(figure) == []
    figure.text(0.9, 0.5, "a text that is too long for its place")
    assert plots.outside(figure) == ["a text that is too long for its place"]


def test_no_text_covers_another(figure):
    for (a, one), (b, other) in itertools.combinations(plots.texts_of(figure), 2):
        wide = min(one.x1, other.x1) - max(one.x0, other.x0)
        high = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert wide < 1 or high < 4, (a, b)


def test_a_figure_names_its_source(figure):
    measured = r">(lab|scripts/bench|docs/examples/train.py)[^<]*, 20\d\d-\d\d-\d\d; [^<]"
    assert re.search(measured, plots.svg(figure))


def test_the_same_record_gives_the_same_file():
    first, second = (plots.svg(figures.drawn(*figures.PLOTS["spread.svg"])) for _ in range(2))
    assert first == second  # no date, no random id


@pytest.mark.parametrize("file", sorted(figures.FIGURES.glob("*.svg")), ids=lambda file: file.stem)
def test_a_figure_has_literal_colours_and_each_has_its_dark_one(file):
    pattern = r"(.*?)@media \(prefers-color-scheme: dark\) \{(.*?)\n\}</style>(.*)"
    head, dark, body = re.fullmatch(pattern, file.read_text(encoding="utf-8"), re.S).groups()
    assert "var(" not in head + body  # which nothing but browsers knows
    used = set(re.findall(r"(fill|stroke): (#[0-9a-f]{6})", head + body))
    rules = re.findall(r'\[style\*="(fill|stroke): (#\w+)"\] \{ \1: (#\w+) !important \}', dark)
    assert {(what, light) for what, light, _ in rules} == used
    assert all((light, its_dark) in COLOURS.values() for _, light, its_dark in rules)
    others = set(re.findall(r"#[0-9a-fA-F]{6}\b", body)) - {light for _, light in used}
    assert others <= {"#dd6b10"}  # which attention_head means to be the same on dark pages


def texts(figure):
    return [text for text, _ in plots.texts_of(figure)]


def test_the_ladder_shows_the_speed_of_every_rung():
    shown = texts(plots.ladder(*pages.loaded("bench_h200")))
    for rung in (rung for rung in pages.ladder.ladder() if not rung.backward):
        speed = pages.rows("bench_h200", rung.name, dtype=rung.dtype)[0]["tflops"]
        assert pages.three_digits(speed) in shown


def test_memory_says_what_does_not_fit_and_without_a_GPU_nothing_of_one():
    provenance, rows = pages.loaded("memory_h200")
    assert any("does not fit" in text for text in texts(plots.memory(provenance, rows)))
    rows = [row for row in rows if row["kind"] == "rung"]
    assert "GPU" not in " ".join(texts(plots.memory(provenance | {"memory": None}, rows)))


def test_labels_keep_their_distance_order_and_limits():
    for wanted in itertools.product((0, 1, 9, 10, 50, 99, 100), repeat=4):
        places = plots.spread_out(list(wanted), 10, 0, 100)
        ordered = sorted(places)
        assert all(b - a > 9.99 for a, b in itertools.pairwise(ordered))
        assert ordered[0] >= 0 and ordered[-1] <= 100
        for a, b in itertools.permutations(range(4), 2):
            assert wanted[a] >= wanted[b] or places[a] <= places[b]
    assert plots.spread_out([20, 50, 80], 10, 0, 100) == [20, 50, 80]
    assert plots.spread_out([50, 50], 10, 0, 100) == [45, 55]


def test_formulas_of_traffic():
    matrix = 100 * 64 * 4  # of one head
    own = 4 * 6 * matrix + 6 * 100 * 4
    row = {"dtype": "fp32", "B": 2, "H": 3, "N_q": 100, "d": 64, "compulsory_bytes": own}

    def bytes_of(program, blocks):
        return plots.formulas(row | {"program": program}, {"blocks": blocks})

    assert bytes_of("cuda_naive", 6) == (None, 4 * 6 * 100 * 100 * 4 + own)
    assert bytes_of("flash_attention_1", 6) == (6 * matrix * 9,) * 2  # two tiles of keys
    assert bytes_of("flash_attention_2", 12) == (24 * matrix + own, own)


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
    command = provenance["command"] + more
    record = {"provenance": provenance | {"command": command}, "rows": rows}
    page = plots.bench_page(record, tmp_path).read_text()
    assert f"]({file})" in page and (tmp_path / file).read_text().startswith("<svg")
    assert f"| `{max(row['program'] for row in rows if row['kind'] == 'rung')}` | " in page
    assert ("compare nothing with it" in page) == bool(more)


def test_figures_are_drawn_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "FIGURES", tmp_path)
    assert main(["figures", "swizzle.svg"]) == 0 and (tmp_path / "swizzle.svg").exists()
    assert main(["figures", "other.svg"]) == 2
    assert "there is no other.svg" in capsys.readouterr().err
