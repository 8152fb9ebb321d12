#include "steps/19_wgmma_tma/wgmma_tma.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "19_wgmma_tma",
                             .fp16 = step19::attention<flash::Half>,
                             .bf16 = step19::attention<flash::Bfloat16>,
                             .head_dims = step19::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
