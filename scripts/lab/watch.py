"""Watch a kernel run: records one block on the SIMT backend, with the race detector on, and
writes one HTML file that replays it in a browser, step by step. It needs no GPU and no network.

    ./scripts/watch flash_attention_2
    ./scripts/watch overlap --block 1 --schedule reverse --causal
    ./scripts/watch mma_sync --moment conflict=K
    ./scripts/watch mma_sync --without '__syncthreads(); // smem.Q is complete'
    ./scripts/watch docs/examples/unseen_races.cu slot
    ./scripts/watch flash_attention_2.1    # your working copy of an exercise

docs/watch_format.md says what a recording holds.
"""

import argparse
import base64
import copy
import json
import os
import re
import subprocess
import tempfile
import webbrowser
import zlib
from pathlib import Path
from typing import Any

from lab import cli, watch_tiles
from lab.build import locked
from lab.ladder import ROOT, LabError, Rung, cuda_rungs

Recording = dict[str, Any]  # docs/watch_format.md

MOST = 2 << 20  # bytes of a page
VIEWER = ROOT / "common/simt/viewer"
COPIES = ROOT / "build-simt/without"  # of kernels, without a line
SCRIPTS = (
    *("tools", "trace", "names", "costs", "memory", "moments", "words"),
    *("source_view", "warps_view", "shared_view", "tensors_view", "fragments_view"),
    *("barriers_view", "timeline_view", "controls", "main"),
)
# Problems that are small, and still show the idea: at least six tiles of K and V where there is a
# ring (of Q and dO in the backward pass), a block that draws twice where blocks persist, a block
# that has to wait for its turn. Of several kernels, the one whose accesses are worth a look.
SMALL = "--heads 1 --q-len 128 --head-dim 64"
TILES = "--heads 1 --q-len 256 --kv-len 384 --head-dim 64"
PROBLEMS = {
    "cuda_naive": f"--kernel scores {SMALL}",
    "wgmma_tma": "--heads 1 --q-len 256 --kv-len 576 --head-dim 64",
    "persistent_blocks": "--heads 6 --q-len 256 --kv-len 768 --head-dim 64",
    "overlap": "--heads 6 --q-len 256 --kv-len 768 --head-dim 64",
    "window": "--heads 1 --q-len 256 --kv-len 512 --window 128 --head-dim 64",
    "packed_sequences": "--heads 2 --lengths 20,300,0,70 --head-dim 64",
    "two_head_dims": "--heads 1 --q-len 128 --kv-len 384",
    "fp8": "--heads 1 --q-len 128 --kv-len 768 --head-dim 64",
    "packed_heads": "--heads 4 --kv-heads 1 --q-len 2 --kv-len 384 --head-dim 64",
    "split_kv": "--heads 4 --kv-heads 1 --q-len 1 --kv-len 1024 --head-dim 128",
    "page_table": "--batch 3 --heads 4 --kv-heads 1 --q-len 1 --kv-len 1000 --lengths 1000,0,200 "
    "--head-dim 128",
    "paged_kv": "--block 2 --batch 3 --heads 4 --kv-heads 1 --q-len 1 --kv-len 1000 "
    "--lengths 1000,0,200 --head-dim 128",
    "ring_attention": "--ranks 2 --heads 1 --q-len 512 --head-dim 64",
    "backward_two_kernels": "--heads 1 --q-len 256 --head-dim 64",
    "backward_one_kernel": "--heads 1 --q-len 384 --kv-len 128 --head-dim 64",
    "backward_roles": "--heads 1 --q-len 384 --kv-len 128 --head-dim 64",
    "backward_wgmma": "--heads 1 --q-len 768 --kv-len 128 --head-dim 64",
    "backward_late_dq": "--heads 1 --q-len 768 --kv-len 128 --head-dim 64",
    "backward_three_roles": "--heads 1 --q-len 384 --kv-len 64 --head-dim 256",
    "backward_ordered": "--block 1 --heads 1 --q-len 384 --kv-len 256 --head-dim 64",
    "backward_window": "--block 2 --heads 1 --q-len 768 --window 128 --head-dim 64",
    "backward_packed": "--block 1 --heads 1 --lengths 20,700,70 --kv-lengths 20,70,70 "
    "--head-dim 64",
}


def problem_of(rung: Rung) -> list[str]:
    usual = SMALL if rung.number[0] == "1" else TILES
    return PROBLEMS.get(rung.name, usual).split()


def merged(problem: list[str], arguments: list[str]) -> list[str]:
    """A problem, as pairs of option and value, with what the user says in place of its own."""
    if "--input" in arguments:  # that file says all
        return arguments
    pairs = zip(problem[::2], problem[1::2])
    kept = [word for pair in pairs if pair[0] not in arguments for word in pair]
    return [*kept, *arguments]


def record(program: Path, arguments: list[str], options: argparse.Namespace) -> Recording:
    """The recording of a run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        block = (options.block or "0").replace(" ", "").split(",")
        environment = os.environ | {
            "FLASH_SIMT_WATCH": str(path),
            "FLASH_SIMT_WATCH_KERNEL": options.kernel or "",
            "FLASH_SIMT_WATCH_BLOCK": ",".join(block + ["0"] * (3 - len(block))),
            "FLASH_SIMT_DETECT": "1",
            "FLASH_SIMT_WORKERS": "1",
        }
        if options.schedule:
            environment["FLASH_SIMT_SCHEDULE"] = options.schedule
        done = subprocess.run(
            [str(program), *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        trace = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        elsewhere = path.with_name(path.name + ".elsewhere")
        if elsewhere.is_file():
            trace["elsewhere"] = json.loads(elsewhere.read_text(encoding="utf-8"))
        if not trace:
            named = f" with '{options.kernel}' in its name" if options.kernel else ""
            raise LabError(
                done.stderr.strip()
                or f"nothing was recorded: no kernel{named} has a block {options.block or 0}"
            )
        trace["printed"] = done.stdout.strip()
        return trace


def last_step(trace: Recording, place: dict[str, Any]) -> int | None:
    """The last time that a thread was at a line; None if it was not."""
    x, y, z = place["thread"]
    width, height, _ = trace["run"]["block"]
    thread, steps = x + width * (y + height * z), trace["steps"]
    for step in reversed(range(len(steps["warp"]))):
        site = trace["sites"][steps["site"][step]]
        if (
            steps["warp"][step] == thread // 32
            and (site["file"], site["line"]) == (place["file"], place["line"])
            and site["operation"] != "line"
            and trace["patterns"][steps["pattern"][step]]["lanes"] >> thread % 32 & 1
        ):
            return step
    return None


def tell_fault(trace: Recording, of: Recording) -> None:
    """Puts the fault that another block ran into, `of`, into the recording of the first of the
    two."""
    trace["fault"] = fault = copy.deepcopy(of["fault"])
    for place in (fault["where"], fault["other"]):
        name = of["files"][place["file"]]
        if name not in trace["files"]:
            trace["files"].append(name)
        place["file"] = trace["files"].index(name)
        place.pop("step", None)
    if (step := last_step(trace, fault["other"])) is not None:
        fault["other"]["step"] = step


def sources_of(trace: Recording, build: Path) -> dict[str, str]:
    """The text of each file of which the run came to a line. (Compilers may name files relative to
    the build folder.)"""
    found = {}
    for i, name in enumerate(trace["files"]):
        path = next((p for p in (ROOT / name, build / name) if p.is_file()), ROOT).resolve()
        if path.is_file() and any(site["file"] == i for site in trace["sites"]):
            short = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else name
            trace["files"][i] = short
            found[short] = path.read_text(encoding="utf-8").rstrip("\n")
            if "fault" in trace:
                trace["fault"]["text"] = trace["fault"]["text"].replace(f" {name}:", f" {short}:")
    return found


def page(trace: Recording, title: str, build: Path, beside: str | None = None) -> str:
    """The page that replays a recording. `beside`: that of the other block of a race."""
    sources = sources_of(trace, build)
    document = {"title": title, "sources": sources, "trace": trace, "beside": beside}
    packed = zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 9)
    parts = {
        "TITLE": f"{title}: a run to watch",
        "STYLE": (VIEWER / "style.css").read_text(encoding="utf-8"),
        "RECORDING": base64.b64encode(packed).decode(),
        "SCRIPT": "\n".join((VIEWER / f"{name}.js").read_text("utf-8") for name in SCRIPTS),
    }
    template = (VIEWER / "page.html").read_text(encoding="utf-8")
    return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], template)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernel", metavar="K", help="a part of its name (the longest run)")
    parser.add_argument("--block", metavar="B", help="x or x,y,z (0; of a fault, its own)")
    parser.add_argument("--schedule", metavar="S", help="reverse, ahead:W, shuffle:N or starve:T")
    parser.add_argument("--moment", metavar="M", help="where to begin, as fault or load=K")
    parser.add_argument("--without", metavar="LINE", help="first take this line out of the kernel")
    parser.add_argument("--output", metavar="FILE", help="the page (build-simt/watch/RUNG.html)")
    parser.add_argument("--no-browser", action="store_true", help="only write the page")
    cli.add(parser, "--simt-programs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser)
    parser.add_argument(
        "rung", metavar="RUNG", help="its name; or an exercise's; or a program, FILE.cu"
    )
    parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="ARGUMENT",
        help="for the rung, as in scripts/step; the options above may stand here, too. What is "
        "not said is as in a small problem that shows the rung's idea",
    )


def configure(folder: Path, rung: Rung) -> None:
    if not (folder / "CMakeCache.txt").is_file():
        subprocess.run([ROOT / "scripts/step", "--preset", "simt", rung.name, "--help"], check=True)


def build(rung: Rung, folder: Path) -> Path:
    target = f"{rung.program}_recorded"
    program = folder / "steps" / target
    configure(folder, rung)
    with locked(folder):
        done = cli.ran(["cmake", "--build", folder, "--target", target])
    if done.returncode:
        raise LabError(f"{rung.name} does not build\n{done.stdout}")
    return program


def working_copy(wanted: str) -> tuple[str, Rung, Path]:
    """Of an exercise: its id, its rung, and the learner's kernel."""
    from lab.exercises import catalogue, command

    try:
        exercise = command.chosen(catalogue.everything(), wanted, command.Progress())
    except catalogue.Refusal as refusal:
        raise LabError(str(refusal)) from refusal
    kernel = command.COPIES / exercise.name / exercise.file
    if not exercise.rung.cuda or exercise.kind == catalogue.EXPLAIN:
        raise LabError(f"{exercise.id} has no CUDA kernel to be watched")
    if not kernel.is_file():
        raise LabError(f"{exercise.id} has no copy yet; ./scripts/exercise {exercise.id} makes one")
    return exercise.id, exercise.rung, kernel


def build_copy(rung: Rung, kernel: Path) -> Path:
    """The program of a rung with another kernel file, to be recorded."""
    from lab.exercises import building, command

    configure(building.build_folder("simt"), rung)
    target = building.judge_of(rung, kernel) + "_recorded"
    with building.locked("simt") as path:
        building.listed(path, [(rung, kernel)])
        if complaint := building.built("simt", [target]):
            raise LabError(f"{command.shown(kernel)} does not compile\n{complaint}")
    return building.build_folder("simt") / "docs/exercises" / target


def without(line: str, kernel: Path) -> Path:
    """A copy of a kernel file in which a line is a comment: the lines below it keep their
    numbers. Of the line, all that is written there is to be said, and it stands there once."""
    lines = kernel.read_text(encoding="utf-8").split("\n")
    found = [at for at, one in enumerate(lines) if one.split() == line.split()]
    if len(found) != 1:
        raise LabError(
            f"{len(found) or 'no'} lines of {os.path.relpath(kernel)} are '{line}'\n--without "
            "takes all that is written in a line, which is there once"
        )
    at = found[0]
    text = lines[at].lstrip()
    lines[at] = f"{lines[at].removesuffix(text)}// {text}"
    copy = COPIES / f"{kernel.stem}_{at + 1}" / kernel.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines)
    if not copy.is_file() or copy.read_text(encoding="utf-8") != text:
        copy.write_text(text, encoding="utf-8")
    return copy


def own_program(file: Path) -> Path:
    """A reader's own file, compiled to be recorded."""
    from cuda_on_cpu import compiling

    compiling.OPTIONS += ["-g", "-fsanitize-coverage=trace-pc"]
    return compiling.build(compiling.Program([Path(file).resolve()]))


def first_of_race(
    trace: Recording, program: Path, arguments: list[str], options: argparse.Namespace
) -> Recording | None:
    """The recording of the other block of a race between two; None if there is none, or if that
    block had not ended when the race was found."""
    other = trace.get("fault", {}).get("other")
    if not other or other["block"] == trace["run"]["index"]:
        return None
    block = ",".join(map(str, other["block"]))
    again = argparse.Namespace(**vars(options) | {"block": block, "kernel": trace["run"]["kernel"]})
    first = record(program, arguments, again)
    if "steps" not in first:
        return None
    tell_fault(first, trace)
    first.pop("printed")
    return first


def write(text: str, path: Path) -> None:
    if len(text) > MOST:
        raise LabError(
            f"the page would have {len(text):,} bytes, more than {MOST:,}:\ntake a smaller problem "
            "(--q-len, --kv-len, --head-dim) or another block"
        )
    path.write_text(text, encoding="utf-8")


def main(options: argparse.Namespace) -> int:
    late = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    add_options(late)
    options, arguments = late.parse_known_args(options.arguments, options)
    if options.rung.endswith(".cu"):
        name, source = Path(options.rung).stem, Path(options.rung)
        if not source.is_file():
            raise LabError(f"there is no file {source}")
    elif "." in options.rung:
        name, rung, source = working_copy(options.rung)
    else:
        (rung,) = cuda_rungs([options.rung])
        name, source = rung.name, rung.kernel_file
    if options.without:
        source = without(options.without, source)
    if options.rung.endswith(".cu"):
        program = own_program(source)
    elif source == rung.kernel_file:
        program = build(rung, options.simt_programs)
    else:
        program = build_copy(rung, source)
    if not options.rung.endswith(".cu"):
        usual, problem = late.parse_known_args(problem_of(rung))
        arguments = merged(problem, arguments)
        for option, value in vars(usual).items():
            setattr(options, option, getattr(options, option) or value)
    trace = record(program, arguments, options)
    if elsewhere := trace.get("elsewhere"):  # the fault is in another block
        options.kernel = elsewhere["kernel"]
        options.block = ",".join(map(str, elsewhere["index"]))
        trace = record(program, arguments, options)
    output = Path(options.output or options.simt_programs / "watch" / f"{name}.html")
    output.parent.mkdir(parents=True, exist_ok=True)
    printed = trace.pop("printed")
    pages = [(trace, output)]
    if first := first_of_race(trace, program, arguments, options):
        pages.append((first, output.with_stem(f"{output.stem}_other_block")))
    for one, path in pages:
        watch_tiles.complete(one)
        beside = next((other.name for _, other in pages if other != path), None)
        write(page(one, name, options.simt_programs, beside), path)
    print(trace["fault"]["text"] if "fault" in trace else printed)
    moment = f"#{options.moment}" if options.moment else ""
    for one, path in pages:
        print(f"{len(one['steps']['warp']):,} steps, {path.stat().st_size:,} bytes: {path}{moment}")
    if not options.no_browser and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        webbrowser.open(output.resolve().as_uri() + moment)
    return 0
