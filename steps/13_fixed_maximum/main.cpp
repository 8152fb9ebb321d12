#include "steps/13_fixed_maximum/fixed_maximum.hpp"

#include "common/cuda/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main(
        {.name = "13_fixed_maximum",
         .idea = "the first tile's maximum serves all tiles: no branch, no shuffle, no wait between the products",
         .fp16 = step13::attention<flash::Half>,
         .bf16 = step13::attention<flash::Bfloat16>,
         .head_dims = {32, 64, 128},
         .backend = flash::device_backend,
         .check = flash::reference::check},
        argc, argv);
}
