"""What scripts/bench can measure: the problems, which rungs, how often, and how much of each result is checked."""

from typing import NamedTuple


def problem(batch, heads, N, d):
    return {"batch": batch, "heads": heads, "N": N, "d": d, "causal": False}


class Plan(NamedTuple):
    """One kind of record."""
    name: str  # its files begin with it
    problems: tuple
    quick: tuple  # much smaller problems in their place, for a trial
    rungs: tuple = ()  # the first two digits of those that take part; empty: all
    runs: dict = {}  # backend: how many runs, where it is not as many as a good median takes; 0: one, warm
    check_rows: int = 0  # of each head; 0: all
    libraries: bool = True
    counters: bool = False  # count traffic with ncu, too
    ends_when_refused: bool = False  # a rung that refuses a problem is not asked for the longer ones after it


def series(tokens, heads, lengths):
    """As the FlashAttention papers measure: the same number of tokens, in sequences of several lengths."""
    return tuple(problem(tokens // N, heads, N, 64) for N in lengths)


BENCH = Plan("bench", (problem(4, 16, 4096, 64), problem(100, 1, 4096, 32)),
             (problem(1, 4, 1024, 64), problem(8, 1, 1024, 32)), counters=True)
SERIES = Plan("series", series(16384, 32, (512, 1024, 2048, 4096, 8192, 16384)), series(1024, 4, (256, 512, 1024)),
              runs={"cpu": 0}, check_rows=256)
# Standard attention (01, 06) and tiles (05, 08, 13), until the memory is full or time would be.
MEMORY = Plan("memory", tuple(problem(1, 8, 1024 << i, 64) for i in range(8)),
              tuple(problem(1, 8, 256 << i, 64) for i in range(3)), rungs=("01", "05", "06", "08", "13"),
              runs={"cpu": 1, "cuda": 1}, check_rows=256, libraries=False, ends_when_refused=True)
LONGEST_ON_CPU = 16384  # of MEMORY: N^2 grows faster than anybody's patience
