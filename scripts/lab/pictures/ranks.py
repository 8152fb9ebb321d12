"""Pictures of a sequence that is spread over several GPUs."""

from lab.pictures.drawing import PAIRS, Drawing


def ring_of_ranks(ranks=4, compute=20, travel=12):
    """Who computes with which shard of K and V in each step, and what travels meanwhile."""
    left, top, unit, high = 72, 112, 5.6, 76
    drawing = Drawing(
        top + high * ranks + 40,
        f"{ranks} ranks in time (a drawing, not measured)",
        "Upper row: the K and V that a rank computes with. Lower row: what comes\n"
        "meanwhile, from the rank before. A colour is one rank's K and V.",
    )
    for rank in range(ranks):
        y = top + high * rank
        drawing.bold(24, y + 18, f"rank {rank}")
        for step in range(ranks):
            x = left + unit * compute * step
            held, next_one = (rank - step) % ranks, (rank - step - 1) % ranks
            drawing.box(x, y, unit * compute - 3, 28, *PAIRS[held], f"K, V of {held}")
            if step + 1 < ranks:
                drawing.box(x, y + 32, unit * travel, 22, *PAIRS[next_one], f"{next_one} arrives")
    for step in range(1, ranks):  # nobody goes on before the next shard is there
        x = left + unit * compute * step - 1.5
        drawing.path(f"M{x:g} {top - 6}V{top + high * ranks - 14}", "red", 1.5)
    drawing.time(left, left + unit * compute * ranks, top + high * ranks + 4)
    return drawing.svg()


def zigzag(ranks=4):
    """The scores below the diagonal, by the rank whose queries they are, in two orders of the
    chunks; and how much work that is in each step."""
    chunks, cell, top = 2 * ranks, 24, 128
    drawing = Drawing(
        top + cell * chunks + 44 + 26 * ranks,
        f"{chunks} chunks of a sequence on {ranks} ranks, with a causal mask",
        "A row is a chunk of queries, a column one of keys, a colour a rank. Numbers\n"
        "are steps of the ring. Bars: the work of each rank, step by step.",
    )
    orders = (
        (48, "Neighbours together", [chunk // 2 for chunk in range(chunks)]),
        (324, "Zigzag", [min(chunk, chunks - 1 - chunk) for chunk in range(chunks)]),
    )
    unit = cell * chunks / (2 * chunks - 2)  # the last two chunks of queries, together on one rank
    for left, title, rank_of in orders:
        drawing.bold(left, top - 14, title)
        work = [[0.0] * ranks for _ in range(ranks)]
        for row in range(chunks):
            y, rank = top + cell * row, rank_of[row]
            drawing.note(left - 8, y + 16, rank, "end", 11)
            for column in range(row + 1):
                step = (rank - rank_of[column]) % ranks
                work[rank][step] += 0.5 if row == column else 1
                drawing.box(left + cell * column, y, cell - 2, cell - 2, *PAIRS[rank], step)
        for rank in range(ranks):
            x, y = left, top + cell * chunks + 24 + 26 * rank
            drawing.note(left - 8, y + 13, rank, "end", 11)
            for step, amount in enumerate(work[rank]):
                if amount:
                    drawing.box(x, y, unit * amount - 1.5, 18, *PAIRS[rank], step)
                x += unit * amount
    return drawing.svg()
