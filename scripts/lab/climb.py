"""Runs every built rung on the real and on a random input, and prints the table of scripts/tour.

    python3 -m lab.climb LADDER.TXT RUNGS.TSV REAL.safetensors OUTPUT.safetensors

LADDER.TXT is the manifest, steps/ladder.txt, which has each rung's idea.
RUNGS.TSV is the build's list: name, "built" and the program, or "left out" and the reason.
OUTPUT receives o and lse of the last rung that passed on the real input.
Exit code: 0 all passed, 1 some did not.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab import harness, ladder
from lab.safetensors import SafetensorsFile

# Sizes at which each rung takes moments. The SIMT backend executes a CUDA kernel thread by thread,
# so it gets less.
RANDOM = {
    "cpu": "--heads 8 --q-len 1024".split(),
    "simt": "--heads 2 --q-len 256".split(),
    "cuda": "--heads 16 --q-len 4096".split(),
}
HEADING = ("", *"input,O error,allowed,LSE error,allowed,time,GFLOP/s,speed".split(","), "")
WIDTHS = (2, 8, 9, 9, 9, 9, 10, 8, 7, 8)


def main() -> int:
    if len(sys.argv) != 5:
        print(__doc__, file=sys.stderr)
        return 2
    rungs = {rung.program: rung for rung in ladder.parse(Path(sys.argv[1]).read_text("utf-8"))}
    real, output = sys.argv[3], Path(sys.argv[4])
    print_legend(real)
    row(HEADING)
    # seconds of the rung before, by input; only times of one backend and one problem are compared
    before: dict[tuple[str, str, bool], float] = {}
    results, left_out, wrong = [], [], []
    built = 0
    for line in Path(sys.argv[2]).read_text("utf-8").splitlines():
        name, state, detail = line.split("\t")
        if state == "built":
            print(f"{name}: {rungs[name].idea}", flush=True)
            built += 1
            passed = climb(rungs[name], detail, real, output, before)
            results += passed
            if not all(passed):
                wrong.append(name)
        else:
            left_out.append(f"  {name} {detail}")
    if left_out:
        print("\nLeft out:", *left_out, sep="\n")
    print(
        f"\n{results.count(True)} of {len(results)} runs passed their check against the float64 "
        "reference."
    )
    if wrong:  # scripts/tour says this line again at its end
        print(f"{len(wrong)} of {built} rungs failed: {', '.join(wrong)}")
    return 1 if wrong else 0


def print_legend(real: str) -> None:
    file = SafetensorsFile(real)
    meta = file.metadata
    print(
        f"real     Q {file.shape('q')}, K and V {file.shape('k')}: batch, heads, tokens, head "
        "dim;\n"
        f"         layer {meta['layer']} of {meta['model'].split()[0]} on\n         "
        f"{meta['text'].split(';')[0]}\n"
        "random   N(0, 1), at a size that the backend does in moments\n"
        "error    the largest difference from the float64 reference, beside what is allowed\n"
        "time     the median of many runs on cold caches; of one run when emulated, which says "
        "nothing about a GPU\n"
        "speed    how many times faster than the rung before, on the same input and backend\n"
        "Rungs named backward compute gradients: dQ stands under O, and dK or dV, whichever is "
        "nearer its bound, under LSE.\n"
    )


def climb(
    rung: ladder.Rung,
    program: str,
    real: str,
    output: Path,
    before: dict[tuple[str, str, bool], float],
) -> list[bool]:
    """Runs one rung on both inputs and prints its lines; of each run, whether it passed."""
    smallest = run(program, ["--heads", "1", "--q-len", "1", "--no-check"], bench=False)
    kind = smallest["backend"] if smallest else "cpu"
    real_d = SafetensorsFile(real).shape("q")[-1]
    candidate = output.with_suffix(".new")
    passed = []
    for label, arguments in (
        ("real", ["--input", real, "--output", str(candidate)]),
        ("random", RANDOM[kind]),
    ):
        if label == "real" and rung.head_dims and real_d not in rung.head_dims:
            dims = ", ".join(map(str, rung.head_dims))
            row(("", label, f"left out: its head dim is {real_d}, and the rung has {dims}"))
            continue
        report = run(program, arguments, bench=kind != "simt")
        passed.append(report is not None and report["ok"])
        if report is None:
            continue
        gradients = "dq_error" in report["check"]
        key = (label, report["backend"], gradients)
        show(label, report, before.get(key))
        before[key] = report["seconds"]
        if label == "real" and report["ok"] and not gradients:
            candidate.replace(output)
    return passed


def run(program: str, arguments: list[str], bench: bool) -> dict[str, Any] | None:
    """The rung's JSON report, or None when it ended without one; its own words then say why."""
    report, code, words = harness.run(program, *arguments, *(["--bench"] if bench else []))
    if not report:
        print(*(f"   {line}" for line in [f"ended with exit code {code}", *words]), sep="\n")
    return report


def show(label: str, report: dict[str, Any], seconds_before: float | None) -> None:
    check, seconds = report["check"], report["seconds"]
    emulated = report["backend"] == "simt"  # says nothing about a GPU's time
    speed = "" if emulated or not seconds_before else f"{seconds_before / seconds:.2f}x"
    errors = [
        (check[name], check[name[:-5] + "bound"]) for name in check if name.endswith("_error")
    ]
    # Of dK and dV the one nearer its bound.
    errors = errors[:1] + [max(errors[1:], key=lambda pair: pair[0] / pair[1])]
    gflops = "emulated" if emulated else f"{report['gflops_per_s']:.1f}"
    verdict = "passed" if report["ok"] else "WRONG"
    numbers = [f"{number:.1e}" for pair in errors for number in pair]
    row(("", label, *numbers, duration(seconds), gflops, speed, verdict))
    for line in filter(None, (check["message"], report["damage"])):
        print(f"   {line}")


def row(cells: Sequence[object]) -> None:
    first, second, *rest = zip(cells, WIDTHS)
    text = "".join(f"{cell:<{width}}" for cell, width in (first, second))
    print((text + "".join(f"{cell:>{width + 1}}" for cell, width in rest)).rstrip(), flush=True)


def duration(seconds: float) -> str:
    for unit, factor in (("s", 1), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
