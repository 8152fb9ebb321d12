#include "steps/31_wgmma_tma/wgmma_tma.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "wgmma_tma",
                             .fp16 = wgmma_tma::attention<flash::Half>,
                             .bf16 = wgmma_tma::attention<flash::Bfloat16>,
                             .head_dims = wgmma_tma::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
