"""Builds the experiments of docs/experiments and times them beside the rungs that they change.

An experiment is a patch to a rung's kernel as it was at a commit: one idea taken out or put in.
This builds each of them, and the rung as it was, from a git worktree of that commit, in build-lab/.
It prints what nvcc made of them: registers, spills, and, where cuobjdump is installed, instructions
per product of the tensor cores. That needs no GPU. Where there is one, and a python3 with PyTorch,
every variant is held to the suite's rule, except those that are wrong on purpose, and timed on the
same tensors, interleaved. --counters counts with ncu.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean

from lab import build, cli, compare, counters, harness, record_tables, sass, timing
from lab.ladder import ROOT, LabError, former_names, parse, unknown

PATCHES = ROOT / "docs/experiments"
COURSE = (4, 16, 4096, 64)  # B, H, N, d
HEAD = re.compile(r"^(What|Predicted|Commit|Wrong on purpose|\+\+\+ b)[:/]\s*(\S.*)$", re.M)

GLOBAL = re.compile(r"__global__[^;{]*?\bvoid\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(")


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

    @property
    def of(self):
        """Today's name of the rung whose kernel this was: "steps/22_overlap/overlap.cu"."""
        number, _, name = self.kernel.parent.name.partition("_")
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
    all_names = {name for one in known for name in (one.name, one.of)}
    for name in names:
        if name not in all_names:
            raise LabError(unknown("experiment", name, sorted(all_names)))
    found = [one for one in known if not names or {one.name, one.of} & set(names)]
    variants, kernels = [], dict.fromkeys((one.kernel, one.commit) for one in found)
    for kernel, commit in kernels:
        several = sum(kernel == other for other, _ in kernels) > 1
        rung = Experiment("", None, kernel=kernel, commit=commit)
        variants.append(replace(rung, name=rung.of + f"@{commit}" * several))
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
                    "experiments need a git clone with the whole history; of commit "
                    f"{commit} there is no worktree: {added.stderr.strip().splitlines()[-1]}"
                )
            yield Path(folder).resolve()
        finally:
            git("worktree", "remove", "--force", folder)


def at_commit(variants, tree):
    """The variants of a commit, with their rungs and kernels, from its worktree, which stays as it
    is."""
    ladder = parse((tree / "steps/ladder.txt").read_text(encoding="utf-8"), tree)  # the commit's
    for one in variants:
        if one.patch and (done := git("apply", str(one.patch), folder=tree)).returncode:
            said = done.stderr.strip().splitlines()[0]
            raise LabError(f"{one.patch.name} does not apply to commit {one.commit}: {said}")
        rung = next(rung for rung in ladder if rung.folder.name == one.kernel.parent.name)
        yield replace(one, rung=rung, text=rung.kernel_file.read_text(encoding="utf-8"), root=tree)
        git("checkout", "--", ".", folder=tree)


def build_all(variants, jobs=None):
    """(the variants with their rungs, {name: (library, what nvcc said)}), built at its commit."""
    there = []
    with ExitStack() as stack:
        for commit in dict.fromkeys(one.commit for one in variants):
            tree = stack.enter_context(worktree(commit))
            there += at_commit([one for one in variants if one.commit == commit], tree)
        return there, build.build_all(there, jobs)


def build_rows(variant, library, said):
    """What the compiler made of each kernel of a variant. Of a kernel for several types the one for
    bf16."""
    loops = sass.best_loops(library) if variant.rung.tensor and shutil.which("cuobjdump") else {}
    namespace = re.search(r"^namespace (\w+) {", variant.text, re.M)[1]
    for row in build.ptxas_rows(said):
        name = row["kernel"]
        if "Half" in name or f"{namespace}::" not in name:
            continue
        head_dim = re.search(r"<(?:[\w:]+, )?(\d+)(?:, \d+)?>$", name)
        instructions, mma = loops.get(name, (None, None))
        counts = {"instructions": instructions, "mma": mma}
        said = {"what": variant.what or None, "predicted": variant.predicted or None}
        said |= {"wrong": variant.wrong, "commit": variant.commit}
        about = {"program": variant.name, "kind": "build", "rung": variant.of, **row}
        yield about | {"d": int(head_dim[1]) if head_dim else None} | counts | said


def problems(options, rung):
    """Of a rung: the cases that it is timed on."""
    shapes = options.problem or [COURSE]
    if rung.tensor and not options.problem:
        shapes = [
            (compare.TOKENS // N, compare.HIDDEN // d, N, d)
            for d in rung.head_dims
            for N in (512, 2048, 8192, 16384)
        ]
    masks = (False, True) if rung.tensor and not options.problem else (False,)
    return [harness.problem(*shape, causal) for shape in shapes for causal in masks]


def measure(torch, variants, built, options):
    """Rows of times; the variants of a rung take turns."""
    rows, generator = [], torch.Generator(device="cuda").manual_seed(1)
    for rung in dict.fromkeys(one.of for one in variants):
        group = [one for one in variants if one.of == rung]
        tensor = group[0].rung.tensor
        programs = {one.name: timing.rung(one.name, built[one.name][0]) for one in group}
        kinds = {one.name: "variant" if one.patch else "rung" for one in group}
        if tensor:
            programs["FA2"], kinds["FA2"] = timing.library("FA2", "bf16"), "library"
        unchecked = {one.name for one in group if one.wrong}
        for case in problems(options, group[0].rung):
            cli.say(f"{rung} on {harness.title(case)}")
            dtype, rounds = "bf16" if tensor else "fp32", options.rounds
            for row in compare.measure(
                torch, programs, kinds, case, dtype, rounds, generator, unchecked
            ):
                rows.append(row if row["kind"] == "library" else row | {"rung": rung})
    return rows


def counted(names, program, shape, kernels=""):
    """Rows of what ncu counts of a program, one of these names or a library, on a problem: a
    process of its own, which runs it once."""
    cli.say(f"ncu: {program} {shape}")
    problem = ",".join(map(str, shape))
    command = [sys.executable, "-B", "-m", "lab", "experiments", *names, "--once", program]
    about = {"program": program, "kind": "kernel", **harness.problem(*shape)}
    for kernel, counts in counters.ncu([*command, "--problem", problem], kernels):
        yield about | {"kernel": kernel} | counts


def run_once(torch, name, options):
    """`name`: of a variant, or of one of PyTorch's libraries for bf16."""
    found, built = build_all([one for one in chosen(options.names) if one.name == name])
    program = timing.rung(name, built[name][0]) if built else timing.library(name, "bf16")
    fp32, (B, H, N, d) = found and not found[0].rung.tensor, options.problem[0]
    dtype, generator = torch.float32 if fp32 else torch.bfloat16, torch.Generator(device="cuda")
    q, k, v = timing.tensors(torch, generator.manual_seed(1), dtype, B, H, H, N, N, d)
    program(q, k, v, False, torch.empty_like(q), torch.empty(q.shape[:3], device="cuda"))
    torch.cuda.synchronize()


def add_arguments(parser):
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="an experiment, or a rung for all of its (all)"
    )
    parser.add_argument("--list", action="store_true", help="say which there are, and leave")
    parser.add_argument("--rounds", type=int, default=20, help="runs of each in each case (20)")
    counters = "count with ncu, too, 10 s each: of those whose name begins with TEXT (all)"
    parser.add_argument("--counters", nargs="?", const="", metavar="TEXT", help=counters)
    parser.add_argument("--once", metavar="NAME", help="run this variant once; what ncu watches")
    cli.add(parser, "--problem", "--record", "--jobs")


def print_builds(rows):
    cells = []
    for row in rows:
        kernel = row["kernel"].split("<")[0].split("::")[-1] + f" d={row['d']}" * bool(row["d"])
        per_mma = f"{row['instructions'] / row['mma']:.2f}" if row["mma"] else ""
        spilled = row["spill_stores"] + row["spill_loads"]
        cells.append([f"{row['program']} {kernel}", row["registers"], spilled, per_mma])
    cli.print_table(["kernel", "registers", "spilled, B", "per mma"], cells)


def print_times(rows, variants):
    """Of each variant the times of its rung over its own: geometric means by head dim and mask."""
    print("\nfaster than the rung as it is:")
    record = {"provenance": {}, "rows": rows}
    for one in variants:
        if not one.patch:
            rung = one.name  # its experiments follow
            continue
        parts = []
        for group, title in record_tables.groups_of(rows).items():
            if record_tables.rows(record, one.name, **dict(group)):
                of = record_tables.ratios(record, one.name, rung, **dict(group))
                parts.append(f"{title} {100 * (geometric_mean(of) - 1):+.1f}%")
        print(f"{one.name:<34} {', '.join(parts)}   ({one.what})")


def main(options):
    if options.once:
        return run_once(timing.torch_with_gpu(), options.once, options)
    variants = chosen(options.names)
    if options.list:
        for one in variants:
            said = f"{one.name}: {one.what}; predicted: {one.predicted}"
            print(said if one.patch else f"\n{one.name}, commit {one.commit}")
        return 0
    torch = None
    try:
        torch = timing.torch_with_gpu()
    except LabError as missing:
        if options.record or options.counters is not None:
            raise
        cli.say(f"nothing will run: {missing}")
    variants, built = build_all(variants, options.jobs)
    rows = [row for one in variants for row in build_rows(one, *built[one.name])]
    print_builds(rows)
    if torch:
        rows += (times := measure(torch, variants, built, options))
        print_times(times, variants)
        wanted = options.counters
        for one in variants:
            if wanted is None or not one.name.startswith(wanted):
                continue
            for shape in options.problem or [COURSE]:
                rows += counted(options.names, one.name, shape, "|".join(GLOBAL.findall(one.text)))
        cli.save(options, rows, torch=torch.__version__, rounds=options.rounds)
    return 0
