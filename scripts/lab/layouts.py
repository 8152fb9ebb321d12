"""Who holds what in mma.sync and ldmatrix, and where a swizzled tile keeps its chunks: the pages'
drawings show it. steps/tests/show_layouts.cu finds the same by trying.
"""


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
