#include "steps/25_block_order/block_order.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "block_order",
                             .fp16 = block_order::attention<flash::Half>,
                             .bf16 = block_order::attention<flash::Bfloat16>,
                             .head_dims = block_order::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
