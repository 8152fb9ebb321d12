"""Recordings: what shared memory is called, and which programs make them."""

import tomllib

import pytest
from lab import watch, watch_tiles
from lab.exercises import command
from lab.ladder import ROOT, LabError, cuda_rungs


def recording(kernel, variables=(), dynamic=1 << 16, copied=()):
    """`copied`: (address in shared memory, address in global memory, bytes) of one lane each."""
    sites, steps = [], {"warp": [], "site": [], "pattern": [], "base": []}
    for line, (to, source, size) in enumerate(copied):
        for operation, space, at in (("load", "global", source), ("store", "shared", to)):
            site = {"operation": operation, "space": space, "bytes": size, "file": 0, "line": line}
            sites.append(site)
            for column, value in (("warp", 0), ("site", len(sites) - 1), ("pattern", 0)):
                steps[column].append(value)
            steps["base"].append(at)
    return {
        "run": {"kernel": kernel, "arguments": ["program", "--head-dim", "128"]},
        "shared": {"dynamic": dynamic, "variables": list(variables)},
        "buffers": [{"name": "K", "at": 0, "bytes": 1 << 20}, {"name": "LSE", "at": 1 << 20}],
        "sites": sites,
        "patterns": [{"lanes": 1, "offsets": [0]}],
        "steps": steps,
    }


def test_tiles_of_debug_information():
    of_P = {"element": 4, "dims": [2, 4, 3]}
    trace = recording(
        "kernel<flash::Half, 64>",
        [
            {"name": "V[1]", "at": 0, "bytes": 4096, "type": "SwizzledTile<64, 32>", "dims": []},
            {"name": "P", "at": 12288, "bytes": 96, "type": "float", **of_P},
            {"name": "sums", "at": 12384, "bytes": 64, "type": "float", "dims": [16]},
        ],
    )
    watch_tiles.complete(trace)
    V, P, sums = trace["shared"]["variables"]
    assert (V["type"], V["rows"], V["columns"]) == ("half", 32, 64)
    assert V["swizzle"] == {"row_bytes": 128, "rows": 32}
    assert (P["rows"], P["columns"]) == (8, 3) and "swizzle" not in P
    assert (sums["rows"], sums["columns"]) == (1, 16)
    assert [buffer.get("row_bytes") for buffer in trace["buffers"]] == [256, None]


def test_rows_are_those_of_the_tensor_that_was_copied():
    """Rows 4 and 5 of K, 128 floats each, into rows of 129, at byte 64; what is behind them the
    block has computed."""
    copied = [
        (64 + 516 * row + 4 * x, 512 * (row + 4) + 4 * x, 4) for row in range(2) for x in (0, 7)
    ]
    trace = recording("kernel<128>", dynamic=2048, copied=copied)
    watch_tiles.complete(trace)
    K, before, behind = trace["shared"]["variables"]
    assert (K["name"], K["at"], K["bytes"], K["type"]) == ("K", 64, 1032, "float")
    assert (K["rows"], K["columns"], K["stride"]) == (2, 128, 129)
    assert (before["name"], before["at"], before["bytes"]) == ("computed", 0, 64)
    assert (behind["at"], behind["bytes"]) == (1096, 2048 - 1096)


@pytest.mark.parametrize("swizzled", [False, True])
def test_a_flat_array_has_the_rows_that_were_copied_into_it(swizzled):
    """16 rows of K, 128 x 16 bits: two halves of 128 bytes to a row in a swizzled tile."""

    def place(row, chunk):
        if not swizzled:
            return 256 * row + 16 * chunk
        return 128 * (16 * (chunk // 8) + row) + 16 * (chunk % 8 ^ row % 8)

    flat = {"name": "K", "at": 0, "bytes": 4096, "type": "char", "element": 1, "dims": [4096]}
    copied = [(place(row, c), 256 * row + 16 * c, 16) for row in range(16) for c in range(16)]
    trace = recording("kernel<flash::Half, 128>", [dict(flat)], copied=copied)
    watch_tiles.complete(trace)
    (K,) = trace["shared"]["variables"]
    assert (K["type"], K["rows"], K["columns"]) == ("half", 16, 128)
    assert K.get("swizzle") == ({"row_bytes": 128, "rows": 16} if swizzled else None)
    copied[7] = (copied[7][0], copied[9][1], 16)  # not where a row of either kind has it
    trace = recording("kernel<flash::Half, 128>", [dict(flat)], copied=copied)
    watch_tiles.complete(trace)
    (K,) = trace["shared"]["variables"]
    assert (K["type"], K["rows"], K["columns"]) == ("", 1, 4096)


def test_a_page_holds_its_recording_and_every_script(tmp_path):
    trace = {"files": ["", "steps/ladder.txt"], "sites": [{"file": 1}]}
    text = watch.page(trace, "name", tmp_path)
    assert "@" not in [line for line in text.splitlines() if line.startswith("@")]
    assert set(watch.SCRIPTS) == {path.stem for path in watch.VIEWER.glob("*.js")}
    assert "<script src" not in text and "http" not in text.split('id="recording"')[0]


def test_every_cuda_rung_has_a_problem():
    assert all("--heads" in watch.problem_of(rung) for rung in cuda_rungs([]))
    assert watch.PROBLEMS.keys() <= {rung.name for rung in cuda_rungs([])}


@pytest.mark.parametrize(
    "wanted, says",
    [
        ("flash_attention_2.1", "./scripts/exercise flash_attention_2.1 makes one"),
        ("flash_attention_1.2", "no CUDA kernel"),  # a question
        ("safe_softmax.1", "no CUDA kernel"),
        ("flash_attention_2.9", "did you mean"),
    ],
)
def test_an_exercise_without_a_copy_to_watch(tmp_path, monkeypatch, wanted, says):
    monkeypatch.setattr(command, "COPIES", tmp_path)
    with pytest.raises(LabError, match=says):
        watch.working_copy(wanted)


def test_a_line_that_is_taken_out_is_a_comment(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "COPIES", tmp_path)
    kernel = tmp_path / "kernel.cu"
    kernel.write_text("a;\n    wait();   // b\nb;\na;\n")
    copy = watch.without("wait(); // b", kernel)
    assert copy.parent.name == "kernel_2" and copy.name == "kernel.cu"
    assert copy.read_text() == "a;\n    // wait();   // b\nb;\na;\n"
    for line, says in (("a;", "2 lines"), ("wait();", "no lines")):
        with pytest.raises(LabError, match=says):
            watch.without(line, kernel)


def test_each_line_that_a_reader_takes_out_is_there_once(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "COPIES", tmp_path)
    broken = tomllib.loads((ROOT / "docs/site/broken.toml").read_text(encoding="utf-8"))
    broken.pop("guesses")
    for name, kernel in broken.items():
        of_rung = cuda_rungs([] if "program" in kernel else [name])[0].kernel_file
        for line in kernel["lines"]:
            watch.without(line, ROOT / kernel["program"] if "program" in kernel else of_rung)


def test_a_race_between_blocks_is_told_in_the_recording_of_the_first():
    first = {
        "files": ["b.hpp", "a.cu"],
        "sites": [{"operation": "line", "file": 1, "line": 5}] * 2
        + [{"operation": "store", "file": 1, "line": 5}],
        "patterns": [{"lanes": 0}, {"lanes": 0b10}],
        "run": {"block": [64, 1, 1]},
        "steps": {"warp": [1, 1, 0, 1], "site": [2, 2, 2, 0], "pattern": [1, 1, 1, 1]},
    }
    place = {"file": 0, "line": 5, "thread": [33, 0, 0]}
    second = {"files": ["a.cu"], "fault": {"where": place | {"step": 7}, "other": dict(place)}}
    watch.tell_fault(first, second)
    assert first["fault"]["other"] == {"file": 1, "line": 5, "thread": [33, 0, 0], "step": 1}
    assert "step" not in first["fault"]["where"] and second["fault"]["where"]["step"] == 7


def test_what_is_said_takes_the_place_of_what_is_usual():
    usual = ["--heads", "6", "--q-len", "256"]
    assert watch.merged(usual, ["--q-len", "9", "--causal"]) == [
        *("--heads", "6", "--q-len", "9", "--causal")
    ]
    assert watch.merged(usual, ["--input", "x"]) == ["--input", "x"]
