#include "steps/42_backward_two_kernels/backward_two_kernels.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/backward/backward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "backward_two_kernels",
                             .fp16 = backward_two_kernels::attention_backward<flash::Half>,
                             .bf16 = backward_two_kernels::attention_backward<flash::Bfloat16>,
                             .head_dims = backward_two_kernels::head_dims,
                             .workspace_bytes = backward_two_kernels::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check_gradients,
                             .forward = flash::reference::forward},
                            argc, argv);
}
