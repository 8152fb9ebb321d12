"""Builds the experiments of docs/experiments and times them beside the rungs that they change.

An experiment is a patch to a rung's kernel as it was at a commit: one idea taken out or put in.
This builds each of them, and the rung as it was, from a git worktree of that commit, in build-lab/.
It prints what nvcc made of them: registers, spills, and, where cuobjdump is installed, instructions
per product of the tensor cores. That needs no GPU. Where there is one, and a python3 with PyTorch,
every variant is held to the suite's rule, except those that are wrong on purpose, and timed on the
same tensors, interleaved. --counters counts with ncu.
"""

import math
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean

from lab import build, cli, compare, counters, harness, sass, timing
from lab.ladder import ROOT, LabError, former_names, parse

PATCHES = ROOT / "docs/experiments"
COURSE = (4, 16, 4096, 64, False)  # B, H, N, d, causal
FP32_CASES = (COURSE, (100, 1, 4096, 32, False), (4, 16, 4096, 64, True), (4, 16, 4096, 128, False))
TENSOR_CASES = tuple(
    (compare.TOKENS // N, compare.HIDDEN // d, N, d, causal)
    for d in (64, 128, 256, 32)
    for causal in (False, True)
    for N in (512, 2048, 8192, 16384)
)
RAGGED = ((437, 701, 1.0), (701, 437, 1.0), (1024, 1024, 1.0), (437, 701, 32.0))  # N_q, N_kv, sigma
ARGUMENTS = re.compile(r"<(?:[\w:]+, )?(?P<d>\d+)(?:, (?P<Bc>\d+))?>$")
HEAD = re.compile(r"^(What|Predicted|Commit|Wrong on purpose|\+\+\+ b)[:/]\s*(\S.*)$", re.M)


@dataclass(frozen=True)
class Experiment(build.Variant):
    """What a patch says of itself; a rung as it is has none. `rung`, `text` and `root` are known at
    the commit alone."""

    kernel: Path = Path()  # "steps/NN_name/name.cu"
    commit: str = ""
    patch: Path = None
    what: str = ""
    predicted: str = ""
    wrong: bool = False  # on purpose


def rung_of(kernel):
    """Today's name of the rung whose kernel this was: "steps/22_overlap/overlap.cu"."""
    number, _, name = kernel.parent.name.partition("_")
    then, now = former_names().get(number, ("", ""))
    return now if name == then else name


def read_experiment(path):
    said = dict(HEAD.findall(path.read_text(encoding="utf-8")))
    if missing := {"What", "Predicted", "Commit", "+++ b"} - said.keys():
        raise LabError(f"{path.name} has no line '{min(missing)}: ...'")
    return Experiment(
        path.stem,
        None,
        kernel=Path(said["+++ b"]),
        commit=said["Commit"],
        patch=path,
        what=said["What"],
        predicted=said["Predicted"],
        wrong="Wrong on purpose" in said,
    )


def chosen(names, folder=PATCHES):
    """For each rung that is asked for itself, as it was at a commit, then its experiments of this
    commit."""
    known = [read_experiment(path) for path in sorted(folder.glob("*.patch"))]
    for name in names:
        if not any(name in (one.name, rung_of(one.kernel)) for one in known):
            raise LabError(
                f"there is no experiment '{name}', and no rung of that name that has one; see "
                "--list"
            )
    found = [one for one in known if not names or {one.name, rung_of(one.kernel)} & set(names)]
    variants, kernels = [], dict.fromkeys((one.kernel, one.commit) for one in found)
    for kernel, commit in kernels:
        several = sum(kernel == other for other, _ in kernels) > 1
        variants.append(
            Experiment(rung_of(kernel) + f"@{commit}" * several, None, kernel=kernel, commit=commit)
        )
        variants += [one for one in found if (one.kernel, one.commit) == (kernel, commit)]
    return variants


def git(*arguments, folder=None):
    return subprocess.run(["git", *arguments], cwd=folder or ROOT, capture_output=True, text=True)


@contextmanager
def worktree(commit):
    """The repository as it was at a commit, in a folder that is removed afterwards."""
    build.FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="worktree-", dir=build.FOLDER) as folder:
        try:
            if (added := git("worktree", "add", "--detach", folder, commit)).returncode:
                raise LabError(
                    f"experiments need a git clone with the whole history; of commit {commit} "
                    "there is no "
                    f"worktree: {added.stderr.strip().splitlines()[-1]}"
                )
            yield Path(folder).resolve()
        finally:
            git("worktree", "remove", "--force", folder)


def at_commit(variants, tree):
    """The variants of a commit, with their rungs and kernels, from its worktree, which stays as it
    is."""
    # The commit's own.
    ladder = parse((tree / "steps/ladder.txt").read_text(encoding="utf-8"), tree)
    for one in variants:
        if one.patch and (done := git("apply", str(one.patch), folder=tree)).returncode:
            raise LabError(
                f"{one.patch.name} does not apply to commit {one.commit}: "
                f"{done.stderr.strip().splitlines()[0]}"
            )
        rung = next(rung for rung in ladder if rung.folder.name == one.kernel.parent.name)
        yield replace(one, rung=rung, text=rung.kernel_file.read_text(encoding="utf-8"), root=tree)
        git("checkout", "--", ".", folder=tree)


def build_all(variants, jobs=None):
    """(the variants with their rungs, {name: (library, what nvcc said)}), built at its commit."""
    with ExitStack() as stack:
        trees = {
            commit: stack.enter_context(worktree(commit))
            for commit in dict.fromkeys(one.commit for one in variants)
        }
        there = [
            one
            for commit, tree in trees.items()
            for one in at_commit([one for one in variants if one.commit == commit], tree)
        ]
        return there, build.build_all(there, jobs)


def build_rows(variant, library, said):
    """What the compiler made of each kernel of a variant. Of a kernel for several types the one for
    bf16."""
    loops = sass.best_loops(library) if variant.rung.tensor and shutil.which("cuobjdump") else {}
    rows = {}
    for row in build.ptxas_rows(said):
        name, of = row["kernel"], ARGUMENTS.search(row["kernel"])
        namespace = re.search(r"^namespace (\w+) {", variant.text, re.M)[1]
        if "Half" in name or f"{namespace}::" not in name:
            continue
        instructions, mma = loops.get(name, (None, None))
        # Where a rung has several tiles for a head dim, the largest: it is what a GPU with room for
        # it takes.
        size, d = int((of and of["Bc"]) or 0), int(of["d"]) if of else None
        key = d, name.split("<")[0]
        if size >= rows.get(key, (0,))[0]:
            rows[key] = (
                size,
                {
                    "program": variant.name,
                    "kind": "build",
                    "rung": rung_of(variant.kernel),
                    **row,
                    "d": d,
                    "instructions": instructions,
                    "mma": mma,
                    "what": variant.what or None,
                    "predicted": variant.predicted or None,
                    "wrong": variant.wrong,
                    "commit": variant.commit,
                },
            )
    return [row for _, row in rows.values()]


def ragged_errors(torch, functions, tensor, head_dims):
    """{name: its largest error as a part of its bound}, over head dims, types, masks and lengths,
    and large scores."""
    generator = torch.Generator(device="cuda").manual_seed(2)
    largest = dict.fromkeys(functions, 0.0)
    for dtype in (torch.bfloat16, torch.float16) if tensor else (torch.float32,):
        for d in head_dims:
            for N_q, N_kv, sigma in RAGGED:
                q, k, v = timing.tensors(torch, generator, dtype, 2, 3, 3, N_q, N_kv, d, sigma)
                # Else there are rows that see no key: NaN here.
                for causal in (False, True)[: 2 if N_q <= N_kv else 1]:
                    for name, share in timing.largest_errors(
                        torch, functions, set(functions), q, k, v, causal
                    ).items():
                        largest[name] = max(largest[name], share if share == share else math.inf)
    return largest


def problems(options, rung):
    """Of a rung: the cases that it is timed on."""
    if options.problem:
        return [(*shape, False) for shape in options.problem]
    if rung.tensor:
        return tuple(case for case in TENSOR_CASES if case[3] in rung.head_dims)
    return FP32_CASES if rung.number >= "16" else (COURSE,)


def measure(torch, variants, built, options):
    """(rows of times, names of those that are wrong): groups of variants that have the same
    problems."""
    rows, wrong, groups = [], {}, {}
    for one in variants:
        key = (
            "tensor" if one.rung.tensor else rung_of(one.kernel),
            tuple(problems(options, one.rung)),
        )
        groups.setdefault(key, []).append(one)
    for (_, cases), group in groups.items():
        tensor = group[0].rung.tensor
        programs = {one.name: timing.rung(one.name, built[one.name][0]) for one in group}
        cli.say(f"checking {', '.join(programs)}")
        right = {one.name: programs[one.name] for one in group if not one.wrong}
        wrong |= ragged_errors(torch, right, tensor, group[0].rung.head_dims)
        kinds = {one.name: "variant" if one.patch else "rung" for one in group}
        if tensor:
            programs, kinds = (
                {"FA2": timing.library("FA2", "bf16"), **programs},
                {"FA2": "library", **kinds},
            )
        generator = torch.Generator(device="cuda").manual_seed(1)
        for number, (B, H, N, d, causal) in enumerate(cases, 1):
            case = harness.problem(B, H, N, d, causal)
            cli.say(f"  {number} of {len(cases)}: {harness.title(case)}")
            found = compare.measure(
                torch,
                programs,
                kinds,
                case,
                "bf16" if tensor else "fp32",
                options.rounds,
                generator,
                unchecked={one.name for one in group if one.wrong},
            )
            rungs = {one.name: rung_of(one.kernel) for one in group}
            for row in found:
                rows.append(
                    row | ({"rung": rungs[row["program"]]} if row["program"] in rungs else {})
                )
                if row["program"] in right:
                    share = math.inf if row["of_allowed_error"] is None else row["of_allowed_error"]
                    wrong[row["program"]] = max(wrong[row["program"]], share)
    return rows, {name: share for name, share in wrong.items() if not share <= 1}


def counted(variants, options):
    """Rows of what ncu counts in a run of each variant on each problem: a process of its own, which
    runs it once."""
    rows = []
    for one in variants:
        for B, H, N, d, causal in [(*shape, False) for shape in options.problem or [COURSE[:4]]]:
            cli.say(f"ncu: {one.name} ({B}, {H}, {N}, {d})")
            command = [
                sys.executable,
                "-B",
                "-m",
                "lab",
                "experiments",
                *options.names,
                "--once",
                one.name,
                "--problem",
                f"{B},{H},{N},{d}",
            ]
            tile = re.search(r"_(\d+)x(\d+)$", one.name)
            sizes = {"Br": int(tile[1]), "Bc": int(tile[2])} if tile else {}
            names = set(
                re.findall(
                    r"__global__[^;{]*?\bvoid\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(",
                    one.source(),
                )
            )
            for kernel, counts in counters.ncu(command, "|".join(sorted(names))):
                rows.append(
                    {
                        "program": one.name,
                        "kind": "kernel",
                        "rung": rung_of(one.kernel),
                        "kernel": kernel,
                        **harness.problem(B, H, N, d, causal),
                        **sizes,
                        **counts,
                    }
                )
    return rows


def run_once(torch, name, options):
    """`name`: of a variant, or of one of PyTorch's libraries for bf16."""
    found, built = build_all([one for one in chosen(options.names) if one.name == name])
    program = timing.rung(name, built[name][0]) if built else timing.library(name, "bf16")
    (B, H, N, d), fp32 = options.problem[0], found and not found[0].rung.tensor
    q, k, v = timing.tensors(
        torch,
        torch.Generator(device="cuda").manual_seed(1),
        torch.float32 if fp32 else torch.bfloat16,
        B,
        H,
        H,
        N,
        N,
        d,
    )
    program(q, k, v, False, torch.empty_like(q), torch.empty(q.shape[:3], device="cuda"))
    torch.cuda.synchronize()


def add_arguments(parser):
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="an experiment, or a rung's name for all of its (all)",
    )
    parser.add_argument("--list", action="store_true", help="say which there are, and leave")
    parser.add_argument(
        "--build-only", action="store_true", help="build, show what nvcc made of them, and leave"
    )
    parser.add_argument(
        "--rounds", type=int, default=20, help="runs of each variant in each case (20)"
    )
    parser.add_argument(
        "--counters",
        nargs="?",
        const="",
        metavar="TEXT",
        help="count with ncu, too, of those whose name begins with TEXT: some 10 s each (all)",
    )
    cli.add(parser, "--problem", "--record", "--jobs")
    parser.add_argument("--once", metavar="NAME", help="run this variant once; what ncu watches")


def table(rows):
    """Lines: what the compiler made of each variant, by head dim."""
    return cli.table(
        ["kernel", "registers", "spilled, B", "stack, B", "per mma"],
        [
            [
                f"{row['program']} {row['kernel'].split('<')[0].split('::')[-1]}"
                + f" d={row['d']}" * bool(row["d"]),
                row["registers"],
                row["spill_stores"] + row["spill_loads"],
                row["stack"],
                f"{row['instructions'] / row['mma']:.2f}" if row["mma"] else "",
            ]
            for row in rows
        ],
    )


def times_table(rows, variants):
    """Lines: of each variant the times of its rung over its own, over all cases of a head dim and
    mask."""
    for one in variants:
        if not one.patch:
            rung = one.name  # its experiments follow
            continue
        parts = []
        for d, causal in dict.fromkeys(
            (row["d"], row["causal"]) for row in rows if row["program"] == one.name
        ):
            some = [row for row in rows if (row["d"], row["causal"]) == (d, causal)]
            mean = geometric_mean(timing.ratios(some, one.name, rung).values())
            parts.append(f"d={d} {'causal' if causal else 'full'} {100 * (mean - 1):+.1f}%")
        yield f"{one.name:<34} {', '.join(parts)}   ({one.what})"


def main(options):
    if options.rounds < 20 or options.jobs < 1:
        raise LabError("--rounds must be at least 20, --jobs at least 1")
    if any(len(shape) != 4 or min(shape) < 1 for shape in options.problem or ()):
        raise LabError("--problem B,H,N,D: four numbers from 1 on")
    if options.once:
        run_once(timing.torch_with_gpu(), options.once, options)
        return 0
    variants = chosen(options.names)
    if options.list:
        for one in variants:
            print(
                f"{one.name}: {one.what}; predicted: {one.predicted}"
                if one.patch
                else f"\n{one.name}, commit {one.commit}"
            )
        return 0
    try:
        torch, missing = None, "as asked"
        if not options.build_only:
            torch, missing = timing.torch_with_gpu(), ""
    except LabError as error:
        if options.record or options.counters is not None:
            raise
        missing = str(error)
    variants, built = build_all(variants, options.jobs)
    rows = [row for one in variants for row in build_rows(one, *built[one.name])]
    print(*table(rows), sep="\n")
    if not torch:
        cli.say(f"nothing was run: {missing}")
        return 0
    provenance = {"torch": torch.__version__, "rounds": options.rounds}
    times, wrong = measure(torch, variants, built, options)
    print(
        "\nfaster than the rung as it is, geometric mean:", *times_table(times, variants), sep="\n"
    )
    cli.save(options, rows + times, **provenance)
    if options.counters is not None:
        found = counted([one for one in variants if one.name.startswith(options.counters)], options)
        cli.save(options, rows + times + found, **provenance)
        print(
            *cli.table(
                ["ncu", "ms", "DRAM, GB", "L2, GB", "shared wavefronts"],
                [
                    [
                        f"{row['program']} {row['kernel']} H={row['H']}",
                        f"{1e3 * row['seconds']:.4g}",
                        f"{(row['dram_read_bytes'] + row['dram_write_bytes']) / 1e9:.4g}",
                        f"{(row['l2_read_sectors'] + row['l2_write_sectors']) * 32 / 1e9:.4g}",
                        f"{row['shared_load_wavefronts'] + row['shared_store_wavefronts']:.4g}",
                    ]
                    for row in found
                ],
            ),
            sep="\n",
        )
    for name, share in wrong.items():
        cli.say(f"{name} is wrong: its error is {share:.2f} times the bound")
    return 1 if wrong else 0
