#include "steps/18_multistage/multistage.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "18_multistage",
                             .fp16 = step18::attention<flash::Half>,
                             .bf16 = step18::attention<flash::Bfloat16>,
                             .head_dims = step18::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
