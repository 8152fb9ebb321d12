"""When the consumers of a block ask for products, wait for them and compute, by the clock of their SM.

Three kernels, each with a patch of docs/experiments that notes clocks: rung 20, the same with exclusive exponentials, and
rung 21. Timed beside themselves without stamps, for the stamps cost time. --counters has ncu say how long the tensor cores
and the unit for exponentials work in them, and in cuDNN. Needs a GPU of compute capability 9.0, nvcc, and PyTorch.
"""

import ctypes
import sys
from statistics import mean

from lab import build, cli, compare, counters, experiments, harness, timing
from lab.ladder import LabError

CASE = harness.problem(4, 16, 4096, 128)
# The stamped experiment: what it is without stamps, and the phases of a tile of keys, each of which ends with a stamp.
PHASES = {"20_stamps": ("20_persistent_blocks", ("tile", "S", "softmax", "PV")),
          "20_exclusive_stamps": ("20_exclusive_exponentials", ("tile", "S", "maximum", "turn", "softmax", "PV")),
          "21_stamps": ("21_overlap", ("pack", "turn", "S", "softmax", "PV"))}
ROOM, TILES, SHOWN = 2048, 32, range(12, 20)  # stamps of a warpgroup, tiles of keys for a tile of Q, those that are kept


def phases(program, stamps):
    """Rows (warpgroup, tile, phase, from_clock, to_clock) in the block's third tile of Q; each warpgroup's stamps given."""
    names, rows = PHASES[program][1], []
    tiles = TILES - (program[:2] == "21")  # there the first one stands before the loop
    for warpgroup, clocks in enumerate(stamps):
        first = 2 * tiles * len(names)
        for tile in SHOWN:
            for place, phase in enumerate(names):
                at = first + tile * len(names) + place
                # The counter has 32 bits and begins anew every few seconds.
                start, end = ((clocks[n] - stamps[0][first]) % 2**32 for n in (at - 1, at))
                rows.append({"program": program, "kind": "phase", "warpgroup": warpgroup, "tile": tile, "phase": phase,
                             "from_clock": (start + 2**31) % 2**32 - 2**31, "to_clock": (end + 2**31) % 2**32 - 2**31})
    return rows


def noted(library):
    """What the last launch of a stamped kernel noted, by warpgroup."""
    room = (ctypes.c_uint32 * ROOM * 2)()
    if error := ctypes.CDLL(str(library)).read_stamps(room):
        raise LabError(f"the stamps cannot be read: CUDA's error {error}")
    return [list(one) for one in room]


def counted(names):
    """Rows of what ncu counts in a run of each."""
    rows = []
    for name in names:
        cli.say(f"ncu: {name}")
        command = [sys.executable, "-B", "-m", "lab", "timeline", "--once", name]
        rows += [{"program": name, "kind": "kernel", "kernel": kernel, **CASE, **counts}
                 for kernel, counts in counters.ncu(command, "persistent_blocks|overlap|cudnn")]
    return rows


def add_arguments(parser):
    parser.add_argument("--counters", action="store_true", help="count with ncu, too: some 40 s")
    parser.add_argument("--once", metavar="NAME", help="run this kernel once; what ncu watches")
    cli.add(parser, "--record", "--jobs", "--commit")


def main(options):
    torch = timing.torch_with_gpu()
    if torch.cuda.get_device_capability() != (9, 0):
        raise LabError(f"the Hopper rungs need a GPU of compute capability 9.0, and this is {torch.cuda.get_device_name()}")
    known = {one.name: one for one in experiments.chosen([])}
    names = [name for stamped, (plain, _) in PHASES.items() for name in (plain, stamped)]
    generator = torch.Generator(device="cuda").manual_seed(1)
    if options.once:
        program = (timing.library("cuDNN", "bf16") if options.once == "cuDNN" else
                   timing.rung(options.once, build.build(known[options.once])[0]))
        q, k, v = timing.tensors(torch, generator, torch.bfloat16, *(CASE[name] for name in compare.CASE[:6]))
        program(q, k, v, False, torch.empty_like(q), torch.empty(q.shape[:3], device="cuda"))
        torch.cuda.synchronize()
        return 0
    libraries = {name: path for name, (path, _) in build.build_all([known[name] for name in names], options.jobs).items()}
    programs = {"cuDNN": timing.library("cuDNN", "bf16")} | {name: timing.rung(name, path) for name, path in libraries.items()}
    kinds = {name: "library" if name == "cuDNN" else "variant" if known[name].diff else "rung" for name in programs}
    times = compare.measure(torch, programs, kinds, CASE, "bf16", 30, generator)
    for row in times:
        row |= {"patch": known[row["program"]].patch()} if row["kind"] == "variant" else {}
    ms, rows = {row["program"]: row["ms"] for row in times}, []
    for stamped, (plain, names_of_phases) in PHASES.items():
        found = phases(stamped, noted(libraries[stamped]))
        rows += found
        lengths = {phase: mean(row["to_clock"] - row["from_clock"] for row in found if row["phase"] == phase)
                   for phase in names_of_phases}
        print(f"{plain}: {sum(lengths.values()):.0f} clocks per tile of keys and warpgroup, "
              + ", ".join(f"{phase} {clocks:.0f}" for phase, clocks in lengths.items())
              + f"; the stamps cost {100 * (ms[stamped] / ms[plain] - 1):.1f}%")
    provenance = {"torch": torch.__version__, "rounds": 30}
    cli.save(options, times + rows, **provenance)
    if options.counters:
        found = counted(["cuDNN", *(plain for plain, _ in PHASES.values())])
        cli.save(options, times + rows + found, **provenance)
        print(*cli.table(["ncu", "tensor cores, %", "exponentials, %"], [
            [f"{row['program']} {row['kernel'][:40]}", f"{row['tensor_active_percent']:.1f}", f"{row['xu_percent']:.1f}"]
            for row in found]), sep="\n")
    return 0
