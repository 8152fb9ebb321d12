"""Records of measurements: docs/records/NAME.json, all in one schema.

    {"provenance": {command, commit, date, ...}, "rows": [flat objects, one a line], "notes": "..."}

A row has a `program` and a `kind`; its other columns are those of COLUMNS that apply. One that does
not is left out.
"""

import datetime
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from lab.ladder import ROOT, LabError

Row = dict[str, Any]  # of a record: a column may be text, number or truth value

RECORDS = ROOT / "docs/records"


class Record(TypedDict):
    """A file of docs/records."""

    provenance: dict[str, Any]
    rows: list[Row]
    notes: NotRequired[str]


# ncu's names of what the records hold. A sector is 32 bytes, a wavefront of shared memory at most
# 128.
HMMA = "sm__pipe_tensor_op_hmma"
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
    # constants: HFMA2.MMA in SASS
    "tensor_pipe_moves": "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum",
    "ldmatrix": "smsp__sass_inst_executed_op_ldsm.sum",
    "instructions": "smsp__inst_executed.sum",
    "multiply_adds": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    # clocks that a warp waits, per instruction of its SM's quarter, by the reason
    **{
        f"stall_{reason}": f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
        for reason in (
            "barrier long_scoreboard short_scoreboard mio_throttle lg_throttle math_pipe_throttle "
            "wait not_selected sleeping gmma"
        ).split()
    },
    "warps_per_issue": "smsp__average_warps_active_per_issue_active.ratio",
    "issue_active_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "tensor_active_percent": f"{HMMA}_cycles_active.avg.pct_of_peak_sustained_active",
    # exponentials, and conversions
    "xu_percent": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
    "blocks": "launch__grid_size",
    "local_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",  # of spilled registers
    "local_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
}

KINDS = {
    "rung": "of the ladder: timed, checked or compiled",
    "library": "the same problem by PyTorch, FA3, FA4 or Triton",
    "kernel": "what ncu counted of one kernel (METRICS)",
    "ceiling": "what a unit of the machine reached by itself: value, in FLOP/s, bytes/s or 1/s",
    "example": "a program of docs/examples: how many numbers (value) are wrong; a tool's report",
    "host": "what the host needs for a call until it returns: host_us",
    "left out": "what was not measured, and the reason",
    "training": "the loss at a step of docs/examples/train.py",
}
# extra_bytes: memory beyond compulsory_bytes, which are Q, K, V, O and LSE once. of_allowed_error:
# the largest error over what the rule allows. unit: the ceiling of what does the products. code: a
# fingerprint. clock in MHz: lab compare measures it at the end of each round and takes the median,
# others ask nvidia-smi after the case. power in W, after the case.
COLUMNS = set(METRICS) | set(
    """
    program kind rung dtype B H H_kv N_q N_kv d d_v causal window sigma pattern ms min_ms max_ms
    spread repetitions tflops gb_per_s compulsory_bytes extra_bytes backend of_allowed_error
    checked_rows unit code clock power kernel architecture stack spill_stores spill_loads
    static_shared what value reason problem counter gpu simt must_be_equal tool runs reported
    variant input seeds rms_error
    o_error lse_error Br Bc shared_bytes predicted_bytes step loss host_us ranks processes
    """.split()
)


def wrong_with(row: Row) -> str:
    """What breaks the schema in a row, or ""."""
    unknown = [name for name in row if name not in COLUMNS]
    if unknown:
        return f"unknown columns {unknown}"
    if row.get("kind") not in KINDS or not row.get("program"):
        return f"no program, or unknown kind {row.get('kind')!r}"
    nested = [name for name, value in row.items() if not isinstance(value, (str, int, float, bool))]
    return f"no plain values in {nested}" if nested else ""


def text_of(record: Record) -> str:
    """One row a line, so that a change shows as the rows it touches."""
    rows = ",\n".join("  " + json.dumps(row) for row in record["rows"])
    return (
        f'{{\n "provenance": {json.dumps(record["provenance"], indent=2)},\n'
        f' "rows": [\n{rows}\n ],\n'
        f' "notes": {json.dumps(record.get("notes", ""))}\n}}\n'
    )


def write(path: Path, provenance: dict[str, Any], rows: Iterable[Row], notes: str = "") -> Path:
    """Beside, then renamed: a file that is there stays whole. None and NaN are left out."""
    kept = [
        {name: value for name, value in row.items() if value is not None and value == value}
        for row in rows
    ]
    for row in kept:
        if wrong := wrong_with(row):
            raise ValueError(f"{wrong} in {row}")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    text = text_of({"provenance": provenance, "rows": kept, "notes": notes})
    beside.write_text(text, encoding="utf-8")
    return beside.rename(path)


def path_of(name: str | Path) -> Path:
    """docs/records/NAME.json of a NAME, and of a path that path."""
    return Path(name) if str(name).endswith(".json") else RECORDS / f"{name}.json"


def save(name: str, provenance: dict[str, Any], rows: list[Row], notes: str = "") -> Path:
    if not re.fullmatch(r"[\w.-]+", name):
        raise LabError(f"'{name}' is no name for a record: letters, digits, _ and -")
    return write(path_of(name), provenance, rows, notes)


def read(name: str | Path) -> Record:
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


MEASURED_BY = {  # how a record's name begins: the command that makes it; others are lab compare's
    "bench": "./scripts/bench",
    "series": "./scripts/bench --series",
    "memory": "./scripts/bench --memory",
    "gpu_architectures": "./scripts/lab/run architectures --record",
    "gpu_counters": "./scripts/lab/run counters --record",
    "gpu_sanitize": "./scripts/lab/run sanitize --record",
    "gpu_unseen": "./scripts/lab/run sanitize --unseen --record",
    "gpu_ring": "./scripts/lab/run ring --record",
    "gpu_training": "./scripts/lab/run compare --training --record",
    "gpu_decode": "./scripts/lab/run compare packed_heads split_kv --decode --record",
}


def measured_by(name: str, rungs: Iterable[str]) -> str:
    """The command that measures a record; `rungs`: those that are to be in it."""
    compare = " ".join(["./scripts/lab/run compare", *rungs, "--record"])
    found = next((MEASURED_BY[one] for one in MEASURED_BY if name.startswith(one)), compare)
    return f"{found} {name}" if found.endswith("--record") else found


def first_line(*command: str) -> str:
    """The first line that a command prints, or "unknown"."""
    try:
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return said.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def processor() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    found = re.search(r"^model name\s*: (.*)$", text, re.M)
    return found[1] if found else platform.machine()


def has_gpu() -> bool:
    return first_line("nvidia-smi", "-L").startswith("GPU ")


def asked(*fields: str) -> list[str]:
    """What nvidia-smi answers, one text a field."""
    line = first_line("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader")
    return (line.split(", ") + ["unknown"] * len(fields))[: len(fields)]


def clock_and_power() -> dict[str, float | None]:
    """Columns of a row: the GPU at this moment."""
    clock, power = (re.match(r"[\d.]+", text) for text in asked("clocks.sm", "power.draw"))
    return {
        "clock": float(clock[0]) if clock else None,
        "power": float(power[0]) if power else None,
    }


def provenance(
    command: str, commit: str = "", gpu: bool | None = None, **more: Any
) -> dict[str, Any]:
    """Where and how something was measured; `commit` of sources without their history."""
    found = {
        "command": command,
        "date": datetime.date.today().isoformat(),
        "commit": commit or first_line("git", "rev-parse", "--short=12", "HEAD"),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "compiler": first_line("g++", "--version"),
        "system": f"{platform.system()} {platform.release()}",
    }
    if has_gpu() if gpu is None else gpu:
        fields = ("name", "driver_version", "clocks.max.sm", "power.limit", "memory.total")
        found |= zip(("gpu", "driver", "max_clock", "power_limit", "memory"), asked(*fields))
    try:
        version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout
    except OSError:
        version = ""
    if release := re.search(r"release ([\d.]+), V([\d.]+)", version):
        found |= {"cuda": release[1], "nvcc": release[2]}
    return found | more
