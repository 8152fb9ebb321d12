#include "steps/23_backward_two_kernels/backward_two_kernels.hpp"

#include "common/harness/device_backend.hpp"
#include "common/harness/rung.hpp"
#include "reference/gradients.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "23_backward_two_kernels",
                             .backward = {.fp16 = step23::attention_backward<flash::Half>,
                                          .bf16 = step23::attention_backward<flash::Bfloat16>},
                             .head_dims = step23::head_dims,
                             .workspace_bytes = step23::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check_gradients,
                             .forward = flash::reference::forward},
                            argc, argv);
}
