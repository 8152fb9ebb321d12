#!/usr/bin/env python3
"""Draws two pictures of docs/figures. 04_online_softmax.svg: the running maximum and the running sum on one row of a real
transformer's scores, one key at a time. traffic_of_tiles.svg: the IO argument of docs/recomputation.md, as its formulas
say it. --check compares the files with what would be drawn, and writes nothing.
"""

import sys
from math import exp, log, sqrt
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
from command import main  # noqa: E402
from lab.diagrams import Drawing  # noqa: E402
from lab.safetensors import SafetensorsFile  # noqa: E402

HEAD, QUERY = 5, 169  # the row with a maximum that rises early, in the middle and late
WIDTH, LEFT, RIGHT = 520, 56, 500  # 13-pixel text in 520 pixels: a phone shows it legibly


def scores():
    """Row QUERY of S of head HEAD."""
    file = SafetensorsFile(ROOT / "reference/data/minilm_layer1.safetensors")
    _, _, n, d = file.shape("q")
    q = file.floats("q", (HEAD * n + QUERY) * d, d)
    K = file.floats("k", HEAD * n * d, n * d)
    return [sum(a * b for a, b in zip(q, K[j * d : (j + 1) * d])) / sqrt(d) for j in range(n)]


def states(S):
    """[(m, l)] after each key, by two_pass_softmax's recurrence."""
    m, sum_, found = float("-inf"), 0.0, []
    for s in S:
        m_new = max(m, s)
        sum_ = sum_ * exp(m - m_new) + exp(s - m_new)
        m = m_new
        found.append((m, sum_))
    return found


def online_softmax():
    S = scores()
    known = states(S)
    rises = [j for j in range(len(S)) if j == 0 or known[j][0] > known[j - 1][0]]
    largest = max(l for _, l in known)
    low, high = min(S) - 0.3, max(S) + 0.8
    drawing = Drawing(
        WIDTH,
        520,
        "A row of scores, one key after the other",
        f"Query {QUERY} of head {HEAD}, {len(S)} keys of a real transformer.\n"
        f"The maximum rises {len(rises) - 1} times after the first key (yellow): l is scaled down.",
    )

    def x(j):
        return LEFT + (RIGHT - LEFT) * (j + 0.5) / len(S)

    def panel(top, height, bottom_value, top_value, step, caption):
        """Axis and grid; returns the function from a value to its y."""

        def y(value):
            return top + height * (top_value - value) / (top_value - bottom_value)

        drawing.text(24, top - 12, caption, style="font-weight: 600")
        value = step * -(-bottom_value // step)
        while value <= top_value:
            drawing.path(f"M{LEFT} {y(value):.1f}H{RIGHT}", "grid")
            drawing.text(LEFT - 8, y(value) + 4, f"{value:g}", "note", "end", 11)
            value += step
        return y

    y = panel(124, 170, low, high, 2, "Scores (dots) and the maximum so far, m (orange)")
    for j in rises[1:]:
        drawing.path(f"M{x(j):.1f} 124V294M{x(j):.1f} 334V474", "pale-yellow", 5)
    for j, s in enumerate(S):
        drawing.rect(round(x(j) - 1.5, 1), round(y(s) - 1.5, 1), 3, 3, "blue", "blue")
    drawing.path(
        f"M{x(0):.1f} {y(known[0][0]):.1f}"
        + "".join(f"H{x(j):.1f}V{y(known[j][0]):.1f}" for j in range(1, len(S))),
        "orange",
        2,
    )

    y = panel(
        334,
        140,
        0,
        1.1 * largest,
        5 if largest > 12 else 2 if largest > 5 else 1,
        "The sum so far, l = sum of exp(S - m) (green)",
    )
    drawing.path(
        f"M{x(0):.1f} {y(known[0][1]):.1f}"
        + "".join(f"L{x(j):.1f} {y(known[j][1]):.1f}" for j in range(1, len(S))),
        "green",
        2,
    )
    for j in range(0, len(S) - 10, 25):
        drawing.text(x(j), 490, j, "note", "middle", 11)
    m, sum_ = known[-1]
    drawing.text(RIGHT, 490, "key", "note", "end", 11)
    drawing.text(
        24,
        510,
        f"At the end m = {m:.2f}, l = {sum_:.2f}, so LSE = m + log l = {m + log(sum_):.2f}.",
        "note",
    )
    return drawing.svg()


def traffic_of_tiles():
    """Numbers moved per score against the tile: 2 d / B, beside the 4 of unfused attention; and where 96 KiB end."""
    numbers = 96 * 1024 // 2  # of 16 bits, in the shared memory of one block
    drawing = Drawing(
        WIDTH,
        360,
        "What tiling moves",
        "Numbers from and to memory per score, by the formulas of this page.\n"
        f"Dots: the largest tile of {numbers:,} numbers, B = M / 4d.",
    )
    top, height, most_B, most = 84, 220, 256, 5

    def place(B, moved):
        return LEFT + (RIGHT - LEFT) * B / most_B, top + height * (1 - moved / most)

    for moved in range(most + 1):
        drawing.path(f"M{LEFT} {place(0, moved)[1]:.1f}H{RIGHT}", "grid")
        drawing.text(LEFT - 8, place(0, moved)[1] + 4, moved, "note", "end", 11)
    for B in range(0, most_B + 1, 32):
        drawing.text(place(B, 0)[0], top + height + 18, B, "note", "middle", 11)
    drawing.text(RIGHT, top + height + 40, "B, rows of a tile", "note", "end")
    drawing.path(f"M{LEFT} {place(0, 4)[1]:.1f}H{RIGHT}", "red", 2)
    drawing.text(RIGHT, place(0, 4)[1] - 8, "unfused: S and P written and read", "red", "end")
    for d, colour in ((64, "blue"), (128, "orange")):
        points = [
            place(B, 2 * d / B) for B in range(2 * d // most, most_B + 1, 2) if 2 * d / B <= most
        ]
        drawing.path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points), colour, 2)
        B = numbers // (4 * d)
        x, y = place(B, 2 * d / B)
        drawing.rect(round(x - 4, 1), round(y - 4, 1), 8, 8, colour, colour, 'rx="4"')
        drawing.text(x + 8, y + (20 if d == 64 else -10), f"d = {d}: {2 * d / B:.2f}", colour)
    return drawing.svg()


PICTURES = {"online_softmax.svg": online_softmax, "traffic_of_tiles.svg": traffic_of_tiles}


if __name__ == "__main__":
    sys.exit(main(PICTURES, *sys.argv))
