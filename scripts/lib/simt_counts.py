"""Counts of the SIMT backend, and those of ncu under the same names. scripts/check_counters compares them."""

import json
import re
import subprocess
import tempfile
from pathlib import Path

from gpu_records import stop

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


def profile(path, arguments):
    """{kernel: its totals} from a run with --profile."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(path), *arguments, "--no-check", "--profile"]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            stop(f"{' '.join(command)} failed with exit code {done.returncode}:\n{done.stderr}")
        kernels = json.loads((Path(folder) / f"{path.name}.profile.json").read_text(encoding="utf-8"))["kernels"]
    return {re.sub(r"<.*", "", kernel["name"]).split("::")[-1]: kernel["total"] for kernel in kernels}
