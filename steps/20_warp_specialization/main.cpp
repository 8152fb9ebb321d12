#include "steps/20_warp_specialization/warp_specialization.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "20_warp_specialization",
                             .fp16 = step20::attention<flash::Half>,
                             .bf16 = step20::attention<flash::Bfloat16>,
                             .head_dims = step20::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
