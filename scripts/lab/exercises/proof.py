"""The proof that CI asks for: each starter fails for the reason that its file names, each solution
passes, and the graders reject the mistakes that the files hold, each with its message.
"""

import math
import re
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

from lab.exercises import building, grading
from lab.exercises.catalogue import EXPLAIN, FOLDER, Exercise


def measured(exercise: Exercise) -> float:
    """The answer to a question, counted: by running its rung on the problem that its file names."""
    rung, asked = exercise.rung, exercise.data["measured"]
    building.prepare("simt", rung)
    program, complaint = building.compiled(rung, rung.kernel_file, "simt")
    assert program, complaint
    kernels = []
    for kernel in grading.kernels(grading.counts(program, asked["run"]), asked.get("kernel", "")):
        buffers = {buffer["name"]: buffer for buffer in kernel.get("buffers", ())}
        kernels.append(kernel | kernel["total"] | {"buffers": buffers})

    def sum_of(count: str | list[str]) -> float:
        return sum(grading.value(kernel, count) for kernel in kernels)

    return sum_of(asked["count"]) / (sum_of(asked["per"]) if "per" in asked else 1)


def tried(exercise: Exercise, text: str, expected: str | None) -> str | None:
    """What is wrong with a grading. `expected` is a pattern of its message; None: it passes."""
    failure = grading.failure_of(exercise, building.file_of(exercise, text))
    if expected is None:
        return None if failure is None else f"does not pass: {failure}"
    if failure is None:
        return "passes"
    if not re.search(expected, str(failure)):
        return f"fails for another reason than '{expected}': {failure}"
    if text == exercise.starter and grading.hints_for(exercise, failure)[0]:
        return "gets the hint of a known mistake"
    return None


def parts_of(exercise: Exercise) -> list[tuple[str, str, str | None]]:
    """What is tried of it: what, the text, and the message that it should get (None: it passes)."""
    data = exercise.data
    found: list[tuple[str, str, str | None]] = [("the solution", exercise.solution, None)]
    if exercise.kind == EXPLAIN:
        found.append(("the starter", exercise.starter, "no answer yet"))
        return found + [
            (f"the answer {one['is']}", f"answer = {one['is']}\n", re.escape(one["says"].strip()))
            for one in data["mistake"]
        ]
    found.append(("the starter", exercise.starter, data["expect"]))
    return found + [
        (one["what"], exercise.variant(one["edit"]), one["says"]) for one in data.get("wrong", ())
    ]


def complaints(exercise: Exercise) -> tuple[list[str], int]:
    """All that is wrong with an exercise, and how many of its parts were tried."""
    found, every = [], parts_of(exercise)
    if exercise.kind == EXPLAIN and "measured" in exercise.data:
        counted, said = measured(exercise), exercise.data["measured"].get("is", exercise.answer)
        if not math.isclose(counted, said, rel_tol=1e-3):
            found.append(f"the counters are to say {said:.10g}, and they say {counted:.10g}")
    for what, text, expected in every:
        if complaint := tried(exercise, text, expected):
            found.append(f"{what} {complaint}")
    return found, len(every)


def prove(wanted: list[Exercise], jobs: int, all_of_them: bool) -> int:
    """Proves exercises, `jobs` at a time, and says how it went. The exit code."""
    began, wrong, tries = time.monotonic(), 0, 0
    print("building what judges them", flush=True)
    building.prepare("simt", *dict.fromkeys(one.rung for one in wanted if one.kind != EXPLAIN))
    kernels: list[building.Kernel] = []
    not_to_compile: list[building.Kernel] = []
    for one in wanted:
        for _, text, expected in parts_of(one) if one.kind != EXPLAIN else ():
            fails = expected is not None and grading.NOT_COMPILED in expected
            (not_to_compile if fails else kernels).append((one.rung, building.file_of(one, text)))
    if all_of_them:
        building.forget_all_but(kernels + not_to_compile)
    print(f"building {len(set(kernels))} kernels", flush=True)
    building.build_all(kernels, not_to_compile, jobs)

    def proved(exercise: Exercise) -> tuple[list[str], int, float]:
        start = time.monotonic()
        return *complaints(exercise), time.monotonic() - start

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        # From the last one on, since those of later rungs take longest: the end is then short, with
        # no core idle.
        under_way = {pool.submit(proved, exercise): exercise for exercise in reversed(wanted)}
        for done in as_completed(under_way):
            exercise, (found, parts, seconds) = under_way[done], done.result()
            wrong, tries = wrong + bool(found), tries + parts
            print(
                f"{exercise.id:<26}{exercise.title:<50}{'WRONG' if found else 'proved'}, {parts} "
                f"parts, {seconds:.0f} s",
                flush=True,
            )
            for complaint in found:
                print("    " + complaint.replace("\n", "\n    "), flush=True)
    print(
        f"{len(wanted)} exercises, {tries} parts, {wrong} wrong, {time.monotonic() - began:.0f} s "
        f"({FOLDER.relative_to(building.ROOT)})"
    )
    return 1 if wrong else 0
