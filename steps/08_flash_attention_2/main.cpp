#include "steps/08_flash_attention_2/flash_attention_2.hpp"

#include "common/cuda/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "08_flash_attention_2",
                             .idea = "loops swapped: a block a Q tile, O in registers until the end",
                             .fp32 = step08::attention,
                             .head_dims = {32, 64, 128},
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
