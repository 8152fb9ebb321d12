#include "steps/26_lean_softmax/lean_softmax.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "lean_softmax",
                             .fp16 = lean_softmax::attention<flash::Half>,
                             .bf16 = lean_softmax::attention<flash::Bfloat16>,
                             .head_dims = lean_softmax::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check,
                             .rounded_sums = true},
                            argc, argv);
}
