#include "steps/47_backward_ordered/backward_ordered.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/backward/backward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "backward_ordered",
                             .fp16 = backward_ordered::attention_backward<flash::Half>,
                             .bf16 = backward_ordered::attention_backward<flash::Bfloat16>,
                             .head_dims = backward_ordered::head_dims,
                             .workspace_bytes = backward_ordered::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check_gradients,
                             .forward = flash::reference::forward},
                            argc, argv);
}
