"""lab mutations: which mutants a kernel has, and that one which nobody notices is told."""

from lab import mutations
from lab.__main__ import main
from lab.ladder import cuda_rungs

KERNEL = """#line 1 "steps/a/kernel.cu"
__global__ void kernel(int rows) { // __syncthreads();
    for (int j0 = 0; j0 < N_kv; j0 += Bc) {
        flash::cp_async_wait<0>();
#line 8 "common/cuda/derived/part.hpp"
        __syncthreads(); // the tile is there
    }
#line 6 "steps/a/kernel.cu"
    if (lane == 0) barrier.arrive(1); // redundant: nobody waits
    const float sum = __shfl_xor_sync(~0u, l, 1);
}
"""


def test_mutants_of_a_kernel():
    found = list(mutations.mutants(KERNEL))
    assert [str(one) for one in found] == [
        "kernel.cu:3: flash::cp_async_wait<0>();",
        "part.hpp:8: __syncthreads(); // the tile is there",
        "kernel.cu:6: barrier.arrive(1); // redundant: nobody waits",
    ]
    assert [one.redundant for one in found] == [False, False, True]
    text = mutations.with_switches(KERNEL)
    assert "    if (lane == 0) if (!flash_mutant(3)) { barrier.arrive(1); } // redundant" in text
    assert text.count("flash_mutant(") == 4 and text.count("\n") == KERNEL.count("\n") + 1


def test_every_cuda_rung_has_mutants_and_each_stands_where_it_says():
    for rung in cuda_rungs():
        found = list(mutations.mutants(mutations.kernel_of(rung)))
        assert found and not all(one.redundant for one in found), rung.name
        for one in found:
            name, number = one.place.split(":")
            file = (
                rung.kernel_file
                if name == rung.kernel_file.name
                else mutations.ROOT / "common/cuda/derived" / name
            )
            assert one.text.splitlines()[0] in file.read_text().splitlines()[int(number) - 1]


def test_mutants_that_survive_are_told(stand_in, tmp_path, capsys):
    rung = cuda_rungs(["flash_attention_1"])[0]
    program = stand_in(
        f"mutations_{rung.program}",
        'case "$FLASH_MUTANT" in 0 | 2) ;; *) echo "it threw: race, "; exit 1 ;; esac',
    )
    assert main(["mutations", "flash_attention_1", "--programs", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert (
        said.count("NOT CAUGHT") == 1 and "1 not caught" in said and "in-order, late: race" in said
    )
    program.write_text("#!/bin/sh\nexit 1\n")
    # It fails without a mutation.
    assert main(["mutations", "flash_attention_1", "--programs", str(tmp_path)]) == 2
