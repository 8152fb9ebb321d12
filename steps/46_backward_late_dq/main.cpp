#include "steps/46_backward_late_dq/backward_late_dq.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/backward/backward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "backward_late_dq",
                             .fp16 = backward_late_dq::attention_backward<flash::Half>,
                             .bf16 = backward_late_dq::attention_backward<flash::Bfloat16>,
                             .head_dims = backward_late_dq::head_dims,
                             .workspace_bytes = backward_late_dq::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check_gradients,
                             .forward = flash::reference::forward,
                             .unordered_dQ = true},
                            argc, argv);
}
