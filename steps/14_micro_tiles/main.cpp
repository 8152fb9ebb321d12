#include "steps/14_micro_tiles/micro_tiles.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "micro_tiles",
                             .fp32 = micro_tiles::attention,
                             .head_dims = micro_tiles::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
