"""Records of measurements: docs/records/NAME.json, all in one schema.

    {"provenance": {command, commit, date, ...}, "rows": [flat objects, one a line], "notes": "..."}

A row has a `program` and a `kind`; its other columns are those of COLUMNS that apply. One that does not is left out. Measuring code handles plain rows; only load() needs pandas.
"""

import datetime
import json
import os
import platform
import re
import subprocess
from pathlib import Path

from lab.ladder import LabError, ROOT

RECORDS = ROOT / "docs/records"

# ncu's names of what the records hold. A sector is 32 bytes, a wavefront of shared memory at most 128.
METRICS = {
    "seconds": "gpu__time_duration.sum",
    "occupancy_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm_active_percent": "smsp__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "shared_load_requests": "smsp__sass_inst_executed_op_shared_ld.sum",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l2_read_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
    "l2_write_sectors": "lts__t_sectors_srcunit_tex_op_write.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "shared_load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared_store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "tensor_pipe": "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "tensor_pipe_moves": "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum",  # constants: HFMA2.MMA in SASS
    "ldmatrix": "smsp__sass_inst_executed_op_ldsm.sum",
    "instructions": "smsp__inst_executed.sum",
    "multiply_adds": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "tensor_active_percent": "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
    "blocks": "launch__grid_size",
    "local_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",  # of spilled registers
    "local_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
}

KINDS = {
    "rung": "of the ladder: timed, checked or compiled",
    "library": "the same problem by PyTorch",
    "variant": "a rung with a patch, timed",
    "kernel": "what ncu counted of one kernel (seconds to local_store_sectors)",
    "build": "what ptxas and the SASS say of one kernel of an experiment",
    "ceiling": "what a unit of the machine reached by itself",
    "left out": "what was not measured",
}

COLUMNS = {
    "program": "name of a rung, a library, a variant or a unit", "kind": "one of KINDS",
    "rung": "of a variant: the rung that it changes",
    # the problem
    "dtype": "fp32, fp16 or bf16", "B": "batch", "H": "query heads", "H_kv": "heads of K and V",
    "N_q": "queries", "N_kv": "keys", "d": "head dim", "causal": "whether masked",
    "sigma": "standard deviation of the scores", "pattern": "of the scores: random, rising:R, sink:WHERE, real",
    # times
    "ms": "median", "min_ms": "shortest", "max_ms": "longest", "spread": "(longest - shortest) / median",
    "repetitions": "how many runs", "tflops": "of the median", "compulsory_bytes": "Q, K, V, O and LSE once",
    "extra_bytes": "memory beyond those", "backend": "cpu or cuda", "unit": "that does the products: a ceiling",
    "of_allowed_error": "the largest error over what the rule allows", "checked_rows": "how many rows were checked",
    "code": "fingerprint of the rung's code", "clock": "MHz of the SMs, after the case", "power": "W, after the case",
    # kernels
    "kernel": "name in the source", **dict.fromkeys(METRICS, "counted by ncu"),
    "architecture": "compute capability without the point", "stack": "bytes", "spill_stores": "bytes",
    "spill_loads": "bytes", "static_shared": "bytes", "mma": "in the loop; `instructions` of a build are the loop's",
    "problem": "arguments of the program", "counter": "its name", "gpu": "its count on the GPU",
    "simt": "its count under SIMT", "must_be_equal": "whether the two must agree",
    "Br": "queries of a tile", "Bc": "keys of a tile", "shared_bytes": "of a block",
    "predicted_bytes": "that should go to memory", "shared_kib_per_sm": "KiB", "blocks_per_sm": "that fit",
    # the rest
    "what": "an experiment changes", "predicted": "before it was measured", "wrong": "on purpose, so not checked",
    "patch": "fingerprint of its changes", "value": "in FLOP/s, bytes/s or 1/s", "tool": "of compute-sanitizer",
    "runs": "how many", "reported": "how many of them were not clean", "variant": "flags of the compiler, by name",
    "input": "random or rising scores", "seeds": "how many", "o_error": "of O, root mean square relative to O",
    "lse_error": "of LSE, root mean square", "reason": "why it was left out",
}


def wrong_with(row):
    """What breaks the schema in a row, or ""."""
    unknown = [name for name in row if name not in COLUMNS]
    if unknown:
        return f"unknown columns {unknown}"
    if row.get("kind") not in KINDS or not row.get("program"):
        return f"no program, or unknown kind {row.get('kind')!r}"
    nested = [name for name, value in row.items() if not isinstance(value, (str, int, float, bool))]
    return f"no plain values in {nested}" if nested else ""


def text_of(record):
    """One row a line, so that a change shows as the rows it touches."""
    rows = ",\n".join("  " + json.dumps(row) for row in record["rows"])
    return (f'{{\n "provenance": {json.dumps(record["provenance"], indent=2)},\n "rows": [\n{rows}\n ],\n'
            f' "notes": {json.dumps(record.get("notes", ""))}\n}}\n')


def write(path, provenance, rows, notes=""):
    """Beside, then renamed: a file that is there stays whole whatever happens meanwhile. None is left out."""
    rows = [{name: value for name, value in row.items() if value is not None} for row in rows]
    for row in rows:
        if wrong := wrong_with(row):
            raise ValueError(f"{wrong} in {row}")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.write_text(text_of({"provenance": provenance, "rows": rows, "notes": notes}), encoding="utf-8")
    beside.rename(path)
    return path


def path_of(name):
    """docs/records/NAME.json of a NAME, and of a path that path."""
    return Path(name) if str(name).endswith(".json") else RECORDS / f"{name}.json"


def save(name, provenance, rows, notes=""):
    if not re.fullmatch(r"[\w.-]+", name):
        raise LabError(f"'{name}' is no name for a record: letters, digits, _ and -")
    return write(path_of(name), provenance, rows, notes)


def read(name):
    """The record as it is in the file."""
    path = path_of(name)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        wrong = next(filter(None, map(wrong_with, record["rows"])), "")
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LabError(f"{path} is not a record of the lab") from None
    if wrong or not isinstance(record.get("provenance"), dict):
        raise LabError(f"{path} is not a record of the lab: {wrong or 'no provenance'}")
    return record


def load(name):
    """(provenance, DataFrame); columns that a row does not have are NaN."""
    import pandas
    record = read(name)
    return record["provenance"], pandas.DataFrame(record["rows"])


def first_line(*command):
    """The first line that a command prints, or "unknown"."""
    try:
        output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return output.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def processor():
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.M)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def has_gpu():
    return first_line("nvidia-smi", "-L").startswith("GPU ")


def asked(*fields):
    """What nvidia-smi answers, one text a field."""
    line = first_line("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader")
    return (line.split(", ") + ["unknown"] * len(fields))[:len(fields)]


def clock_and_power():
    """Columns of a row: the GPU at this moment."""
    clock, power = (re.match(r"[\d.]+", text) for text in asked("clocks.sm", "power.draw"))
    return {"clock": float(clock[0]) if clock else None, "power": float(power[0]) if power else None}


def provenance(command, commit="", gpu=None, **more):
    """Where and how something was measured; `commit` when the sources travelled without their history."""
    found = {"command": command, "date": datetime.date.today().isoformat(),
             "commit": commit or first_line("git", "rev-parse", "--short=12", "HEAD"),
             "processor": processor(), "cores": len(os.sched_getaffinity(0)),
             "compiler": first_line("g++", "--version"), "system": f"{platform.system()} {platform.release()}"}
    if has_gpu() if gpu is None else gpu:
        names = ("gpu", "driver", "max_clock", "power_limit", "memory")
        found |= dict(zip(names, asked("name", "driver_version", "clocks.max.sm", "power.limit", "memory.total")))
    try:
        version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout
    except OSError:
        version = ""
    if release := re.search(r"release ([\d.]+), V([\d.]+)", version):
        found |= {"cuda": release[1], "nvcc": release[2]}
    return found | more
