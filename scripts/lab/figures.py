"""Draws docs/figures: plots of the records in docs/records, and layouts of the code.

--check compares the data in each plot's file with the record's, and the text of each drawing; it draws nothing new.
A plot whose record is missing or holds nothing for it is left out, and said to be.
"""

import sys

from lab import diagrams, pages, plots
from lab.records import ROOT, RECORDS

FIGURES = ROOT / "docs/figures"
DRAWINGS = {"10_fragments.svg": diagrams.fragments, "11_swizzle.svg": diagrams.swizzle,
            "pipeline.svg": diagrams.pipeline}
PLOTS = {  # file: (plot, records, whose rows it draws together)
    "ladder.svg": (plots.ladder, "bench_h200"), "roofline.svg": (plots.roofline, "bench_h200"),
    "traffic_of_rungs.svg": (plots.traffic, "bench_h200"), "time.svg": (plots.time, "series_h200"),
    "memory.svg": (plots.memory, "memory_h200"), "gpu_bf16.svg": (plots.comparison, "gpu_bf16"),
    "spread.svg": (plots.spread, "gpu_spread_bf16", "gpu_spread_fp16")}


def drawn(plot, *arguments):
    figure = plot(*arguments)
    if clipped := plots.outside(figure):
        raise ValueError(f"the page clips {'; '.join(clipped)}")
    return figure


def add_arguments(parser):
    parser.add_argument("--check", action="store_true", help="write nothing; compare with what is there")
    parser.add_argument("names", nargs="*", metavar="FILE", help="only these, such as ladder.svg")


def all_figures():
    """{file: function that makes (its text, what to compare of a text)}."""
    found = {name: lambda draw=draw: (draw(), lambda text: text) for name, draw in DRAWINGS.items()}
    for name, (plot, *of) in PLOTS.items():
        found[name] = lambda plot=plot, of=of: (plots.svg(drawn(plot, pages.loaded(of[0])[0], [
            row for record in of for row in pages.loaded(record)[1]])), plots.data_of)
    return found


def main(options):
    different, done, figures = 0, 0, all_figures()
    if unknown := set(options.names) - set(figures):
        print(f"lab figures: there is no {' '.join(unknown)}; there are {' '.join(figures)}", file=sys.stderr)
        return 2
    for name in options.names or figures:
        path = FIGURES / name
        old = path.read_text(encoding="utf-8") if path.is_file() else ""
        missing = ", ".join(f"there is no record {record}" for record in PLOTS.get(name, ())[1:]
                            if not (RECORDS / f"{record}.json").is_file())
        if missing and not old:
            print(f"{name}: not drawn, {missing}")
            continue
        try:
            if missing:
                raise ValueError(missing)
            text, compared = figures[name]()
            if options.check and compared(old) != compared(text):
                raise ValueError("not what the record says" if compared == plots.data_of
                                 else "not what the layouts are")
        except (ValueError, KeyError, IndexError) as error:
            kind = "" if type(error) == ValueError else f"{type(error).__name__} "
            print(f"docs/figures/{name}: {kind}{error}; lab figures {name} draws it anew", file=sys.stderr)
            different += 1
            continue
        done += 1
        if not options.check:
            path.write_text(text, encoding="utf-8")
            print(f"written docs/figures/{name}")
    if options.check and not different:
        print(f"{done} figures are as the records and the layouts have them")
    return 1 if different else 0
