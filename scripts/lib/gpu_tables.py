"""The tables of the CUDA rungs' chapters, made from the records in docs/records."""

from records import markdown_table, read_record

SHORT = {"memory-efficient": "PyTorch, memory-efficient", "unfused": "PyTorch, unfused"}


def title_of(shape):
    return f"({shape['batch']}, {shape['heads']}, {shape['N']}, {shape['d']}) {'causal' if shape['causal'] else 'full'}"


def label(name):
    return SHORT.get(name, name[:2])


def speed_table(rows):
    """Of one shape: time, TFLOP/s, share of the ceiling, factor to the rung before and to the library."""
    ceiling = read_record("bench_h200")["ceilings"]["ffma_flops"]  # of the same kind of GPU
    library = next((row["median_s"] for row in rows if row["program"] == "memory-efficient"), None)
    lines, before = [], None
    for row in rows:
        ours = row["program"] not in SHORT
        speed = row["flops"] / row["median_s"]
        lines.append([label(row["program"]), f"{row['median_s'] * 1e3:.2f}", f"{speed / 1e12:.2f}",
                      f"{100 * speed / ceiling:.1f}%", f"{before / row['median_s']:.2f}" if ours and before else "",
                      f"{library / row['median_s']:.2f}" if library else ""])
        before = row["median_s"] if ours else before
    return markdown_table(["", "ms", "TFLOP/s", f"of {ceiling / 1e12:.1f}", "x the rung before", "x memory-efficient"],
                          lines)


def heads_table(rows):
    """Time against the number of heads: rung 07 has one block a head."""
    heads = sorted({row["shape"]["heads"] for row in rows})
    rungs = sorted({row["program"] for row in rows})
    of = {(row["shape"]["heads"], row["program"]): row for row in rows}
    return markdown_table(
        ["heads", *(f"{rung[:2]}, ms" for rung in rungs), *(f"{rung[:2]}, TFLOP/s" for rung in rungs)],
        [[str(h), *(f"{of[h, rung]['median_s'] * 1e3:.1f}" for rung in rungs),
          *(f"{of[h, rung]['flops'] / of[h, rung]['median_s'] / 1e12:.2f}" for rung in rungs)] for h in heads])


def billions(number):
    return f"{number / 1e9:.3g}"


def counter_tables(counters):
    """What ncu counted for each kernel."""
    kernels = [(f"{rung[:2]} {kernel}" if len(of) > 1 else rung[:2], counts)
               for rung, of in counters.items() for kernel, counts in of.items()]
    profile, traffic, work = [], [], []
    for name, c in kernels:
        profile.append([name, f"{c['seconds'] * 1e3:.2f}", f"{c['occupancy_percent']:.0f}%",
                        f"{c['sm_active_percent']:.0f}%",
                        *(f"{c[which] * size / c['seconds'] / 1e9:.0f}" for which, size in (
                            ("shared_load_wavefronts", 128), ("shared_store_wavefronts", 128),
                            ("global_load_sectors", 32), ("global_store_sectors", 32)))])
        traffic.append([name, *(billions(c[which] * 32) for which in (
            "global_load_sectors", "global_store_sectors", "l2_read_sectors", "l2_write_sectors")),
            billions(c["dram_read_bytes"]), billions(c["dram_write_bytes"])])
        fma = c["multiply_adds"] / 32
        work.append([name, billions(c["instructions"]), f"{100 * fma / c['instructions']:.0f}%",
                     f"{c['shared_load_requests'] / fma:.3f}" if fma else "",
                     f"{c['shared_load_wavefronts'] / fma:.3f}" if fma else ""])
    return {
        "profile": markdown_table(
            ["kernel", "ms", "occupancy", "SMs at work", "shared loads, GB/s", "shared stores, GB/s",
             "global loads, GB/s", "global stores, GB/s"], profile),
        "traffic in GB": markdown_table(
            ["kernel", "asked of L1: loads", "stores", "between L1 and L2: read", "written", "DRAM: read", "written"],
            traffic),
        "instructions": markdown_table(
            ["kernel", "instructions of warps, 10^9", "multiply-adds among them",
             "shared loads a multiply-add", "shared wavefronts a multiply-add"], work),
    }


def fp32_tables(record):
    """From the record of scripts/measure_gpu."""
    tables, sweep, by_shape = {}, [], {}
    for row in record["rows"]:
        if row["shape"]["batch"] == 1:
            sweep.append(row)
        else:
            by_shape.setdefault(title_of(row["shape"]), []).append(row)
    for title, rows in by_shape.items():
        tables[f"speed at {title}"] = speed_table(rows)
    tables["heads"] = heads_table(sweep)
    return {**tables, **(counter_tables(record["counters"]) if "counters" in record else {})}


def tiles_tables(record):
    """From the record of scripts/measure_tiles: rung 07's traffic against the shared memory of a block."""
    tables = {}
    for heads in sorted({row["heads"] for row in record["rows"]}):
        lines = []
        for row in record["rows"]:
            if row["heads"] == heads:
                c = row["counts"]
                l2 = 32 * (c["l2_read_sectors"] + c["l2_write_sectors"])
                lines.append([f"{row['Br']} x {row['Bc']}", f"{row['shared_bytes'] / 1024:.1f}",
                              billions(row["predicted_bytes"]), billions(l2),
                              billions(c["dram_read_bytes"] + c["dram_write_bytes"]), f"{c['seconds'] * 1e3:.1f}"])
        tables[f"traffic against M, {heads} heads"] = markdown_table(
            ["Br x Bc", "M, KiB", "predicted, GB", "between L1 and L2, GB", "DRAM, GB", "ms"], lines)
    return tables


COUNTS = {"global load requests": "loads: requests", "global load sectors": "sectors",
          "global store requests": "stores: requests", "global store sectors": "sectors", "mma": "mma",
          "ldmatrix": "ldmatrix", "shared load wavefronts": "shared loads: wavefronts",
          "shared store wavefronts": "shared stores: wavefronts", "ways of bank conflicts": "ways"}


def counters_tables(record):
    """From the record of scripts/check_counters: for each problem a row a kernel, GPU / SIMT where they differ."""
    tables = {}
    for number, problem in enumerate(dict.fromkeys(row["problem"] for row in record["rows"]), 1):
        kernels = {}
        for row in record["rows"]:
            if row["problem"] == problem:
                both = f"{row['gpu']:,}", f"{row['simt']:,}"
                cells = kernels.setdefault((row["rung"], row["kernel"]), {})
                cells[row["counter"]] = both[0] if both[0] == both[1] else " / ".join(both)
        tables[f"problem {number}"] = markdown_table(
            ["kernel", *COUNTS.values()],
            [[f"{rung[:2]} {kernel}", *(cells.get(counter, "") for counter in COUNTS)]
             for (rung, kernel), cells in kernels.items()])
    return tables


def sanitize_tables(record):
    """From the record of scripts/sanitize."""
    tools = list(dict.fromkeys(row["tool"] for row in record["rows"]))
    rungs = list(dict.fromkeys(row["rung"] for row in record["rows"]))
    of = {(row["rung"], row["tool"]): row for row in record["rows"]}
    return {"runs without a report": markdown_table(
        ["rung", *tools], [[rung, *(f"{of[rung, tool]['runs'] - of[rung, tool]['reported']} of {of[rung, tool]['runs']}"
                                    for tool in tools)] for rung in rungs])}


def shared_memory_tables(record):
    """From the record of scripts/measure_shared_memory: rungs 12 and 13 by tile size and shared memory of an SM."""
    cases = list(dict.fromkeys((row["causal"], row["N"]) for row in record["rows"]))
    of = {(row["rung"], row["shared_kib_an_sm"], row["Bc"], (row["causal"], row["N"])): row for row in record["rows"]}
    tables = {}
    for rung in dict.fromkeys(variant["rung"] for variant in record["variants"]):
        rows = []
        for variant in record["variants"]:
            if variant["rung"] == rung:
                kib, Bc = variant["shared_kib_an_sm"], variant["Bc"]
                speeds = [of[rung, kib, Bc, case]["flops"] / of[rung, kib, Bc, case]["median_s"] for case in cases]
                rows.append([str(kib), f"128 x {Bc}", str((128 + 4 * Bc) * record["d"] * 2 // 1024),
                             str(variant["blocks_an_sm"]), f"{variant['occupancy_percent']:.1f}%",
                             *(f"{speed / 1e12:.0f}" for speed in speeds)])
        tables[f"rung {rung[:2]}"] = markdown_table(
            ["KiB an SM", "tile", "KiB a block", "blocks an SM", "occupancy",
             *(f"{'causal' if causal else 'full'} {N}" for causal, N in cases)], rows)
    return tables


def architectures_tables(record):
    """From the record of scripts/check_architectures: of all kernels of a rung the most registers, and what is spilled."""
    architectures = list(dict.fromkeys(row["architecture"] for row in record["rows"]))
    rows = []
    for rung in dict.fromkeys(row["rung"] for row in record["rows"]):
        cells = []
        for architecture in architectures:
            kernels = [row for row in record["rows"] if (row["rung"], row["architecture"]) == (rung, architecture)]
            spilled = sum(kernel["spill_stores"] for kernel in kernels)
            most = max((kernel["registers"] for kernel in kernels), default="failed")
            cells.append(f"{most}, {spilled} B spilled" if spilled else str(most))
        rows.append([rung[:2], *cells])
    return {"registers": markdown_table(["rung", *(f"sm_{one}" for one in architectures)], rows)}


TABLES = {"gpu_fp32": fp32_tables, "gpu_tiles": tiles_tables, "gpu_counters": counters_tables,
          "gpu_sanitize": sanitize_tables, "gpu_shared_memory": shared_memory_tables,
          "gpu_architectures": architectures_tables}
