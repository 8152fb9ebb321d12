"""./scripts/exercise judge FILE.cu: a kernel of the reader's own is held to what the rungs are.

Two programs take turns, with files between them. judge_answers (docs/exercises/judge/answers.cpp)
makes inputs, other ones for each check. The kernel's process (kernel_process.cu, with the reader's
files) runs under scripts/simt, and has nothing but those inputs. When it has ended, with all that
it may have started, judge_answers computes what is right, and compares.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from lab.exercises.catalogue import FOLDER, ROOT, Parser, Refusal, edited
from lab.exercises.grading import LESSONS

JUDGE = FOLDER / "judge"
HOST = JUDGE / "kernel_process.cu"
PATIENCE = 600  # seconds for one check; most take less than thirty
WITHOUT_PROGRESS = 60  # seconds of a launch
DEVICE_MIB, HOST_MIB = 4096, 8192
SHARED_KIB = 227  # of a block, an H100's
MOST_SEED = 2**31 - 1
FUNCTIONS = (("attention", ""), ("attention_backward", "backward "))  # (name, before each list's)
VERBS = "read", "written"


class Asked(NamedTuple):
    """A check: a list of answers.cpp, and how its problems are run."""

    list: str
    name: str
    order: str = "in-order"
    landing: str = "late"  # of cp.async


DRAWN = Asked("drawn", "sizes that the seed has drawn")
CHECKS = (
    Asked("shapes", "masks, ragged sizes, grouped heads"),
    Asked("scores", "scores that rise, tower, or are equal", landing="early"),
    Asked("extremes", "the ends of what types and scale allow"),
    Asked("NaN", "NaN and infinity, and rows beside them", landing="early"),
    Asked("detect", "races, threads in reverse order", "reverse", "early"),
    Asked("detect", "races, threads shuffled", "shuffle:{seed}"),
    Asked("detect", "races, warp 1 ahead", "ahead:1"),
)
TRAFFIC = Asked("traffic", "what kernels move")
# (what is declared, its value where all is, what is not tried otherwise)
DECLARED = (
    ("full", "1", "attention without a mask"),
    ("causal", "1", "causal masks"),
    ("grouped_heads", "1", "grouped heads"),
    ("unequal_lengths", "1", "q_len other than kv_len"),
    ("length_multiple", "1", "lengths that are no multiple of {}"),
    ("any_scale", "1", "a scale other than 1/sqrt(d)"),
    ("lse", "1", "LSE"),
    ("rounded_sums", "0", "LSE to 2e-5"),
    ("unordered_dq", "0", "the same bits of dQ in every run"),
)


@dataclass
class Check:
    """What came of one list of problems."""

    name: str
    problems: int = 0
    failed: int = 0  # of them; 0, too, where the run itself went wrong
    failure: str = ""  # "a race"; empty: it passed
    problem: str = ""  # the first that failed
    said: str = ""
    why: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failure


@dataclass
class Kernel:
    files: list[Path]
    options: list[str]  # -I and -D
    seed: int
    work: Path  # a folder
    patience: int = PATIENCE
    answers: str = ""  # judge_answers
    gpu: str = ""  # the program that nvcc has made; empty: scripts/simt runs it
    takes: dict[str, str] = field(default_factory=dict)
    given_up: threading.Event = field(default_factory=threading.Event)

    def seed_of(self, asked: Asked) -> int:
        """Of a check's inputs: no other check has them."""
        names = [(one.list, one.name) for one in (DRAWN, *CHECKS, TRAFFIC)]
        return self.seed + names.index((asked.list, asked.name))


def main(arguments: Sequence[str]) -> int:
    parser = Parser(
        prog="scripts/exercise judge",
        description="Is an attention kernel of your own right? FILE.cu includes attention_judge.h "
        "(docs/exercises/judge), which says what to define; example.cu beside it does.",
        epilog="exit code: 0 it passed, 1 it did not, 2 it could not be judged",
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="the kernel's; the first gives it its name")
    add("-I", dest="folders", action="append", default=[], metavar="DIR", help="headers lie there")
    add("-D", dest="defined", action="append", default=[], metavar="NAME[=VALUE]", help="a macro")
    add("--seed", type=int, metavar="N", help="of all inputs, from 1 on; as it was printed before")
    text = f"for a check, after which it counts as one that never ends ({PATIENCE})"
    add("--timeout", type=int, default=PATIENCE, metavar="SECONDS", help=text)
    add("--json", action="store_true", help="print the results as JSON")
    add("--gpu", action="store_true", help="on the GPU, without detectors and counters")
    options = parser.parse_args(arguments)
    if options.seed is not None and not 1 <= options.seed <= MOST_SEED:
        raise Refusal(f"--seed must be from 1 to {MOST_SEED}, not {options.seed}")
    if options.timeout < 1:
        raise Refusal(f"--timeout must be at least 1, not {options.timeout}")
    files = [Path(os.path.abspath(file)) for file in options.files]
    for file, given in zip(files, options.files, strict=True):
        if not file.is_file():
            raise Refusal(f"there is no file '{given}'")
    words = [word for folder in options.folders for word in ("-I", os.path.abspath(folder))]
    words += [word for name in options.defined for word in ("-D", name)]
    seed = options.seed or 1 + secrets.randbelow(MOST_SEED)
    with tempfile.TemporaryDirectory(prefix="judge", ignore_cleanup_errors=True) as work:
        kernel = Kernel(files, words, seed, Path(work), options.timeout)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended
        try:
            return judged(kernel, options.gpu, options.json)
        except Refusal as refusal:
            if options.json:
                print(json.dumps({"passed": False, "seed": seed, "refused": str(refusal)}))
            raise
        finally:
            kernel.given_up.set()  # after Ctrl-C others still run


def judged(kernel: Kernel, gpu: bool, as_json: bool) -> int:
    """Judges it, prints the results, and returns the exit code."""
    talk = partial(print, file=sys.stderr if as_json else sys.stdout, flush=True)
    name = os.path.relpath(kernel.files[0])
    talk(f"{name}, seed {kernel.seed} (--seed {kernel.seed} asks the same again)")
    kernel.answers = built("cuda" if gpu else "simt")
    if gpu:
        kernel.gpu = compiled_for_gpu(kernel)
    declare(kernel)
    takes = kernel.takes
    talk(f"takes {takes['types']}, d = {takes['head_dims']}")
    not_tried = [text.format(takes[key]) for key, full, text in DECLARED if takes[key] != full]
    if not_tried:
        talk(f"not tried, because the file says so: {', '.join(not_tried)}")
    results: dict[str, Any] = {
        "file": name,
        "seed": kernel.seed,
        "takes": takes,
        "not_tried": not_tried,
    }
    passed, told = True, set[str]()
    for function, prefix in FUNCTIONS:
        if takes[function] != "1":
            talk(f"\n{function}: there is none")
            continue
        talk(f"\n{function}")
        checks: list[Check] = []
        counted: dict[str, Any] = {}
        for asked, waited_for in tried(kernel, prefix):
            talk(f"  {asked.name:<42}", end="")
            check, counted = waited_for()
            checks.append(check)
            tell(check, told, talk)
        tell_traffic(counted, talk)
        results[function] = {
            "checks": [asdict(one) | {"passed": one.passed} for one in checks],
            "traffic": counted,
        }
        passed = passed and all(one.passed for one in checks)
    talk(f"\n{'passed' if passed else 'FAILED'}")
    if as_json:
        print(json.dumps({"passed": passed} | results, indent=2))
    return 0 if passed else 1


Outcome = tuple[Check, dict[str, Any]]  # and what was counted


def tried(kernel: Kernel, prefix: str) -> Iterator[tuple[Asked, Callable[[], Outcome]]]:
    """Each check, and what waits for its outcome. The first is by itself: where it does not end,
    the others would not. The counters come last, of a kernel that is right."""
    wanted = [one for one in CHECKS if not kernel.gpu or one.list != "detect"]
    with ThreadPoolExecutor(min(len(wanted), os.cpu_count() or 1)) as pool:
        first: Future[Outcome] = pool.submit(checked, kernel, prefix, DRAWN)
        yield DRAWN, first.result
        if first.result()[0].failure in ("no end", "an end without a verdict"):
            return
        under_way = [(one, pool.submit(checked, kernel, prefix, one)) for one in wanted]
        for one, future in under_way:
            yield one, future.result
        every = [first, *(future for _, future in under_way)]
        if not kernel.gpu and all(future.result()[0].passed for future in every):
            yield TRAFFIC, partial(checked, kernel, prefix, TRAFFIC)


def built(preset: str) -> str:
    """judge_answers."""
    command = [str(ROOT / "scripts/exercise"), "--build", preset, "judge_answers"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Refusal(f"{(done.stdout + done.stderr).strip()}\nwhat judges does not build")
    return str(ROOT / f"build-{preset}/docs/exercises/judge_answers")


def answers(kernel: Kernel, verb: str, one: str, seed: int, folder: Path) -> list[dict[str, Any]]:
    """judge_answers' lines on a list."""
    command = [kernel.answers, verb, one, str(seed), str(kernel.work / "takes"), str(folder)]
    quiet = os.environ | {"OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(command, capture_output=True, text=True, env=quiet)
    if done.returncode:
        raise Refusal(f"judge_answers: {done.stderr.strip() or done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def run_kernel(
    kernel: Kernel,
    folder: Path,
    words: Sequence[str],
    *more: str,
    landing: str = "late",
    patience: int = PATIENCE,
) -> tuple[dict[str, Any], str]:
    """Runs the kernel's process; the verdict of scripts/simt, and what stands on stderr. It has no
    stdout, limits, and a session of its own, which is ended with it."""
    verdict = folder / "verdict.json"
    if kernel.gpu:
        command = [kernel.gpu, *words]
    else:
        command = [str(ROOT / "scripts/simt"), "run", *map(str, [*kernel.files, HOST])]
        command += ["-I", str(JUDGE), *kernel.options, "--launches", "0", "--json", str(verdict)]
        command += ["--timeout", str(WITHOUT_PROGRESS), "--memory", str(DEVICE_MIB), *more]
        command += ["--", *words]
        command = ["bash", "-c", f'ulimit -d {HOST_MIB * 1024} && exec "$@"', "limited", *command]
    environment = {key: own for key, own in os.environ.items() if "FLASH_SIMT_" not in key}
    environment |= {"FLASH_SIMT_CP_ASYNC": landing, "FLASH_SIMT_SHARED_KIB": str(SHARED_KIB)}
    with open(folder / "stderr", "w+", errors="replace") as stderr:
        child = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )
        try:
            end = time.monotonic() + patience
            while child.poll() is None and time.monotonic() < end and not kernel.given_up.is_set():
                time.sleep(0.02)
            code = child.poll()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        stderr.seek(0)
        said = stderr.read()[-4000:].strip()
    if code is None:
        return {"verdict": "no end"}, f"it was ended after {patience} seconds"
    if kernel.gpu:
        return {"verdict": "clean", "exit_code": code}, said
    try:
        return json.loads(verdict.read_text(encoding="utf-8")), said
    except (OSError, ValueError):
        return {"verdict": "none", "exit_code": code}, said


def declare(kernel: Kernel) -> None:
    """Has the kernel's process say what it takes."""
    file, name = kernel.work / "takes", kernel.files[0].name
    found, said = run_kernel(kernel, kernel.work, ["declare", str(file)])
    if not file.is_file() or found["verdict"] not in ("clean", "warning", "unchecked"):
        said = said or f"the program ended with exit code {found['exit_code']}"
        raise Refusal(f"{name} cannot be judged:\n{said}")
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    kernel.takes = takes = dict(line.split(" ", 1) for line in lines if " " in line)
    types, dims = takes["types"].split(), takes["head_dims"].split()
    if not types or not set(types) <= {"fp32", "fp16", "bf16"}:
        raise Refusal(f"attention_takes.types: of fp32, fp16 and bf16, not '{' '.join(types)}'")
    if not dims or not set(dims) <= set(map(str, range(1, 1025))):
        raise Refusal(f"attention_takes.head_dims: numbers like 64 128, not '{' '.join(dims)}'")
    if takes["length_multiple"] not in map(str, range(1, 257)):
        raise Refusal("attention_takes.length_multiple: from 1 to 256")
    if (takes["full"], takes["causal"]) == ("0", "0"):
        raise Refusal("attention_takes: full or causal must be true")
    if all(takes[function] != "1" for function, _ in FUNCTIONS):
        raise Refusal(f"{name} defines neither attention nor attention_backward")


def checked(kernel: Kernel, prefix: str, asked: Asked) -> Outcome:
    """Asks the kernel one list of problems, and judges the run and the answers that it has left."""
    if kernel.given_up.is_set():
        raise Refusal("given up")
    seed, one = kernel.seed_of(asked), prefix + asked.list
    folder = Path(tempfile.mkdtemp(dir=kernel.work))
    try:
        answers(kernel, "ask", one, seed, folder)
        options = ["--schedule", asked.order.format(seed=seed)]
        options += ["--profile"] if asked == TRAFFIC else []
        found, said = run_kernel(
            kernel,
            folder,
            ["run", str(folder)],
            *options,
            landing=asked.landing,
            patience=kernel.patience,
        )
        lines = answers(kernel, "judge", one, seed, folder)
        check = check_of(asked.name, found, said, lines)
        profile = folder / f"{kernel.files[0].stem}.profile.json"
        if not profile.is_file() or not check.passed:
            return check, {}
        counted = traffic_of(json.loads(profile.read_text(encoding="utf-8"))["kernels"])
    finally:
        shutil.rmtree(folder)
    inputs = ["Q", "K", "V", "dO"] if prefix else ["Q", "K", "V"]
    for name in inputs:
        own = counted["tensors"].get(name, {"bytes": 1, "read": 0})
        if own["read"] < own["bytes"]:
            check.failure = "less traffic than the answer takes"
            check.said = f"kernels have read {own['read']} bytes of {name}, and not all of it"
            check.why = "Kernels must compute the answer, not the host."
            return check, {}
    outputs = ["dQ", "dK", "dV"] if prefix else ["O", "LSE"][: 1 + int(kernel.takes["lse"])]
    sizes = {name: own["bytes"] for name, own in counted["tensors"].items()}
    like = {
        "O": "Q",
        "dQ": "Q",
        "dK": "K",
        "dV": "V",
    }  # that copies or atomics alone may have filled
    counted["problem"] = lines[0]["problem"]
    counted["least_sectors"] = (
        sum(sizes.get(like.get(name, name), 0) for name in inputs + outputs) // 32
    )
    return check, counted


def check_of(
    name: str, found: Mapping[str, Any], said: str, lines: Sequence[Mapping[str, Any]]
) -> Check:
    wrong = [line for line in lines if line["wrong"]]
    check = Check(name, len(lines), len(wrong))
    check.warnings = [one["text"] for one in found.get("warnings", ())]
    if wrong:
        check.failure, check.why = LESSONS.get(wrong[0]["wrong"][0]["kind"], ("no answer", ""))
        check.problem = wrong[0]["problem"]
        check.said = "\n".join(one["said"].removeprefix("it threw: ") for one in wrong[0]["wrong"])
    if ended := how_it_ended(found, said):
        check.failure, check.said, check.why = ended
        check.failed = 0  # it may have ended before it came to the others
    return check


def how_it_ended(found: Mapping[str, Any], said: str) -> tuple[str, str, str] | None:
    """What is wrong with a run: (name, message, why); None: nothing."""
    match found["verdict"]:
        case "no end":
            return "no end", said, ""
        case "none":
            said = said or f"exit code {found['exit_code']}"
            return "an end without a verdict", said, ""
        case "unchecked" if found["exit_code"] in (0, 89):  # and it didn't end by an error
            return "no kernel", "no kernel was launched: on a GPU nothing would compute", ""
        case "clean" | "warning" if found.get("launches") != found.get("launches_watched"):
            return (
                "a launch that was not watched",
                "the kernel's process has changed the options",
                "",
            )
        case "clean" | "warning" if found["exit_code"] == 0:
            return None
        case "fault" | "timeout":
            fault = found["faults"][0]
            name, why = LESSONS.get(fault["kind"], (fault["kind"].replace("_", " "), ""))
            return name, fault["text"], why
        case _:
            return "an end with an error", said or f"exit code {found['exit_code']}", ""


def traffic_of(kernels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """From a profile: what kernels read and write of each tensor, and what each line moves."""
    tensors: dict[str, dict[str, int]] = {}
    lines: dict[tuple[str, int], dict[str, int]] = {}
    for one in kernels:
        for buffer in one["buffers"]:
            empty = {"bytes": buffer["bytes"], "read": 0, "written": 0}
            own = tensors.setdefault(buffer["name"], empty)
            own["read"] += buffer["load"]["bytes"]
            own["written"] += buffer["store"]["bytes"]
        for line in one["lines"]:
            empty = {"sectors": 0, "wavefronts": 0, "without_conflicts": 0}
            at = lines.setdefault((line["file"], line["line"]), empty)
            for part in ("global_load", "global_store", "global_atomic"):
                at["sectors"] += line.get(part, {}).get("sectors", 0)
            for part in ("tma_load", "tma_store", "bulk_reduce"):
                at["sectors"] += line.get(part, {}).get("bytes", 0) // 32
            for part in ("shared_load", "shared_store", "async_store"):
                at["wavefronts"] += line.get(part, {}).get("wavefronts", 0)
                at["without_conflicts"] += line.get(part, {}).get("ideal", 0)
    of_lines = [
        {"file": os.path.relpath(file), "line": line, **counts}
        for (file, line), counts in sorted(lines.items())
        if counts["sectors"] or counts["wavefronts"]
    ]
    return {"tensors": tensors, "lines": of_lines}


def tell(check: Check, told: set[str], talk: Callable[..., None]) -> None:
    """The rest of its line, and what goes below; why it matters, once."""
    many = f", in {check.failed} problems" if check.failed > 1 else ""
    outcome = "right" if check.passed else f"FAILED: {check.failure}{many}"
    talk(f"{check.problems:>4} problem{' ' if check.problems == 1 else 's'}   {outcome}")
    warnings = [f"warning: {text}" for text in check.warnings[:3]]
    why = "" if check.why in told else textwrap.fill(check.why, 90)
    told.add(check.why)
    for text in (check.problem, check.said.strip(), why, *warnings):
        if text:
            talk(textwrap.indent(text, "      "))


def tell_traffic(counted: Mapping[str, Any], talk: Callable[..., None]) -> None:
    if not counted:
        return
    least = counted["least_sectors"]
    talk(f"    {counted['problem']}")
    talk(f"    the least: {least:,} sectors of 32 bytes, to read inputs and write outputs once")
    for name, own in counted["tensors"].items():
        of_sizes = [f"{verb} {own[verb] / own['bytes']:,.1f} x" for verb in VERBS if own[verb]]
        if of_sizes:
            talk(f"      {name:<10} {', '.join(of_sizes)}")
    for line in sorted(counted["lines"], key=lambda one: -one["sectors"])[:5]:
        if line["sectors"]:
            place, times = f"{line['file']}:{line['line']}", line["sectors"] / least
            talk(f"      {place:<40} {line['sectors']:>10,} sectors, {times:,.2f} x the least")
    for line in counted["lines"]:
        ideal = line["without_conflicts"]
        if line["wavefronts"] > 1.1 * ideal:
            place, ways = f"{line['file']}:{line['line']}", line["wavefronts"] / ideal
            talk(f"      {place:<40} {ways:,.2f} wavefronts in place of 1, for bank conflicts")


def compiled_for_gpu(kernel: Kernel) -> str:
    """The program that nvcc makes of the same files."""
    places = [os.environ.get("CUDACXX") or "nvcc", "/usr/local/cuda/bin/nvcc"]
    nvcc = next(filter(None, map(shutil.which, places)), None)
    if nvcc is None:
        raise Refusal("--gpu needs nvcc, and there is none")
    program = str(kernel.work / "kernel_process")
    command = [nvcc, "-std=c++20", "-O3", "-arch=native", f"-I{JUDGE}", f"-I{ROOT}"]
    command += [*kernel.options, *map(str, [*kernel.files, HOST]), "-o", program]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Refusal(f"{done.stdout}{done.stderr}nvcc does not compile it")
    return program


def prove(jobs: int) -> bool:
    """Proves that example.cu passes, and that with each mistake of wrong.toml it fails, with its
    message; whether all of that is so."""
    wrong = tomllib.loads((JUDGE / "wrong.toml").read_text(encoding="utf-8"))["wrong"]
    right = [
        {"what": f"no mistake in {name}", "list": f"{prefix}drawn", "says": "^$", "edit": []}
        for name, prefix in FUNCTIONS
    ]
    with ThreadPoolExecutor(jobs) as pool:
        return all(list(pool.map(partial(is_proved, built("simt")), [*right, *wrong])))


def is_proved(answers: str, one: Mapping[str, Any]) -> bool:
    prefix = "backward " if one["list"].startswith("backward ") else ""
    name, says = one["list"].removeprefix(prefix), one["says"]
    asked = next(check for check in (DRAWN, *CHECKS, TRAFFIC) if check.list == name)
    with tempfile.TemporaryDirectory(prefix="judge") as work:
        file = Path(work) / "kernel.cu"
        example = (JUDGE / "example.cu").read_text(encoding="utf-8")
        file.write_text(edited(example, one["edit"], "wrong.toml"), encoding="utf-8")
        kernel = Kernel([file], [], 1, Path(work), 5 if says == "no end" else PATIENCE, answers)
        declare(kernel)
        check, _ = checked(kernel, prefix, asked)
        proved = re.search(says, check.failure) is not None
        if "unseen" in one and proved:
            check, _ = checked(kernel, prefix, asked._replace(order=one["unseen"]))
            proved = check.passed
    said = "proved" if proved else f"WRONG: {check.failure or 'passes'}\n{check.said}"
    print(f"judge: {one['what']:<50}{said}", flush=True)
    return proved
