#include "steps/24_async_copy/async_copy.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "async_copy",
                             .fp16 = async_copy::attention<flash::Half>,
                             .bf16 = async_copy::attention<flash::Bfloat16>,
                             .head_dims = async_copy::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
