"""Recordings: what shared memory is called, and which programs make them."""

import pytest
from lab import watch, watch_shapes
from lab.exercises import command
from lab.ladder import LabError, cuda_rungs

SOURCE = """
constexpr int warps = 8;
template <int d> struct Tile {
    static constexpr int Br = d == 128 ? 32 : 64; // queries
    static constexpr int Bc = 4 * warps;
    static constexpr int K_stride = d + 1;
    static constexpr int Q_smem = 0;
    static constexpr int K_smem = Q_smem + Br * d;
    static constexpr int P_smem = K_smem + Bc * K_stride;
    static constexpr int keep_smem = P_smem + Br * Bc;
    static constexpr int floats = keep_smem + Br;
};
template <int d> struct Shared {
    alignas(16) char Q[Br * d * 2];
    T K[Bc * d];
};
int swizzled(int row, int chunk);
"""


def recording(kernel, variables=(), dynamic=1 << 16):
    return {
        "run": {"kernel": kernel, "arguments": ["program", "--head-dim", "128"]},
        "shared": {"dynamic": dynamic, "variables": list(variables)},
        "buffers": [{"name": "K"}, {"name": "LSE"}],
    }


def test_constants_of_a_kernel_s_head_dimension():
    known = watch_shapes.constants(SOURCE, 128)
    assert known["Br"] == 32 and known["Bc"] == 32 and known["K_smem"] == 32 * 128
    assert watch_shapes.constants(SOURCE, 64)["Br"] == 64


def test_tiles_that_constants_place():
    trace = recording("kernel<64>")
    watch_shapes.complete(trace, SOURCE)
    found = {one["name"]: one for one in trace["shared"]["variables"]}
    assert list(found) == ["Q", "K", "P", "keep"]
    assert (found["K"]["at"], found["K"]["rows"], found["K"]["columns"]) == (4 * 64 * 64, 32, 65)
    assert (found["keep"]["rows"], found["keep"]["columns"]) == (64, 1)


def test_tiles_of_debug_information():
    of_P = {"element": 4, "dims": [2, 4, 3]}
    trace = recording(
        "kernel<flash::Half, 64>",
        [
            {"name": "V[1]", "at": 0, "bytes": 4096, "type": "SwizzledTile<64, 32>", "dims": []},
            {"name": "Q", "at": 4096, "bytes": 8192, "type": "char", "element": 1, "dims": [8192]},
            {"name": "P", "at": 12288, "bytes": 96, "type": "float", **of_P},
        ],
    )
    watch_shapes.complete(trace, SOURCE)
    V, Q, P = trace["shared"]["variables"]
    assert (V["type"], V["rows"], V["columns"]) == ("half", 32, 64)
    assert V["swizzle"] == {"row_bytes": 128, "rows": 32}
    assert (Q["type"], Q["rows"], Q["columns"], Q["swizzle"]["rows"]) == ("half", 64, 64, 64)
    assert (P["rows"], P["columns"]) == (8, 3) and "swizzle" not in P


def test_rows_of_tensors():
    trace = recording("kernel<flash::Bfloat16, 128>")
    watch_shapes.complete(trace, "")
    assert [buffer.get("row_bytes") for buffer in trace["buffers"]] == [256, None]


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
