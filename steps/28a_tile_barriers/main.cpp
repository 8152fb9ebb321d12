#include "steps/28a_tile_barriers/tile_barriers.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "tile_barriers",
                             .fp16 = tile_barriers::attention<flash::Half>,
                             .bf16 = tile_barriers::attention<flash::Bfloat16>,
                             .head_dims = tile_barriers::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check,
                             .rounded_sums = true},
                            argc, argv);
}
