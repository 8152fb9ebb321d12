#include "steps/23_warp_tiles/warp_tiles.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "warp_tiles",
                             .fp16 = warp_tiles::attention<flash::Half>,
                             .bf16 = warp_tiles::attention<flash::Bfloat16>,
                             .head_dims = warp_tiles::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
