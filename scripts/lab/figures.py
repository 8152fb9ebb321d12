"""Draws the plots of docs/figures from the records in docs/records. The other figures are drawings,
SVG files that are edited as such."""

import argparse
import sys
from typing import Any

from matplotlib.figure import Figure

from lab import plots
from lab import record_tables as pages
from lab.ladder import ROOT, LabError, unknown
from lab.theme import themed

FIGURES = ROOT / "docs/figures"
PLOTS: dict[str, tuple[Any, ...]] = {  # file: (plot, records, whose rows it draws together)
    "ladder.svg": (plots.ladder, "bench_h200"),
    "roofline.svg": (plots.roofline, "bench_h200"),
    "traffic_of_rungs.svg": (plots.traffic, "bench_h200"),
    "time.svg": (plots.time, "series_h200"),
    "memory.svg": (plots.memory, "memory_h200"),
    "gpu_bf16.svg": (plots.comparison, "gpu_bf16"),
    "training.svg": (plots.training, "training_simt"),
    "spread.svg": (plots.spread, "gpu_spread_bf16", "gpu_spread_fp16"),
}


def drawn(name: str) -> Figure:
    """A plot, as matplotlib's Figure."""
    plot, *of = PLOTS[name]
    rows = [row for record in of for row in pages.loaded(record)[1]]
    return plot(pages.loaded(of[0])[0], rows)


def compact(svg: str) -> str:
    """An SVG with a line for each element, and without what nobody sees."""
    from scour import scour  # --check does without it

    options = scour.sanitizeOptions()
    options.strip_xml_prolog = options.strip_comments = options.strip_ids = True
    options.simple_colors = False  # theme.py looks for them as they are
    options.group_create = options.quiet = True
    options.indent_type = "none"
    return scour.scourString(svg, options)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="FILE", help="only these, such as ladder.svg")
    check = "write nothing: can the plots be drawn from their records?"
    parser.add_argument("--check", action="store_true", help=check)


def main(options: argparse.Namespace) -> int:
    failed = 0
    for name in options.names or PLOTS:
        if name not in PLOTS and (FIGURES / name).is_file():
            raise LabError(f"{name} is a drawing: docs/figures/{name} is what one edits")
        if name not in PLOTS:
            raise LabError(unknown("plot", name, [*PLOTS]))
        try:
            figure = drawn(name)
        except (ValueError, KeyError, IndexError) as error:
            print(f"docs/figures/{name}: {type(error).__name__}: {error}", file=sys.stderr)
            failed = 1
            continue
        if not options.check:
            text = themed(compact(plots.svg(figure)))
            (FIGURES / name).write_text(text, encoding="utf-8")
    return failed
