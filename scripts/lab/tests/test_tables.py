"""Tables of the pages: sound ones pass, and each way in which one can be wrong is found, with its place."""

import pytest
from lab import pages, records, tables
from lab.__main__ import main

PROBLEM = {"B": 1, "H": 2, "H_kv": 2, "N_q": 64, "N_kv": 64, "d": 32, "causal": False}
COUNTS = {name: 64 for name in records.METRICS} | {
    "tensor_pipe": 12,
    "tensor_pipe_moves": 4,
    "seconds": 0.5,
}
ROWS = [
    {
        "program": "13_flash_attention_2",
        "kind": "rung",
        "dtype": "fp32",
        **PROBLEM,
        "ms": 4.0,
        "tflops": 10.0,
        "spread": 0.01,
        "unit": "ffma_flops",
        "compulsory_bytes": 8_000_000,
        "extra_bytes": 0,
        "backend": "cuda",
    },
    {
        "program": "21_mma_sync",
        "kind": "rung",
        "dtype": "bf16",
        **PROBLEM,
        "ms": 1.0,
        "tflops": 40.0,
        "spread": 0.2,
        "unit": "mma_sync_flops",
        "compulsory_bytes": 4_000_000,
        "extra_bytes": 0,
        "backend": "cuda",
    },
    {
        "program": "21_mma_sync",
        "kind": "rung",
        "dtype": "bf16",
        **PROBLEM,
        "N_q": 128,
        "ms": 1.5,
        "tflops": 90.0,
        "spread": 0,
        "unit": "mma_sync_flops",
        "compulsory_bytes": 8_000_000,
        "backend": "cuda",
    },
    {
        "program": "FA2",
        "kind": "library",
        "dtype": "bf16",
        **PROBLEM,
        "ms": 2.0,
        "tflops": 20.0,
        "spread": 0,
        "compulsory_bytes": 4_000_000,
        "backend": "cuda",
    },
    *(
        {"program": name, "kind": "ceiling", "value": value}
        for name, value in (("ffma_flops", 4e13), ("mma_sync_flops", 8e13))
    ),
    *(
        {"program": "21_mma_sync", "kind": "kernel", "kernel": name, **PROBLEM, **COUNTS}
        for name in ("first", "second")
    ),
    {
        "program": "13_flash_attention_2",
        "kind": "left out",
        "N_q": 128,
        "reason": "not enough memory",
    },
]


@pytest.fixture(autouse=True)
def record(tmp_path, monkeypatch):
    """The record "r"."""
    monkeypatch.setattr(records, "RECORDS", tmp_path)
    pages.read_records.clear()
    records.save("r", {"command": "x", "date": "today", "gpu": "NVIDIA H100 80GB HBM3"}, ROWS)
    yield
    pages.read_records.clear()


def page(text):
    return tables.Page("page.md", text)


@pytest.mark.parametrize(
    "mark, words",
    [
        ("<!-- table: 1 / 0 -->", "page.md:3: 1 / 0: ZeroDivisionError"),
        ("<!-- table: wholly -->", "NameError"),
        ("<!-- table: open('x') -->", "NameError"),
        ("<!-- table: neighbours('r', 'FA2', '07') -->", "has no rows of 07"),
        ("<!-- table: neighbours('r', 'FA2', '') -->", "3 rows"),
        ("a <!--= 1 -->1<!-- /= -->", "this mark is not"),
        ("a <!-- table: compared('r') -->", "this mark is not"),
        ("<!-- table: compared('none') -->", "none.json"),
        ("<!-- table : compared('r') -->", "this mark is not"),
        ("<!-- table: pivot('r', 'program', 'd', 'ms') -->", "belong into one cell"),
        ("<!-- table: factors('r', 'cuDNN') -->", "no problem of both"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(mark, words):
    wrong = page(f"# A page\n\n{mark}\n").wrong
    assert len(wrong) == 1 and wrong[0].startswith("page.md:3: ") and words in wrong[0], wrong
    for code in ("`", "```\n"):
        assert page(f"{code}{mark}{code[::-1]}\n").wrong == []  # marks in code are left alone


@pytest.mark.parametrize(
    "expression, lines",
    [
        (
            "speeds('r')",
            [
                "| 13_flash_attention_2 | 4.00 | 10.0 | 25.0% |  |  |",
                "| 21_mma_sync | 1.00 (noisy) | 40.0 | 50.0% | 4.00 | 2.00 |",
                "| PyTorch, FlashAttention-2 | 2.00 | 20.0 |  |  | 1.00 |",
            ],
        ),
        (
            "compared('r', dtype='bf16')",
            [
                "| N | 64 | 128 | geo. mean |",
                "| 10 | 40 | 90 | 60 |",
                "| FlashAttention-2 | 20 |  |  |",
            ],
        ),
        ("factors('r', 'FA2', dtype='bf16')", ["| 10 | 2.00 | 2.000 | 2.00 |"]),
        (
            "view('r', 'tensor cores')",
            ["| 10 first | 0.0 | 64.0% | 8.00 | 8.00 |  | 64 | 64 | 64% |"],
        ),
        (
            "against_N('r', 'bytes')",
            [
                "| 13_flash_attention_2 | fp32 | 8.00 MB | does not fit |",
                "| 21_mma_sync | bf16 | 4.00 MB | ? |",
            ],
        ),
        ("means('r', '10', 'FA2')", ["| 10 | 60 | 60 |", "| FlashAttention-2 | 20 | 20 |"]),
        (
            "neighbours('r', '10', '10')",
            ["| 64 | 1.00 | 1.00 | 1.00 |", "| 128 | 1.50 | 1.50 | 1.00 |"],
        ),
        ("ceilings('r')", ["| mma.sync | 80.0 TFLOP/s |"]),
        ("growth('r')", ["| 64 to 128 |"]),
    ],
)
def test_tables(expression, lines):
    if expression.startswith("growth"):
        records.save(
            "r",
            {"command": "x"},
            [row for row in ROWS if row["program"].startswith("10") and "ms" in row],
        )
        pages.read_records.clear()
        lines = ["| 64 to 128 | 1.50 |"]
    made = page(f"<!-- table: {expression} -->\n| old |\n|---|\n\nText.\n")
    assert made.wrong == [] and made.differs and made.new.endswith("|\n\nText.\n"), made.wrong
    for line in lines:
        assert line in made.new, made.new


def test_counts_of_both_sides_stand_in_one_cell_where_they_agree():
    records.save(
        "c",
        {"command": "x"},
        [
            {
                "program": "10_a",
                "kind": "rung",
                "kernel": "k",
                "problem": one,
                "counter": name,
                "gpu": 1000,
                "simt": count,
            }
            for one in ("-N 1", "-N 2")
            for name, count in (("mma", 1000), ("TMA load bytes", 7), ("ldmatrix", 1))
        ],
    )
    assert pages.simt("c", "TMA|mma")[::2] == [
        "| program | kernel | mma | TMA load bytes |",
        "| 10 | k | 1,000 | 1,000 / 7 |",
    ]


def test_the_ladder_shows_every_rung():
    names = [rung.name for rung in pages.ladder.ladder()]
    lines = pages.ladder_table()
    assert len(lines) == 2 + len(names)
    assert lines[2].startswith(
        "| [01](docs/01_naive_attention.md) | [naive_attention](steps/01_naive_attention) | "
    )


def test_command(tmp_path, capsys):
    path = tmp_path / "a.md"
    path.write_text("<!-- table: growth('r') -->\n| N |\n")
    records.save(
        "r",
        {"command": "x"},
        [row for row in ROWS if row["program"].startswith("10") and "ms" in row],
    )
    pages.read_records.clear()
    assert (
        main(["tables", str(path)]) == 1
        and "a.md:1: the records give another table: growth" in capsys.readouterr().err
    )
    assert (
        main(["tables", "--write", str(path)]) == 0 and "| 64 to 128 | 1.50 |" in path.read_text()
    )
    assert "read the sentences around it again" in capsys.readouterr().out
    assert main(["tables", str(path)]) == 0 and "1 tables agree" in capsys.readouterr().out
    assert main(["tables", str(tmp_path / "none.md")]) == 1


def test_a_whole_name_is_meant_before_a_beginning():
    records.save(
        "r",
        {"command": "x"},
        [ROWS[0], ROWS[0] | {"program": "13_flash_attention_2, Bc = 1", "ms": 7.0}],
    )
    assert (
        pages.ms("r", "13_flash_attention_2") == 4.0
        and pages.ms("r", "13_flash_attention_2,") == 7.0
    )


def test_rungs_whose_code_has_changed_are_named():
    records.save("r", {"command": "x"}, [ROWS[0] | {"code": "of another day"}, ROWS[1]])
    pages.loaded("r")
    assert list(pages.older_code()) == ["note: r was measured with other code of 08 than today's"]


def test_speed_by_length_is_compared_with_any_library():
    rows = [
        {**ROWS[0], "program": name, "kind": kind, "N_q": N, "causal": causal, "ms": ms}
        for name, kind, base in (("22_a", "rung", 1.0), ("FA3", "library", 2.0))
        for causal in (False, True)
        for N, ms in ((512, 1.0), (1024, base), (2048, base**3))
    ]
    records.save("long", {"command": "x"}, rows)
    assert pages.by_length("long", "22", "FA3") == [
        "| N | 512 | 1024 | 2048 | geo. mean, N >= 1024 |",
        "|---|---:|---:|---:|---:|",
        "| d = 32, full | 1.00 | 2.00 | 8.00 | 4.00 |",
        "| d = 32, causal | 1.00 | 2.00 | 8.00 | 4.00 |",
    ]
    assert pages.name_of(rows[-1]) == "FlashAttention-3"
    assert pages.name_of(ROWS[3]) == "PyTorch, FlashAttention-2"


def test_speed_against_the_spread_of_the_scores():
    rows = [
        {**row, "sigma": sigma, "ms": row["ms"] * (sigma if row["kind"] == "rung" else 1)}
        for sigma in (8, 1)
        for row in ROWS
        if row.get("dtype") == "bf16" and row["N_q"] == 64
    ]
    records.save("spread", {"command": "x", "date": "today"}, rows)
    assert pages.by_spread("spread", "FA2")[2:] == ["| 1 | 2.00 |", "| 8 | 0.25 |"]
    assert pages.by_spread("spread", "FA2", ("10",))[0] == "| standard deviation | d=32: 10 |"
