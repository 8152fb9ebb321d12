#include "steps/14_block_order/block_order.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "14_block_order",
                             .fp16 = step14::attention<flash::Half>,
                             .bf16 = step14::attention<flash::Bfloat16>,
                             .head_dims = step14::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
