#include "steps/22_swizzle/swizzle.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "swizzle",
                             .fp16 = swizzle::attention<flash::Half>,
                             .bf16 = swizzle::attention<flash::Bfloat16>,
                             .head_dims = swizzle::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
