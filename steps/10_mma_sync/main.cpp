#include "steps/10_mma_sync/mma_sync.hpp"

#include "common/cuda/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "10_mma_sync",
                             .idea = "tensor cores: both products are mma.sync, and P stays in registers",
                             .fp16 = step10::attention<flash::Half>,
                             .bf16 = step10::attention<flash::Bfloat16>,
                             .head_dims = {32, 64, 128},
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
