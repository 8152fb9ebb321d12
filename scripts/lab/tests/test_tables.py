"""Tables of the pages: sound ones pass, and each way in which one can be wrong is found, with its
place.
"""

import pytest
from lab import record_tables, records, tables
from lab.__main__ import main

PROBLEM = {"B": 1, "H": 2, "H_kv": 2, "N_q": 64, "N_kv": 64, "d": 32, "causal": False}
FA2 = PROBLEM | {"program": "FA2", "kind": "library", "ms": 2.0, "tflops": 20.0}
ROWS = [
    FA2,
    FA2 | {"N_q": 128, "ms": 1.5},
    {"program": "mma_sync_flops", "kind": "ceiling", "value": 8e13},
]


@pytest.fixture(autouse=True)
def record(tmp_path, monkeypatch):
    """The record "r"."""
    monkeypatch.setattr(records, "RECORDS", tmp_path)
    record_tables.read_records.clear()
    records.save("r", {"command": "x", "date": "today", "gpu": "NVIDIA H100 80GB HBM3"}, ROWS)
    yield
    record_tables.read_records.clear()


@pytest.mark.parametrize(
    "mark, words",
    [
        ("<!-- table: 1 / 0 -->", "page.md:3: 1 / 0: ZeroDivisionError"),
        ("<!-- table: open('x') -->", "NameError"),
        (
            "<!-- table: neighbours('r', 'FA2', 'flash_attention_1') -->",
            "has no rows of flash_attention_1",
        ),
        ("<!-- table: compared('none') -->", "none.json"),
        ("<!-- table: pivot('r', 'program', 'd', 'ms') -->", "belong into one cell"),
        ("a <!-- table: compared('r') -->", "this mark is not"),
        ("a <!--= 1 -->1<!-- /= -->", "this mark is not"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(mark, words):
    wrong = tables.Page("page.md", f"# A page\n\n{mark}\n").wrong
    assert len(wrong) == 1 and wrong[0].startswith("page.md:3: ") and words in wrong[0], wrong
    assert tables.Page("page.md", f"```\n{mark}\n```\n").wrong == []


def test_command(tmp_path, capsys):
    path = tmp_path / "a.md"
    path.write_text("<!-- table: ceilings('r') -->\n| N |\n")
    assert main(["tables", str(path)]) == 1
    assert "a.md:1: the records give another table: ceilings" in capsys.readouterr().err
    assert main(["tables", "--write", str(path)]) == 0 and "| mma.sync |" in path.read_text()
    assert main(["tables", str(path)]) == 0 and "1 tables agree" in capsys.readouterr().out
    assert main(["tables", str(tmp_path / "none.md")]) == 1
