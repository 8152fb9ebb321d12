#include "steps/43_backward_one_kernel/backward_one_kernel.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/backward/backward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "backward_one_kernel",
                             .fp16 = backward_one_kernel::attention_backward<flash::Half>,
                             .bf16 = backward_one_kernel::attention_backward<flash::Bfloat16>,
                             .head_dims = backward_one_kernel::head_dims,
                             .workspace_bytes = backward_one_kernel::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check_gradients,
                             .forward = flash::reference::forward,
                             .unordered_dQ = true},
                            argc, argv);
}
