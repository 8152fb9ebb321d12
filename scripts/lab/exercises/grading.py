"""Grading: a kernel by the suite, the detectors and its budget; an answer by the number."""

import contextlib
import io
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab.exercises import building
from lab.exercises.catalogue import EXPLAIN, ROOT, Exercise, Refusal, evaluate

# As the tests of the rungs run them: the order of the threads, when copies of cp.async land, KiB of
# shared memory.
RUNS = (("in-order", "late", "163"), ("reverse", "early", "99"), ("shuffle:1", "late", "227"))
NOT_COMPILED = "it does not compile"  # the failure's name
PATIENCE = 300  # seconds for one list; it takes about five

# What a kernel may not pay more of than its exercise's starter, so that one cost is not cut by
# another: (what, counters).
COSTS = (
    ("sectors that are loaded", "global_load.sectors"),
    ("sectors that are stored", "global_store.sectors"),
    ("wavefronts of shared loads", "shared_load.wavefronts"),
    ("wavefronts of shared stores", ["shared_store.wavefronts", "async_store.wavefronts"]),
    ("mma instructions", "mma"),
    ("bytes that TMA loads", "tma_load.bytes"),
    # What rungs on the CPU read.
    ("bytes of Q", "Q"),
    ("bytes of K", "K"),
    ("bytes of V", "V"),
    ("bytes of the workspace", "workspace"),
)

# What a failure teaches: the kinds that the judge says, the failure's name, and why it matters.
# Kinds of faults are those of common/simt/machine/fault.hpp, others of conformance/judge.hpp.
LESSONS_TEXT = """
race: a race
    Two threads touch the same bytes, one of them writes, and nothing orders them. A GPU may run
    them either way round, so the result can be right today and wrong on the next GPU, or on the
    next run. Each pair of lines needs a barrier (or a wait) between them.
same_value: a race in which all write the same value
    Whoever comes last, the same value stands there, and hardware lets you get away with it. But
    it is the same today only: let one thread write it, and the others meet it at a barrier.
volatile_conflict: an order that only volatile promises
    volatile makes the compiler access memory; it orders nothing else. A barrier or an atomic
    operation with a fence does.
read_before_cas: a plain read of what others update atomically
    atomicCAS checks the value once more, so a stale one does no harm. But the compiler may keep
    what it has read: say so with an atomic or a volatile read.
missing_acquire: a fence on one side only
    A fence orders what its own thread does. Whoever reads a flag needs one as well, between the
    flag and the data.
race_with_engine: a race with an engine
    TMA and wgmma work beside the threads. What they read or write is theirs from the line that
    starts them until somebody has waited for them, and whoever uses the place next must have
    heard of that wait: through an mbarrier or a barrier.
async_copy_in_flight: a copy that has not landed
    cp.async only starts a copy. Until the thread has waited for it, shared memory holds what
    was there before.
tile_in_flight: a tile that has not landed
    tma_load only starts a copy. Its mbarrier tells when the bytes are there, and only to those
    who wait for the right phase.
left_too_early: a block that leaves too early
    When a block ends, its shared memory is the next block's. Engines that still use it read or
    write a stranger's data.
wgmma_in_flight: registers that a wgmma owns
    From its start until wgmma_wait a product owns its registers: no thread may read or write C,
    nor A where it lies in registers. wgmma_fence stands between the last touch and the product.
missing_fence: a missing fence
    A barrier orders threads. TMA and wgmma are none, and reach shared memory by another path,
    so a fence must come first.
uninitialised: a read of uninitialised shared memory
    Shared memory is not zero when a block starts: it holds what the block before left there.
divergent_barrier, early_exit: a barrier that not all threads reach
    __syncthreads waits for every thread of the block that has not left the kernel. One that goes
    elsewhere means a hang; one that has left brings nothing to what comes after the barrier.
undefined_shuffle: a shuffle that reads from nobody
    A shuffle hands over what another lane gives to the same instruction. One that has left the
    kernel, or that the mask does not name, gives nothing: what is read is undefined.
deadlock: a deadlock
    Threads wait for others, or for bytes, that will never come. The message says where each
    group waits, and how many arrivals or bytes are there.
missed_phase: a wait that may come too late
    A wait names a parity, not a phase. A thread that comes to it when the next phase is over as
    well finds the parity of before, and waits for ever. So whoever arrives for several threads
    must first meet them after their waits.
timeout: a loop without end
    A thread goes round the same lines and never gets to a barrier or to the end of the kernel.
    Ask what would have to change for the loop to end, and which thread changes it.
assertion, trap: a kernel that gives up
    An assert() or a __trap() of the kernel itself has found that something is wrong.
out_of_bounds: an access out of bounds
    On a GPU such an access reads a neighbour's data, or ends the program with an illegal
    address.
misaligned: a misaligned access
    A vector access of 16 bytes needs an address that is a multiple of 16. A GPU stops with
    'misaligned address'; the CPU that runs your kernel here would not have minded.
damage: a write outside of O and LSE
    Nothing else is the kernel's to write.
other bits: another result in a second run
    A kernel without a race gives the same bits each time.
finite: a NaN that got lost
    NaN in the input must show in the output. A comparison with NaN is false, so fmaxf and masks
    can drop it silently.
NaN: NaN
    NaN comes from inf - inf, 0 * inf or 0 / 0. Ask which row it is: one that sees no key, or
    one whose sum is 0 or infinite?
one key: a wrong result for one key
    With one key the softmax is 1, whatever the score is, so O is exactly V.
O: a wrong result
    LSE is right, and with it the scores, m and l. So look at what only O goes through: its
    factors, P V, the last division, the store.
O and LSE: a wrong result
    LSE is wrong as well, and O follows from it: begin with the scores, m and l.
LSE: a wrong LSE
    O is right, so the scores are, and m and l agree with each other: O's division cancels a
    factor that stays in LSE. The backward pass, and the merge of partial results, need LSE.
gradient: a wrong gradient
    Which of dQ, dK and dV are wrong, and which are right? Each has its own formula, and P is in
    all of them. The first wrong element has i for a query, or j for a key.
"""
LESSONS = {
    kind: (name, " ".join(why.split()))
    for kinds, name, why in re.findall(r"^(\w.*): (.*)\n((?: .*\n)+)", LESSONS_TEXT, re.M)
    for kind in kinds.split(", ")
}
OF_VALUES = ("NaN", "one key", "O", "O and LSE", "LSE", "gradient")
OF_RESULTS = (*OF_VALUES, "damage", "other bits", "finite")  # others are faults of the kernel's run


@dataclass(frozen=True)
class Failure:
    name: str  # "a race"
    said: str  # the message, whole
    where: str = ""  # the problem and the run
    why: str = ""
    is_value: bool = False  # a wrong number, and not what the kernel does
    shown_by: str = ""  # the command that records it, {} for the exercise

    def __str__(self) -> str:
        return "\n".join(part for part in (self.name, self.where, self.said, self.why) if part)


class Talk:
    """A line per stage, with its outcome and how long it took."""

    def __init__(self, silent: bool = False) -> None:
        self.silent = silent

    @contextlib.contextmanager
    def __call__(self, label: str) -> Iterator[list[str]]:
        """Yields a list: what is put into it is the stage's outcome."""
        outcome: list[str] = []
        start = time.monotonic()
        write = io.StringIO().write if self.silent else sys.stdout.write
        write(f"  {label} ... ")
        sys.stdout.flush()
        try:
            yield outcome
        finally:
            said = outcome[0] if outcome else "failed"
            write(f"{said} ({time.monotonic() - start:.0f} s)\n")


def classified(findings: list[dict[str, str]], where: str = "", shown_by: str = "") -> Failure:
    """The Failure that the judge's findings are, [{kind, said}]: named by the first."""
    kind = findings[0]["kind"]
    name, why = LESSONS.get(kind, ("a kernel that cannot run", ""))
    said = "\n".join(one["said"].removeprefix("it threw: ") for one in findings)
    of_run = kind in LESSONS and kind not in OF_RESULTS
    return Failure(name, said, where, why, kind in OF_VALUES, shown_by if of_run else "")


@building.once
def judged(
    program: building.Command,
    verb: str,
    dims: str,
    longest: int,
    kind: str = "",
    run: Sequence[str] = (),
    detectors: bool = False,
) -> tuple[int, Failure | None]:
    """(problems tried, the first Failure or None): a list of the suite."""
    environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
    environment["FLASH_SIMT_DETECT"] = "1" if detectors else "0"
    environment["FLASH_SIMT_STRICT"] = "1"  # a learner's kernel is to have no doubtful access
    options = ("FLASH_SIMT_SCHEDULE", "FLASH_SIMT_CP_ASYNC", "FLASH_SIMT_SHARED_KIB")
    environment |= zip(options, run)
    settings = "".join(f"{name}={value} " for name, value in zip(options, run) if run != RUNS[0])
    words = [*program, verb, dims, str(longest)] + ([kind] if kind else [])
    in_run = f", order of threads {run[0]}, copies land {run[1]}" if run and detectors else ""
    how: dict[str, Any] = {"cwd": ROOT, "env": environment}
    try:
        done = subprocess.run(words, timeout=PATIENCE, capture_output=True, text=True, **how)
    except subprocess.TimeoutExpired:
        said = f"the kernel did not end in {PATIENCE} seconds: a loop that never ends?"
        return 0, Failure("no end", said)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if lines and lines[-1]["wrong"]:
        where = f"with {lines[-1]['problem']} ({lines[-1]['detail']}){in_run}"
        shown_by = f"{settings}./scripts/watch {{}} {lines[-1]['options']}"
        return len(lines), classified(lines[-1]["wrong"], where, shown_by)
    if done.returncode == 2:
        raise Refusal(done.stderr.strip())
    if done.returncode != 0:
        said = done.stderr.strip() or f"the program ended with code {done.returncode}"
        where = f"after {len(lines)} problems{in_run}"
        why = "The kernel wrote or jumped where it must not, or the machine has no usable device."
        return len(lines), Failure("a crash", said, where, why)
    return len(lines), None


def detected(program: building.Command, dims: str, longest: int, at_once: int) -> Failure | None:
    """The first Failure that a detector reports, in any of the runs: after one, none begins."""
    failed = threading.Event()

    def one(run: tuple[str, str, str]) -> Failure | None:
        if failed.is_set():
            return None
        _, found = judged(program, "detect", dims, longest, "", run, True)
        if found:
            failed.set()
        return found

    with ThreadPoolExecutor(at_once) as pool:
        return next(filter(None, pool.map(one, RUNS)), None)


@building.once
def counts(program: building.Command, problem: str) -> dict[str, Any]:
    """What one problem, "N_q N_kv d full|causal", costs: the profile."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "counts.json"
        command = [*program, "count", *problem.split(), str(file)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        return json.loads(file.read_text(encoding="utf-8"))


def value(counters: dict[str, Any], count: str | list[str]) -> int:
    """What was counted under a name, "mma" or "shared_load.bytes", or under a list of names."""
    names, total = [count] if isinstance(count, str) else count, 0
    for name in names:
        one: Any = counters
        for key in name.split("."):
            # Of TMA and wgmma there is an entry only if there is something to count.
            one = one.get(key, {})
        total += one or 0
    return total


def kernels(profile: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [kernel for kernel in profile["kernels"] if name in kernel["name"]]


def over_budget(program: building.Command, budget: dict[str, Any]) -> tuple[Failure | None, str]:
    """A Failure when the kernel costs more than the budget, else None; and what it costs."""
    chosen = kernels(counts(program, budget["run"]), budget.get("kernel", ""))
    spent = sum(value(kernel["total"], budget["count"]) for kernel in chosen)
    most = evaluate(str(budget["most"]))
    line = f"{budget['what']}: {spent:,} of at most {most:,.0f}"
    if spent <= most:
        return None, line
    said = [f"{budget['what']}: {spent:,}, and {budget.get('limit', 'the budget is')} {most:,.0f}"]
    lines = [
        (value(own, budget["count"]), own) for kernel in chosen for own in kernel.get("lines", ())
    ]
    for number, own in sorted(lines, key=lambda pair: -pair[0])[:3]:
        if number > 0 and own["file"]:
            said.append(f"{number:,} of them at {os.path.relpath(own['file'], ROOT)}:{own['line']}")
    where = f"counted on N_q, N_kv, d, mask: {budget['run']}"
    return Failure("over the budget", "\n".join(said), where, budget["why"].strip()), line


def dearer(exercise: Exercise, program: building.Command) -> Failure | None:
    """A Failure when the kernel pays more than its starter for anything in COSTS, else None."""
    file = building.file_of(exercise, exercise.starter)
    starter, complaint = building.compiled(exercise.rung, file, "simt")
    assert starter, complaint
    budget: dict[str, Any] = {
        "limit": "the kernel that you began with has",
        "why": "What is saved in one place must not be paid in another.",
    }
    for run in exercise.compared_on:
        for what, count in COSTS:
            most = sum(value(kernel["total"], count) for kernel in counts(starter, run)["kernels"])
            budget |= {"what": what, "count": count, "run": run, "most": most}
            if failure := over_budget(program, budget)[0]:
                return failure
    return None


def hints_for(exercise: Exercise, failure: Failure) -> tuple[list[str], list[str]]:
    """The hints that answer this failure. Those of a known mistake that fails in this way come
    first; the exercise's own are about the failure of its starter."""
    known = [
        " ".join(wrong["hint"].split())
        for wrong in exercise.data.get("wrong", ())
        if "hint" in wrong and re.search(wrong["says"], str(failure))
    ]
    as_begun = exercise.kind == EXPLAIN or re.search(exercise.data["expect"], str(failure))
    return known, exercise.hints if as_begun and not known else []


def kernel_failure(
    exercise: Exercise, file: Path, preset: str, talk: Talk, at_once: int = 2
) -> Failure | None:
    """Why a kernel does not pass yet; None when it does. `at_once`: how many orders of threads are
    tried side by side."""
    rung = exercise.rung
    what = f"building what judges rung {rung.name} (the first time this takes minutes)"
    with talk(what) as outcome:
        building.prepare(preset, rung)
        outcome.append("done")
    with talk("compiling your kernel") as outcome:
        program, complaint = building.compiled(rung, file, preset)
        outcome.append("no" if complaint else "done")
    if complaint:
        first = re.search(r"^.*\berror: .*$", complaint, re.M)
        return Failure(
            NOT_COMPILED,
            complaint if len(complaint) < 1500 else first[0] if first else complaint[:1500],
        )
    assert program
    dims = list(map(str, rung.head_dims or (5, 64)))
    simt = rung.cuda and preset == "simt"
    lists = [("full", ",".join(dims), 512)]
    if simt:
        lists = [("full", dims[0], 256), ("detect", ",".join(dims[1:] or dims), 128)]
    lists += [exercise.data["more"]] if "more" in exercise.data else []  # where the mistake shows
    own = file == rung.kernel_file  # whose tests run all problems for detectors, in more orders
    if own:
        lists = [one for one in lists if one[0] == "full"]
    watched_dims, longest = exercise.data.get("detect", (dims[0], 128))
    with talk("the oracle, on every shape") as outcome:
        tried, failure = 0, None
        for one in lists:
            if not failure:
                number, failure = judged(program, *one)
                tried += number
                if failure and one[0] == "detect" and "detect" not in exercise.data:
                    _, watched_dims, longest, *_ = one  # the problem that fails is among them
        outcome.append(
            f"{failure.name}, at problem {tried}" if failure else f"right in {tried} problems"
        )
    for budget in exercise.data.get("budget", ()) if not failure and preset == "simt" else ():
        with talk("the counters:") as outcome:
            failure, line = over_budget(program, budget)
            outcome.append(line)
        if failure:
            break
    if not failure and preset == "simt" and exercise.compared_on:
        with talk("the counters, beside those of the kernel that you began with:") as outcome:
            failure = dearer(exercise, program)
            outcome.append("one is higher" if failure else "none is higher")
    if own:
        return failure
    if simt and (not failure or failure.name not in ("no end", "over the budget")):
        with talk(f"the detectors, under {len(RUNS)} orders of threads") as outcome:
            cause = detected(program, watched_dims, longest, at_once)
            outcome.append(cause.name if cause else "no fault")
        # It is nearer to the cause.
        if cause and not (failure and cause.is_value):
            wrong = ""
            if failure and failure.name != cause.name:
                wrong = f"\nThe result is wrong as well: {failure.said}"
            failure = replace(cause, said=cause.said + wrong)
    return failure


def answer_failure(exercise: Exercise, file: Path) -> Failure | None:
    """Why an answer does not pass yet; None when it does."""
    text = file.read_text(encoding="utf-8")
    found = re.search(r"^\s*answer\s*=[ \t]*(.*?)[ \t]*$", text, re.M)
    if not found or not found[1]:
        return Failure(
            "no answer yet",
            f"write it behind 'answer =', or give it: ./scripts/exercise {exercise.id} ANSWER",
        )
    given, right, data = found[1].strip().lower(), exercise.answer, exercise.data
    if "choices" in data:
        if given not in data["choices"]:
            said = f"'{given}' is none of {', '.join(data['choices'])}"
            return Failure("no such choice", said)
        name, said = "a wrong choice", f"it is not {given}"
        known = [one["says"] for one in data.get("mistake", ()) if one["is"] == given]
        ok = given == right
    else:
        try:
            number = float(evaluate(given.replace(",", "").replace("^", "**")))
        except ValueError as error:
            return Failure("no number", f"'{given[:80]}' is {error}")
        name = "a wrong number"
        said = f"{number:,.10g} is too {'large' if number > right else 'small'}"
        if right * number > 0:
            said += f", by a factor of {max(number / right, right / number):.3g}"
        known = [
            one["says"]
            for one in data.get("mistake", ())
            if math.isclose(number, evaluate(str(one["is"])), rel_tol=1e-6)
        ]
        ok = math.isclose(number, right, rel_tol=data["answer"].get("tolerance", 0.001))
    return None if ok else Failure(name, known[0].strip() if known else said)


def failure_of(
    exercise: Exercise, file: Path, preset: str = "simt", talk: Talk | None = None
) -> Failure | None:
    """Why what the learner has does not pass yet; None when it does. Without `talk` several are
    graded at once, and each has one core."""
    if exercise.kind == EXPLAIN:
        return answer_failure(exercise, file)
    if talk:
        return kernel_failure(exercise, file, preset, talk)
    return kernel_failure(exercise, file, preset, Talk(silent=True), at_once=1)


def quoted(said: str) -> str:
    """The message, with the source line below each place that it names; a compiler shows it itself:
    "  12 | the line" stands next there."""
    lines, given = [], said.splitlines()
    for line, below in zip(given, [*given[1:], ""]):
        lines.append(line)
        if re.match(r" *\d+ \| ", below):
            continue
        place = re.search(r"(\S+\.(?:cu|cpp|hpp)):(\d+)", line)
        if place and (ROOT / place[1]).is_file():
            source = (ROOT / place[1]).read_text(encoding="utf-8").splitlines()
            if int(place[2]) <= len(source):
                lines.append(f"      {place[2]:>4} | {source[int(place[2]) - 1]}")
    return "\n".join(lines)
