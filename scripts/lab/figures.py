"""Draws docs/figures: plots from the records in docs/records, pictures from lab/pictures."""

import sys

from lab import plots
from lab import record_tables as pages
from lab.ladder import ROOT, LabError, unknown
from lab.pictures import PICTURES

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


def drawn(name):
    """The text of a file."""
    if name in PICTURES:
        return PICTURES[name]()
    plot, *of = PLOTS[name]
    rows = [row for record in of for row in pages.loaded(record)[1]]
    return plots.svg(plot(pages.loaded(of[0])[0], rows))


def add_arguments(parser):
    parser.add_argument("names", nargs="*", metavar="FILE", help="only these, such as ladder.svg")
    check = "write nothing: are pictures as they are drawn, and can plots be drawn?"
    parser.add_argument("--check", action="store_true", help=check)


def main(options):
    files, failed = [*PICTURES, *PLOTS], 0
    for name in options.names or files:
        if name not in files:
            raise LabError(unknown("figure", name, files))
        path = FIGURES / name
        try:
            text = drawn(name)
        except (ValueError, KeyError, IndexError) as error:
            print(f"docs/figures/{name}: {type(error).__name__}: {error}", file=sys.stderr)
            failed = 1
            continue
        if not options.check:
            path.write_text(text, encoding="utf-8")
        elif name in PICTURES and text != path.read_text(encoding="utf-8"):  # plots: by matplotlib
            print(f"docs/figures/{name}: it is drawn otherwise now", file=sys.stderr)
            failed = 1
    return failed
