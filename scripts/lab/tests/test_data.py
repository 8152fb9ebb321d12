"""The ladder, records, and what is computed from them."""

import pytest
from lab import records
from lab.ladder import LabError, cuda_rungs


def test_rungs_are_found_by_name_or_folder():
    (rung,) = cuda_rungs(["overlap"])
    for text in (rung.program, f"steps/{rung.program}/"):
        assert cuda_rungs([text]) == [rung]
    with pytest.raises(LabError, match="no rung 'naive_attention'"):
        cuda_rungs(["naive_attention"])  # it runs on the CPU
    with pytest.raises(LabError, match="it was overlap once, it is swizzle now"):
        cuda_rungs(["22"])
    with pytest.raises(LabError, match="09_register_tiling' any more; it is double_buffer now"):
        cuda_rungs(["09_register_tiling"])
    with pytest.raises(LabError, match="did you mean overlap?"):
        cuda_rungs(["ovrlap"])


@pytest.mark.parametrize("path", sorted(records.RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_every_record_has_the_schema(path):
    record = records.read(path.stem)
    assert record["rows"] and {"command", "date", "commit"} <= record["provenance"].keys()
    assert records.text_of(record) == path.read_text(encoding="utf-8")  # as save() writes it


def test_what_is_no_record(tmp_path):
    for row in (
        {"program": "a", "kind": "rung", "speed": 1},
        {"program": "a", "kind": "other"},
        {"kind": "rung"},
        {"program": "a", "kind": "rung", "ms": [1, 2]},
    ):
        with pytest.raises(ValueError):
            records.write(tmp_path / "a.json", {}, [row])
    for text in ("{", "[]", '{"rows": [{"program": "a"}], "provenance": {}}', '{"rows": []}'):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(LabError, match="is not a record"):
            records.read(str(tmp_path / "a.json"))
    with pytest.raises(LabError, match="is no name"):
        records.save("../a", {}, [])
