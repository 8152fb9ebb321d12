#include "steps/24_backward_two_kernels/backward_two_kernels.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/gradients.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "24_backward_two_kernels",
                             .backward = {.fp16 = step24::attention_backward<flash::Half>,
                                          .bf16 = step24::attention_backward<flash::Bfloat16>},
                             .head_dims = step24::head_dims,
                             .workspace_bytes = step24::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check_gradients,
                             .forward = flash::reference::forward},
                            argc, argv);
}
