"""Records."""

import pytest
from lab import records
from lab.ladder import LabError


def test_what_is_no_record(tmp_path):
    with pytest.raises(ValueError, match="unknown columns"):
        records.write(tmp_path / "a.json", {}, [{"program": "a", "kind": "rung", "speed": 1}])
    for text in ("{", "[]", '{"rows": [{"program": "a"}], "provenance": {}}', '{"rows": []}'):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(LabError, match="is not a record"):
            records.read(str(tmp_path / "a.json"))
    with pytest.raises(LabError, match="is no name"):
        records.save("../a", {}, [])
