#include "steps/16_lazy_maximum/lazy_maximum.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "16_lazy_maximum",
                             .fp16 = step16::attention<flash::Half>,
                             .bf16 = step16::attention<flash::Bfloat16>,
                             .head_dims = step16::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
