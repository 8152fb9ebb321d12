"""When the consumers of a block ask for products, wait and compute, by the clock of their SM.

Three kernels, each with a patch of docs/experiments that notes clocks: persistent_blocks, the same
with exclusive exponentials, and overlap, all as they were at the patches' commit. They are timed
beside themselves without stamps, because stamps cost time. --counters has ncu say how long the
tensor cores and the unit for exponentials work, in cuDNN too. Needs a GPU of compute capability
9.0, nvcc, and PyTorch.
"""

import ctypes
from statistics import mean

from lab import cli, compare, experiments, harness, timing
from lab.ladder import LabError

CASE = harness.problem(4, 16, 4096, 128)
# The stamped experiment: what it is without stamps, and the phases of a tile of keys, each of which
# ends with a stamp.
PHASES = {
    "persistent_blocks_stamps": ("persistent_blocks", ("S", "softmax", "PV", "tile")),
    "persistent_blocks_exclusive_stamps": (
        "persistent_blocks_exclusive_exponentials",
        ("S", "maximum", "turn", "softmax", "PV", "tile"),
    ),
    "overlap_stamps": ("overlap", ("S", "softmax", "PV", "pack", "turn")),
}
NAMES = (*PHASES, "persistent_blocks_exclusive_exponentials")
# Tiles of keys that a warpgroup notes, those of a tile of Q, and of these the ones that are looked
# at; which tiles of Q.
NOTED, TILES, INNER, OF_Q = 320, 32, range(12, 20), range(1, 9)


def phases(program, stamps):
    """Rows: the mean clocks of each phase, and when each began and ended in that tile of Q whose
    tiles took the median time. `stamps`: the clocks of each warpgroup."""
    names = PHASES[program][1]
    # In overlap its first tile of keys stands before the loop.
    tiles = TILES - (program == "overlap_stamps")

    def of(tile_of_Q):
        first = len(names) * (tile_of_Q * tiles + INNER[0])
        rows = []
        for warpgroup, clocks in enumerate(stamps):
            # The clock has 32 bits and begins anew.
            since = [(clock - stamps[0][first] + 2**31) % 2**32 - 2**31 for clock in clocks]
            about = {"program": program, "kind": "phase", "warpgroup": warpgroup}
            for number, tile in enumerate(INNER):
                for at, phase in enumerate(names, first + number * len(names)):
                    span = {"from_clock": since[at - 1], "to_clock": since[at]}
                    rows.append(about | {"tile": tile, "phase": phase} | span)
        return rows

    every = sorted(map(of, OF_Q), key=lambda rows: max(row["to_clock"] for row in rows))
    rows = []
    for name in names:
        lengths = [
            row["to_clock"] - row["from_clock"]
            for of_Q in every
            for row in of_Q
            if row["phase"] == name
        ]
        about = {"program": program, "kind": "phase", "phase": name}
        rows.append(about | {"mean_clocks": round(mean(lengths), 1)})
    return rows + every[len(every) // 2]


def add_arguments(parser):
    parser.add_argument("--counters", action="store_true", help="count with ncu, too: some 40 s")
    cli.add(parser, "--record", "--jobs")


def main(options):
    torch = timing.torch_with_gpu()
    if torch.cuda.get_device_capability() != (9, 0):
        here = torch.cuda.get_device_name()
        raise LabError(f"Hopper rungs need a GPU of compute capability 9.0, and this is {here}")
    variants, built = experiments.build_all(experiments.chosen(NAMES), options.jobs)
    programs = {name: timing.rung(name, path) for name, (path, _) in built.items()}
    programs["cuDNN"] = timing.library("cuDNN", "bf16")
    kinds = {one.name: "variant" if one.patch else "rung" for one in variants}
    kinds["cuDNN"] = "library"
    generator = torch.Generator(device="cuda").manual_seed(1)
    rows = compare.measure(torch, programs, kinds, CASE, "bf16", 30, generator)
    ms = {row["program"]: row["ms"] for row in rows}
    commits = {one.name: one.commit for one in variants}
    rows = [row | {"commit": commits.get(row["program"])} for row in rows]
    for stamped, (plain, names) in PHASES.items():
        # by the last launch, for each warpgroup
        noted = (ctypes.c_uint32 * (NOTED * len(names)) * 2)()
        if error := ctypes.CDLL(str(built[stamped][0])).read_stamps(noted):
            raise LabError(f"the stamps cannot be read: CUDA's error {error}")
        rows += (found := phases(stamped, noted))
        lengths = {row["phase"]: row["mean_clocks"] for row in found if "mean_clocks" in row}
        parts = ", ".join(f"{name} {clocks:.0f}" for name, clocks in lengths.items())
        cost = f"the stamps cost {100 * (ms[stamped] / ms[plain] - 1):.1f}%"
        total = f"{sum(lengths.values()):.0f} clocks per tile of keys and warpgroup"
        print(f"{plain}: {total}: {parts}; {cost}")
    if options.counters:
        lines = []
        for name in ("cuDNN", *(plain for plain, _ in PHASES.values())):
            kernels = "persistent_blocks|overlap|cudnn"
            for row in experiments.counted(NAMES, name, (4, 16, 4096, 128), kernels):
                busy = (f"{row[unit]:.1f}" for unit in ("tensor_active_percent", "xu_percent"))
                lines.append([f"{name} {row['kernel'][:40]}", *busy])
                rows.append(row)
        cli.print_table(["ncu", "tensor cores, %", "exponentials, %"], lines)
    cli.save(options, rows, torch=torch.__version__, rounds=30)
    return 0
