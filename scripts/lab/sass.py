"""Counts the instructions in the loops of a kernel that hold tensor-core products: what the compiler made of them.

FILE is what cuobjdump --dump-sass prints, or a program, library or cubin, for which cuobjdump has to be installed (it
comes with the CUDA Toolkit). Of each kernel, every innermost loop with HMMA (or HGMMA) instructions is one line: how many
instructions it has, how many of them are products, the ratio, and the most frequent others.
"""

import collections
import re
import subprocess
from pathlib import Path

from lab import build
from lab.ladder import LabError

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)(\S*)\s*([^;]*);")
BRANCHES, PRODUCTS = {"BRA", "BRX"}, {"HMMA", "HGMMA"}


def kernels(sass):
    """(mangled name, architecture, instructions) of each kernel; an instruction is (address, opcode, operands)."""
    architecture, name, code = "", "", []
    for line in sass.splitlines():
        found = re.match(r"^\s*(?:Function\s*:\s*(\S+)|code for (sm_\w+))", line)
        if found:
            if code:
                yield name, architecture, code
            name, architecture, code = found[1] or "", found[2] or architecture, []
        if instruction := INSTRUCTION.match(line):
            code.append((int(instruction[1], 16), instruction[2], instruction[4]))
    if code:
        yield name, architecture, code


def loops(code):
    """The opcodes of each innermost loop that has products: from the target of a branch backwards to the branch."""
    ranges = set()
    for address, opcode, operands in code:
        target = re.search(r"0x([0-9a-f]+)", operands)
        if opcode in BRANCHES and target and int(target[1], 16) < address:
            ranges.add((int(target[1], 16), address))
    bodies = {span: [one[1] for one in code if span[0] <= one[0] <= span[1]] for span in sorted(ranges)}
    bodies = {span: body for span, body in bodies.items() if PRODUCTS & set(body)}
    for span, body in bodies.items():
        if not any(other != span and span[0] <= other[0] and other[1] <= span[1] for other in bodies):
            yield collections.Counter(body)


def products(opcodes):
    return sum(opcodes[name] for name in PRODUCTS)


def read(path):
    if not path.is_file():
        raise LabError(f"there is no file {path}")
    if path.read_bytes()[:4] != b"\x7fELF":
        return path.read_text(encoding="utf-8", errors="replace")
    build.require("cuobjdump")
    done = subprocess.run(["cuobjdump", "--dump-sass", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise LabError(f"cuobjdump --dump-sass {path} failed: {done.stderr.strip()}")
    return done.stdout


def best_loops(path):
    """{kernel: (instructions, products)} of the loop of each kernel that has the fewest instructions per product."""
    found = list(kernels(read(path)))
    names = build.demangled([name for name, _, _ in found])
    counts = [(names[name], sum(loop.values()), products(loop)) for name, _, code in found for loop in loops(code)]
    best = {}
    for name, instructions, mma in sorted(counts, key=lambda one: one[1] / one[2]):
        best.setdefault(name, (instructions, mma))
    return best


def add_arguments(parser):
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--only", default="", metavar="TEXT", help="only kernels whose name contains TEXT")
    parser.add_argument("--most", type=int, default=8, metavar="N", help="how many of the other instructions to name (8)")


def main(options):
    found = list(kernels(read(options.file)))
    names, count = build.demangled([name for name, _, _ in found]), 0
    for name, architecture, code in found:
        for opcodes in loops(code) if options.only in names[name] else ():
            mma, every = products(opcodes), sum(opcodes.values())
            others = ", ".join(f"{number} {opcode}" for opcode, number in opcodes.most_common() if opcode not in PRODUCTS)
            print(f"{names[name]} {architecture}: {every} instructions, {mma} products, {every / mma:.2f} for each; "
                  + ", ".join(others.split(", ")[:options.most]))
            count += 1
    if not count:
        raise LabError("no loop with products of the tensor cores was found")
    return 0
