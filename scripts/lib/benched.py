"""What scripts/bench measures: rungs, ceilings, libraries. Each function returns a part of the record."""

import hashlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from gpu_records import nvcc_target
from records import ROOT, first_line

NOISY = 0.05  # a spread, (longest - shortest) / median, beyond which a row is marked
SIZE = {"fp32": 4, "fp16": 2, "bf16": 2}
UNITS = {"cpu_fma_flops": "multiply-adds of all cores", "ffma_flops": "fp32 multiply-adds",
         "mma_sync_flops": "mma.sync", "wgmma_flops": "wgmma"}


class Refused(Exception):
    """A rung does not run this problem; says why. `wrong` when it ran and its result is wrong."""

    def __init__(self, reason, wrong=False):
        super().__init__(reason)
        self.wrong = wrong


def backend_of(folder):
    """cpu, simt or cuda, as the build folder was configured."""
    cache = folder / "CMakeCache.txt"
    text = cache.read_text(encoding="utf-8") if cache.is_file() else ""
    found = re.search(r"^FLASH_BACKEND:\w+=(\w+)$", text, re.M)
    return found[1] if found else "cpu"


def build_flags(folder):
    """What the compilers were told, from the cache of a build folder."""
    wanted = ("CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS", "CMAKE_CXX_FLAGS_RELEASE", "CMAKE_CUDA_FLAGS",
              "CMAKE_CUDA_FLAGS_RELEASE", "CMAKE_CUDA_ARCHITECTURES", "FLASH_NATIVE")
    cache = folder / "CMakeCache.txt"
    text = cache.read_text(encoding="utf-8") if cache.is_file() else ""
    flags = dict(re.findall(r"^(\w+):\w+=(.*)$", text, re.M))
    return {name: flags[name] for name in wanted if flags.get(name)}


def has_gpu():
    return first_line("nvidia-smi", "-L").startswith("GPU ")


def gpu_state():
    """Clocks, power and temperature at this moment."""
    names = ("sm_clock", "memory_clock", "power", "temperature")
    line = first_line("nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu",
                      "--format=csv,noheader")
    return dict(zip(names, line.split(", ") + ["unknown"] * len(names)))


def output_of(command):
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


class Ceilings:
    """What each unit of this machine reaches by itself; without a GPU those of the processor alone. The programs that
    measure it are compiled on the fly, once; those that cannot be compiled are left out."""

    def __init__(self, gpu, earlier=()):
        """`earlier`: what an earlier run on this machine measured; it counts, too."""
        self.folder = tempfile.TemporaryDirectory()
        self.best = dict(earlier)
        sources = [("ceilings.cpp", ["g++", "-std=gnu++20", "-O3", "-march=native", "-fopenmp"])]
        if gpu:
            capability = first_line("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
            codes = "arch=compute_90a,code=sm_90a"  # wgmma exists in this code alone
            target = f"--generate-code={codes}" if capability == "9.0" else nvcc_target()
            sources.append(("ceilings.cu", ["nvcc", "-std=c++20", "-O3", target]))
        self.programs = []
        for source, compiler in sources:
            program = Path(self.folder.name) / source.replace(".", "_")
            command = [*compiler, ROOT / "scripts/lib" / source, "-o", program]
            if shutil.which(compiler[0]) and output_of(command) is not None:
                self.programs.append(program)

    def measure(self):
        """{unit: speed}, and some facts about the machine. Of a speed the best of all calls: heat and other programs
        can only lower it."""
        for program in self.programs:
            for name, value in json.loads(output_of([program]) or "{}").items():
                self.best[name] = max(value, self.best.get(name, value))
        return dict(self.best)


def dtype_of(path):
    """The type that a rung is timed in: fp32 where it has it, else bf16."""
    text = subprocess.run([str(path), "--help"], stdout=subprocess.PIPE, text=True).stdout
    types = re.search(r"--dtype .*?: ([\w, ]+) \(", text)
    return "bf16" if types and "fp32" not in types[1] else "fp32"


def unit_of(name, backend, dtype):
    """The unit that does a rung's products, as a name in UNITS."""
    if backend == "cpu":
        return "cpu_fma_flops"
    if dtype == "fp32":
        return "ffma_flops"
    kernels = [path.read_text(encoding="utf-8") for path in (ROOT / "steps" / name).glob("*.cu")]
    return "wgmma_flops" if any("wgmma" in kernel for kernel in kernels) else "mma_sync_flops"


def code_of(name):
    """A fingerprint of a rung's code, the same after a change of comments, spaces and main.cpp."""
    files = sorted(path for path in (ROOT / "steps" / name).glob("*.*") if path.suffix in (".cu", ".cpp", ".hpp"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if path.name != "main.cpp")
    return hashlib.sha256(re.sub(r"//[^\n]*|\s", "", text).encode()).hexdigest()[:12]


def compulsory_bytes(problem, dtype):
    """Q, K and V read once, O and LSE written once."""
    B, H, N, d = (problem[name] for name in ("batch", "heads", "N", "d"))
    return B * H * N * (4 * d * SIZE[dtype] + 4)


def arguments_of(problem, dtype):
    return ["--batch", problem["batch"], "--heads", problem["heads"], "--q-len", problem["N"],
            "--head-dim", problem["d"], "--dtype", dtype, *(["--causal"] if problem["causal"] else [])]


def report_of(path, *arguments):
    """The JSON report of a run. Raises Refused."""
    terminal = os.isatty(2)  # there the rung shows its progress itself
    done = subprocess.run([str(path), *map(str, arguments), "--json"], cwd=ROOT, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=None if terminal else subprocess.PIPE, text=True)
    if done.returncode in (0, 1) and done.stdout:
        report = json.loads(done.stdout)
        if not report["ok"]:
            raise Refused("its result is wrong: " + (report["damage"] or report["check"]["message"]), wrong=True)
        return report
    words = (done.stderr or "").strip().splitlines()
    raise Refused(words[0].removeprefix(f"{Path(path).name}: ") if words else f"exit code {done.returncode}",
                  wrong=done.returncode not in (0, 2))


def estimate(path, problem, dtype):
    """About how many seconds --bench will take on the CPU: time grows as N^2, so a shorter N tells."""
    shorter = {**problem, "N": max(problem["N"] // 4, 1)}
    one = report_of(path, *arguments_of(shorter, dtype), "--no-check")["seconds"]
    one *= (problem["N"] / shorter["N"]) ** 2
    return one * (2 + max(3, min(20, 60 / max(one, 1e-9))))


def spread(seconds):
    return (max(seconds) - min(seconds)) / statistics.median(seconds)


def timing(seconds):
    return {"median_s": statistics.median(seconds), "min_s": min(seconds), "max_s": max(seconds),
            "spread": round(spread(seconds), 4), "noisy": spread(seconds) > NOISY, "repetitions": len(seconds)}


def time_rung(name, path, backend, problem, plan, check=True):
    """A row of the record. Raises Refused."""
    dtype = dtype_of(path)
    runs = plan.runs.get(backend)
    if backend == "cpu" and runs is None:
        expected = estimate(path, problem, dtype)
        if expected > 2:
            print(f"  about {expected:.0f} s{', and the check' if check else ''}", file=sys.stderr, flush=True)
    how_often = ["--bench"] if runs is None else ["--repetitions", runs] if runs else []
    checking = [] if check and not plan.check_rows else ["--check-rows", plan.check_rows] if check else ["--no-check"]
    report = report_of(path, *arguments_of(problem, dtype), *how_often, *checking)
    bench = report["benchmark"] or {"seconds": [report["seconds"]], "cut_short": True, "peak_memory_bytes": None}
    verdict = report["check"]
    row = {"program": name, "code": code_of(name), "problem": problem, "backend": backend,
           "on": report["description"], "dtype": dtype, "unit": unit_of(name, backend, dtype), "flops": report["flops"],
           "compulsory_bytes": compulsory_bytes(problem, dtype), **timing(bench["seconds"]),
           "cut_short": bench["cut_short"], "peak_memory_bytes": bench["peak_memory_bytes"],
           "of_allowed_error": round(verdict["o_error"] / verdict["o_bound"], 4) if verdict else None,
           "checked_rows": verdict["rows"] if verdict else 0,
           "compiler": report["compiler"]}
    return row if backend == "cpu" else {**row, "gpu_after": gpu_state()}


def time_libraries(problem, flops):
    """Rows of PyTorch's attention in fp32 and bf16, and its version; none without a PyTorch that sees the GPU."""
    rows, version = [], None
    shape = json.dumps([problem[name] for name in ("batch", "heads", "N", "d", "causal")])
    for dtype in ("fp32", "bf16"):
        output = output_of([sys.executable, ROOT / "scripts/lib/torch_attention.py", shape, dtype])
        if output is None:
            continue
        found = json.loads(output)
        version = found["version"]
        rows += [{"program": name, "library": True, "problem": problem, "backend": "cuda", "dtype": dtype,
                  "flops": flops, "compulsory_bytes": compulsory_bytes(problem, dtype), **timing(seconds)}
                 for name, seconds in found["seconds"].items()]
    return rows, version


def short_gpu_name(record):
    """nvidia_h200 and the like, for a file name; cpu where there is no GPU."""
    name = record.get("gpu") or "cpu"
    return re.sub(r"\W+", "_", name.lower().removeprefix("nvidia ")).strip("_")
