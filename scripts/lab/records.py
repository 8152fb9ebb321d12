"""Stand-in: reads the records of before in the new form. Columns beyond the agreed ones:

kind "rung" or "library": timed. `backend`, `unit` (the ceiling's name), `compulsory_bytes`, `extra_bytes`, `code`.
kind "kernel": what ncu counted of a kernel of `program`: `kernel`, `seconds`, and the counters' names of before.
kind "ceiling": `program` is its name ("ffma_flops"), `value` what it reached (operations or bytes per second).
kind "left out": `program`, sizes, `reason`.
kind "variant": an experiment's times; kind "build": what the compiler made of it: `rung`, `what`, `predicted`, `wrong`,
    `registers`, `spill_stores`, `stack`, `instructions`, `mma`, of each `kernel` and `d`.
"""
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs/records"
LISTS = ("rows", "counters", "ceilings", "left_out", "variants")


def sizes(problem):
    get = problem.get
    N = get("N", get("q_len"))
    return {"B": get("batch"), "H": get("heads"), "H_kv": get("kv_heads", get("heads")), "N_q": N,
            "N_kv": get("kv_len", N), "d": get("d", get("head_dim")), "causal": get("causal")}


def timed(row, record):
    problem = row.get("problem") or row.get("shape") or row
    if isinstance(problem, str):
        problem = {}
    program = row.get("program", row.get("rung", "07_flash_attention_1" if "predicted_bytes" in row else None))
    flat = {"program": program, "kind": "rung" if str(program)[:1].isdigit() else "library",
            **{key: value for key, value in sizes({**record, **problem}).items() if value is not None}}
    tokens = record.get("tokens")
    if tokens and flat.get("N_q"):
        flat |= {"B": tokens // flat["N_q"], "H": record["hidden"] // flat["d"], "H_kv": record["hidden"] // flat["d"]}
    if "median_s" in row:
        flat["ms"] = row["median_s"] * 1e3
        flat["spread"] = row.get("spread", (row["max_s"] - row["min_s"]) / row["median_s"])
        if "flops" in row:
            flat["tflops"] = row["flops"] / row["median_s"] / 1e12
    dtype = row.get("dtype", record.get("dtype", "fp32" if record.get("command") == "scripts/measure_gpu" else None))
    if dtype:
        flat["dtype"] = dtype
    if "peak_memory_bytes" in row:
        flat["extra_bytes"] = row["peak_memory_bytes"]
    skip = {"problem", "shape", "counts", "median_s", "flops", "rung", "program", "batch", "heads", "N", "d", "causal",
            "library", "gpu_after", "peak_memory_bytes"}
    if isinstance(row.get("problem"), str):
        skip.remove("problem")
    return flat | {key: value for key, value in row.items() if key not in skip and key not in flat} | row.get("counts", {})


def flatten(name, record):
    rows = []
    if name == "cpu_comparison":
        for row in record["rows"]:
            for who in ("rung", "pytorch"):
                rows.append({"program": "05_one_pass_softmax" if who == "rung" else "PyTorch",
                             "kind": "rung" if who == "rung" else "library", "dtype": "fp32", **sizes(row["problem"]),
                             "ms": 1e3 * row[f"{who}_median_s"], "min_ms": 1e3 * row[f"{who}_min_s"],
                             "tflops": row["flops"] / row[f"{who}_median_s"] / 1e12})
        return rows
    for row in record["rows"]:
        if name == "gpu_experiments":
            variant = next((one for one in record["variants"] if one["program"] == row["program"]), None)
            rows.append(timed(row, record) | ({"kind": "variant" if variant["what"] else "rung", "rung": variant["rung"]}
                                              if variant else {}))
        elif name == "gpu_shared_memory":
            key = ("rung", "shared_kib_an_sm", "Bc")
            extra = next(one for one in record["variants"] if all(one[k] == row[k] for k in key))
            row = {**row, "shared_kib_per_sm": row["shared_kib_an_sm"], "blocks_per_sm": extra["blocks_an_sm"],
                   "occupancy_percent": extra["occupancy_percent"]}
            rows.append(timed(row, record))
        else:
            rows.append(timed(row, record))
    where = sizes(record.get("counted_problem") or record.get("counted_shape") or {})
    for program, kernels in record.get("counters", {}).items():
        for kernel, counts in kernels.items():
            rows.append({"program": program, "kind": "kernel", "kernel": kernel, **where, **counts})
    for program, value in record.get("ceilings", {}).items():
        rows.append({"program": program, "kind": "ceiling", "value": value})
    if record.get("kind") in ("memory", "bench", "series"):
        for one in record["left_out"]:
            rows.append({"program": one["program"], "kind": "left out", "reason": one["reason"],
                         **sizes(one.get("problem", {}))})
    if name == "gpu_experiments":
        for one in record["variants"]:
            for kernel in one["kernels"]:
                rows.append({"program": one["program"], "kind": "build", "rung": one["rung"], "what": one["what"],
                             "predicted": one["predicted"], "wrong": one["wrong_on_purpose"],
                             **{"mma" if k == "products" else k: v for k, v in kernel.items()}, **(one["counts"] or {})})
    return rows


def load(name):
    import pandas
    path = RECORDS / f"{name}.json"
    if not path.is_file():
        raise FileNotFoundError(f"there is no record {name}: {path.relative_to(ROOT)}")
    record = json.loads(path.read_text(encoding="utf-8"))
    if "provenance" not in record:
        record = {"provenance": {key: value for key, value in record.items() if key not in LISTS},
                  "rows": flatten(name, record)}
    return record["provenance"], pandas.DataFrame(record["rows"])
