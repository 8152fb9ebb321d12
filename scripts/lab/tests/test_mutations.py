"""lab mutations: which mutants a kernel has."""

import pytest
from cuda_on_cpu.compiling import use_grammar
from lab import mutations
from lab.ladder import LabError, cuda_rungs


@pytest.fixture(scope="module", autouse=True)
def grammar():
    try:
        use_grammar()
    except LabError as error:
        pytest.skip(str(error))


KERNEL = """#line 1 "steps/a/kernel.cu"
__global__ void kernel(int rows) { // __syncthreads();
    for (int j0 = 0; j0 < N_kv; j0 += Bc) {
        flash::cp_async_wait<0>();
#line 8 "common/cuda/derived/part.hpp"
        __syncthreads(); // the tile is there
    }
#line 6 "steps/a/kernel.cu"
    flash::cp_async_16(to, from);
    if (lane == 0) barrier.arrive(1); // redundant: nobody waits
    const float sum = __shfl_xor_sync(~0u, l, 1);
}
"""


def test_mutants_of_a_kernel():
    found = list(mutations.mutants(KERNEL))
    assert [str(one) for one in found] == [
        "kernel.cu:3: flash::cp_async_wait<0>();",
        "part.hpp:8: __syncthreads(); // the tile is there",
        "kernel.cu:7: barrier.arrive(1); // redundant: nobody waits",
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
            file = rung.kernel_file
            if name != file.name:
                file = mutations.ROOT / "common/cuda/derived" / name
            assert one.text.splitlines()[0] in file.read_text().splitlines()[int(number) - 1]
