#include "steps/21_mma_sync/mma_sync.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "mma_sync",
                             .fp16 = mma_sync::attention<flash::Half>,
                             .bf16 = mma_sync::attention<flash::Bfloat16>,
                             .head_dims = mma_sync::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
