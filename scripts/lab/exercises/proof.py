"""The proof that CI asks for: each starter fails for the reason that its file names, each solution
passes, and the graders reject the mistakes that the files hold, each with its message.
"""

import re
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

from lab.exercises import building, grading
from lab.exercises.catalogue import EXPLAIN, FOLDER, evaluate, ladder


def measured(exercise):
    """The answer to a question, counted: by running the rungs that its file names."""
    rungs, names = {rung.name: rung for rung in ladder()}, {}
    for name, one in exercise.data["measured"]["counts"].items():
        rung = rungs[one.get("rung", exercise.rung.name)]
        building.prepare("simt", rung)
        program, complaint = building.compiled(rung, rung.kernel_file, "simt")
        assert program, complaint
        names[name] = 0
        for kernel in grading.kernels(grading.counts(program, one["run"]), one.get("kernel", "")):
            buffers = {buffer["name"]: buffer for buffer in kernel.get("buffers", ())}
            counts = kernel | kernel["total"] | {"buffers": buffers}
            names[name] += grading.value(counts, one["count"])
    return evaluate(exercise.data["measured"]["is"], **names)


def tried(exercise, text, expected):
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


def parts_of(exercise):
    """What is tried of it: what, the text, and the message that it should get (None: it passes)."""
    data, found = exercise.data, [("the solution", exercise.solution, None)]
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


def complaints(exercise):
    """All that is wrong with an exercise, and how many of its parts were tried."""
    found, every = [], parts_of(exercise)
    if exercise.kind == EXPLAIN and "measured" in exercise.data:
        counted = measured(exercise)
        if abs(counted - exercise.answer) > 1e-3 * abs(exercise.answer):
            found.append(
                f"the answer is {exercise.answer:.10g}, and the counters say {counted:.10g}"
            )
    for what, text, expected in every:
        if complaint := tried(exercise, text, expected):
            found.append(f"{what} {complaint}")
    return found, len(every)


def prove(wanted, jobs, all_of_them):
    """Proves exercises, `jobs` at a time, and says how it went. The exit code."""
    began, wrong, tries = time.monotonic(), 0, 0
    print("building what judges them", flush=True)
    building.prepare("simt", *dict.fromkeys(one.rung for one in wanted if one.kind != EXPLAIN))
    kernels = [
        (one.rung, building.file_of(one, text))
        for one in wanted
        if one.kind != EXPLAIN
        for _, text, _ in parts_of(one)
    ]
    if all_of_them:
        building.forget_all_but(kernels)
    print(f"building {len(set(kernels))} kernels", flush=True)
    building.build_all(kernels, jobs)

    def one(exercise):
        start = time.monotonic()
        return *complaints(exercise), time.monotonic() - start

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        # From the last one on, since those of later rungs take longest: the end is then short, with
        # no core idle.
        under_way = {pool.submit(one, exercise): exercise for exercise in reversed(wanted)}
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
