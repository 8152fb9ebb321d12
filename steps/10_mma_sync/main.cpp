#include "steps/10_mma_sync/mma_sync.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "10_mma_sync",
                             .fp16 = step10::attention<flash::Half>,
                             .bf16 = step10::attention<flash::Bfloat16>,
                             .head_dims = step10::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
