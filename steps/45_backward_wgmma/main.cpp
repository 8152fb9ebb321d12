#include "steps/45_backward_wgmma/backward_wgmma.hpp"

#include "common/harness/backends/device_backend.hpp"
#include "common/harness/backward/backward.hpp"
#include "reference/check.hpp"

int main(int argc, char** argv) {
    return flash::rung_main({.name = "backward_wgmma",
                             .fp16 = backward_wgmma::attention_backward<flash::Half>,
                             .bf16 = backward_wgmma::attention_backward<flash::Bfloat16>,
                             .head_dims = backward_wgmma::head_dims,
                             .workspace_bytes = backward_wgmma::workspace_bytes,
                             .backend = flash::device_backend,
                             .check = flash::reference::check_gradients,
                             .forward = flash::reference::forward,
                             .unordered_dQ = true},
                            argc, argv);
}
