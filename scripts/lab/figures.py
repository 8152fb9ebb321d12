"""Draws the plots of docs/figures from the records in docs/records; docs/diagrams draws the pictures of the code.

--check compares the data in each plot's file with the record's, and draws nothing new. A plot whose record is missing
or holds nothing for it is left out, and said to be.
"""

import sys

from lab import plots
from lab import record_tables as pages
from lab.records import RECORDS, ROOT

FIGURES = ROOT / "docs/figures"
PLOTS = {  # file: (plot, records, whose rows it draws together)
    "ladder.svg": (plots.ladder, "bench_h200"),
    "roofline.svg": (plots.roofline, "bench_h200"),
    "traffic_of_rungs.svg": (plots.traffic, "bench_h200"),
    "time.svg": (plots.time, "series_h200"),
    "memory.svg": (plots.memory, "memory_h200"),
    "gpu_bf16.svg": (plots.comparison, "gpu_bf16"),
    "training.svg": (plots.training, "training_simt"),
    "spread.svg": (plots.spread, "gpu_spread_bf16", "gpu_spread_fp16"),
}


def drawn(plot, *of):
    figure = plot(pages.loaded(of[0])[0], [row for record in of for row in pages.loaded(record)[1]])
    if clipped := plots.outside(figure):
        raise ValueError(f"the page clips {'; '.join(clipped)}")
    return figure


def add_arguments(parser):
    parser.add_argument(
        "--check", action="store_true", help="write nothing; compare with what is there"
    )
    parser.add_argument("names", nargs="*", metavar="FILE", help="only these, such as ladder.svg")


def main(options):
    different, done = 0, 0
    if unknown := set(options.names) - set(PLOTS):
        print(
            f"lab figures: there is no {' '.join(unknown)}; there are {' '.join(PLOTS)}",
            file=sys.stderr,
        )
        return 2
    for name in options.names or PLOTS:
        plot, *of = PLOTS[name]
        path = FIGURES / name
        old = path.read_text(encoding="utf-8") if path.is_file() else ""
        missing = ", ".join(
            f"there is no record {record}"
            for record in of
            if not (RECORDS / f"{record}.json").is_file()
        )
        if missing and not old:
            print(f"{name}: not drawn, {missing}")
            continue
        try:
            if missing:
                raise ValueError(missing)
            text = plots.svg(drawn(plot, *of))
            if options.check and plots.data_of(old) != plots.data_of(text):
                raise ValueError("not what the record says")
        except (ValueError, KeyError, IndexError) as error:
            kind = "" if type(error) == ValueError else f"{type(error).__name__} "
            print(
                f"docs/figures/{name}: {kind}{error}; lab figures {name} draws it anew",
                file=sys.stderr,
            )
            different += 1
            continue
        done += 1
        if not options.check:
            path.write_text(text, encoding="utf-8")
            print(f"written docs/figures/{name}")
    if options.check and not different:
        print(f"{done} figures are as the records have them")
    return 1 if different else 0
