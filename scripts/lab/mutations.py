"""Takes each barrier, wait, commit and mask out of the CUDA rungs, one at a time, and asks whether the suite notices.

Mutants are found in the kernel's source by the patterns below, so that a new rung needs nothing here. All mutants of a
rung are in one program, and FLASH_MUTANT in the environment chooses. Each runs the conformance list for detectors on the
SIMT backend until a schedule or a policy of cp.async shows a wrong result, a race or another fault. Build first:
    cmake --preset simt && cmake --build --preset simt --target mutations
"""

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab.ladder import LabError, ROOT, cuda_rungs

# Ordered by how much each finds, so that most mutants need one run.
RUNS = [("in-order", "late"), ("reverse", "early"), ("ahead:1", "late"), ("ahead:3", "early"), ("shuffle:1", "late"),
        ("shuffle:2", "early")]
PATIENCE = 300  # seconds

STATEMENT = re.compile(r"(?<=[{};)])\s*((?:\w+(?:::|\.|->))*\w*(?:(?<!a)sync|commit|wait|arrive|fence|barrier|clear)\w*"
                       r"(?:<[^;<>]*>)?\([^;{}]*\);)")
BOUND = r"(?:rows|valid|visible|N_kv|N_q|first_row_keys|min\(N_kv)\b"
COMPARISON = re.compile(rf"[\w\])][\w +*/%\[\].]* (<=?|>=?) (?={BOUND})")
MIN = re.compile(r"(?<!\w)min\((N_kv), ([^;?]*)")
EXPRESSIONS = [  # (what is found, in its place)
    (re.compile(r"!causal\b"), "true"),
    (re.compile(r"(?<=first_row_keys = )causal(?= \?)"), "false"),
    (re.compile(r"[\w\[\]. ]+(?<! ) == -INFINITY"), "false"),
    (re.compile(r"\bl(?:_\w+)?(?:\[[^\]]*\])* == 0\b"), "false"),
    (re.compile(r"\bN_kv - (?:\w+ - )?j0\b"), "Bc"),
]
VOTE = re.compile(r"__(syncthreads_(?:or|and))\((.*)")

# Mutants that change no result: {(a part of the rung's name, a part of the mutant's name): why}.
EQUIVALENT = {
    ("", "min(N_kv, first_row_keys) -> first_row_keys"): "the first row sees at most N_kv keys",
    ("flash_attention_1", "m and l were written by other threads"): "the barrier after P is behind their last store",
}


@dataclass(frozen=True)
class Mutant:
    start: int
    text: str
    instead: str | None  # None: a statement that is left out
    what: str


def without_comments(source):
    """The same length, with blanks in place of comments and preprocessor lines."""
    return re.sub(r"//[^\n]*|^[ \t]*#[^\n]*", lambda found: " " * len(found[0]), source, flags=re.M)


def balanced(text, ends=""):
    """As much of a text as closes no parenthesis that it has not opened, and has none of `ends` outside of them."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0 or depth == 0 and letter in ends:
            return text[:at]
    return text


def inside_for(code):
    """Places in the heads of loops: a loop without its end says nothing about masks."""
    places = set()
    for found in re.finditer(r"\bfor \(", code):
        places.update(range(found.end(), found.end() + len(balanced(code[found.end():]))))
    return places


def mutants(source):
    """All mutants of a kernel file, in the order of its lines."""
    code, found = without_comments(source), []
    loops = inside_for(code)

    def add(start, text, instead, what=""):
        line = source.count("\n", 0, start) + 1
        text = text.rstrip()
        shown = " ".join(text.split())
        comment = re.search(r"//[^\n]*|$", source[start + len(text):source.find("\n", start + len(text))])[0]
        found.append(Mutant(start, text, instead, f"{line}: " + (what or (f"{shown} {comment}".strip() if instead is None
                                                                          else f"{shown} -> {instead}"))))

    for match in STATEMENT.finditer(code):
        add(match.start(1), match[1], None)
    for match in VOTE.finditer(code):
        asked = balanced(match[2])
        call = f"__{match[1]}({asked})"
        add(match.start(), call, f"(__syncthreads(), {'false' if 'or' in match[1] else 'true'})")
        add(match.start(), call, asked, f"the barrier of {call}")
    for match in COMPARISON.finditer(code):
        if match.start() not in loops:
            whole = match[0] + balanced(code[match.end():], "?;,&|{}")
            add(match.start(), whole, "true" if match[1][0] == "<" else "false")
    for match in MIN.finditer(code):
        other = balanced(match[2])
        for operand in (match[1], other):
            add(match.start(), f"min({match[1]}, {other})", operand)
    for pattern, instead in EXPRESSIONS:
        for match in pattern.finditer(code):
            if match.start() not in loops:
                add(match.start() + len(match[0]) - len(match[0].lstrip()), match[0].strip(), instead)
    return sorted(found, key=lambda one: (one.start, one.what))


def with_switches(source, wanted):
    """The kernel with mutants in it, from 1 on. flash_mutant(n), a function, says whether n is the one to be.

    Places may lie within each other (a min within a comparison); the outer one is written around the inner.
    """
    spans = {}
    for number, one in enumerate(wanted, 1):
        spans.setdefault((one.start, one.start + len(one.text)), []).append((number, one.instead))

    def rendered(begin, end, variants=()):
        inner = [span for span in spans if begin <= span[0] and span[1] <= end and span != (begin, end)]
        outermost = [span for span in inner if not any(other != span and other[0] <= span[0] and span[1] <= other[1]
                                                       for other in inner)]
        text, at = "", begin
        for span in sorted(outermost):
            text, at = text + source[at:span[0]] + rendered(*span, spans[span]), span[1]
        text += source[at:end]
        for number, instead in variants:
            text = (f"if (!flash_mutant({number})) {{ {text} }}" if instead is None
                    else f"(flash_mutant({number}) ? ({instead}) : ({text}))")
        return text
    return ("bool flash_mutant(int number); // of steps/tests/mutations.cpp\n"
            + rendered(0, len(source)))


def generate(rung, path):
    """Writes the kernel with its mutants, unless it is there already: its date decides whether it is compiled again."""
    source = rung.kernel_file.read_text(encoding="utf-8")
    text = with_switches(source, mutants(source))
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def complaint(output):
    """What the suite said first, in a few words."""
    found = re.search(r"it threw: ((?:.|\n)*?)(?:,|\n    in )|\b(O|LSE) at \([^)]*\)\s+is\s+([^\s,]+)", output)
    if not found:
        return "ended with an error"
    return " ".join(found[1].split()) if found[1] else f"{found[2]} is {found[3]}"


def run(program, number, schedule, landing):
    """What the suite said about a mutant; "" when it passed."""
    environment = os.environ | {"FLASH_MUTANT": str(number), "FLASH_SIMT_DETECT": "1", "FLASH_SIMT_SCHEDULE": schedule,
                                "FLASH_SIMT_CP_ASYNC": landing, "OMP_WAIT_POLICY": "passive"}
    try:
        done = subprocess.run([str(program), "[detect]", "--abort"], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"did not end in {PATIENCE} seconds"
    return "" if done.returncode == 0 else complaint(done.stdout)


def hunt(program, number):
    """(run that caught it, what it said), or None."""
    for schedule, landing in RUNS:
        if said := run(program, number, schedule, landing):
            return f"{schedule}, {landing}", said
    return None


def equivalent(rung, mutant):
    """Why a mutant cannot be noticed, or None."""
    return next((reason for (name, part), reason in EQUIVALENT.items() if name in rung.name and part in mutant.what),
                None)


def add_arguments(parser):
    parser.add_argument("rungs", nargs="*", metavar="RUNG", help="numbers or names (all CUDA rungs from 07 on)")
    parser.add_argument("--programs", type=Path, default=ROOT / "build-simt/steps/tests", metavar="DIR",
                        help="folder with the programs (build-simt/steps/tests)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="runs side by side (the cores)")
    parser.add_argument("--list", action="store_true", help="say which mutants there are, and leave")
    parser.add_argument("--generate", type=Path, metavar="FILE", help="write the kernel of one rung with its mutants")


def main(options):
    rungs = [rung for rung in cuda_rungs(options.rungs) if options.rungs or rung.number >= "07"]
    if options.generate:
        if len(rungs) != 1:
            raise LabError("--generate takes one rung")
        generate(rungs[0], options.generate)
        return 0
    survivors = 0
    for rung in rungs:
        all_of_them = mutants(rung.kernel_file.read_text(encoding="utf-8"))
        wanted = [(number, one) for number, one in enumerate(all_of_them, 1) if not equivalent(rung, one)]
        print(f"{rung.name}: {len(wanted)} mutants, and {len(all_of_them) - len(wanted)} that change no result")
        if options.list:
            for one in all_of_them:
                print(f"  {one.what}" + (f"   (no change: {reason})" if (reason := equivalent(rung, one)) else ""))
            continue
        survivors += hunt_all(rung, wanted, options)
    if not options.list:
        print(f"{survivors} not caught" if survivors else "all caught")
    return 1 if survivors else 0


def hunt_all(rung, wanted, options):
    """How many were not caught; says which, and by what the others were."""
    program = options.programs / f"mutations_{rung.name}"
    if not program.is_file():
        raise LabError(f"there is no {program}; build it: cmake --preset simt && "
                       f"cmake --build --preset simt --target mutations")
    if said := run(program, 0, *RUNS[0]):
        raise LabError(f"{rung.name} fails without a mutation: {said}")
    start, survivors = time.monotonic(), 0
    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        for (_, one), caught in zip(wanted, pool.map(lambda each: hunt(program, each[0]), wanted)):
            survivors += caught is None
            print(f"  {one.what}: {': '.join(caught) if caught else 'NOT CAUGHT'}", flush=True)
    print(f"{rung.name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    return survivors
