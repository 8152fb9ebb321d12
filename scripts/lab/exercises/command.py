"""./scripts/exercise: lists exercises, makes working copies, grades them, gives hints."""

import argparse
import difflib
import hashlib
import json
import os
import sys
import textwrap
from pathlib import Path
from typing import Any

from lab.exercises import catalogue, grading, judge, proof
from lab.exercises.catalogue import EXPLAIN, ROOT, Exercise, Parser, Refusal
from lab.exercises.grading import Failure
from lab.ladder import unknown

COPIES = Path(os.environ.get("FLASH_EXERCISES") or ROOT / "exercises")
HELP = """Exercises that grade themselves, without a GPU.

  ./scripts/exercise                              the list
  ./scripts/exercise flash_attention_2            its first exercise that is not done yet
  ./scripts/exercise flash_attention_2.1          makes your copy in exercises/, then grades it
  ./scripts/exercise flash_attention_1.2 12800    answers a question
  ./scripts/exercise judge FILE.cu                judges an attention kernel of your own"""


def colour(code: str, text: str) -> str:
    wanted = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return f"\033[{code}m{text}\033[0m" if wanted else text


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Progress:
    """What the learner has tried and done: exercises/progress.json."""

    def __init__(self) -> None:
        self.path = COPIES / "progress.json"
        try:
            self.all = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self.all = {}
        except ValueError as error:
            raise Refusal(f"{self.path}: {error}; move it away to begin anew") from error

    def of(self, exercise: Exercise) -> dict[str, Any]:
        return self.all.setdefault(exercise.id, {"tries": 0, "last": "", "done": False})

    def save(self) -> None:
        COPIES.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(self.all, indent=1) + "\n", encoding="utf-8")


def shown(path: Path) -> str:
    return os.path.relpath(path)


def row(exercise: Exercise) -> str:
    """Its line in the table of docs/exercises/README.md."""
    return f"| {exercise.id} | {exercise.rung.name} | {exercise.kind} | {exercise.title} |"


def listing(every: list[Exercise], progress: Progress) -> None:
    rung = None
    for one in every:
        if one.rung != rung:
            rung = one.rung
            print(colour("1", rung.name))
        state = progress.of(one)
        mark = colour("32", "done") if state["done"] else "begun" if state["last"] else ""
        if state["tries"] and not state["done"]:
            mark = f"{state['tries']} {'try' if state['tries'] == 1 else 'tries'}"
        print(f"  {one.id:<24}{one.kind:<17}{one.title:<48}{mark}")
    done = sum(progress.of(one)["done"] for one in every)
    print(
        f"\n{done} of {len(every)} done.\n"
        "./scripts/exercise ID begins one, and grades it each time you ask again."
    )


def chosen(every: list[Exercise], wanted: str, progress: Progress) -> Exercise:

    def names(one: Exercise) -> tuple[str, ...]:
        program = one.rung.program
        return one.id, one.name, one.rung.name, program, f"{program}{one.id[-2:]}"

    found = [one for one in every if wanted in names(one)]
    if not found:
        known = dict.fromkeys(name for one in every for name in (one.id, one.rung.name))
        if not difflib.get_close_matches(wanted, known, 1):
            raise Refusal(f"there is no exercise '{wanted}'; ./scripts/exercise lists all of them")
        raise Refusal(unknown("exercise", wanted, list(known)))
    return next((one for one in found if not progress.of(one)["done"]), found[0])


def make_copy(exercise: Exercise, progress: Progress) -> None:
    folder = COPIES / exercise.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / exercise.file).write_text(exercise.starter, encoding="utf-8")
    (folder / "TASK.md").write_text(
        f"# {exercise.id} {exercise.title}\n\n{task(exercise)}\n", encoding="utf-8"
    )
    begun = digest(exercise.starter)
    progress.all[exercise.id] = {"tries": 0, "last": begun, "starter": begun, "done": False}
    progress.save()


def task(exercise: Exercise) -> str:
    choices = "".join(
        f"\n  {letter}  {text}" for letter, text in exercise.data.get("choices", {}).items()
    )
    return exercise.text + ("\n" + choices if choices else "")


def reset(exercise: Exercise, progress: Progress) -> None:
    folder = COPIES / exercise.name
    file = folder / exercise.file
    if not folder.exists():
        raise Refusal(
            f"{exercise.id} has no working copy yet; ./scripts/exercise {exercise.id} makes one"
        )
    if file.is_file() and file.read_text(encoding="utf-8") != exercise.starter:
        number = 1 + len(list(folder.glob("before_*")))
        kept = file.rename(folder / f"before_{number}_{exercise.file}")
        print(f"what you had is kept in {shown(kept)}")
    make_copy(exercise, progress)
    print(f"{shown(file)} begins anew")


def solution(exercise: Exercise) -> None:
    if exercise.kind == EXPLAIN:
        print(exercise.solution.removeprefix("answer = "), end="")
    else:
        sides = exercise.starter.splitlines(), exercise.solution.splitlines()
        print(*difflib.unified_diff(*sides, "the exercise", "a solution", lineterm=""), sep="\n")
    print(f"\n{exercise.data['after'].strip()}")


def grade(exercise: Exercise, preset: str, progress: Progress) -> int:
    folder, file = COPIES / exercise.name, COPIES / exercise.name / exercise.file
    begun = not file.is_file()
    title = colour("1", f"{exercise.id}  {exercise.title}")
    print(f"{title}  ({exercise.kind}, rung {exercise.rung.name})")
    if begun:
        make_copy(exercise, progress)
    state = progress.of(exercise)
    if begun or exercise.kind == EXPLAIN:
        print(f"\n{task(exercise)}\n")
    else:
        print(f"  task: {shown(folder / 'TASK.md')}")
    print(f"  your copy: {shown(file)}")
    if begun and exercise.kind == EXPLAIN:
        print(f"\nAnswer with ./scripts/exercise {exercise.id} ANSWER")
        return 1
    if state.get("starter", digest(exercise.starter)) != digest(exercise.starter):
        print("  (the rung's kernel has changed since you began; --reset begins anew)")
    failure = grading.failure_of(exercise, file, preset, grading.Talk())
    now = digest(file.read_text(encoding="utf-8"))
    if failure is None and preset == "cuda":
        print("\nRight on the GPU. Without --gpu the detectors and the counters judge it too.")
        return 0
    if failure is None:
        state |= {"done": True, "last": now}
        progress.save()
        print(f"\n{colour('32', 'Passed.')} {exercise.data['after'].strip()}")
        return 0
    if now not in (state["last"], state.get("starter")):
        state["tries"] += 1
    state["last"] = now
    progress.save()
    say_failure(exercise, failure, state["tries"])
    if failure.shown_by and exercise.rung.cuda:
        print(f"\nTo watch it happen: {failure.shown_by.format(exercise.id)}")
    if begun:
        print(
            f"\nThat is where you begin. Edit {shown(file)}, then ask again: "
            f"./scripts/exercise {exercise.id}"
        )
    elif state["tries"] > len(exercise.hints):
        print(f"\n./scripts/exercise --solution {exercise.id} shows one.")
    return 1


def say_failure(exercise: Exercise, failure: Failure, tries: int) -> None:
    """What happened, why it matters, and the hints that answer it, one more with each try."""
    where = f", {failure.where}" if failure.where else ""
    print(f"\n{colour('31', f'Not yet: {failure.name}')}{where}")
    print(textwrap.indent(grading.quoted(failure.said), "  "))
    known, own = grading.hints_for(exercise, failure)
    paragraphs = [failure.why] if failure.why else []
    paragraphs += [f"Hint: {hint}" for hint in known]
    for number, hint in enumerate(own[:tries], 1):
        paragraphs.append(f"Hint {number} of {len(own)}: {hint}")
    if not known and not own and failure.name != grading.NOT_COMPILED:
        paragraphs.append(
            "The hints of this exercise are about the failure that you began with, "
            "and this is another one."
        )
    for text in paragraphs:
        print("\n" + textwrap.fill(text, 100))


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="scripts/exercise",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("exercise", nargs="?", help="its id, flash_attention_2.1, or a rung's name")
    add("answer", nargs="?", help="of a question: a number, 4*200*64, or a letter")
    add("--gpu", action="store_true", help="try the kernel on the GPU, without detectors")
    add("--solution", action="store_true", help="show one, and leave the working copy alone")
    add("--reset", action="store_true", help="begin anew; what you had is kept beside it")
    prove = "for contributors: are starters, solutions and known mistakes graded as they should be?"
    add("--prove", action="store_true", help=prove)
    jobs = min(os.cpu_count() or 1, 8)
    add("--jobs", type=int, default=jobs, metavar="N", help=f"of --prove: at once ({jobs})")
    add("--table", action="store_true", help="for contributors: rows of docs/exercises/README.md")
    try:
        if arguments[:1] == ["judge"]:
            return judge.main(arguments[1:])
        options = parser.parse_args(arguments)
        every = catalogue.everything()
        if options.table:
            print("\n".join(row(one) for one in every))
            return 0
        progress = Progress()
        if options.prove and options.exercise == "judge":
            return 0 if judge.prove(options.jobs) else 1
        if options.prove:
            wanted = [
                one for one in every if not options.exercise or one.id.startswith(options.exercise)
            ]
            code = proof.prove(wanted, options.jobs, wanted == every)
            return code if wanted != every or judge.prove(options.jobs) else 1
        if not options.exercise:
            if options.gpu or options.solution or options.reset:
                raise Refusal("which exercise? ./scripts/exercise lists all of them")
            listing(every, progress)
            return 0
        exercise = chosen(every, options.exercise, progress)
        if options.solution:
            solution(exercise)
            return 0
        if options.reset:
            reset(exercise, progress)
            return 0
        if options.answer is not None:
            if exercise.kind != EXPLAIN:
                raise Refusal(
                    f"{exercise.id} takes no answer: edit "
                    f"{shown(COPIES / exercise.name / exercise.file)}"
                )
            file = COPIES / exercise.name / exercise.file
            if not file.exists():
                make_copy(exercise, progress)
            file.write_text(f"answer = {options.answer}\n", encoding="utf-8")
        return grade(exercise, "cuda" if options.gpu and exercise.rung.cuda else "simt", progress)
    except Refusal as refusal:
        print(f"scripts/exercise: {refusal}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"scripts/exercise: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
