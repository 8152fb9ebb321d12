"""Tables of the pages: they are checked, and written."""

from lab import records
from lab.__main__ import main

ROWS = [{"program": "mma_sync_flops", "kind": "ceiling", "value": 8e13}]


def checked(capsys, path, *options):
    code = main(["tables", *options, str(path)])
    return code, "".join(capsys.readouterr())


def test_command(tmp_path, capsys):
    path, record = tmp_path / "a.md", records.write(tmp_path / "r.json", {}, ROWS)
    path.write_text(f"<!-- table: ceilings({record}) -->\n| N |\n")
    code, said = checked(capsys, path)
    assert code == 1 and "a.md:1: the records give another table: ceilings" in said
    assert checked(capsys, path, "--write")[0] == 0 and "| mma.sync |" in path.read_text()
    assert checked(capsys, path) == (0, "1 tables agree with the records\n")


def test_a_table_has_all_libraries_or_those_that_it_names(tmp_path, capsys):
    path = tmp_path / "a.md"
    for names, shown in (("swizzle", 5), ("swizzle, cuDNN", 2)):
        path.write_text(f"<!-- table: tflops_by_N(gpu_bf16, 64, full, {names}) -->\n")
        assert checked(capsys, path, "--write")[0] == 0
        assert path.read_text().count("\n| ") == shown + 1, names  # and its head


def test_a_table_of_what_nobody_has_measured_says_so(tmp_path, capsys):
    path = tmp_path / "a.md"
    path.write_text(
        "<!-- table: mean_tflops(gpu_new, swizzle, FA2) -->\n\n"
        "<!-- table: mean_tflops(gpu_bf16, cuda_naive) -->\n\n"
        "<!-- table: tflops_by_N(bench_new, 64, full) -->\n| N |\n"
    )
    assert checked(capsys, path)[0] == 1
    assert checked(capsys, path, "--write")[0] == 0
    said = [line for line in path.read_text().splitlines() if line and not line.startswith("<")]
    assert said == [
        "Not measured yet: `./scripts/lab/run compare swizzle --record gpu_new`",
        "Not measured yet: `./scripts/lab/run compare cuda_naive --record gpu_bf16`",
        "Not measured yet: `./scripts/bench`",
    ]
    assert checked(capsys, path)[0] == 0


def test_what_is_no_table_is_said_in_a_line(tmp_path, capsys):
    path = tmp_path / "a.md"
    for mark, says in (
        ("ceiling(bench_h200)", "there is no table 'ceiling'; did you mean ceilings?"),
        ("times_as_fast()", "times_as_fast(): TypeError"),
        ("mean_tflops(gpu_bf16, FA7)", "has no rows of FA7"),
        ("mean_tflops(gpu_bf16, FA)", "has no rows of FA"),  # though it has some of FA2
        ("tflops_by_N(gpu_bf16, d, full)", "invalid literal"),
        ("1 / 0", "a mark of a table is <!-- table: NAME(RECORD, WORD, ...) -->"),
    ):
        path.write_text(f"# A page\n\n<!-- table: {mark} -->\n")
        code, said = checked(capsys, path)
        assert code == 1 and "a.md:3: " in said and says in said and "Traceback" not in said, mark
