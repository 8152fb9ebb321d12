#include "steps/11_swizzle/swizzle.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "11_swizzle",
                             .fp16 = step11::attention<flash::Half>,
                             .bf16 = step11::attention<flash::Bfloat16>,
                             .head_dims = step11::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
