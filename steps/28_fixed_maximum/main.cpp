#include "steps/28_fixed_maximum/fixed_maximum.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "fixed_maximum",
                             .fp16 = fixed_maximum::attention<flash::Half>,
                             .bf16 = fixed_maximum::attention<flash::Bfloat16>,
                             .head_dims = fixed_maximum::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check,
                             .rounded_sums = true},
                            argc, argv);
}
