"""Draws docs/figures: plots from the records in docs/records, pictures from lab/pictures."""

import sys

from lab import plots
from lab import record_tables as pages
from lab.pictures import PICTURES
from lab.records import ROOT

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
    """The figure of a plot from these records. A text that the page would clip is an error."""
    figure = plot(pages.loaded(of[0])[0], [row for record in of for row in pages.loaded(record)[1]])
    if clipped := plots.outside(figure):
        raise ValueError(f"the page clips {'; '.join(clipped)}")
    return figure


def add_arguments(parser):
    """Declares the verb's arguments."""
    parser.add_argument("names", nargs="*", metavar="FILE", help="only these, such as ladder.svg")


def main(options):
    """Draws what is named, or all; returns the exit code."""
    files = [*PICTURES, *PLOTS]
    if unknown := set(options.names) - set(files):
        unknown, files = " ".join(sorted(unknown)), " ".join(files)
        print(f"lab figures: there is no {unknown}; there are {files}", file=sys.stderr)
        return 2
    failed = 0
    for name in options.names or files:
        try:
            text = PICTURES[name]() if name in PICTURES else plots.svg(drawn(*PLOTS[name]))
        except (ValueError, KeyError, IndexError) as error:
            print(f"docs/figures/{name}: {type(error).__name__}: {error}", file=sys.stderr)
            failed = 1
            continue
        (FIGURES / name).write_text(text, encoding="utf-8")
    return failed
