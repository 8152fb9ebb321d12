"""The files of the exercises and the grader, without a compiler. `./scripts/exercise --prove` tries the exercises themselves."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from grader import building, command, exercises, grading
from grader.exercises import EXPLAIN, KINDS, MAKE_IT_CHEAPER, ROOT, Refusal

EVERY = exercises.everything()
IDS = [one.id for one in EVERY]
KEYS = {
    "title",
    "kind",
    "text",
    "hints",
    "after",
    "expect",
    "starter",
    "solution",
    "wrong",
    "budget",
    "no_dearer",
    "more",
    "detect",
    "answer",
    "measured",
    "mistake",
    "choices",
}


@pytest.mark.parametrize("one", EVERY, ids=IDS)
def test_file_is_whole_and_its_edits_find_their_places(one):
    data = one.data
    assert set(data) <= KEYS
    assert one.kind in KINDS and len(one.title) <= 46
    assert one.text and data["after"].strip() and 2 <= len(one.hints) <= 4
    if one.kind == EXPLAIN:
        assert "is" in data["answer"] and len(data["mistake"]) >= 3
        assert grading.evaluate("1 + 1") == 2 and one.answer is not None
        return
    assert data["expect"] and one.starter != one.solution
    assert ("budget" in data) == (one.kind == MAKE_IT_CHEAPER)
    for wrong in data["wrong"]:
        assert wrong["what"] and wrong["says"]
        assert one.variant(wrong["edit"]) not in (one.solution, one.kernel)
    if one.kind == exercises.FILL_IN:
        assert "TODO" in one.starter


def test_every_rung_has_exercises_and_every_kind_its_mistakes():
    numbers = Counter(one.rung.name for one in EVERY)
    for rung in exercises.ladder():
        if rung.number >= "05" and (ROOT / f"docs/{rung.program}.md").is_file():
            assert numbers[rung.name] >= 2, rung.name
    assert len(EVERY) >= 30
    mistakes = Counter()
    for one in EVERY:
        mistakes[one.kind] += len(one.data.get("wrong", ())) + len(one.data.get("mistake", ()))
    assert all(mistakes[kind] >= 3 for kind in KINDS), mistakes


def test_edits_find_text_whatever_its_white_space_and_comments():
    edits = [{"find": "a = 1; //\nb();", "replace": "c();"}]
    assert exercises.edited("x;\n   a   =  1; // why\n\n b();\ny;", edits, "t") == "x;\n   c();\ny;"
    with pytest.raises(Refusal, match="0 times"):
        exercises.edited("a = 2; // why\nb();", edits, "t")
    with pytest.raises(Refusal, match="2 times"):
        exercises.edited("a = 1; // 1\nb(); a = 1; // 2\nb();", edits, "t")


def question(tmp_path, given, **data):
    file = tmp_path / "answer.txt"
    file.write_text(f"# a comment\nanswer = {given}\n")
    base = {"answer": {"is": "4 * 50"}, "mistake": [{"is": 100, "says": "That is half."}]}
    return grading.answer_failure(
        exercises.Exercise("00.1", None, tmp_path, {"kind": EXPLAIN} | base | data), file
    )


@pytest.mark.parametrize("answer", ["200", "200.1", "2e2", "4 * 50", "2*10^2", "1,0,0 + 100"])
def test_right_numbers_pass(tmp_path, answer):
    assert question(tmp_path, answer) is None


@pytest.mark.parametrize(
    "answer, says",
    [
        ("", "no answer yet"),
        ("100", "That is half"),
        ("201", "too large, by a factor of 1"),
        ("50", "too small"),
        ("nan", "no number"),
        ("many", "no number"),
        ("__import__('os')", "no number"),
        ("1/0", "no number"),
        ("[1]", "no number"),
    ],
)
def test_wrong_answers_get_their_message(tmp_path, answer, says):
    assert says in str(question(tmp_path, answer))


def test_choices(tmp_path):
    choices = {
        "choices": {"a": "this", "b": "that"},
        "answer": {"is": "b"},
        "mistake": [{"is": "a", "says": "Why not a."}],
    }
    assert question(tmp_path, "B", **choices) is None
    assert "Why not a" in str(question(tmp_path, "a", **choices))
    assert "none of a, b" in str(question(tmp_path, "c", **choices))


def test_messages_are_classified_and_quote_the_source():
    assert grading.classified("race: two threads, at byte 4").name == "a race"
    assert (
        grading.classified("O at (b=0, h=0, i=3, x=1) is nan, expected 0.1 +- 1e-5").name == "NaN"
    )
    assert (
        grading.classified("LSE at (b=0, h=0, i=3) is 0.5, expected 0.1 +- 1e-5").name
        == "a wrong LSE"
    )
    assert (
        grading.classified("O at (b=0, x=1) is 1, expected 0\nLSE at (b=0) is 1, expected 0").name
        == "a wrong result"
    )
    assert (
        grading.classified("dK at (b=0, h=0, j=3, x=1) is 2, expected 0.1 +- 1e-5").name
        == "a wrong gradient"
    )
    assert (
        grading.classified("dK at (b=0, h=0, j=3, x=1) is nan, expected 0.1 +- 1e-5").name == "NaN"
    )
    assert (
        grading.classified("race: overwritten while a wgmma may still read it, at byte 0").name
        == "a race with an engine"
    )
    assert grading.quoted("x at steps/nowhere.cpp:1") == "x at steps/nowhere.cpp:1"
    kernel = EVERY[0].rung.kernel_file.relative_to(ROOT)
    assert f"1 | {EVERY[0].kernel.splitlines()[0]}" in grading.quoted(f"it writes at {kernel}:1")


def test_counts_of_hopper_are_zero_where_a_profile_has_none():
    counters = {"mma": 2, "tma_load": {"requests": 1, "bytes": 30}}
    assert grading.value(counters, "tma_load.bytes + wgmma.m64n96k16 + mma") == 32


def run(*words, copies):
    environment = os.environ | {"FLASH_EXERCISES": str(copies), "FLASH_PYTHON": sys.executable}
    return subprocess.run(
        [str(ROOT / "scripts/exercise"), *words], capture_output=True, text=True, env=environment
    )


@pytest.mark.parametrize(
    "words, says",
    [
        (["99"], "no exercise '99'"),
        (["08.9"], "no exercise '08.9'"),
        (["nonsense"], "no exercise 'nonsense'"),
        (["--reset"], "which exercise?"),
        (["--reset", "08.1"], "no working copy"),
        (["flash_attention_2.1", "12"], "takes no answer"),
        (["--nonsense"], "unrecognized arguments"),
    ],
)
def test_bad_input_gets_one_line_and_code_2(tmp_path, words, says):
    done = run(*words, copies=tmp_path)
    assert done.returncode == 2 and says in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 3 and "Traceback" not in done.stderr


def test_a_question_from_the_first_look_to_the_right_answer(tmp_path):
    one = next(one for one in EVERY if one.id == "07.2")
    first = run("07.2", copies=tmp_path)
    assert first.returncode == 1 and "How many sectors" in first.stdout
    wrong = run("7.2", "2048", copies=tmp_path)
    assert (
        wrong.returncode == 1
        and "as flash_attention_2 does it" in wrong.stdout
        and "Hint 1 of 2" in wrong.stdout
    )
    assert "Hint 2" not in wrong.stdout
    again = run("07.2", copies=tmp_path)  # asking again is no new try
    assert again.returncode == 1 and "Hint 2" not in again.stdout
    second = run("07.2", "8192", copies=tmp_path)
    assert second.returncode == 1 and "Hint 2 of 2" in second.stdout
    right = run("07.2", f"{one.answer:.0f}", copies=tmp_path)
    assert (
        right.returncode == 0
        and "Passed." in right.stdout
        and one.data["after"].strip() in right.stdout
    )
    assert re.search(r"07\.2 .* done", run(copies=tmp_path).stdout)
    assert "\033" not in right.stdout  # no colour, because this is no terminal


def test_reset_keeps_what_the_learner_had(tmp_path):
    run("07.2", "2048", copies=tmp_path)
    done = run("--reset", "07.2", copies=tmp_path)
    folder = next(tmp_path.glob("07.2_*"))
    assert done.returncode == 0
    assert "2048" in (folder / "before_1_answer.txt").read_text()
    assert "2048" not in (folder / "answer.txt").read_text()


def test_solution_leaves_the_working_copy_alone(tmp_path):
    done = run("--solution", "08.1", copies=tmp_path)
    assert done.returncode == 0 and "+        __syncthreads();" in done.stdout
    assert not list(tmp_path.glob("08.1*"))


def test_the_table_names_every_exercise():
    lines = (ROOT / "docs/exercises/README.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if re.match(r"\| \d\d\.\d ", line)]
    assert rows == [command.row(one) for one in EVERY], "./scripts/exercise --table prints the rows"


def test_chapters_name_their_exercises():
    chapters = {
        one.id: (ROOT / f"docs/{one.rung.program}.md").read_text(encoding="utf-8") for one in EVERY
    }
    missing = [one.id for one in EVERY if f"./scripts/exercise {one.id}" not in chapters[one.id]]
    if len(missing) == len(EVERY):
        pytest.skip("the chapters' sections on exercises are not written yet")
    assert not missing


def test_the_oldest_programs_go_even_where_another_thread_deletes_them_first(tmp_path, monkeypatch):
    for number in range(4):
        file = tmp_path / f"11_cuda_naive.{number}"
        file.touch()
        os.utime(file, (number, number))
    being_compiled = tmp_path / "11_cuda_naive.9.o"
    being_compiled.touch()
    monkeypatch.setattr(building, "KEPT", 2)
    monkeypatch.setattr(
        Path, "glob", lambda folder, pattern: [*folder.iterdir(), folder / "deleted meanwhile"]
    )
    building.make_room(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "11_cuda_naive.2",
        "11_cuda_naive.3",
        being_compiled.name,
    ]


def test_a_reader_that_goes_away_is_no_mistake():
    closed, stdout = os.pipe()
    os.close(closed)  # as head does once it has its lines
    with os.fdopen(stdout, "wb") as pipe:
        done = subprocess.run(
            [ROOT / "scripts/exercise", "--table"], stdout=pipe, stderr=subprocess.PIPE, check=False
        )
    assert done.stderr == b""


def test_the_judge_holds_the_rungs_own_kernel_and_a_copy_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "build_folder", lambda _: tmp_path)
    one = next(one for one in EVERY if one.id == "08.4")  # whose starter is the rung as it stands
    rung, copy = one.rung, tmp_path / one.rung.kernel_file.name
    assert building.file_of(one, one.starter) == rung.kernel_file
    assert building.compiled(rung, rung.kernel_file, "simt") == (
        tmp_path / f"docs/exercises/exercise_{rung.program}",
        None,
    )
    copy.write_bytes(rung.kernel_file.read_bytes())  # its messages must name this file
    with pytest.raises(
        FileNotFoundError
    ):  # it would be compiled as the build compiles it, and there is no build
        building.compiled(rung, copy, "simt")


def test_no_counter_may_be_higher_than_the_starters(tmp_path, monkeypatch):
    one = next(one for one in EVERY if one.id == "12.1")
    assert one.compared_on == ["128 128 64 full"] and not EVERY[0].compared_on

    def counts(program, _):
        return {
            "kernels": [{"name": "k", "total": {"shared_load": {"wavefronts": program}, "mma": 5}}]
        }

    monkeypatch.setattr(building, "build_folder", lambda _: tmp_path)
    monkeypatch.setattr(building, "compiled", lambda *_: (2304, None))
    monkeypatch.setattr(grading, "counts", counts)
    assert grading.dearer(one, 2304) is None and grading.dearer(one, 1280) is None
    assert "wavefronts of shared loads: 3,328, and the kernel that you began with has 2,304" in str(
        grading.dearer(one, 3328)
    )


def test_hints_answer_the_failure_that_happened():
    one = next(one for one in EVERY if one.id == "08.2")

    def hints(said):
        return grading.hints_for(one, grading.classified(said))

    known, own = hints("O at (b=0, h=0, i=0, x=0) is nan, expected 0 +- 1e-5")
    assert "see no key" in known[0] and not own
    known, own = hints(
        "O at (b=0, h=0, i=0, x=0) is 1, expected 0 +- 1e-5\nLSE at (b=0, h=0, i=0) is 1, expected 0 +- 1e-5"
    )
    assert not known and own == one.hints
    assert hints("race: two threads, at byte 4") == ([], [])  # its lesson says what there is to say


def test_with_lse_right_the_message_says_where_to_look():
    wrong_O = "O at (b=0, h=0, i=3, x=1) is 0.5, expected 0.1 +- 1e-5"
    assert "LSE is right" in grading.classified(wrong_O).why
    assert (
        "LSE is wrong as well"
        in grading.classified(f"{wrong_O}\nLSE at (b=0, h=0, i=3) is 1, expected 0 +- 1e-5").why
    )
    assert (
        "LSE is"
        not in grading.classified("dK at (b=0, h=0, j=3, x=1) is 2, expected 0.1 +- 1e-5").why
    )
