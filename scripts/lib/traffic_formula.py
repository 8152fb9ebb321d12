"""How many bytes a CUDA rung should move by what its chapter says, beside which the counted ones are drawn."""

from benched import SIZE

BC_OF_07 = 64  # keys of a tile of rung 07 at d = 64


def sizes(row, problem):
    """Heads of the whole batch, N, and the bytes of a matrix Q, K, V or O of one head."""
    return problem["batch"] * problem["heads"], problem["N"], problem["N"] * problem["d"] * SIZE[row["dtype"]]


def through_every_round(row, problem):
    """Rung 07, chapter 07: K and V once; O written as zeros, then Q read and O read and written for each tile of K."""
    heads, N, matrix = sizes(row, problem)
    Tc = -(-N // BC_OF_07)
    return heads * matrix * (2 + 3 * Tc + 1)


def formula_dram_bytes(row, problem):
    """Chapter 06: S and P are written and read. Chapter 07: Q and O once a round. From 08 on: each tensor once."""
    heads, N, _ = sizes(row, problem)
    if row["program"].startswith("06_"):
        return 4 * heads * N * N * SIZE["fp32"] + row["compulsory_bytes"]
    return through_every_round(row, problem) if row["program"].startswith("07_") else row["compulsory_bytes"]


def formula_l2_bytes(row, problem, kernels):
    """From rung 08 on every block reads all of K and V of its head. None for 06, whose L1 serves most of its requests."""
    if row["program"].startswith("06_"):
        return None
    if row["program"].startswith("07_"):
        return through_every_round(row, problem)
    blocks = sum(kernel["blocks"] for kernel in kernels.values() if "blocks" in kernel)
    _, _, matrix = sizes(row, problem)
    return 2 * blocks * matrix + row["compulsory_bytes"] if blocks else None
