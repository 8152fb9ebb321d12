#include "steps/46a_backward_three_roles/backward_three_roles.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/backward/backward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "backward_three_roles",
                             .fp16 = backward_three_roles::attention_backward<flash::Half>,
                             .bf16 = backward_three_roles::attention_backward<flash::Bfloat16>,
                             .head_dims = backward_three_roles::head_dims,
                             .workspace_bytes = backward_three_roles::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check_gradients,
                             .forward = flash::reference::forward,
                             .unordered_dQ = true},
                            argc, argv);
}
