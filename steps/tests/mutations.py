"""Takes barriers, waits, commits, masks and steps of a rung's idea out of the CUDA rungs, one at a time: is it noticed?

Mutants are found in the kernel's source by the patterns below, so that a new rung needs nothing here. All mutants of a
rung are in one program, and FLASH_MUTANT in the environment chooses. Each runs the conformance lists for detectors on the
SIMT backend until a schedule or a policy of cp.async shows a wrong result, a race or another fault. Build first:
    cmake --preset simt && cmake --build --preset simt --target mutations
"""

import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from lab import cli
from lab.ladder import LabError, ROOT, cuda_rungs

# Schedule, landing of copies, list. Ordered by how much each finds, so that most mutants need one run; what the whole
# list has not found in one order of the threads, the shorter one may find in another.
RUNS = [("in-order", "late", "detect"), ("reverse", "early", "schedules"), ("ahead:1", "late", "schedules"),
        ("ahead:3", "early", "schedules"), ("shuffle:1", "late", "schedules"), ("shuffle:2", "early", "schedules")]
UNMUTATED = ("in-order", "late", "schedules")  # the tests of the rung run its whole lists
PATIENCE = 300  # seconds
# Parts of kernels that several rungs share. No other header includes them, so each rung's mutants have them in its file.
SHARED = re.compile(r'#include "common/cuda/(fixed_maximum\.hpp|ring\.hpp)"\n')
SHARED_HERE = re.compile(r"// from (\S+)\n(.*?)// end\n", re.S)

STATEMENT = re.compile(r"(?<=[{};)])\s*((?:\w+(?:::|\.|->))*\w*(?:(?<!a)sync|commit|wait|arrive|fence|barrier|clear)\w*"
                       r"(?:<[^;<>]*>)?\([^;{}]*\);)")
VOTE = re.compile(r"__(syncthreads_(?:or|and))\(")
COMPARISON = re.compile(r"[\w\])][\w +*/%\[\].]* (<=?|>=?) (?=(?:task\.)?(?:rows|valid|visible|N_kv|N_q|first_row_keys|whole|min\(N_(?:kv|left))\b)")
MIN = re.compile(r"(?<!\w)min\((N_kv|N_left), ")
EXPRESSIONS = [  # (what is found, in its place)
    (re.compile(r"!causal\b"), "true"),
    (re.compile(r"(?<=first_row_keys = )causal(?= \?)|\btask\.causal(?= \? (?!max\(0))"), "false"),
    (re.compile(r"[\w\[\].]+ == -INFINITY"), "false"),
    (re.compile(r"\bl(?:_\w+)?(?:\[[^\]]*\])* == 0\b"), "false"),
    (re.compile(r"\b(?:task\.)?N_kv - (?:\w+ - )?j0\b"), "Bc"),
    (re.compile(r"\brows - copy_row\b"), "Br"),
    (re.compile(r"\bkeys > 0(?=\) \{\s+flash::start_tile<d, Br)"), "true"),
    # The order of the blocks.
    (re.compile(r"(?<= first_head = )[^;]+"), "0"),
    (re.compile(r"(?<= wave_size = )min\(([\w.]+), [^;]+"), r"\1"),
    (re.compile(r"(?<= in_wave = )[^;]+"), "blockIdx.x"),
    (re.compile(r"(?<= head = )first_head[^;]+"), "first_head"),
    (re.compile(r"(?<= i0 = \(Tr - 1 - )in_wave / wave_size"), "0"),
    (re.compile(r"\(row0 \| \(warp_rows - 1\)\)"), "(row0 | (warp_rows - 1)) - 1"),  # a tile is skipped one row too early
    # A maximum that is raised only where it must be, and weights that are mended.
    (re.compile(r"__all_sync\([^;]+"), "true"),
    (re.compile(r"\bj0 == 0(?= \|\|)"), "false"),
    (re.compile(r"(?<=const float rise = )[^;]+|(?<=\bshift\[i\]\[row % 2\] = )[^;]+"), "0.0f"),
    (re.compile(r"\bfirst(?= \? -FLT_MAX)"), "false"),
    (re.compile(r"(?<= keep = )(?:flash::)?fast_exp2\(fminf[^;]+"), "1.0f"),
    (re.compile(r"\bkeep == 0(?= \?)"), "false"),
    (re.compile(r"(?<= window = )\d+"), "24"),
    (re.compile(r"(?<= window = flash::dtype_of<T> == flash::DType::fp16 \? )\d+"), "24"),
    (re.compile(r"(?<= headroom = )\d+"), "24"),
    (re.compile(r"(?<= window = flash::dtype_of<T> == flash::DType::fp16 \? 14 : )30"), "200"),
    (re.compile(r"!(?:flash::)?all_negative\(S_reg\)"), "false"),
    (re.compile(r"\bsum >= (?:flash::)?limit<T>"), "false"),
    (re.compile(r"(?<= sum = )fmaxf\(fmaxf\((.+?), (.+?)\), fmaxf\((.+?), (.+?)\)\)"), r"\1 + \2 + \3 + \4"), # NaN hides the others
    (re.compile(r"\bmend(?= \?|\) \{)"), "false"),
    (re.compile(r"(?<!int )\blazy_until = \w+(?=;)"), "lazy_until"),
    (re.compile(r"\bflash::pack_saturated(<T>\([^;]+)"), r"flash::pack\1"),
    # Barriers that count arrivals, and end phase after phase.
    (re.compile(r"\b((?:flash::)?mbarrier_init\([^;]+), ([^;]+)\)(?=;)"), r"\1, \2 + 1)"),
    (re.compile(r"\b((?:flash::)?mbarrier_init\([^;]+), ((?!1\))[^;]+)\)(?=;)"), r"\1, \2 - 1)"),
    (re.compile(r"\b((?:flash::)?mbarrier_init\([^;]+), ((?!1\))[^;]+)\)(?=;)"), r"\1, \2 / 2)"),
    (re.compile(r"\b(flash::mbarrier_wait\([^;]+), ([^;]+)\)(?=;)"), r"\1, (\2) ^ 1)"),
    # The backward pass.
    (re.compile(r"(?<= d, )N_q - i0(?=\);)"), "Br"),
    (re.compile(r"(?<=Q_from, )rows(?=\);)"), "Br"),
    (re.compile(r"(?<=KV_from, )keys(?=\);)"), "Bc"),
    (re.compile(r"(?<= edge = )[^;]+"), "false"),
    (re.compile(r"(?<= hidden = )edge(?= &&)"), "true"),
    (re.compile(r"\brow >= keys\b"), "false"),
    (re.compile(r"(?<= edge = )keys < Bc(?= \|\|)"), "false"),
    (re.compile(r"(?<= delta = )(?:delta_of_row|flash::row_sum)[^;]+"), "0.0f"),
    (re.compile(r"\batomicAdd\(([^;,]+), ([^;]+)\)(?=;)"), r"*(\1) += \2"),
    (re.compile(r"\bmake_float4\(0, 0, 0, 0\)"), "make_float4(1, 0, 0, 0)"),
    (re.compile(r"(?<= steps = )group \* tiles"), "tiles"),
    (re.compile(r"(?<=causal \? )max\(0, (.+?)\) / ((?:Tiles::)?Br) \* \2"), r"max(0, \1 + \2 - 1) / \2 * \2"),
]

# Mutants that change no result: {(a part of the rung's name, a part of the mutant's name): why}.
EQUIVALENT = {
    ("", "min(N_kv, first_row_keys) -> first_row_keys"): "the first row sees at most N_kv keys",
    ("", "// no warp's product still reads Q"): "a warp writes O over its own rows of Q, which no other warp's product reads",
    ("", "i0 < task.N_q -> true"): "a warpgroup beyond the last query computes rows that nobody stores: slower, not wrong",
    ("one_kernel", "i >= N_q -> false"): "a thread reads rows of padding, which nobody stores: slower, not wrong",
    ("overlap", "// the turns imply it, too"): "who has the turn knows that all have asked for the tile before this one",
    ("fixed_maximum", "j0 >= first_row_keys + (row0 | (warp_rows - 1)) -> false"): "P of what the mask hides is 0: slower, not wrong",
    ("multistage", "j0 >= first_row_keys + (row0 | (warp_rows - 1)) -> false"): "as in rung 17",
    ("multistage", "empty[threadIdx.x], threads - 1)"): "a warp arrives 32 times: one too few tells after 32 rounds of the ring",
    ("multistage", "// for ptxas alone"): "every thread arrives itself",
    ("fixed_maximum", "-> lazy_until"): "each later tile that does not fit is mended: slower, not wrong",
    ("multistage", "-> lazy_until"): "as in rung 17",
}


class Mutant(NamedTuple):
    start: int
    text: str
    instead: str | None  # None: a statement that is left out
    what: str


def balanced(text, ends=""):
    """As much of a text as closes no parenthesis that it has not opened, and has none of `ends` outside of them."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0 or depth == 0 and letter in ends:
            return text[:at]
    return text


def kernel_of(rung):
    """A rung's kernel file, with what it shares with other kernels in place."""
    def text_of(match):
        header = (ROOT / "common/cuda" / match[1]).read_text(encoding="utf-8")
        return f"// from {match[1]}\n{header.replace('#pragma once', '')}// end\n"
    return SHARED.sub(text_of, rung.kernel_file.read_text(encoding="utf-8"))


def line(source, at):
    """The line of a place in what kernel_of returned: in the kernel file, or "HEADER:LINE"."""
    number = source.count("\n", 0, at) + 1
    for header in SHARED_HERE.finditer(source, 0, at):
        number -= header[0].count("\n") - 1
    inside = re.search(r"// from (\S+)\n((?:(?!// end\n).)*)\Z", source[:at], re.S)
    return f"{inside[1]}:{inside[2].count(chr(10)) + 1}" if inside else str(number)


def mutants(source):
    """All mutants of a kernel file, in the order of its lines."""
    found = []
    # The same length, with blanks in place of comments and preprocessor lines.
    code = re.sub(r"//[^\n]*|^[ \t]*#[^\n]*", lambda match: " " * len(match[0]), source, flags=re.M)
    # Heads of loops: a loop without its end says nothing about masks.
    loops = {at for match in re.finditer(r"\bfor \(", code)
             for at in range(match.end(), match.end() + len(balanced(code[match.end():])))}

    def add(start, text, instead):
        text = text.rstrip()
        comment = re.search(r"//[^\n]*|$", source[start + len(text):source.find("\n", start + len(text))])[0]
        found.append(Mutant(start, text, instead, f"{line(source, start)}: {' '.join(text.split())} "
                            + (comment if instead is None else f"-> {instead}")))

    for match in STATEMENT.finditer(code):
        add(match.start(1), match[1], None)
    for match in VOTE.finditer(code):
        asked = balanced(code[match.end():])
        for instead in (f"(__syncthreads(), {'false' if match[1].endswith('or') else 'true'})", asked):
            add(match.start(), f"{match[0]}{asked})", instead)
    for match in COMPARISON.finditer(code):
        if match.start() not in loops:
            whole = match[0] + balanced(code[match.end():], "?;,&|{}")
            add(match.start(), whole, "true" if match[1][0] == "<" else "false")
    for match in MIN.finditer(code):
        other = balanced(code[match.end():])
        for operand in (match[1], other):
            add(match.start(), f"{match[0]}{other})", operand)
    for pattern, instead in EXPRESSIONS:
        for match in pattern.finditer(code):
            if match.start() not in loops:
                add(match.start(), match[0], match.expand(instead))
    return sorted(found, key=lambda one: (one.start, one.what))


def with_switches(source, wanted):
    """The kernel with mutants in it, from 1 on. flash_mutant(n), a function, says whether n is the one to be.

    Places may lie within each other (a min within a comparison): the outer one is written around the inner.
    """
    spans = {}
    for number, one in enumerate(wanted, 1):
        spans.setdefault((one.start, one.start + len(one.text)), []).append((number, one.instead))

    def rendered(begin, end):
        text, at = "", begin
        for span in sorted(spans, key=lambda one: (one[0], -one[1])):
            if at <= span[0] and span[1] <= end and span != (begin, end):
                text, at = text + source[at:span[0]] + rendered(*span), span[1]
        text += source[at:end]
        for number, instead in spans.get((begin, end), ()):
            text = (f"if (!flash_mutant({number})) {{ {text} }}" if instead is None
                    else f"(flash_mutant({number}) ? ({instead}) : ({text}))")
        return text
    text = re.sub(r"\bconstexpr(?= float \w+ = .*flash_mutant)", "const", rendered(0, len(source)))
    return "bool flash_mutant(int number); // of steps/tests/mutations.cpp\n" + text


def generate(rung, path):
    """Writes the kernel with its mutants, unless it is there already: its date decides whether it is compiled again."""
    source = kernel_of(rung)
    text = with_switches(source, mutants(source))
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def complaint(output):
    """What the suite said first, in a few words."""
    found = re.search(r"it threw: ((?:.|\n)*?)(?:,|\n    in )|\b(O|LSE|dQ|dK|dV) at \([^)]*\)\s+is\s+([^\s,]+)", output)
    if not found:
        return "ended with an error"
    return " ".join(found[1].split()) if found[1] else f"{found[2]} is {found[3]}"


def run(program, number, schedule, landing, cases):
    """What the suite said about a mutant; "" when it passed."""
    environment = os.environ | {"FLASH_MUTANT": str(number), "FLASH_SIMT_DETECT": "1", "FLASH_SIMT_SCHEDULE": schedule,
                                "FLASH_SIMT_CP_ASYNC": landing, "OMP_WAIT_POLICY": "passive"}
    try:
        done = subprocess.run([str(program), f"[{cases}]", "--abort"], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"did not end in {PATIENCE} seconds"
    return "" if done.returncode == 0 else complaint(done.stdout)


def hunt(program, number):
    """By which run a mutant was caught, and what it said; None when by none."""
    return next((f"{schedule}, {landing}: {said}" for schedule, landing, cases in RUNS
                 if (said := run(program, number, schedule, landing, cases))), None)


def equivalent(rung, mutant):
    """Why a mutant cannot be noticed, or None."""
    return next((why for (name, part), why in EQUIVALENT.items() if name in rung.name and part in mutant.what), None)


def add_arguments(parser):
    cli.add(parser, "rungs", "--jobs")
    parser.add_argument("--programs", type=Path, default=ROOT / "build-simt/steps/tests", metavar="DIR",
                        help="folder with the programs (build-simt/steps/tests)")
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
        every = list(enumerate(mutants(kernel_of(rung)), 1))
        wanted = [(number, one) for number, one in every if not equivalent(rung, one)]
        print(f"{rung.name}: {len(wanted)} mutants, and {len(every) - len(wanted)} that change no result")
        if options.list:
            for _, one in every:
                print(f"  {one.what}" + (f"   (no change: {why})" if (why := equivalent(rung, one)) else ""))
            continue
        program, start = options.programs / f"mutations_{rung.name}", time.monotonic()
        if not program.is_file():
            raise LabError(f"there is no {program}; cmake --preset simt && cmake --build --preset simt --target mutations")
        if said := run(program, 0, *UNMUTATED):
            raise LabError(f"{rung.name} fails without a mutation: {said}")
        with ThreadPoolExecutor(max(1, options.jobs)) as pool:
            for (_, one), caught in zip(wanted, pool.map(lambda each: hunt(program, each[0]), wanted)):
                survivors += caught is None
                print(f"  {one.what}: {caught or 'NOT CAUGHT'}", flush=True)
        cli.say(f"{rung.name}: {time.monotonic() - start:.0f} s")
    if not options.list:
        print(f"{survivors} not caught" if survivors else "all caught")
    return 1 if survivors else 0
