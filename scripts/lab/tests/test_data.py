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


def test_what_is_no_record(tmp_path):
    with pytest.raises(ValueError, match="unknown columns"):
        records.write(tmp_path / "a.json", {}, [{"program": "a", "kind": "rung", "speed": 1}])
    for text in ("{", "[]", '{"rows": [{"program": "a"}], "provenance": {}}', '{"rows": []}'):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(LabError, match="is not a record"):
            records.read(str(tmp_path / "a.json"))
    with pytest.raises(LabError, match="is no name"):
        records.save("../a", {}, [])
