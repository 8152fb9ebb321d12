#include "steps/29_multistage/multistage.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "multistage",
                             .fp16 = multistage::attention<flash::Half>,
                             .bf16 = multistage::attention<flash::Bfloat16>,
                             .head_dims = multistage::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check,
                             .rounded_sums = true},
                            argc, argv);
}
