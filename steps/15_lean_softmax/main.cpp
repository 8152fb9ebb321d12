#include "steps/15_lean_softmax/lean_softmax.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "15_lean_softmax",
                             .fp16 = step15::attention<flash::Half>,
                             .bf16 = step15::attention<flash::Bfloat16>,
                             .head_dims = step15::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
