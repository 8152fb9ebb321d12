#!/usr/bin/env python3
"""Times rung 05 and PyTorch's scaled_dot_product_attention on the CPU: same cores, same tensors, same run.

Both take turns, several rounds, each round with cold caches; printed are medians over all rounds. Before that, rung
05 is checked against the float64 reference on the very tensors, and PyTorch's output is compared with the rung's.
Needs the Python packages torch and safetensors; the rung is built with scripts/step.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
from records import ROOT, aligned, provenance, write_record
from cpu_tables import comparison_tables

SHAPES = [  # B, H, N, d, causal
    (1, 8, 4096, 64, False),
    (1, 8, 4096, 64, True),
    (1, 8, 4096, 128, False),
    (1, 8, 1024, 64, False),
]


def rung(environment, *arguments):
    """Runs rung 05; returns its JSON, or ends the program when it fails."""
    command = ["scripts/step", "--preset", "cpu", "05_one_pass_softmax", *arguments, "--json"]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"compare_cpu.py: {' '.join(command)} failed with exit code {done.returncode}")
    return json.loads(done.stdout)


def compare(shape, rounds, threads, folder):
    import torch
    from safetensors.torch import load_file, save_file

    batch, heads, N, d, causal = shape
    torch.manual_seed(1)
    q, k, v = (torch.randn(batch, heads, N, d) for _ in range(3))
    inputs, outputs = str(Path(folder) / "qkv.safetensors"), str(Path(folder) / "o.safetensors")
    save_file({"q": q, "k": k, "v": v}, inputs)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    arguments = ["--input", inputs, *(["--causal"] if causal else [])]

    def attention():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    flush = torch.ones(100 << 20)  # 400 MiB, beyond the caches

    def pytorch_seconds(count):
        attention()
        seconds = []
        for _ in range(count):
            flush.sum()
            start = time.perf_counter()
            attention()
            seconds.append(time.perf_counter() - start)
        return seconds

    checked = rung(environment, *arguments, "--output", outputs)
    difference = (attention() - load_file(outputs)["o"]).abs().max().item()
    ours, theirs = [], []
    for number in range(rounds):
        print(f"{shape}: round {number + 1} of {rounds}", file=sys.stderr)
        theirs += pytorch_seconds(10)
        result = rung(environment, *arguments, "--bench", "--no-check")
        ours += result["benchmark"]["seconds"]
        theirs += pytorch_seconds(10)
    return {"problem": checked["problem"], "flops": checked["flops"], "o_error": checked["check"]["o_error"],
            "difference_from_pytorch": difference,
            "rung_median_s": statistics.median(ours), "rung_min_s": min(ours), "rung_repetitions": len(ours),
            "pytorch_median_s": statistics.median(theirs), "pytorch_min_s": min(theirs),
            "pytorch_repetitions": len(theirs)}, result["description"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="Takes about three minutes. Exit code: 0, or 2 when it cannot run.")
    parser.add_argument("--rounds", type=int, default=3, help="how often both take their turn (3)")
    parser.add_argument("--cores", type=int, default=0, metavar="N", help="run on N cores (all that are allowed)")
    parser.add_argument("--record", action="store_true", help="also write docs/records/cpu_comparison.json")
    options = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    if options.rounds < 1 or not 0 <= options.cores <= len(allowed):
        parser.error(f"--rounds must be at least 1, --cores from 1 to {len(allowed)}")
    try:
        import safetensors  # noqa: F401
        import torch
    except ImportError as error:
        print(f"compare_cpu.py: {error}\nit needs the Python packages torch (CPU is enough) and safetensors, "
              "for example in a virtual environment", file=sys.stderr)
        return 2
    threads = options.cores or len(allowed)
    os.sched_setaffinity(0, set(allowed[:threads]))  # the rung inherits it
    torch.set_num_threads(threads)

    record = provenance("scripts/compare_cpu.py")
    record["pytorch"] = torch.__version__
    record["rows"] = []
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES:
            row, record["backend"] = compare(shape, options.rounds, threads, folder)
            record["rows"].append(row)
    for title, lines in comparison_tables(record).items():
        print(f"\n{title}\n\n" + aligned(lines))
    worst = max(row["difference_from_pytorch"] for row in record["rows"])
    print(f"\nlargest difference between the two outputs: {worst:.1e}")
    if options.record:
        print(f"written to {write_record('cpu_comparison', record).relative_to(ROOT)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
