#include "steps/06_cuda_naive/cuda_naive.hpp"

#include "common/cuda/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "06_cuda_naive",
                             .idea = "a GPU, one thread an element; S and P go through its memory",
                             .fp32 = step06::attention,
                             .head_dims = {32, 64, 128},
                             .workspace_bytes = step06::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
