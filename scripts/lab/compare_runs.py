"""What changed between two records, program by program: a check before and after a change of code.

    ./scripts/bench --output before.json
    ... change something, build ...
    ./scripts/bench --output after.json
    ./scripts/lab/run compare-runs before.json after.json

A change is beyond the noise when it is larger than both runs' spreads and than --noise, which stands for what a GPU's
heat does between two runs. Compare runs of one machine. Exit code 1 when a rung has become slower.
"""

from lab import cli, records
from lab.ladder import LabError

CASE = ("program", "dtype", "B", "H", "H_kv", "N_q", "N_kv", "d", "causal", "sigma", "pattern")


def by_case(record):
    return {tuple(row.get(name) for name in CASE): row for row in record["rows"]
            if row["kind"] in ("rung", "library", "variant") and "ms" in row}


def noise_of(before, after, least):
    """The relative change that says nothing."""
    return max(before["spread"], after["spread"], least)


def verdict(before, after, least):
    """faster, slower or nothing. A change is relative to the smaller time, so that both directions weigh alike."""
    change = max(before["ms"], after["ms"]) / min(before["ms"], after["ms"]) - 1
    if change <= noise_of(before, after, least):
        return ""
    return "faster" if after["ms"] < before["ms"] else "slower"


def name_of(case):
    return " ".join(str(value) if name in CASE[:2] else f"{name}={value}" for name, value in zip(CASE, case)
                    if value is not None)


def add_arguments(parser):
    parser.add_argument("before", metavar="A.json")
    parser.add_argument("after", metavar="B.json")
    parser.add_argument("--noise", type=float, default=3, metavar="PERCENT", help="the least change that counts (3)")


def main(options):
    if not options.noise >= 0:
        raise LabError("--noise must be a percentage from 0 on")
    pair, least = (records.read(options.before), records.read(options.after)), options.noise / 100
    before, after = map(by_case, pair)
    common = [case for case in before if case in after]
    if not common:
        raise LabError(f"{options.before} and {options.after} have no program and problem in common")
    for name in ("gpu", "driver", "processor", "cores"):
        a, b = (record["provenance"].get(name) for record in pair)
        if a != b:
            print(f"careful: {name} is {a} before and {b} after")
    rows = []
    for case in common:
        a, b = before[case], after[case]
        rows.append([name_of(case), f"{a['ms']:.4g}", f"{b['ms']:.4g}", f"{100 * (b['ms'] / a['ms'] - 1):+.1f}%",
                     f"{100 * noise_of(a, b, least):.1f}%", verdict(a, b, least),
                     "changed" * (a.get("code") != b.get("code"))])
    print(*cli.table(["", "ms before", "ms after", "change", "noise", "verdict", "code"], rows), sep="\n")
    for found, other, where in ((before, after, "before"), (after, before, "after")):
        for case in (case for case in found if case not in other):
            print(f"only {where}: {name_of(case)}")
    slower = sum(verdict(before[case], after[case], least) == "slower" for case in common
                 if before[case]["kind"] != "library")
    print(f"{slower} of {len(common)} slower beyond the noise")
    return 1 if slower else 0
