"""Who holds what in mma.sync and ldmatrix, and where a swizzled tile keeps its chunks: the pages'
drawings show it.

`python3 -m lab.layouts PROGRAM` compares it with what PROGRAM, a build's steps/tests/show_layouts,
finds by trying. Exit code: 0 all agree, 1 they do not, 4 the program has no device to run on.
"""

import itertools
import re
import subprocess
import sys

LANES, HALVES = range(32), range(2)


def a_element(lane, register, half):
    """(row, k) in A, 16 x 16, of one half of a register; registers 0 to 3."""
    return lane // 4 + 8 * (register % 2), 2 * (lane % 4) + half + 8 * (register // 2)


def b_element(lane, register, half):
    """(k, column) in B, 16 x 8; registers 0 and 1."""
    return 2 * (lane % 4) + half + 8 * register, lane // 4


def c_element(lane, register):
    """(row, column) in C, 16 x 8; registers 0 to 3, one element each."""
    return lane // 4 + 8 * (register // 2), 2 * (lane % 4) + register % 2


def ldmatrix_element(lane, register, half, transposed):
    """(matrix, row, column) of what a lane receives; register i comes from matrix i, 8 x 8."""
    row, column = lane // 4, 2 * (lane % 4) + half
    return (register, column, row) if transposed else (register, row, column)


def swizzled(d, rows, row, chunk):
    """Where chunk `chunk`, 8 elements of 16 bits, of a row begins in a tile of rows of d."""
    if d == 32:  # two rows of 64 bytes share the width of the banks
        return 64 * row + 16 * (chunk ^ row // 2 % 4)
    half, column = divmod(chunk, 8)  # d = 128: two tiles of 64 columns, one after the other
    return 128 * (half * rows + row) + 16 * (column ^ row % 8)


def expected():
    """{beginning of a line of show_layouts: {numbers tried: numbers found}}."""
    in_a = itertools.product(LANES, range(4), HALVES)
    in_b = list(itertools.product(LANES, range(2), HALVES))
    in_c = {c_element(*place): place for place in itertools.product(LANES, range(4))}
    products = {}  # each element of A meets those of B that have its k, and no others
    for a, b in itertools.product(in_a, in_b):
        (row, k), (k_of_b, column) = a_element(*a), b_element(*b)
        if k == k_of_b:
            products[a + b] = in_c[row, column]
    received = list(itertools.product(LANES, range(4), HALVES))
    swizzles = {
        f"swizzle d {d}": {
            (row, chunk): (swizzled(d, 16, row, chunk),)
            for row, chunk in itertools.product(range(16), range(d // 8))
        }
        for d in (32, 64, 128)
    }
    return {
        "fp16": products,
        "bf16": products,
        "ldmatrix": {place: ldmatrix_element(*place, False) for place in received},
        "ldmatrix.trans": {place: ldmatrix_element(*place, True) for place in received},
        **swizzles,
    }


def disagreements(printed):
    """Where what show_layouts printed is not as expected: a line for each kind of line."""
    for beginning, wanted in expected().items():
        length = len(next(iter(wanted)))
        found = {}
        for line in printed.splitlines():
            if line.startswith(f"{beginning}  "):
                numbers = tuple(map(int, re.findall(r"\d+", line.removeprefix(beginning))))
                found[numbers[:length]] = numbers[length:]
        if found.keys() != wanted.keys():
            yield f"{beginning}: other elements than expected"
        elif different := next((key for key in wanted if found[key] != wanted[key]), None):
            yield f"{beginning} {different}: {found[different]}, expected {wanted[different]}"


def main(program):
    done = subprocess.run([program], stdout=subprocess.PIPE, text=True)
    if done.returncode == 2:
        return 4  # it has said why
    done.check_returncode()
    wrong = list(disagreements(done.stdout))
    print("\n".join(wrong) or "the layouts are as drawn")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
