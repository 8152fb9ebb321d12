"""Tables of the record of scripts/experiments: of each rung what was changed, what was predicted, and what came out."""

from compare_tables import geometric_mean
from records import markdown_table

HEAD_DIMS = (128, 64, 32)


def text_left(lines, columns):
    """The table with its first columns, which are sentences, aligned to the left."""
    return [lines[0], "|---" * columns + lines[1][columns * len("|---:"):], *lines[2:]]


def kernel_of(kernels, d):
    return next((one for one in kernels if one["d"] == d), None)


def registers(kernels):
    """Of each head dim, largest first; of a rung whose kernels have none, of the first."""
    return ", ".join(str(one["registers"]) for d in HEAD_DIMS if (one := kernel_of(kernels, d))) or str(
        kernels[0]["registers"])


def spilled(kernels):
    """Bytes that a thread's stores spill, and its stack frame where it has one without spills."""
    said = []
    for d in HEAD_DIMS:
        one = kernel_of(kernels, d)
        if one and one["spill_stores"]:
            said.append(f"{one['spill_stores']} at {d}")
        elif one and one["stack"]:
            said.append(f"stack {one['stack']} at {d}")
    return ", ".join(said)


def a_product(kernels, head_dims=HEAD_DIMS[:2]):
    """Instructions for each product in the loop that has the fewest."""
    found = [one for d in head_dims if (one := kernel_of(kernels, d)) and one.get("products")]
    return ", ".join(f"{one['instructions'] / one['products']:.2f}" for one in found)


def build_table(variants, kernels):
    """What nvcc made of variants, without a GPU."""
    return text_left(markdown_table(
        ["variant", "registers at d = 128, 64, 32", "bytes spilled", "instructions a product at 128, 64"],
        [[one.name, registers(kernels[one.name]), spilled(kernels[one.name]), a_product(kernels[one.name])]
         for one in variants]), 1)


def name_of(variant):
    if not variant["what"]:
        return f"rung {variant['rung'][:2]}"
    return variant["what"] + (" (wrong on purpose)" if variant["wrong_on_purpose"] else "")


class Times:
    """Medians of a record by case and program."""

    def __init__(self, record):
        self.of = {}
        for row in record["rows"]:
            case = tuple(row["problem"][name] for name in ("d", "causal", "batch", "N"))
            self.of[case, row["program"]] = row

    def cases(self, program, **where):
        """(d, causal, batch, N) of a program's rows that have this d, and this mask."""
        names = ("d", "causal")
        return [case for case, of in self.of if of == program
                and all(case[names.index(name)] == value for name, value in where.items())]

    def tflops(self, case, program):
        row = self.of[case, program]
        return row["flops"] / row["median_s"] / 1e12

    def mean_tflops(self, program, **where):
        return geometric_mean([self.tflops(case, program) for case in self.cases(program, **where)])

    def against(self, library, program, head_dims):
        """How many times as fast, as a geometric mean."""
        return geometric_mean([self.of[case, library]["median_s"] / self.of[case, program]["median_s"]
                               for case in self.cases(program) if case[0] in head_dims])


def one_case_table(variants, times):
    """Rungs 06 to 08: one problem."""
    rows = []
    for one in variants:
        case, = times.cases(one["program"])
        base = times.of[case, variants[0]["program"]]["median_s"]
        row = times.of[case, one["program"]]
        rows.append([name_of(one), one["predicted"], f"{row['median_s'] * 1e3:.1f}",
                     f"{times.tflops(case, one['program']):.1f}", f"{base / row['median_s']:.2f}"])
    return text_left(markdown_table(["change", "predicted", "ms", "TFLOP/s", "x the rung"], rows), 2)


def cases_table(variants, times):
    """Rung 09: several problems, TFLOP/s."""
    cases = times.cases(variants[0]["program"])
    rows = []
    for one in variants:
        counts = one["counts"]
        rows.append([name_of(one), one["predicted"], registers(one["kernels"]), spilled(one["kernels"]),
                     f"{counts['shared_load_wavefronts'] / counts['shared_load_requests']:.2f}" if counts else "",
                     *(f"{times.tflops(case, one['program']):.1f}" for case in cases)])
    return text_left(markdown_table(
        ["change", "predicted", "registers at d = 128, 64, 32", "bytes spilled", "wavefronts a load, d=64",
         *(f"d={d}{' causal' if causal else ''}" for d, causal, _, _ in cases)], rows), 2)


def tensor_table(variants, times):
    """Rungs 11 to 13: means over N, and how many times as fast as FlashAttention-2."""
    rows = []
    for one in variants:
        name, kernels = one["program"], one["kernels"]
        speeds = [", ".join(f"{times.mean_tflops(name, d=d, causal=causal):.0f}" for causal in (False, True))
                  for d in (64, 128)]
        rows.append([name_of(one), one["predicted"], registers(kernels), spilled(kernels), a_product(kernels), *speeds,
                     f"{times.against('FA2', name, (64, 128)):.3f}", f"{times.against('FA2', name, (32,)):.3f}"])
    return text_left(markdown_table(
        ["change", "predicted", "registers at d = 128, 64, 32", "bytes spilled", "a product, 128, 64",
         "d=64: full, causal", "d=128: full, causal", "x FA2", "x FA2 at 32"], rows), 2)


def experiment_tables(record):
    """{title: lines}, for each rung of the record that was timed."""
    times, tables = Times(record), {}
    timed = {row["program"] for row in record["rows"]}
    for rung in dict.fromkeys(one["rung"] for one in record["variants"]):
        variants = [one for one in record["variants"] if one["rung"] == rung and one["program"] in timed]
        if not variants:
            continue
        make = tensor_table if rung >= "10" else cases_table if rung[:2] == "09" else one_case_table
        tables[f"rung {rung[:2]}"] = make(variants, times)
    return tables


TABLES = {"gpu_experiments": experiment_tables}
