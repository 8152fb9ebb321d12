#include "steps/06_cuda_naive/cuda_naive.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "06_cuda_naive",
                             .fp32 = step06::attention,
                             .head_dims = step06::head_dims,
                             .workspace_bytes = step06::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
