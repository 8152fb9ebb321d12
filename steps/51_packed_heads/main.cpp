#include "steps/51_packed_heads/packed_heads.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "packed_heads",
                             .fp16 = packed_heads::attention<flash::Half>,
                             .bf16 = packed_heads::attention<flash::Bfloat16>,
                             .head_dims = packed_heads::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check,
                             .rounded_sums = true},
                            argc, argv);
}
