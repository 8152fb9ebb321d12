#include "steps/32_warp_specialization/warp_specialization.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "warp_specialization",
                             .fp16 = warp_specialization::attention<flash::Half>,
                             .bf16 = warp_specialization::attention<flash::Bfloat16>,
                             .head_dims = warp_specialization::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
