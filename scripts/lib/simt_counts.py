"""Counts of the SIMT backend, and those of ncu under the same names. scripts/check_counters compares them."""

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

from gpu_records import stop
from records import first_line

EQUAL = ("global load requests", "global load sectors", "global store requests", "global store sectors", "mma",
         "ldmatrix")
SHOWN = ("shared load wavefronts", "shared store wavefronts")


def of_gpu(counts):
    counts = {**counts, "mma": counts["tensor_pipe"] - counts["tensor_pipe_moves"]}
    return {name: int(counts[name.replace(" ", "_")]) for name in (*EQUAL, *SHOWN)}


def of_simt(total):
    """The same names from the JSON of --profile. cp.async loads global memory, and stores to shared memory apart."""
    loads, stores = total["global_load"], total["global_store"]
    return {"global load requests": loads["requests"], "global load sectors": loads["sectors"],
            "global store requests": stores["requests"], "global store sectors": stores["sectors"],
            "mma": total["mma"], "ldmatrix": total["ldmatrix"],
            "shared load wavefronts": total["shared_load"]["wavefronts"],
            "shared store wavefronts": total["shared_store"]["wavefronts"]}


def ways(total):
    """Wavefronts over wavefronts without conflicts, of all accesses to shared memory."""
    parts = [total[name] for name in ("shared_load", "shared_store", "async_store")]
    ideal = sum(part["ideal"] for part in parts)
    return sum(part["wavefronts"] for part in parts) / ideal if ideal else 1.0


def like_the_gpu():
    """The environment in which the SIMT backend has as much shared memory as the GPU here, if there is one: rung 13
    chooses its tiles by it. FLASH_SIMT_SHARED_KIB, where it is set, stays."""
    capability = first_line("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    kib = {"8.0": 163, "8.7": 163, "9.0": 227, "10.0": 227, "10.3": 227, "8.6": 99, "8.9": 99, "12.0": 99, "12.1": 99}
    own = {"FLASH_SIMT_SHARED_KIB": str(kib[capability])} if capability in kib else {}
    return {**own, **os.environ}


def document(path, arguments):
    """What a run with --profile writes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(path), *arguments, *([] if "--no-check" in arguments else ["--no-check"]), "--profile"]
        done = subprocess.run(command, cwd=folder, env=like_the_gpu(), stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            stop(f"{' '.join(command)} failed with exit code {done.returncode}:\n{done.stderr}")
        return json.loads((Path(folder) / f"{path.name}.profile.json").read_text(encoding="utf-8"))


def totals(profiled):
    """{kernel: its totals} of a document, under the names that ncu gives them."""
    return {re.sub(r"<.*", "", kernel["name"]).split("::")[-1]: kernel["total"] for kernel in profiled["kernels"]}


def profile(path, arguments):
    """{kernel: its totals} from a run with --profile."""
    return totals(document(path, arguments))
