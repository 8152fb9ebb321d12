#include "steps/17_fixed_maximum/fixed_maximum.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "17_fixed_maximum",
                             .fp16 = step17::attention<flash::Half>,
                             .bf16 = step17::attention<flash::Bfloat16>,
                             .head_dims = step17::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
