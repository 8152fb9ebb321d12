"""lab mutations: which mutants a kernel has, and that one which nobody notices is told."""

import mutations

from lab.__main__ import main
from lab.ladder import cuda_rungs

KERNEL = """
__global__ void kernel(int rows) { // __syncthreads();
    for (int j0 = 0; j0 < N_kv; j0 += Bc) {
        flash::cp_async_wait<0>();
        __syncthreads(); // the tile is there
        if (j0 + Bc > min(N_kv, first_row_keys)) {
            s = j >= N_kv ? -INFINITY : s;
        }
    }
    if (__syncthreads_or(!(sum < 2))) again();
    const float shift = m[r] == -INFINITY ? 0 : m[r];
    flash::cp_async_16(smem, from, r < valid);
}
"""


def test_mutants_of_a_kernel():
    found = {one.what.split(": ", 1)[1] for one in mutations.mutants(KERNEL)}
    assert found == {
        "flash::cp_async_wait<0>(); ", "__syncthreads(); // the tile is there", "j0 + Bc > min(N_kv, first_row_keys) -> false",
        "min(N_kv, first_row_keys) -> N_kv", "min(N_kv, first_row_keys) -> first_row_keys", "j >= N_kv -> false",
        "__syncthreads_or(!(sum < 2)) -> (__syncthreads(), false)", "__syncthreads_or(!(sum < 2)) -> !(sum < 2)",
        "m[r] == -INFINITY -> false", "r < valid -> true"}
    text = mutations.with_switches(KERNEL, mutations.mutants(KERNEL))
    assert all(text.count(f"flash_mutant({number})") == 1 for number in range(1, len(found) + 1))
    one = mutations.mutants("if (a < rows) f();\n")
    assert mutations.with_switches("if (a < rows) f();\n", one).endswith("if ((flash_mutant(1) ? (true) : (a < rows))) f();\n")


def test_every_rung_from_07_on_has_mutants_and_every_exception_is_one():
    rungs = [rung for rung in cuda_rungs() if rung.number >= "07"]
    found = {rung: mutations.mutants(mutations.kernel_of(rung)) for rung in rungs}
    for rung, some in found.items():
        assert len(some) >= 10 and any("sync" in one.what for one in some) and any("-> " in one.what for one in some), rung.name
    unused = [key for key in mutations.EQUIVALENT if not any(
        key[0] in rung.name and key[1] in one.what for rung, some in found.items() for one in some)]
    assert not unused, "mutations.EQUIVALENT names what no kernel has"


def test_mutants_of_what_kernels_share():
    multistage = cuda_rungs(["18"])[0]
    own, source = multistage.kernel_file.read_text().splitlines(), mutations.kernel_of(multistage)
    header = (mutations.ROOT / "common/cuda/fixed_maximum.hpp").read_text().splitlines()
    places = [(one.what.split(": ")[0], one) for one in mutations.mutants(source)]
    assert any(place.startswith("fixed_maximum.hpp:") for place, _ in places)
    for place, one in places:
        lines = header if ":" in place else own
        assert one.text.splitlines()[0] in lines[int(place.split(":")[-1]) - 1]


def test_what_the_suite_said():
    assert mutations.complaint("x it threw: race: two\n    threads, and") == "race: two threads"
    assert mutations.complaint("  O at (0, 1, 2)\n is nan, should") == "O is nan"
    assert mutations.complaint("Segmentation fault") == "ended with an error"


def test_mutants_that_survive_are_told(stand_in, tmp_path, capsys):
    rung = cuda_rungs(["07"])[0]
    program = stand_in(f"mutations_{rung.name}", '[ "$FLASH_MUTANT" = 0 ] || [ "$FLASH_MUTANT" = 2 ] || { echo "it threw: race, "; exit 1; }')
    assert main(["mutations", "07", "--programs", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert said.count("NOT CAUGHT") == 1 and "1 not caught" in said and "in-order, late: race" in said
    program.write_text("#!/bin/sh\nexit 1\n")
    assert main(["mutations", "07", "--programs", str(tmp_path)]) == 2  # it fails without a mutation
