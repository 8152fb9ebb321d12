#include "steps/11_swizzle/swizzle.hpp"

#include "common/cuda/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "11_swizzle",
                             .idea = "ldmatrix and an XOR swizzle: no bank conflict is left",
                             .fp16 = step11::attention<flash::Half>,
                             .bf16 = step11::attention<flash::Bfloat16>,
                             .head_dims = {32, 64, 128},
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
