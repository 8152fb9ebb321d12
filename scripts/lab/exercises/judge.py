"""./scripts/exercise judge FILE.cu: a kernel of the reader's own is held to what the rungs are.

Two processes take turns, with files between them. judge_answers (docs/exercises/judge/answers.cpp)
makes inputs, as random as the seed. The kernel's process (kernel_process.cu, with the reader's
files) runs under scripts/simt, and has nothing but those inputs. When it has ended, with all that
it may have started, judge_answers computes what is right, and compares.
"""

import argparse
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
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lab.exercises.catalogue import FOLDER, ROOT, Refusal, edited
from lab.exercises.grading import LESSONS

JUDGE = FOLDER / "judge"
HOST = JUDGE / "kernel_process.cu"
PATIENCE = 600  # seconds for one check; most take less than thirty
WITHOUT_PROGRESS = 60  # seconds of a launch
DEVICE_MIB, HOST_MIB = 4096, 8192
MOST_SEED = 2**31 - 1
VERBS = "read", "written"

# (list of judge_answers, what it tries, order of the threads, when copies of cp.async land)
DRAWN = ("drawn", "sizes that the seed has drawn", "in-order", "late")
CHECKS = (
    ("shapes", "masks, ragged sizes, grouped heads", "in-order", "late"),
    ("scores", "scores that rise, tower, or are equal", "in-order", "early"),
    ("extremes", "the ends of what types and scale allow", "in-order", "late"),
    ("NaN", "NaN and infinity, and rows beside them", "in-order", "early"),
    ("detect", "races, in reverse order", "reverse", "early"),
    ("detect", "races, in order shuffle:{seed}", "shuffle:{seed}", "late"),
    ("detect", "races, warp 1 ahead", "ahead:1", "late"),
)
# (what is declared, its value where all is, what is not tried otherwise)
DECLARED = (
    ("full", "1", "attention without a mask"),
    ("causal", "1", "causal masks"),
    ("grouped_heads", "1", "grouped heads"),
    ("unequal_lengths", "1", "q_len other than kv_len"),
    ("length_multiple", "1", "lengths that are no multiple of {}"),
    ("any_scale", "1", "a scale other than 1/sqrt(d)"),
    ("lse", "1", "LSE"),
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
    patience: int = PATIENCE
    gpu: str = ""  # the program that nvcc has made; empty: scripts/simt runs it
    takes: dict[str, str] = field(default_factory=dict)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
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
    add("--json", action="store_true", help="print the results as JSON")
    add("--gpu", action="store_true", help="on the GPU, without detectors and counters")
    options = parser.parse_args(arguments)
    if options.seed is not None and not 1 <= options.seed <= MOST_SEED:
        raise Refusal(f"--seed must be from 1 to {MOST_SEED}, not {options.seed}")
    files = [Path(os.path.abspath(file)) for file in options.files]
    for file, given in zip(files, options.files, strict=True):
        if not file.is_file():
            raise Refusal(f"there is no file '{given}'")
    words = [word for folder in options.folders for word in ("-I", os.path.abspath(folder))]
    words += [word for name in options.defined for word in ("-D", name)]
    kernel = Kernel(files, words, options.seed or 1 + secrets.randbelow(MOST_SEED))
    with tempfile.TemporaryDirectory(prefix="judge") as work:
        try:
            return judged(kernel, Path(work), options)
        except Refusal as refusal:
            if options.json:
                print(json.dumps({"passed": False, "seed": kernel.seed, "refused": str(refusal)}))
            raise


def judged(kernel: Kernel, work: Path, options: argparse.Namespace) -> int:
    talk = partial(print, file=sys.stderr if options.json else sys.stdout, flush=True)
    name = os.path.relpath(kernel.files[0])
    talk(f"{name}, seed {kernel.seed} (--seed {kernel.seed} asks the same again)")
    preset = "cuda" if options.gpu else "simt"
    answers = built(preset)
    if options.gpu:
        kernel.gpu = compiled_for_gpu(kernel, work)
    declare(kernel, work)
    talk(f"takes {kernel.takes['types']}, d = {kernel.takes['head_dims']}")
    not_declared = [
        what.format(kernel.takes[key])
        for key, all_of_it, what in DECLARED
        if kernel.takes[key] != all_of_it
    ]
    if not_declared:
        talk(f"not tried, because the file says so: {', '.join(not_declared)}")
    results: dict[str, Any] = {
        "file": name,
        "seed": kernel.seed,
        "takes": kernel.takes,
        "not_tried": not_declared,
    }
    passed = True
    for function, prefix in (("attention", ""), ("attention_backward", "backward ")):
        if kernel.takes["backward" if prefix else "forward"] != "1":
            talk(f"\n{function}: there is none")
            continue
        talk(f"\n{function}")
        checks = []
        for check in checks_of(kernel, prefix, answers, work):
            checks.append(check)
            tell(check, talk)
        results[function] = {"checks": [asdict(one) | {"passed": one.passed} for one in checks]}
        if not kernel.gpu and all(one.passed for one in checks):
            check, results[function]["traffic"] = traffic(kernel, prefix, answers, work)
            results[function]["checks"].append(asdict(check) | {"passed": check.passed})
            checks.append(check)
            tell(check, talk)
            tell_traffic(results[function]["traffic"], talk)
        passed = passed and all(one.passed for one in checks)
    results = {"passed": passed} | results
    talk(f"\n{'passed' if passed else 'FAILED'}")
    if options.json:
        print(json.dumps(results, indent=2))
    return 0 if passed else 1


def built(preset: str) -> Path:
    """judge_answers."""
    command = [str(ROOT / "scripts/exercise"), "--build", preset, "judge_answers"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Refusal(f"{(done.stdout + done.stderr).strip()}\nwhat judges does not build")
    return ROOT / f"build-{preset}/docs/exercises/judge_answers"


def run_kernel(
    kernel: Kernel, folder: Path, words: Sequence[str], more: Sequence[str] = (), landing: str = ""
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
    environment = os.environ | {"FLASH_SIMT_CP_ASYNC": landing or "late"}
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
        found: dict[str, Any] = {"verdict": "clean"}
        try:
            found["exit_code"] = child.wait(kernel.patience)
        except subprocess.TimeoutExpired:
            found = {"verdict": "no end", "exit_code": -1}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        stderr.seek(0)
        said = stderr.read()[-4000:].strip()
    if found["verdict"] == "clean" and not kernel.gpu:
        try:
            found = json.loads(verdict.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found = {"verdict": "none", "exit_code": found["exit_code"]}
    return found, said


def declare(kernel: Kernel, work: Path) -> None:
    """Has the kernel's process say what it takes."""
    file = work / "takes"
    found, said = run_kernel(kernel, work, ["declare", str(file)])
    if not file.is_file() or found["exit_code"] not in (0, 89):
        raise Refusal(f"{said}\n{kernel.files[0].name} cannot be judged")
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    kernel.takes = dict(line.split(" ", 1) for line in lines if " " in line)
    types, dims = kernel.takes["types"].split(), kernel.takes["head_dims"].split()
    if not types or not set(types) <= {"fp32", "fp16", "bf16"}:
        raise Refusal(f"attention_takes.types: of fp32, fp16 and bf16, not '{' '.join(types)}'")
    if not dims or not all(one.isdigit() and 1 <= int(one) <= 1024 for one in dims):
        raise Refusal(f"attention_takes.head_dims: numbers like 64 128, not '{' '.join(dims)}'")
    if kernel.takes["length_multiple"] not in map(str, range(1, 257)):
        raise Refusal("attention_takes.length_multiple: from 1 to 256")
    if (kernel.takes["full"], kernel.takes["causal"]) == ("0", "0"):
        raise Refusal("attention_takes: full or causal must be true")
    if (kernel.takes["forward"], kernel.takes["backward"]) == ("0", "0"):
        raise Refusal(f"{kernel.files[0].name} defines neither attention nor attention_backward")


@contextlib.contextmanager
def asked(kernel: Kernel, answers: Path, one: str, work: Path) -> Iterator[tuple[Path, list[str]]]:
    """A folder with a list's problems and inputs, and the words that judge what is done there."""
    folder = Path(tempfile.mkdtemp(dir=work))
    words = [one, str(kernel.seed), str(work / "takes"), str(folder)]
    try:
        subprocess.run([answers, "ask", *words], check=True)
        yield folder, [str(answers), "judge", *words]
    finally:
        shutil.rmtree(folder)


def checked(
    kernel: Kernel, prefix: str, answers: Path, work: Path, what: tuple[str, str, str, str]
) -> Check:
    one, name, order, landing = (part.format(seed=kernel.seed) for part in what)
    with asked(kernel, answers, prefix + one, work) as (folder, words):
        found, said = run_kernel(
            kernel, folder, ["run", str(folder)], ["--schedule", order], landing
        )
        return check_of(name, found, said, words)


def check_of(name: str, found: Mapping[str, Any], said: str, words: Sequence[str]) -> Check:
    """The kernel's run, and the answers that it has left."""
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = [line for line in lines if line["wrong"]]
    check = Check(name, len(lines), len(wrong))
    check.warnings = [one["text"] for one in found.get("warnings", ())]
    if wrong:
        first = wrong[0]["wrong"][0]
        check.failure, check.why = LESSONS.get(first["kind"], ("no answer", ""))
        check.problem = wrong[0]["problem"]
        check.said = "\n".join(one["said"] for one in wrong[0]["wrong"])
        check.said = check.said.replace("it threw: ", "")
    if ended := how_it_ended(found, said):
        check.failure, check.said, check.why = ended
        check.problem = check.problem if check.said and wrong else ""
    return check


def how_it_ended(found: Mapping[str, Any], said: str) -> tuple[str, str, str] | None:
    """What is wrong with a run: (name, message, why); None: nothing."""
    match found["verdict"]:
        case "no end":
            return "no end", "it was ended when its time was up", ""
        case "none":
            said = said or f"exit code {found['exit_code']}"
            return "an end without a verdict", said, ""
        case "unchecked":
            return "no kernel", "no kernel was launched: on a GPU nothing would compute", ""
        case "clean" | "warning" if found["exit_code"] == 0:
            return None
        case "fault" | "timeout":
            fault = found["faults"][0]
            name, why = LESSONS.get(fault["kind"], (fault["kind"].replace("_", " "), ""))
            return name, fault["text"] + (f"\n{fault['hint']}" if fault["hint"] else ""), why
        case _:
            return "an end with an error", said or f"exit code {found['exit_code']}", ""


def checks_of(kernel: Kernel, prefix: str, answers: Path, work: Path) -> Iterator[Check]:
    """The first by itself: where it does not end, the others would not."""
    run = partial(checked, kernel, prefix, answers, work)
    first = run(DRAWN)
    yield first
    if first.failure in ("no end", "an end without a verdict"):
        return
    wanted = [one for one in CHECKS if not kernel.gpu or one[0] != "detect"]
    with ThreadPoolExecutor(min(len(wanted), os.cpu_count() or 1)) as pool:
        yield from pool.map(run, wanted)


def traffic(kernel: Kernel, prefix: str, answers: Path, work: Path) -> tuple[Check, dict[str, Any]]:
    """What each line moves, beside the least: inputs read once, and outputs written once."""
    with asked(kernel, answers, f"{prefix}traffic", work) as (folder, words):
        found, said = run_kernel(kernel, folder, ["run", str(folder)], ["--profile"])
        check = check_of("traffic", found, said, words)
        profile = folder / f"{kernel.files[0].stem}.profile.json"
        if not check.passed or not profile.is_file():
            return check, {}
        kernels = json.loads(profile.read_text(encoding="utf-8"))["kernels"]
        problem = json.loads(subprocess.run(words, capture_output=True).stdout)["problem"]
    needed = ["Q", "K", "V", "dO", "dQ", "dK", "dV"] if prefix else ["Q", "K", "V", "O"]
    if not prefix and kernel.takes["lse"] == "1":
        needed.append("LSE")
    moved: dict[str, dict[str, int]] = {}
    lines: dict[tuple[str, int], dict[str, Any]] = {}
    for one in kernels:
        for buffer in one["buffers"]:
            own = moved.setdefault(
                buffer["name"], {"bytes": buffer["bytes"], "read": 0, "written": 0}
            )
            own["read"] += buffer["load"]["bytes"]
            own["written"] += buffer["store"]["bytes"]
        for line in one["lines"]:
            at = lines.setdefault(
                (line["file"], line["line"]),
                {"sectors": 0, "wavefronts": 0, "without_conflicts": 0},
            )
            for part in ("global_load", "global_store"):
                at["sectors"] += line.get(part, {}).get("sectors", 0)
            for part in ("tma_load", "tma_store", "bulk_reduce"):
                at["sectors"] += line.get(part, {}).get("bytes", 0) // 32
            for part in ("shared_load", "shared_store", "async_store"):
                at["wavefronts"] += line.get(part, {}).get("wavefronts", 0)
                at["without_conflicts"] += line.get(part, {}).get("ideal", 0)
    least = sum(moved[tensor]["bytes"] for tensor in needed if tensor in moved) // 32
    return check, {
        "problem": problem,
        "least_sectors": least,
        "tensors": moved,
        "lines": [
            {"file": os.path.relpath(file), "line": line, **counts}
            for (file, line), counts in sorted(lines.items())
            if counts["sectors"] or counts["wavefronts"]
        ],
    }


def tell(check: Check, talk: Any) -> None:
    outcome = "right"
    if not check.passed:
        outcome = f"FAILED: {check.failure}" + (
            f", in {check.failed} problems" if check.failed > 1 else ""
        )
    talk(f"  {check.name:<42}{check.problems:>4} problems   {outcome}")
    indented = partial(textwrap.indent, prefix="      ")
    for text in (check.problem, check.said.strip(), textwrap.fill(check.why, 90)):
        if text and not check.passed:
            talk(indented(text))
    for warning in check.warnings[:3]:
        talk(indented(f"warning: {warning}"))


def tell_traffic(found: Mapping[str, Any], talk: Any) -> None:
    if not found:
        return
    least = found["least_sectors"]
    talk(f"    {found['problem']}")
    talk(f"    the least: {least:,} sectors of 32 bytes, to read inputs and write outputs once")
    for name, own in found["tensors"].items():
        of_sizes = [f"{verb} {own[verb] / own['bytes']:,.1f} x" for verb in VERBS if own[verb]]
        if of_sizes:
            talk(f"      {name:<10} {', '.join(of_sizes)}")
    for line in sorted(found["lines"], key=lambda one: -one["sectors"])[:5]:
        if line["sectors"]:
            place, times = f"{line['file']}:{line['line']}", line["sectors"] / least
            talk(f"      {place:<40} {line['sectors']:>10,} sectors, {times:,.2f} x the least")
    for line in found["lines"]:
        ideal = line["without_conflicts"]
        if line["wavefronts"] > 1.1 * ideal:
            place, ways = f"{line['file']}:{line['line']}", line["wavefronts"] / ideal
            talk(f"      {place:<40} {ways:,.2f} wavefronts in place of 1, for bank conflicts")


def prove() -> int:
    """Proves that example.cu with the mistakes of wrong.toml fails, each with its message. Returns
    how many do not."""
    data = tomllib.loads((JUDGE / "wrong.toml").read_text(encoding="utf-8"))["wrong"]
    example = (JUDGE / "example.cu").read_text(encoding="utf-8")
    answers, not_found = built("simt"), 0
    for one in [{"what": "no mistake", "list": "drawn", "says": "^$", "edit": []}, *data]:
        with tempfile.TemporaryDirectory(prefix="judge") as work:
            file = Path(work) / "kernel.cu"
            file.write_text(edited(example, one["edit"], "wrong.toml"), encoding="utf-8")
            kernel = Kernel([file], [], 1 + secrets.randbelow(MOST_SEED))
            declare(kernel, Path(work))
            kernel.patience = 5 if one["says"] == "no end" else PATIENCE
            check = checked(
                kernel, "", answers, Path(work), (one["list"], one["what"], "in-order", "late")
            )
        found = re.search(one["says"], check.failure) is not None
        not_found += not found
        said = f"seed {kernel.seed}: {check.failure or 'it passes'}\n{check.said}"
        print(f"judge: {one['what']:<45}{'proved' if found else f'WRONG, {said}'}", flush=True)
    return not_found


def compiled_for_gpu(kernel: Kernel, work: Path) -> str:
    """The same files by nvcc."""
    places = [os.environ.get("CUDACXX") or "nvcc", "/usr/local/cuda/bin/nvcc"]
    nvcc = next(filter(None, map(shutil.which, places)), None)
    if nvcc is None:
        raise Refusal("--gpu needs nvcc, and there is none")
    program = str(work / "kernel_process")
    command = [nvcc, "-std=c++20", "-O3", "-arch=native", f"-I{JUDGE}", f"-I{ROOT}"]
    command += [*kernel.options, *map(str, [*kernel.files, HOST]), "-o", program]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Refusal(f"{done.stdout}{done.stderr}nvcc does not compile it")
    return program
