#include "steps/48_backward_window/backward_window.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/backward/backward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "backward_window",
                             .fp16 = backward_window::attention_backward<flash::Half>,
                             .bf16 = backward_window::attention_backward<flash::Bfloat16>,
                             .head_dims = backward_window::head_dims,
                             .workspace_bytes = backward_window::workspace_bytes,
                             .backend = flash::device_backend,
                             .window_and_sink = true,
                             .check = flash::reference::check_gradients,
                             .forward = flash::reference::forward,
                             .unordered_dQ = true},
                            argc, argv);
}
