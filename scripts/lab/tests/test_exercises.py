"""The files of the exercises and the grader, without a compiler. `./scripts/exercise --prove` tries
the exercises themselves.
"""

import os
import re
import subprocess
import sys
import time

import pytest
from lab import build
from lab.exercises import building, catalogue, command, grading
from lab.exercises.catalogue import EXPLAIN, KINDS, MAKE_IT_CHEAPER, ROOT, Refusal

EVERY = catalogue.everything()
KEYS = set(
    "title kind text hints after expect starter solution wrong budget no_dearer more detect answer "
    "measured mistake choices".split()
)


def test_files_are_whole_and_their_edits_find_their_places():
    for one in EVERY:
        data = one.data
        assert set(data) <= KEYS and one.kind in KINDS and 2 <= len(one.hints) <= 4, one.id
        assert one.text and data["after"].strip() and len(one.title) <= 46, one.id
        if one.kind == EXPLAIN:
            assert one.answer is not None and len(data["mistake"]) >= 3, one.id
            continue
        assert data["expect"] and one.starter != one.solution, one.id
        assert ("budget" in data) == (one.kind == MAKE_IT_CHEAPER), one.id
        assert one.kind != catalogue.FILL_IN or "TODO" in one.starter, one.id
        for wrong in data["wrong"]:
            assert one.variant(wrong["edit"]) not in (one.solution, one.kernel), one.id


def test_edits_find_text_whatever_its_white_space_and_comments():
    edits = [{"find": "a = 1; //\nb();", "replace": "c();"}]
    assert catalogue.edited("x;\n   a   =  1; // why\n\n b();\ny;", edits, "t") == "x;\n   c();\ny;"
    with pytest.raises(Refusal, match="0 times"):
        catalogue.edited("a = 2; // why\nb();", edits, "t")
    with pytest.raises(Refusal, match="2 times"):
        catalogue.edited("a = 1; // 1\nb(); a = 1; // 2\nb();", edits, "t")
    source = "x; // of x\n// above\na(\n  1); // behind\ny;"
    for find, left in (
        ("a(1);", "x; // of x\n// above\nc; // behind\ny;"),
        ("//\na(1);", "x; // of x\nc; // behind\ny;"),
        ("a(1); //", "x; // of x\n// above\nc;\ny;"),
    ):
        assert catalogue.edited(source, [{"find": find, "replace": "c;"}], "t") == left


def test_kernels_in_one_file_share_no_name():
    for rung in {one.rung for one in EVERY}:
        kernels, mains = building.in_one_file(rung, [rung.kernel_file, rung.kernel_file])
        for text in (kernels, mains):
            assert "#pragma once" not in text and '#include "steps/' not in text, rung.name
            assert text.count(f"namespace {rung.name}_0 {{") == text.count(f"{rung.name}_1 {{") > 0
            assert f"namespace {rung.name} {{" not in text and f" {rung.name}::" not in text
        assert kernels.count(f'#line 1 "{rung.kernel_file}"') == 2
        assert [mains.count(f"int main{which}(") for which in ("_0", "_1", "")] == [1, 1, 1]


def test_a_build_waits_for_that_of_another_process(tmp_path):
    at_once = ["flock", "--nonblock", tmp_path / "lock", "true"]  # flock as in scripts/lib/build.sh
    with build.locked(tmp_path):
        assert subprocess.run(at_once).returncode == 1
    assert subprocess.run(at_once).returncode == 0


def test_counters_go_by_name_or_by_a_list_of_names():
    counters = {"mma": 3, "shared_load": {"bytes": 4}}
    assert grading.value(counters, "shared_load.bytes") == 4
    assert grading.value(counters, ["mma", "shared_load.bytes", "wgmma.m64n64k16"]) == 7


def question(tmp_path, given, **data):
    file = tmp_path / "answer.txt"
    file.write_text(f"# a comment\nanswer = {given}\n")
    base = {"answer": {"is": "4 * 50"}, "mistake": [{"is": 100, "says": "That is half."}]}
    return grading.answer_failure(
        catalogue.Exercise("00.1", None, tmp_path, {"kind": EXPLAIN} | base | data), file
    )


def test_numbers(tmp_path):
    for right in ("200", "200.1", "2e2", "4 * 50", "2*10^2", "1,0,0 + 100"):
        assert question(tmp_path, right) is None, right
    for wrong, says in (
        ("", "no answer yet"),
        ("100", "That is half"),
        ("201", "too large, by a factor of 1"),
        ("nan", "no number"),
        ("__import__('os')", "no number"),
        ("1/0", "no number"),
        ("9**9**9", "'9**9**9' is too large: exponents end at 100 here"),
        ("(9**9)**9 * 1.5", "too large: numbers end at 1e+40 here"),
        ("1e30**50", "too large"),
        ("1e999", "too large"),
        ("-" * 100_000 + "1", "too long: 1000 characters are enough here"),
        ("(" * 400 + "1" + ")" * 400, "no number"),
        ("min()", "no number"),
        ("ceil", "no number"),
        ("2 < 3", "no number"),
        ("'a' * 3", "no number"),
        ("(-2)**0.5", "no number"),
    ):
        assert says in str(question(tmp_path, wrong)), wrong


def test_choices(tmp_path):
    mistake = {"is": "a", "says": "Why not a."}
    data = {"choices": {"a": "this", "b": "that"}, "answer": {"is": "b"}, "mistake": [mistake]}
    assert question(tmp_path, "B", **data) is None
    assert "Why not a" in str(question(tmp_path, "a", **data))
    assert "none of a, b" in str(question(tmp_path, "c", **data))


def finding(kind, said="O at (b=0, h=0, i=3, x=1) is 0.5, expected 0.1 +- 1e-5"):
    return grading.classified([{"kind": kind, "said": said}])


def test_after_a_failure_no_order_of_threads_begins(monkeypatch):
    begun = []

    def judged(*of, **_):
        begun.append(of)
        time.sleep(0.01)  # whoever waits for it is asleep by then
        return 1, finding("race")

    monkeypatch.setattr(grading, "judged", judged)
    assert grading.detected(("judge",), "64", 128, at_once=1).name == "a race"
    assert len(begun) == 1


def test_kinds_have_their_lessons():
    assert "nothing orders them" in finding("race").why
    assert finding("O").name == "a wrong result" and "LSE is right" in finding("O").why
    assert "LSE is wrong as well" in finding("O and LSE").why and "O is right" in finding("LSE").why


def test_every_fault_of_the_backend_has_a_lesson():
    source = (ROOT / "common/simt/machine/fault.cpp").read_text(encoding="utf-8")
    kinds = set(re.findall(r'return "(\w+)";', source))
    of_the_host = {"launch", "invalid_access", "host_misuse", "unwritten_copy", "unordered_streams"}
    assert kinds - set(grading.LESSONS) == of_the_host
    sources = (ROOT / "common/simt").rglob("*.cpp")
    texts = (path.read_text(encoding="utf-8") for path in sources)
    named = {name for text in texts for name in re.findall(r'"(\w+)"', text)}
    of_results = {"damage", "other bits", "finite", *grading.OF_VALUES}
    assert set(grading.LESSONS) - named == of_results


def test_messages_quote_the_source():
    assert grading.quoted("x at steps/nowhere.cpp:1") == "x at steps/nowhere.cpp:1"
    kernel = EVERY[0].rung.kernel_file.relative_to(ROOT)
    of_a_compiler = f"{kernel}:1:5: error: no\n    1 | {EVERY[0].kernel.splitlines()[0]}\n"
    assert grading.quoted(of_a_compiler) == of_a_compiler.rstrip("\n")
    assert f"1 | {EVERY[0].kernel.splitlines()[0]}" in grading.quoted(f"it writes at {kernel}:1")


def run(*words, copies):
    environment = os.environ | {"FLASH_EXERCISES": str(copies), "FLASH_PYTHON": sys.executable}
    return subprocess.run(
        [str(ROOT / "scripts/exercise"), *words], capture_output=True, text=True, env=environment
    )


@pytest.mark.parametrize(
    "words, says",
    [
        (["flash_attention_2.9"], "no exercise 'flash_attention_2.9'; did you mean"),
        (["flash_atention_2"], "did you mean flash_attention_2?"),
        (["--reset", "flash_attention_2.1"], "no working copy"),
        (["flash_attention_2.1", "12"], "takes no answer"),
        (["--nonsense"], "unrecognized arguments"),
    ],
)
def test_bad_input_gets_one_line_and_code_2(tmp_path, words, says):
    done = run(*words, copies=tmp_path)
    assert done.returncode == 2 and says in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3 and "Traceback" not in done.stderr


def test_a_question_from_the_first_look_to_the_right_answer(tmp_path):
    one = next(one for one in EVERY if one.id == "flash_attention_1.2")
    first = run("flash_attention_1.2", copies=tmp_path)
    assert first.returncode == 1 and "How many sectors" in first.stdout
    wrong = run("flash_attention_1.2", "2048", copies=tmp_path)
    assert wrong.returncode == 1 and "as flash_attention_2 does it" in wrong.stdout
    assert "Hint 1 of 2" in wrong.stdout and "Hint 2" not in wrong.stdout
    again = run("flash_attention_1.2", copies=tmp_path)  # asking again is no new try
    assert again.returncode == 1 and "Hint 2" not in again.stdout
    second = run("flash_attention_1.2", "8192", copies=tmp_path)
    assert second.returncode == 1 and "Hint 2 of 2" in second.stdout
    right = run("flash_attention_1.2", f"{one.answer:.0f}", copies=tmp_path)
    assert right.returncode == 0 and "Passed." in right.stdout
    assert one.data["after"].strip() in right.stdout
    assert re.search(r"flash_attention_1\.2 .* done", run(copies=tmp_path).stdout)
    assert "\033" not in right.stdout  # no colour, because this is no terminal


def test_reset_keeps_what_the_learner_had(tmp_path):
    run("flash_attention_1.2", "2048", copies=tmp_path)
    done = run("--reset", "flash_attention_1.2", copies=tmp_path)
    folder = next(tmp_path.glob("flash_attention_1.2_*"))
    assert done.returncode == 0
    assert "2048" in (folder / "before_1_answer.txt").read_text()
    assert "2048" not in (folder / "answer.txt").read_text()


def test_the_table_names_every_exercise():
    lines = (ROOT / "docs/exercises/README.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if re.match(r"\| [a-z_0-9]+\.\d ", line)]
    assert rows == [command.row(one) for one in EVERY], "./scripts/exercise --table prints the rows"


def test_chapters_name_their_exercises():
    for one in EVERY:
        chapter = (ROOT / f"docs/{one.rung.program}.md").read_text(encoding="utf-8")
        assert f"./scripts/exercise {one.id}" in chapter


def test_hints_answer_the_failure_that_happened():
    one = next(one for one in EVERY if one.id == "flash_attention_2.2")

    def hints(*said):
        return grading.hints_for(one, finding(*said))

    known, own = hints("NaN", "O at (b=0, h=0, i=0, x=0) is nan, expected 0 +- 1e-5")
    assert "see no key" in known[0] and not own
    assert hints("O and LSE", "O at ...\nLSE at ...") == ([], one.hints)
    assert hints("race", "race: two threads") == ([], [])  # its lesson says what there is to say


def test_a_fault_of_the_run_can_be_watched_and_a_wrong_number_cannot():
    def shown_by(kind):
        return grading.classified([{"kind": kind, "said": ""}], "", "./scripts/watch {}").shown_by

    assert all(shown_by(kind) for kind in ("race", "deadlock", "out_of_bounds"))
    assert not any(shown_by(kind) for kind in ("O", "damage", "other bits", "finite", "exception"))
