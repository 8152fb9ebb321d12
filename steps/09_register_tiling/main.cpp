#include "steps/09_register_tiling/register_tiling.hpp"

#include "common/cuda/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "09_register_tiling",
                             .idea = "a micro-tile a thread: each number from shared memory is used many times",
                             .fp32 = step09::attention,
                             .head_dims = {32, 64, 128},
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
