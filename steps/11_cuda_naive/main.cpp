#include "steps/11_cuda_naive/cuda_naive.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "cuda_naive",
                             .fp32 = cuda_naive::attention,
                             .head_dims = cuda_naive::head_dims,
                             .workspace_bytes = cuda_naive::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
