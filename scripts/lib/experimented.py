"""The experiments of docs/experiments: patches to a rung's kernel, each with what it changes and what was predicted."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from records import ROOT

FOLDER = ROOT / "docs/experiments"
HUNK = re.compile(r"^@@ -(\d+)[^\n]*@@[^\n]*\n((?:[ +-][^\n]*\n|\n)*)", re.M)
# What ptxas says of a kernel, with the option -v.
KERNEL = re.compile(r"Compiling entry function '(?P<kernel>\w+)'.*?(?P<stack>\d+) bytes stack frame, "
                    r"(?P<spill_stores>\d+) bytes spill stores, (?P<spill_loads>\d+) bytes spill loads"
                    r".*?Used (?P<registers>\d+) registers", re.S)
# What scripts/sass says of a loop, and how a kernel is called there.
LOOP = re.compile(r"^(?P<kernel>.+) sm_\w+: (?P<instructions>\d+) instructions, (?P<products>\d+) HMMA", re.M)
ARGUMENTS = re.compile(r"<(?:flash::Bfloat16, )?(?P<d>\d+)(?:, (?P<Bc>\d+))?>$")


class Wrong(Exception):
    """One line that says what is not as it must be."""


def rung_named(number):
    """The name of a rung, "12_async_pipeline" of "12"."""
    found = [path.name for path in (ROOT / "steps").glob(f"{number}_*") if any(path.glob("*.cu"))]
    if len(found) != 1:
        raise Wrong(f"there is no rung {number} with a kernel")
    return found[0]


@dataclass
class Variant:
    """A rung as it is, or with an experiment's patch. Without a patch the name is the rung's."""
    name: str
    rung: str
    what: str = ""
    predicted: str = ""
    wrong: bool = False  # on purpose
    diff: str = ""

    def fingerprint(self):
        """Of the lines that the patch takes out and puts in: the same when only the lines around them move."""
        lines = re.findall(r"^[-+](?![-+]{2} [ab/])(.*)$", self.diff, re.M)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]

    def source(self):
        """(path of the kernel, its text with the patch in it). Raises Wrong where the patch does not fit."""
        path = next((ROOT / "steps" / self.rung).glob("*.cu")).relative_to(ROOT)
        return path, patched((ROOT / path).read_text(encoding="utf-8"), self)


def read_experiment(path):
    """What a patch says of itself, in the lines before the diff. Raises Wrong."""
    head, mark, diff = path.read_text(encoding="utf-8").partition("diff --git ")
    said = dict(re.findall(r"^([A-Z][a-z ]+): (\S.*)$", head, re.M))
    if not mark or not {"What", "Predicted"} <= said.keys() <= {"What", "Predicted", "Wrong on purpose"}:
        raise Wrong(f"{path.name}: before 'diff --git' there should be lines 'What: ...' and 'Predicted: ...', and "
                    "perhaps 'Wrong on purpose: yes'")
    variant = Variant(path.stem, rung_named(path.stem[:2]), said["What"], said["Predicted"],
                      "Wrong on purpose" in said, mark + diff)
    changed = set(re.findall(r"^(?:---|\+\+\+) [ab]/(\S+)", diff, re.M))
    kernel = next((ROOT / "steps" / variant.rung).glob("*.cu")).relative_to(ROOT).as_posix()
    if changed != {kernel}:
        raise Wrong(f"{path.name}: it changes {', '.join(sorted(changed)) or 'nothing'}, "
                    f"and should change {kernel} alone")
    return variant


def experiments():
    """All of them, by name. Raises Wrong."""
    return [read_experiment(path) for path in sorted(FOLDER.glob("*.patch"))]


def patched(text, variant):
    """The text with the patch's changes, each where its lines stand, nearest to where it says. Raises Wrong."""
    for line, body in HUNK.findall(variant.diff):
        lines = body.splitlines(keepends=True)
        old, new = ("".join(one[1:] or "\n" for one in lines if one[0] not in sign) for sign in "+-")
        around = [match.start() for match in re.finditer(rf"^{re.escape(old)}", text, re.M)]
        if not around:
            raise Wrong(f"{variant.name}.patch does not apply: what it changes at line {line} is no longer there")
        start = min(around, key=lambda at: abs(text.count("\n", 0, at) + 1 - int(line)))
        text = text[:start] + new + text[start + len(old):]
    return text


def library_of(variant, folder):
    return folder / f"{variant.name}.so"


def build(variant, folder, architecture):
    """Compiles it into a library with the function of scripts/lib/rung_entry.cu.

    Returns (variant, its kernels, seconds). Raises Wrong when it does not compile.
    """
    start = time.monotonic()
    path, text = variant.source()
    kernel = folder / variant.name / path.name
    kernel.parent.mkdir(parents=True, exist_ok=True)
    kernel.write_text(text, encoding="utf-8")
    number, library = variant.rung[:2], library_of(variant, folder)
    command = ["nvcc", "-std=c++20", "-O3", f"-arch={architecture}", "-shared", "-Xcompiler=-fPIC", "-Xptxas=-v", "-I.",
               f'-DRUNG_HEADER="{path.with_suffix(".hpp")}"', f"-DRUNG=step{number}",
               *(["-DRUNG_FP32"] if number < "10" else []), "-o", str(library), "scripts/lib/rung_entry.cu",
               "common/cuda/launch.cu", "common/cuda/device_buffer.cu", str(kernel)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace")
    if done.returncode:
        raise Wrong(f"{variant.name} does not compile:\n{done.stdout.strip()}")
    return variant, kernels_of(done.stdout, library, tensor=number >= "10"), time.monotonic() - start


def kernels_of(said, library, tensor):
    """Of each kernel of a library registers, spills, and what its best loop with products has.

    The last if there is a cuobjdump. Of a kernel for several types, the one for bf16.
    """
    found = [{name: text if name == "kernel" else int(text) for name, text in match.groupdict().items()}
             for match in KERNEL.finditer(said)]
    answer = subprocess.run(["c++filt"], input="\n".join(one["kernel"] for one in found), stdout=subprocess.PIPE,
                            text=True, check=True).stdout.splitlines()
    loops = {}
    if tensor and shutil.which("cuobjdump"):
        sass = subprocess.run([sys.executable, ROOT / "scripts/sass", library], stdout=subprocess.PIPE,
                              text=True).stdout
        for loop in LOOP.finditer(sass):
            counts = int(loop["instructions"]), int(loop["products"])
            best = loops.setdefault(loop["kernel"], counts)
            loops[loop["kernel"]] = min(best, counts, key=lambda one: one[0] / one[1])
    kernels = {}
    for one, name in zip(found, answer):
        name = re.sub(r"^void |\(anonymous namespace\)::|\(.*", "", name.replace("(anonymous namespace)::", ""))
        arguments = ARGUMENTS.search(name)
        if "flash::Half" in name:
            continue
        one = {**one, "kernel": name, "d": int(arguments["d"]) if arguments else None}
        if name in loops:
            one["instructions"], one["products"] = loops[name]
        # Where a rung has several tiles for a head dim, the largest: it is what a GPU with room for it takes.
        size = int((arguments and arguments["Bc"]) or 0)
        if size >= kernels.get((one["d"], name.split("<")[0]), (0,))[0]:
            kernels[one["d"], name.split("<")[0]] = size, one
    return [one for _, one in kernels.values()]


def jobs():
    return len(os.sched_getaffinity(0))
