"""Running rungs and ncu on a GPU, and what a record of it says about the machine."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from records import ROOT, first_line, ladder_names

RUNGS = ("06_cuda_naive", "07_flash_attention_1", "08_flash_attention_2", "09_register_tiling")

# ncu's names of what the records hold. Sectors are 32 bytes, a wavefront of shared memory is at most 128.
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


def stop(message):
    sys.exit(f"{os.path.relpath(sys.argv[0], ROOT)}: {message}")


def gpu_provenance(command, commit):
    """Where and how something was measured; `commit` when the sources travelled without their history."""
    query = "name,driver_version,clocks.max.sm,power.limit,memory.total"
    gpu, driver, clock, power, memory = (first_line("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader")
                                         .split(", ") + ["unknown"] * 5)[:5]
    nvcc = subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout.split("release ")
    return {
        "command": command,
        "date": first_line("date", "+%Y-%m-%d"),
        "commit": commit or first_line("git", "rev-parse", "--short=12", "HEAD"),
        "gpu": gpu,
        "driver": driver,
        "max_sm_clock": clock,
        "power_limit": power,
        "memory": memory,
        "cuda": nvcc[1].split(",")[0] if len(nvcc) > 1 else "unknown",
    }


def nvcc_target():
    """nvcc's option to compile for the GPU of this computer. Where nvcc does not know it yet, the newest PTX that the GPU
    can run, which the driver compiles when the program starts."""
    capability = first_line("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader").replace(".", "")
    if not shutil.which("nvcc"):
        return "-arch=native"  # who runs it will say so
    listed = subprocess.run(["nvcc", "--list-gpu-arch"], capture_output=True, text=True).stdout
    known = sorted(int(number) for number in re.findall(r"compute_(\d+)", listed))
    older = [number for number in known if capability.isdigit() and number <= int(capability)]
    return f"-arch=compute_{older[-1]}" if older and older[-1] != int(capability) else "-arch=native"


def program(folder, name):
    """The program of a rung in a build folder or in any other."""
    for path in (folder / "steps" / name, folder / name):
        if path.is_file():
            return path.resolve()
    return stop(f"there is no program {name} in {folder}; build it: cmake --preset cuda && "
                "cmake --build --preset cuda --target rungs")


def cuda_rungs(folder):
    """Name and program of each CUDA rung of the ladder."""
    return [(name, program(folder, name)) for name in ladder_names() if any((ROOT / "steps" / name).glob("*.cu"))]


def types_and_head_dims(path):
    """What a rung supports, as its --help says."""
    text = subprocess.run([str(path), "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    head_dims = re.search(r"--head-dim .*?: ([\d, ]+) \(", text)
    dtypes = re.search(r"--dtype .*?: ([\w, ]+) \(", text)
    if not head_dims or not dtypes:
        stop(f"{path} --help does not list its head dims and types")
    return dtypes[1].split(", "), head_dims[1].split(", ")


def run(path, *arguments):
    """The JSON report of a run; ends the program when the run fails."""
    command = [str(path), *map(str, arguments), "--no-check", "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        stop(f"{' '.join(command)} failed with exit code {done.returncode}")
    return json.loads(done.stdout)


def count(path, *arguments):
    """What ncu counts for each kernel of the first run of a program: {kernel: {metric: number}}."""
    command = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
               "--metrics", ",".join(METRICS.values()), str(path), *map(str, arguments), "--no-check"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        stop(f"{' '.join(command)} failed with exit code {done.returncode}:\n{done.stdout[-2000:]}")
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    kernels = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        if not row["ID"]:
            continue  # the line of units
        name = row["Kernel Name"].split("(")[0].split("::")[-1].split("<")[0]
        counts = {ours: float(row[theirs].replace(",", "")) for ours, theirs in METRICS.items() if row.get(theirs)}
        if "seconds" in counts:
            counts["seconds"] /= 1e9
        kernels.setdefault(name, counts)  # later runs are left out
    return kernels


def shape_arguments(shape):
    """Command-line arguments of a shape (B, H, N, d, causal)."""
    batch, heads, N, d, causal = shape
    return ["--batch", batch, "--heads", heads, "--q-len", N, "--head-dim", d, *(["--causal"] if causal else [])]


def folder_option(parser):
    parser.add_argument("--programs", type=Path, default=ROOT / "build-cuda", metavar="DIR",
                        help="build folder with the programs (build-cuda)")
    parser.add_argument("--commit", default="", help="commit of the sources, where git cannot tell")
