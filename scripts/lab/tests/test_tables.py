"""Tables of the pages: they are checked, and written."""

from lab import records
from lab.__main__ import main

ROWS = [{"program": "mma_sync_flops", "kind": "ceiling", "value": 8e13}]


def test_command(tmp_path, capsys):
    path, record = tmp_path / "a.md", records.write(tmp_path / "r.json", {}, ROWS)
    path.write_text(f"<!-- table: ceilings('{record}') -->\n| N |\n")
    assert main(["tables", str(path)]) == 1
    assert "a.md:1: the records give another table: ceilings" in capsys.readouterr().err
    assert main(["tables", "--write", str(path)]) == 0 and "| mma.sync |" in path.read_text()
    assert main(["tables", str(path)]) == 0 and "1 tables agree" in capsys.readouterr().out
    path.write_text("# A page\n\n<!-- table: 1 / 0 -->\n")
    assert main(["tables", str(path)]) == 1
    assert "a.md:3: 1 / 0: ZeroDivisionError" in capsys.readouterr().err
