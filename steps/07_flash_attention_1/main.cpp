#include "steps/07_flash_attention_1/flash_attention_1.hpp"

#include "common/cuda/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "07_flash_attention_1",
                             .idea = "tiles in shared memory: S and P never leave the chip",
                             .fp32 = step07::attention,
                             .head_dims = {32, 64, 128},
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
