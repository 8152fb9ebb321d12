#include "steps/16_double_buffer/double_buffer.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/forward/forward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "double_buffer",
                             .fp32 = double_buffer::attention,
                             .head_dims = double_buffer::head_dims,
                             .backend = flash::device_backend,
                             .check = flash::reference::check},
                            argc, argv);
}
