"""Counts the instructions in the loops of a kernel that hold tensor-core products.

FILE is what cuobjdump --dump-sass prints, or a program, library or cubin, for which cuobjdump has
to be installed (it comes with the CUDA Toolkit). Of each kernel, every innermost loop with HMMA (or
HGMMA) instructions is one line: how many instructions it has, how many of them are products, the
ratio, and the most frequent others.
"""

import collections
import re
import subprocess
from pathlib import Path

from lab import build
from lab.ladder import LabError

INSTRUCTION = re.compile(
    r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)(\S*)\s*([^;]*);"
)
BRANCHES, PRODUCTS = {"BRA", "BRX"}, {"HMMA", "HGMMA"}


def kernels(sass):
    """{(mangled name, architecture): [(address, opcode, operands)]} of each kernel."""
    architecture, code, found = "", [], {}
    for line in sass.splitlines():
        if title := re.match(r"^\s*(?:Function\s*:\s*(\S+)|code for (sm_\w+))", line):
            architecture, code = title[2] or architecture, []
            if title[1]:
                found[title[1], architecture] = code
        elif instruction := INSTRUCTION.match(line):
            code.append((int(instruction[1], 16), instruction[2], instruction[4]))
    return found


def loops(code):
    """(instructions, products, other opcodes) of each innermost loop with products: from a branch
    backwards to its target."""
    bodies = {}
    for address, opcode, operands in code:
        target = re.search(r"0x([0-9a-f]+)", operands)
        if opcode in BRANCHES and target and int(target[1], 16) < address:
            first = int(target[1], 16)
            body = collections.Counter(one[1] for one in code if first <= one[0] <= address)
            if PRODUCTS & body.keys():
                bodies[first, address] = body
    for (first, last), body in sorted(bodies.items()):
        if sum(first <= one and other <= last for one, other in bodies) == 1:  # none within it
            products = sum(body.pop(name, 0) for name in PRODUCTS)
            yield products + body.total(), products, body


def read(path):
    if not path.is_file():
        raise LabError(f"there is no file {path}")
    if path.read_bytes()[:4] != b"\x7fELF":
        return path.read_text(encoding="utf-8", errors="replace")
    build.require("cuobjdump")
    done = subprocess.run(["cuobjdump", "--dump-sass", path], capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"cuobjdump --dump-sass {path} failed: {done.stderr.strip()}")
    return done.stdout


def all_loops(path):
    """(kernel, architecture, instructions, products, others) of every such loop of a file."""
    found = kernels(read(path))
    names = build.demangled([name for name, _ in found])
    return [
        (names[name], architecture, *loop)
        for (name, architecture), code in found.items()
        for loop in loops(code)
    ]


def best_loops(path):
    """{kernel: (instructions, products)} of its loop with the fewest instructions per product."""
    ordered = sorted(all_loops(path), key=lambda loop: -loop[2] / loop[3])
    return {name: (instructions, mma) for name, _, instructions, mma, _ in ordered}


def add_arguments(parser):
    add = parser.add_argument
    add("file", type=Path, metavar="FILE")
    add("--only", default="", metavar="TEXT", help="only kernels whose name contains TEXT")


def main(options):
    found = [loop for loop in all_loops(options.file) if options.only in loop[0]]
    if not found:
        raise LabError("no loop with products of the tensor cores was found")
    for name, architecture, instructions, mma, others in found:
        print(
            f"{name} {architecture}: {instructions} instructions, {mma} mma, "
            f"{instructions / mma:.2f} per mma; "
            + ", ".join(f"{count} {opcode}" for opcode, count in others.most_common(8))
        )
    return 0
