#include "steps/13_fixed_maximum/fixed_maximum.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "13_fixed_maximum",
                             .fp16 = step13::attention<flash::Half>,
                             .bf16 = step13::attention<flash::Bfloat16>,
                             .head_dims = step13::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
